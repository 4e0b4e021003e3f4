"""`torch.optim`: Weft's optimizers."""

from weft.optim import *
from weft.torch.optim import lr_scheduler as lr_scheduler
