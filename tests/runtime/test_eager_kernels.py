"""Eager calls by machine code, here for arrays of all sizes, against NumPy's evaluation of cards.

By default some samples and dtypes of each card; under WEFT_TEST_ALL=1 all, in all layouts.
"""

from __future__ import annotations

import contextlib
import os
import random
import sys
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from derivative_calls import FLOATS
from graph_cases import CASES
from op_calls import flat, function, tensors
from samples.table import Row, Sample

import weft
from weft.base.dtypes import DType, float_info
from weft.core.large import large

ALL = bool(os.environ.get("WEFT_TEST_ALL"))
LAYOUTS = ("plain", "negative strides", "transposed", "every second")


@contextlib.contextmanager
def large_from(start: int) -> Iterator[None]:
    before, large.start = large.start, start
    try:
        yield
    finally:
        large.start = before


def near(got: Any, want: Any, dtype: DType) -> None:
    """Equal to rounding, in the precision of the operands; exact kinds are equal. Derivatives may
    be small differences of large terms, as that of `special.i1e`."""
    assert got.type == want.type
    a, b = got.numpy(), want.numpy()
    if a.tobytes() == b.tobytes():
        return
    assert a.dtype.kind not in "biu", f"{a} for {b}"
    eps = max(float_info(x).eps for x in (dtype, got.dtype) if x.kind in FLOATS)
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    a, b = a.astype(wide), b.astype(wide)
    scale = np.abs(b[np.isfinite(b)]).max(initial=0.0)
    np.testing.assert_allclose(a, b, rtol=64 * eps, atol=max(8, b.size) * eps * scale)


def chosen(row: Row, dtype: DType, count: int) -> list[Sample]:
    samples = list(row.samples(dtype))
    if ALL:
        return samples
    return random.Random(f"{row.name} {dtype.name}").sample(samples, min(count, len(samples)))


def results(row: Row, sample: Sample, layout: str, start: int) -> tuple[list[Any], list[Any]]:
    """The results of a call, and the gradients of a weighted sum of those."""
    args, kwargs = tensors(sample.args, layout), tensors(sample.kwargs, layout)
    leaves = [x for x in flat((args, kwargs)) if x.dtype.kind in FLOATS]
    for leaf in leaves:
        leaf.requires_grad = True
    rng = np.random.default_rng(0)
    with large_from(start):
        out = flat(function(row.name)(*args, **kwargs))
        graded = [x for x in out if x.requires_grad]
        if not graded:
            return out, []
        weights = [weft.asarray(rng.uniform(0.5, 1.5, x.shape), dtype=x.dtype) for x in graded]
        try:
            found = weft.autograd.grad(graded, leaves, weights, allow_unused=True)
        except weft.errors.GradientError as error:
            return [x.detach() for x in out], [weft.asarray(len(error.message))]
    return [x.detach() for x in out], [x for x in found if x is not None]


def some(cases: list[Any]) -> list[Any]:
    """float32, and one in three of the other dtypes of each row."""
    if ALL:
        return cases
    names = [str(case.id) for case in cases]
    chosen = {n for n in names if n.endswith("float32") or zlib.crc32(n.encode()) % 3 == 0}
    return [case for case in cases if case.id in chosen]


@pytest.mark.parametrize(("row", "dtype"), some(CASES))
def test_as_numpy(row: Row, dtype: DType) -> None:
    for sample in chosen(row, dtype, 2):
        layouts = LAYOUTS if ALL else (random.Random(str(sample)[:80]).choice(LAYOUTS),)
        for layout in layouts:
            want = results(row, sample, layout, sys.maxsize)
            got = results(row, sample, layout, 0)
            for mine, theirs in zip(got, want, strict=True):
                assert len(mine) == len(theirs)
                for a, b in zip(mine, theirs, strict=True):
                    near(a, b, dtype)
