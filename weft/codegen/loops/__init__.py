"""Kernels of loop groups: elementwise ops and reductions in one nest of loops."""
