"""`torch.special`: Weft's functions of that namespace, and names that only PyTorch has."""

# ruff: noqa: F403 - it only exports

from __future__ import annotations

import math
from typing import Any

from weft.ops.special_functions import *
from weft.ops.special_functions import i0 as modified_bessel_i0
from weft.ops.special_functions import i1 as modified_bessel_i1
from weft.ops.special_functions import sinc as _sinc

__all__ = ["modified_bessel_i0", "modified_bessel_i1", "spherical_bessel_j0"]


def spherical_bessel_j0(input: Any) -> Any:
    """sin(x) / x."""
    return _sinc(input * (1 / math.pi))
