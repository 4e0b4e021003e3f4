"""`torch.nn.utils.parametrizations`."""

# ruff: noqa: F403 - it only exports

from weft.nn.utils.parametrizations import *
