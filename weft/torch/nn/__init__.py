"""`torch.nn`: Weft's modules, whose parameters are tensors of `weft.torch`."""

# ruff: noqa: F403 - it only exports

from weft.torch.nn import functional as functional
from weft.torch.nn import init as init
from weft.torch.nn import utils as utils
from weft.torch.nn.modules import *
from weft.torch.nn.parameter import Parameter as Parameter
