"""Compiled calls whose sizes change: the sample rows, one axis after another in other sizes.

A function is recorded with symbolic sizes in one call, and called with other sizes. Each call must
be what it is eagerly: results, gradients, or an error of the same class.
"""

from __future__ import annotations

import os
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from op_calls import flat, function
from samples.table import Row
from symbolic import arrays_in, mapped
from symbolic_rows import SIZE_ARGUMENTS, one_dtype, whole

import weft
from weft.base.dtypes import float_info

SIZES = (7, 0, 1, 2, 64)
#: With `WEFT_TEST_ALL=1` tests of sizes run in full, otherwise a sample of them.
ALL = bool(os.environ.get("WEFT_TEST_ALL"))


def chosen(one_in: int, *names: object) -> bool:
    """Whether a test is in the sample that always runs."""
    return ALL or zlib.crc32(repr(names).encode()) % one_in == 0


def resized(array: np.ndarray[Any, Any], old: int, new: int) -> np.ndarray[Any, Any]:
    """The array with each axis of the one size in the other, filled with its own elements, in their
    order: what is sorted remains so."""
    for axis, size in enumerate(array.shape):
        if size == old:
            array = np.take(array, np.arange(new) * size // max(new, 1), axis=axis)
    return array


def variants(row: Row, args: tuple[Any, ...], kwargs: Any) -> Iterator[tuple[int, int]]:
    """Which sizes of a sample become which."""
    arrays = arrays_in((args, kwargs))
    for old in sorted({size for array in arrays for size in array.shape if size > 1}):
        squares = any(array.shape.count(old) > 1 for array in arrays)
        for new in SIZES:
            if new != old and (ALL or new < 64 or not squares):
                yield old, new


def changed(row: Row, args: Any, kwargs: Any, old: int, new: int) -> tuple[list[Any], Any]:
    def array(leaf: Any) -> Any:
        return resized(leaf, old, new) if isinstance(leaf, np.ndarray) else leaf

    out = list(mapped(args, array))
    for position in SIZE_ARGUMENTS.get(row.name, ()):
        if position < len(out):
            out[position] = mapped(
                out[position], lambda leaf: new if whole(leaf) and leaf == old else leaf
            )
    return out, mapped(kwargs, array)


def run(call: Callable[..., Any], args: Any, kwargs: Any, held: Sequence[weft.Tensor] = ()) -> Any:
    """Results and gradients as arrays; or the class of the error.

    `held` are tensors of the function: their gradients and new values belong to the results.
    """
    made: list[weft.Tensor] = []

    def tensor(leaf: Any) -> Any:
        if not isinstance(leaf, np.ndarray):
            return leaf
        found = weft.asarray(leaf.copy())
        if found.dtype.kind in ("float", "complex"):
            found.requires_grad = True
        made.append(found)
        return found

    weft.manual_seed(0)
    for x in held:
        x.grad = None
    given, named = mapped(args, tensor), mapped(kwargs, tensor)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            results = flat(call(*given, **named))
            learned = [y for y in results if isinstance(y, weft.Tensor) and y.requires_grad]
            if learned:
                total = sum((abs(y).sum() for y in learned), weft.asarray(0.0))
                total.backward()
    except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
        return type(error)
    grads = [x.grad for x in (*made, *held)]
    found = (*results, *grads, *held)
    return [x.detach().numpy(copy=True) if isinstance(x, weft.Tensor) else x for x in found]


def difference(got: Any, want: Any) -> str:
    """Empty where both are the same but for rounding."""
    if isinstance(got, type) or isinstance(want, type):
        both = isinstance(got, type) and isinstance(want, type)
        return "" if both else f"{got!r:.200} instead of {want!r:.200}"
    if len(got) != len(want):
        return f"{len(got)} results instead of {len(want)}"
    for i, (a, b) in enumerate(zip(got, want, strict=True)):
        if type(a) is not type(b):
            if b is None and isinstance(a, np.ndarray) and not np.any(a):
                continue  # a loop that did not run gives zeros
            return f"result {i} is {a!r:.80} instead of {b!r:.80}"
        if not isinstance(a, np.ndarray):
            if a is not None and a != b:
                return f"result {i} is {a!r:.80} instead of {b!r:.80}"
            continue
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"result {i} is {a.dtype}{a.shape} instead of {b.dtype}{b.shape}"
        wide = np.complex128 if a.dtype.kind == "c" else np.float64
        eps = 1e4 * float_info(weft.asarray(b).dtype).eps if a.dtype.kind in "fc" else 0
        if not np.allclose(a.astype(wide), b.astype(wide), rtol=eps, atol=eps, equal_nan=True):
            return f"result {i} is {a!r:.200} instead of {b!r:.200}"
    return ""


@dataclass
class Outcome:
    """What became of the samples of a row."""

    calls: int = 0
    differences: list[str] = field(default_factory=list)
    recordings: list[Any] = field(default_factory=list)  # of the compiled functions, with calls
    failures: list[str] = field(default_factory=list)


def outcome(row: Row, samples: int | None = None, backend: str = "interpret") -> Outcome:
    """`samples`: how many are run at most, of those that have sizes."""
    found = Outcome()
    call = function(row.name)
    every = row.samples(one_dtype(row))
    sized = [s for s in every if next(variants(row, s.args, s.kwargs), None) is not None]
    for sample in sized[:samples]:
        compiled: dict[int, Any] = {}
        for old, new in variants(row, sample.args, sample.kwargs):
            if old not in compiled:
                made = compiled[old] = weft.compile(
                    lambda *args, **kwargs: call(*args, **kwargs), backend=backend, dynamic="auto"
                )
                run(made, sample.args, sample.kwargs)
            args, kwargs = changed(row, sample.args, sample.kwargs, old, new)
            want = run(call, args, kwargs)
            got = run(compiled[old], args, kwargs)
            found.calls += 1
            said = difference(got, want)
            if said:
                shapes = [a.shape for a in arrays_in((args, kwargs))]
                found.differences.append(f"{row.name} {old} -> {new} {shapes} {kwargs}: {said}")
        for made in compiled.values():
            found.recordings.append(made)
            if made._sizes.failure:
                found.failures.append(made._sizes.failure)
    return found
