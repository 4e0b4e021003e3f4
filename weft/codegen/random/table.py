"""Which emitter a card has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.codegen.random import coins, draws, normal

__all__ = ["EMITTERS"]

#: By the name of the card: (module, name, node) -> kernels, or None where there are none.
EMITTERS: dict[str, Callable[..., Any]] = {
    "random_advance": draws.advance,
    "random_bernoulli": coins.bernoulli,
    "random_bits": draws.bits,
    "random_integers": draws.integers,
    "random_normal": normal.normal,
    "random_uniform": draws.uniform,
}
