"""`torch.optim`: Weft's optimizers."""

# ruff: noqa: F403 - it only exports

from weft.optim import *
from weft.torch.optim import lr_scheduler as lr_scheduler  # type: ignore[no-redef]
from weft.torch.optim import swa_utils as swa_utils  # type: ignore[no-redef]
