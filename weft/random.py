"""Random numbers of many distributions."""

from weft.ops.random_functions import *
from weft.ops.random_functions import __all__ as __all__
from weft.ops.random_functions import __dir__ as __dir__
