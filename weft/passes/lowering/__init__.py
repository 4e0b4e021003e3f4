"""The last passes, only for graphs that become kernels."""
