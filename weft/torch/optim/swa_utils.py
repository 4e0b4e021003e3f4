"""`torch.optim.swa_utils`."""

# ruff: noqa: F403 - it only exports

from weft.optim.swa_utils import *
