"""`torch.signal`."""

from weft.torch.signal import windows as windows
