"""`torch.nn.utils`."""

# ruff: noqa: F403 - it only exports

from weft.nn.utils import *
from weft.torch.nn.utils import parametrizations as parametrizations  # type: ignore[no-redef]
from weft.torch.nn.utils import parametrize as parametrize  # type: ignore[no-redef]
from weft.torch.nn.utils import rnn as rnn  # type: ignore[no-redef]
