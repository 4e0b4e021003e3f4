"""Leaves with gradients."""

from __future__ import annotations

from typing import Any

import weft


def leaf(*values: float, dtype: Any = weft.float64) -> weft.Tensor:
    data = values[0] if len(values) == 1 else list(values)
    return weft.tensor(data, dtype=dtype, requires_grad=True)
