"""Calls of ops to graphs: the recorder, declared graphs, control flow as nodes."""
