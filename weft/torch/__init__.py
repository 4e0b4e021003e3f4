"""PyTorch's names and meanings over Weft, for programs that should run unchanged.

`import weft.torch as torch`, `import weft.torch.nn as nn`: see docs/coming_from_torch.md.
"""

# ruff: noqa: F403 - it only exports

from weft.base.device import Device as Device
from weft.base.dtypes import DType as DType
from weft.torch import autograd as autograd
from weft.torch import func as func
from weft.torch import nn as nn
from weft.torch import optim as optim
from weft.torch import utils as utils
from weft.torch.creation import *
from weft.torch.environment import *
from weft.torch.func import vmap as vmap
from weft.torch.names import *
from weft.torch.reductions import *
from weft.torch.serialization import *
from weft.torch.shapes import *
from weft.torch.tensor import *

dtype = DType
