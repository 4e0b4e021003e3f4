"""How Weft's tests of PyTorch's samples (`op_db_calls`) call ops, and which are not covered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

#: Ops whose samples are not calls of a function or method of the same name.
ADAPTED: dict[str, Callable[..., Any]] = {}
#: Ops that are not covered, by reason.
NOT_COVERED: dict[str, tuple[str, ...]] = {}
