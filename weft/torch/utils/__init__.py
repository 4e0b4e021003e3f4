"""`torch.utils`."""

from weft.torch.utils import checkpoint as checkpoint
from weft.torch.utils import data as data
