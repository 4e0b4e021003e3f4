"""Fourier transforms: the Array API's `fft` extension."""

from weft.ops.fft import *
from weft.ops.fft import __all__ as __all__
from weft.ops.fft import __dir__ as __dir__
