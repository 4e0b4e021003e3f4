"""How exactly float32 products are computed where a device has something faster: on GPUs.

    "highest"   in float32
    "high"      operands may be rounded to TF32 (11 bits of mantissa), sums are float32
    "medium"    the same

The names are PyTorch's. They also hold for convolutions.
"""

from __future__ import annotations

from weft.base.errors import RangeError

__all__ = ["get_float32_matmul_precision", "set_float32_matmul_precision"]

_KNOWN = ("highest", "high", "medium")


class _Chosen:
    precision = "highest"


def set_float32_matmul_precision(precision: str) -> None:
    """Let products of float32 be exact ("highest", the default) or faster ("high", "medium").

    It only matters on GPUs, where "high" and "medium" use TF32: operands are rounded to 11 bits.
    Compiled functions obey it from their next call on.

    >>> import weft
    >>> weft.set_float32_matmul_precision("high")
    >>> weft.get_float32_matmul_precision()
    'high'
    >>> weft.set_float32_matmul_precision("highest")
    """
    if precision not in _KNOWN:
        known = ", ".join(f'"{name}"' for name in _KNOWN)
        raise RangeError(
            f"the precision is {precision!r}", op="set_float32_matmul_precision", hint=known
        )
    _Chosen.precision = precision


def get_float32_matmul_precision() -> str:
    """What `set_float32_matmul_precision` has set."""
    return _Chosen.precision


def rounds_to_tf32() -> bool:
    return _Chosen.precision != "highest"
