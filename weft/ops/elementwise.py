"""Elementwise ops: out[i] depends on the inputs' [i] only, and inputs broadcast.

The cards stand in `arithmetic`, `transcendental` and `comparison`; this module only exports them.
Numerics that hold in every mode:

- NaN propagates through arithmetic, `maximum`, `minimum` and `clip`; 1/0 is inf, without warnings.
- Integers wrap. Integer `//` and `%` by zero give 0; INT_MIN // -1 wraps to INT_MIN.
- An integer to a negative power is the exact power rounded towards zero (2 ** -1 is 0; 0 ** -1
  is 0). Shifts by the width or more give 0 (-1 for `>>` of a negative number).
- float16 and bfloat16 are computed in float32 and rounded once.
- Integers and bools become the default floating dtype where a function is only defined for floats.
"""

from weft.ops.arithmetic import *
from weft.ops.comparison import *
from weft.ops.transcendental import *
