"""The sample rows with names in place of sizes: what each function gives."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from op_calls import flat, function
from samples.table import Row
from symbolic import (
    Concolic,
    OpCall,
    arrays_in,
    close,
    is_symbolic,
    mapped,
    symbolic,
    tensors,
)

import weft
from weft.core.bind import recording
from weft.errors import ShapeError

# --- sizes as names ----------------------------------------------------------------------------

#: Positions of arguments that are shapes or sizes: they are replaced along with those of tensors.
SIZE_ARGUMENTS: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("zeros", "ones", "empty", "full"), (0,)),
    **dict.fromkeys(("reshape", "broadcast_to", "tile", "repeat"), (1,)),
    "eye": (0, 1),
    "arange": (0, 1),
    "linspace": (2,),
    **dict.fromkeys(("fft.fftfreq", "fft.rfftfreq"), (0,)),
}


def whole(value: Any) -> bool:
    return type(value) is int and value > 1


def variants(row: Row, args: tuple[Any, ...], kwargs: Any) -> list[dict[int, Any]]:
    """Which sizes are replaced by which names: each alone, then all."""
    found: set[int] = set()
    for array in arrays_in((args, kwargs)):
        found |= {size for size in array.shape if size > 1}
    for position in SIZE_ARGUMENTS.get(row.name, ()):
        if position < len(args):
            mapped(args[position], lambda leaf: found.add(leaf) if whole(leaf) else None)
    named = {size: weft.dim(f"D{size}") for size in sorted(found)}
    alone = [{size: name} for size, name in named.items()]
    return [*alone, named] if len(named) > 1 else alone


def replaced(row: Row, args: tuple[Any, ...], kwargs: Any, names: dict[int, Any]) -> Any:
    """The arguments as tensors, with sizes replaced by names."""

    def tensor(leaf: Any) -> Any:
        if not isinstance(leaf, np.ndarray):
            return leaf
        return symbolic(weft.asarray(leaf), tuple(names.get(size, size) for size in leaf.shape))

    changed = list(mapped(args, tensor))
    for position in SIZE_ARGUMENTS.get(row.name, ()):
        if position < len(changed):
            changed[position] = mapped(
                changed[position], lambda leaf: names.get(leaf, leaf) if whole(leaf) else leaf
            )
    return changed, mapped(kwargs, tensor)


def one_dtype(row: Row) -> Any:
    dtypes = row.dtypes()
    return next((d for d in dtypes if d.name in ("float64", "complex128")), dtypes[0])


# --- functions ---------------------------------------------------------------------------------

UNSHOWN = "products of unknown sizes that only happen to be equal"
UNKNOWN_COUNT = "how many tensors there are is not known"
#: Functions that are a clear error for some symbolic sizes, and why.
AMBIGUOUS: dict[str, str] = {
    "reshape": UNSHOWN,
    "unflatten": UNSHOWN,
    "narrow": UNSHOWN,
    "unstack": UNKNOWN_COUNT,
    "split": UNKNOWN_COUNT,
    "chunk": UNKNOWN_COUNT,
    **dict.fromkeys(("tensor_split", "hsplit", "vsplit", "dsplit", "pdist"), UNKNOWN_COUNT),
    "view_as_complex": "its last axis has 2 elements: no other size will do",
    "arange": "steps of a fraction up to a size that is not known",
    "linalg.tensorinv": UNSHOWN,
    "linalg.tensorsolve": UNSHOWN,
    "linalg.householder_product": UNKNOWN_COUNT,
    **dict.fromkeys(("stft", "istft"), "which samples are in which piece is a table of numbers"),
    "linalg.lstsq": "only tall matrices have residuals",
    "linalg.cross": "its vectors have 3 elements: no other size will do",
    **dict.fromkeys(
        ("scatter", "scatter_add", "scatter_reduce"), "src may be larger than index, or smaller"
    ),
    **dict.fromkeys(
        ("put", "slice_scatter", "diagonal_scatter"), "the sizes of x and src only happen to fit"
    ),
}


@dataclass
class Outcome:
    """What became of a function's samples."""

    passed: int = 0
    refused: list[str] = field(default_factory=list)
    calls: list[tuple[Concolic, OpCall]] = field(default_factory=list)


@lru_cache
def outcome(row: Row) -> Outcome:
    found = Outcome()
    call = function(row.name)
    for sample in row.samples(one_dtype(row)):
        for names in variants(row, sample.args, sample.kwargs):
            recorder = Concolic({str(name): size for size, name in names.items()})
            args, kwargs = replaced(row, sample.args, sample.kwargs, names)
            try:
                with recording(recorder):
                    got = call(*args, **kwargs)
            except ShapeError as error:
                found.refused.append(f"{sample.args} {names}: {error}")
                continue
            want = call(*tensors(sample.args), **tensors(sample.kwargs))
            for mine, theirs in zip(flat(got), flat(want), strict=True):
                close(mine, theirs)
            found.passed += 1
            found.calls += [(recorder, seen) for seen in recorder.calls if is_symbolic(seen)]
    return found


#: Ops whose derivative is a clear error for some symbolic sizes, and why.
AMBIGUOUS_DERIVATIVES = {
    "qr": "of tall and of wide matrices it is computed in different ways",
    "lu_factor": "of tall and of wide matrices it is computed in different ways",
    "svd": "with full_matrices, vectors beyond the singular values have none",
}
