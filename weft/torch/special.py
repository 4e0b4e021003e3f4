"""`torch.special`: Weft's functions of that namespace."""

from weft.ops.special_functions import *  # noqa: F403
