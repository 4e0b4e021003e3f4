"""`torch.nn.utils`."""

# ruff: noqa: F403 - it only exports

from weft.nn.utils import *
