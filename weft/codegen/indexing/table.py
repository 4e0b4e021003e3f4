"""Which emitter a card has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.codegen.indexing import classes, counted, creation, joining, limits, read, write

__all__ = ["EMITTERS"]

#: By the name of the card: (module, name, node) -> kernels, or None where there are none.
EMITTERS: dict[str, Callable[..., Any]] = {
    "add_at": write.combining("add"),
    "arange": creation.arange,
    "choice_weights": limits.choice_weights,
    "concat": joining.concat,
    "embedding": read.embedding,
    "eye": creation.eye,
    "fits_int64": limits.fits_int64,
    "python_defined": limits.python_defined,
    "full": creation.full,
    "gather": read.gather,
    "maximum_at": write.combining("maximum"),
    "minimum_at": write.combining("minimum"),
    "multiply_at": write.combining("multiply"),
    "nll": classes.nll,
    "nonzero": counted.nonzero,
    "repeat": counted.repeat,
    "row_sums": write.row_sums,
    "scatter_add": write.scatter_add,
    "setitem": write.setitem,
    "take": read.take,
    "take_along_axis": read.take_along_axis,
}
