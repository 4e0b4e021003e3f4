"""Graphs as kernels: what is fused, in what order, and where it lies in memory."""
