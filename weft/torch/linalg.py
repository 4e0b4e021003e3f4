"""`torch.linalg`: Weft's functions of that namespace."""

from weft.ops.linalg import *  # noqa: F403
