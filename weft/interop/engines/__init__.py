"""Engines that run segments of a graph: ONNX Runtime and OpenVINO."""
