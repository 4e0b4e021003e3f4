"""`torch.nn.utils.rnn`."""

# ruff: noqa: F403 - it only exports

from weft.nn.utils.rnn import *
