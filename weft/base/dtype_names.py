"""PyTorch's short names of dtypes. In a module of their own: some are names of Python's classes."""

from weft.base import dtypes

__all__ = ["cdouble", "cfloat", "double", "float", "half", "int", "long", "short"]

half, float, double = dtypes.float16, dtypes.float32, dtypes.float64
short, int, long = dtypes.int16, dtypes.int32, dtypes.int64
cfloat, cdouble = dtypes.complex64, dtypes.complex128
