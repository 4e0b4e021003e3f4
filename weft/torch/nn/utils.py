"""`torch.nn.utils`."""

from weft.nn.utils import *
