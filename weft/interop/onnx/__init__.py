"""Graphs as ONNX models: rows op by op, and the front door `weft.onnx.export`."""
