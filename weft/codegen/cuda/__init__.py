"""NVIDIA GPUs as a target: loop groups as PTX, products by cuBLAS."""
