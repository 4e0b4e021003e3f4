"""Tensors on NVIDIA GPUs: CuPy's arrays as a family of arrays, and what `weft.cuda` offers."""
