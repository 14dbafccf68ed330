"""What runs the network: numba, torch, ONNX Runtime, OpenVINO, TensorRT."""
