"""Keypoints and descriptors: extractors by name, ONNX models, stored features."""
