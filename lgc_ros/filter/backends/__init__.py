"""Backends that run the network: torch, ONNX Runtime with TensorRT, OpenVINO.

`engines.make_engine` builds one by name, or the fastest that is installed; each lives in a
`*_backend` module. `devices` parses device names. `onnx_export` writes the network as ONNX, which
ONNX Runtime and OpenVINO read.
"""
