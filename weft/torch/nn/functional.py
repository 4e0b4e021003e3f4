"""`torch.nn.functional`: Weft's functions, which have PyTorch's names and meanings."""

# ruff: noqa: F403 - it only exports

from weft.nn.functional import *
