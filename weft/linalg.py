"""Linear algebra: the Array API's `linalg` extension."""

from weft.ops.linalg import *
from weft.ops.linalg import __all__ as __all__
from weft.ops.linalg import __dir__ as __dir__
