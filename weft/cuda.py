"""NVIDIA GPUs: what is there, its memory, streams and events. Tensors on them: `x.to("cuda")`."""

from weft.runtime.cuda.api import *
from weft.runtime.cuda.api import __all__ as __all__
