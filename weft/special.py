"""Special functions: of gamma, of the normal distribution, of Bessel."""

from weft.ops.special_functions import *
from weft.ops.special_functions import __all__ as __all__
from weft.ops.special_functions import __dir__ as __dir__
