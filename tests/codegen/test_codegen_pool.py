"""Kernels of pooling: each card against its own evaluation on NumPy arrays."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from emitted import Case, build_cases, check_case, eager, narrower

from weft.base import dtypes
from weft.codegen.machine import host
from weft.codegen.pool import EMITTERS

# sizes before the axes, sizes, kernel, stride, padding, dilation
WINDOWS: dict[str, tuple[Any, ...]] = {
    "2x2": ((2, 3), (8, 10), (2, 2), (2, 2), ((0, 0), (0, 0)), (1, 1)),
    "2x2 odd": ((2, 3), (9, 37), (2, 2), (2, 2), ((0, 0), (0, 0)), (1, 1)),
    "2x2 wide": ((1, 2), (4, 80), (2, 2), (2, 2), ((0, 0), (0, 0)), (1, 1)),
    "3x3 by 2": ((2, 3), (11, 13), (3, 3), (2, 2), ((1, 1), (1, 1)), (1, 1)),
    "3x3 by 1": ((1, 20), (7, 19), (3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1)),
    "one axis": ((2, 2), (50,), (4,), (2,), ((2, 1),), (1,)),
    "one axis by 1": ((3,), (40,), (2,), (1,), ((0, 0),), (1,)),
    "no axes before": ((), (6, 6), (2, 3), (1, 2), ((0, 0), (1, 0)), (1, 1)),
    "dilated": ((1, 2), (12, 20), (3, 2), (2, 1), ((1, 2), (0, 0)), (2, 3)),
    "by 3": ((2, 2), (10, 40), (2, 3), (3, 3), ((0, 0), (0, 0)), (1, 1)),
    "by 3, overlapping": ((2, 2), (10, 40), (2, 5), (1, 3), ((0, 0), (2, 2)), (1, 1)),
    "gaps": ((2, 2), (10, 21), (1, 2), (3, 4), ((0, 0), (1, 0)), (1, 1)),
    "long gaps": ((2, 2), (3, 43), (1, 4), (1, 6), ((0, 0), (2, 3)), (1, 1)),
    "whole": ((3, 5), (7, 7), (7, 7), (7, 7), ((0, 0), (0, 0)), (1, 1)),
    "whole, large": ((1, 2), (40, 41), (40, 41), (40, 41), ((0, 0), (0, 0)), (1, 1)),
    "long": ((2, 2), (4, 100), (2, 33), (2, 33), ((0, 0), (0, 0)), (1, 1)),
    "long taps by 1": ((1, 2), (3, 60), (1, 20), (1, 1), ((0, 0), (3, 4)), (1, 1)),
    "three axes": ((2, 2), (4, 6, 9), (2, 2, 2), (2, 1, 2), ((0, 0), (1, 0), (0, 1)), (1, 1, 1)),
    "one element": ((1, 1), (1, 1), (1, 1), (1, 1), ((0, 0), (0, 0)), (1, 1)),
    "nothing pooled": ((2, 2), (5, 5), (1, 1), (1, 1), ((0, 0), (0, 0)), (1, 1)),
    "pairs of a row": ((2, 3), (75,), (2,), (2,), ((0, 0),), (1,)),
    "pairs in three rows": ((2, 9), (11, 70), (3, 2), (3, 2), ((0, 0), (0, 0)), (1, 1)),
    "pairs and padding": ((2, 3), (5, 71), (2, 2), (2, 2), ((0, 1), (0, 1)), (1, 1)),
    "pairs, some left out": ((2, 3), (7, 75), (2, 2), (2, 2), ((0, -2), (0, -4)), (1, 1)),
    "skipped": ((2, 2), (9, 21), (2, 2), (2, 2), ((-1, 0), (-3, -1)), (1, 1)),
    "one lane left": ((2, 2), (5, 17), (3, 3), (2, 2), ((1, 1), (1, 1)), (1, 1)),
    "only padding": ((2,), (4, 9), (2, 2), (2, 2), ((3, 2), (4, 4)), (1, 1)),
    "dilated into the padding": ((3,), (2, 5), (2, 1), (1, 2), ((0, 2), (1, 1)), (3, 1)),
    "large plane": ((1, 1), (200, 190), (2, 2), (1, 1), ((0, 0), (0, 0)), (1, 1)),
}
DTYPES = ["float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "uint16", "int64"]


def _values(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Any:
    """Few different values, so that there are ties."""
    kind = dtypes.as_dtype(dtype)
    if kind.kind == "float":
        return (rng.integers(-6, 7, shape) / 4).astype(kind.numpy)
    low, high = (0, 250) if kind.kind == "uint" else (-120, 120)
    return rng.integers(low, high, shape).astype(kind.numpy)


def _cases(label: str, dtype: str) -> list[Case]:
    before, sizes, kernel, stride, padding, dilation = WINDOWS[label]
    rng = np.random.default_rng(len(label))
    attrs = {"kernel": kernel, "stride": stride, "padding": padding}
    dilated = {**attrs, "dilation": dilation}
    x, v = (_values(rng, (*before, *sizes), dtype) for _ in range(2))
    (out,) = eager("max_pool", [x], dilated)
    g = _values(rng, out.shape, dtype)
    cases = [
        Case("max_pool", [x], dilated),
        Case("max_pool_indices", [x, out], dilated),
        Case("max_pool_pick", [v, x, out], dilated),
        Case("max_pool_input", [g, x, out], dilated),
    ]
    if set(dilation) == {1}:
        cases.append(Case("sum_pool", [x], attrs))
        cases.append(Case("sum_pool_input", [g], {**attrs, "size": sizes}))
    return cases


#: With float32 all windows; with other dtypes those that take different ways, in turn.
SOME = [
    "pairs in three rows",
    "2x2 odd",
    "3x3 by 2",
    "by 3",
    "by 3, overlapping",
    "long gaps",
    "whole",
    "one lane left",
]


@pytest.mark.parametrize("dtype", DTYPES)
def test_windows(dtype: str) -> None:
    """Sums of quarters are exact: every result is the card's, bit by bit."""
    number = DTYPES.index(dtype)
    labels = (
        list(WINDOWS) if dtype == "float32" else [SOME[(number + i) % len(SOME)] for i in (0, 2, 5)]
    )
    cases = list(itertools.chain(*(_cases(label, dtype) for label in labels)))
    build_cases(cases, EMITTERS)
    for case in cases:
        check_case(case)


def test_special_values() -> None:
    """NaN is the largest, infinities and negative zeros pass through."""
    rng = np.random.default_rng(5)
    attrs = {"kernel": (2, 3), "stride": (2, 3), "padding": ((0, 0), (1, 0)), "dilation": (1, 1)}
    near = {**attrs, "stride": (1, 1), "padding": ((1, 0), (1, 1))}
    pairs = {**attrs, "kernel": (2, 2), "stride": (2, 2), "padding": ((0, 0), (0, 0))}
    cases = []
    for dtype, given in itertools.product(("float32", "float64", "float16"), (attrs, near, pairs)):
        x = rng.integers(-3, 3, (3, 6, 7, 23)).astype(dtype)
        x[rng.random(x.shape) < 0.1] = np.nan
        x[rng.random(x.shape) < 0.2] = -np.inf
        x[rng.random(x.shape) < 0.05] = np.inf
        (out,) = eager("max_pool", [x], given)
        g = np.where(rng.random(out.shape) < 0.3, np.inf, rng.integers(1, 9, out.shape))
        cases.append(Case("max_pool_indices", [x, out], given))
        cases.append(Case("max_pool_input", [g.astype(dtype), x, out], given))
        cases.append(Case("max_pool_pick", [x * 2, x, out], given))
        cases.append(Case("max_pool", [x], given))
    build_cases(cases, EMITTERS)
    for case in cases:
        status, (found,) = case.run()
        (wanted,) = eager(case.op, case.arrays, case.attrs)
        assert status == 0
        np.testing.assert_array_equal(found, wanted, err_msg=case.op)


def test_what_is_left_to_the_card() -> None:
    attrs = {"kernel": (2,), "stride": (2,), "padding": ((0, 0),)}
    empty = Case("sum_pool", [np.zeros((0, 4), np.float32)], attrs)
    complex_one = Case("sum_pool", [np.zeros((1, 4), np.complex64)], attrs)
    build_cases([empty, complex_one], EMITTERS)
    assert empty.kernels is None
    assert complex_one.kernels is None


@pytest.mark.parametrize("width", [32, 16])
def test_narrower_vectors(width: int) -> None:
    if host().vector_bytes < width:
        pytest.skip(f"vectors of {host().vector_bytes} bytes are all there are here")
    cases = [c for label in SOME[1::2] for c in _cases(label, "float32")]
    cases += _cases("2x2 odd", "bfloat16")
    build_cases(cases, EMITTERS, narrower(width))
    for case in cases:
        check_case(case)
