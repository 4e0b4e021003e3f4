"""Which emitter a card has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.codegen.sorting import extremes, ranks, running, search, sort

__all__ = ["EMITTERS"]

#: By the name of the card: (module, name, node) -> kernels, or None where there are none.
EMITTERS: dict[str, Callable[..., Any]] = {
    "argmax": extremes.argmax,
    "argmin": extremes.argmin,
    "argsort": sort.argsort,
    "ranked": ranks.ranked,
    "running_argmax": running.running_argmax,
    "searchsorted": search.searchsorted,
    "sort": sort.sort,
}
