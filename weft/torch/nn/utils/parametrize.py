"""`torch.nn.utils.parametrize`."""

# ruff: noqa: F403 - it only exports

from weft.nn.utils.parametrize import *
