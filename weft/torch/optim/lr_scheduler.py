"""`torch.optim.lr_scheduler`."""

from weft.optim.lr_scheduler import *
