"""Which emitter a card has: that of small matrices, else LAPACK's."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from weft.codegen.kernel import Kernel
from weft.codegen.linalg import large, small
from weft.codegen.text import Module
from weft.ir.graph import Node

__all__ = ["EMITTERS"]


def _emit(card: str, module: Module, name: str, node: Node) -> list[Kernel] | None:
    for emitters in (small.EMITTERS, large.EMITTERS):
        emit = emitters.get(card)
        found: list[Kernel] | None = emit(module, name, node) if emit else None
        if found is not None:
            return found
    return None


#: By the name of the card: (module, name, node) -> kernels, or None where there are none.
EMITTERS: dict[str, Callable[..., Any]] = {
    card: functools.partial(_emit, card) for card in sorted({*small.EMITTERS, *large.EMITTERS})
}
