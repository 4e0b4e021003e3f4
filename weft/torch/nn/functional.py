"""`torch.nn.functional`: Weft's functions, which have PyTorch's names and meanings."""

from weft.nn.functional import *
