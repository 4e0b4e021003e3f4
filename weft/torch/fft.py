"""`torch.fft`: Weft's functions of that namespace."""

from weft.ops.fft import *  # noqa: F403
