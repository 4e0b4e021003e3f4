"""`torch.nn`: Weft's modules, whose parameters are tensors of `weft.torch`."""

# ruff: noqa: F403 - it only exports

from weft.base.lazy import lazily as _lazily
from weft.torch.nn import functional as functional
from weft.torch.nn import init as init
from weft.torch.nn import utils as utils
from weft.torch.nn.modules import *
from weft.torch.nn.parameter import Parameter as Parameter

#: All other names are there already; type checkers take any.
__getattr__, __dir__ = _lazily(__name__, {})
