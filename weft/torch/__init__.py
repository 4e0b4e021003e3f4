"""PyTorch's names and meanings over Weft, for programs that should run unchanged.

`import weft.torch as torch`, `import weft.torch.nn as nn`: see docs/coming_from_torch.md.
"""

# ruff: noqa: F403 - it only exports

from math import e as e
from math import inf as inf
from math import nan as nan
from math import pi as pi

from weft.base.device import Device as Device
from weft.base.dtypes import DType as DType
from weft.base.dtypes import get_default_dtype as get_default_dtype
from weft.base.dtypes import set_default_dtype as set_default_dtype
from weft.base.lazy import lazily as _lazily
from weft.core.grad_mode import *
from weft.ops.dtype_functions import can_cast as can_cast
from weft.ops.dtype_functions import finfo as finfo
from weft.ops.dtype_functions import iinfo as iinfo
from weft.ops.dtype_functions import result_type as result_type
from weft.ops.generator import manual_seed as manual_seed
from weft.ops.generator import set_rng_state as set_rng_state
from weft.torch import amp as amp
from weft.torch import autograd as autograd
from weft.torch import distributions as distributions
from weft.torch import fft as fft
from weft.torch import func as func
from weft.torch import linalg as linalg
from weft.torch import nn as nn
from weft.torch import optim as optim
from weft.torch import signal as signal
from weft.torch import special as special
from weft.torch import utils as utils
from weft.torch.amp import *
from weft.torch.arguments import *
from weft.torch.creation import *
from weft.torch.environment import *
from weft.torch.func import vmap as vmap
from weft.torch.names import *
from weft.torch.programs import *
from weft.torch.reductions import *
from weft.torch.serialization import *
from weft.torch.shapes import *
from weft.torch.tensor import *
from weft.torch.tensor import PublicTensor as PublicTensor
from weft.torch.writes import *

#: Of the PyTorch whose names and meanings these are.
__version__ = "2.13.0+weft"
Tensor = PublicTensor
dtype = DType
newaxis = None

__getattr__, __dir__ = _lazily(
    __name__,
    {
        "get_num_threads": "weft.runtime.threads",
        "set_num_threads": "weft.runtime.threads",
    },
)
