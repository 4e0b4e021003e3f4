"""`torch.optim.lr_scheduler`."""

# ruff: noqa: F403 - it only exports

from weft.optim.lr_scheduler import *
