"""Sorts, positions of extremes, searches and running sums, against the cards, bit by bit."""

from __future__ import annotations

import numpy as np
import pytest
from emitted import Array, Case, build_cases, check_case, narrow_target, values

from weft.base import dtypes
from weft.base.dtypes import (
    DTYPES,
    DType,
    bfloat16,
    complex64,
    complex128,
    float16,
    float32,
    float64,
    int8,
    int64,
    uint64,
)
from weft.codegen import cumulative, sorting

EMITTERS = {**sorting.EMITTERS, **cumulative.EMITTERS}

#: Shapes and an axis: rows long and short, alone and side by side.
AXES: list[tuple[tuple[int, ...], int]] = [
    ((1,), 0),
    ((5,), 0),
    ((48,), 0),
    ((3, 37, 5), 1),
    ((4, 200), 1),
    ((200, 35), 0),
    ((0, 3), 1),
    ((3, 0), 1),
]
REAL = [d for d in DTYPES.values() if d.kind != "complex" and d.name not in ("int16", "uint8")]
NUMBERS = [int64, uint64, float16, bfloat16, float32, float64, complex64, complex128]


def sorts(dtype: DType) -> list[Case]:
    cases = []
    for number, (shape, axis) in enumerate(AXES):
        x = values(dtype, shape, seed=number)
        which = ("sort", "argsort")[number % 2 :: -1]  # both for half of them, to save time
        for op in which:
            cases.append(Case(op, [x], {"axis": axis, "descending": False}))
            if number > 2:
                cases.append(Case(op, [x], {"axis": axis, "descending": True}))
    return cases


def extremes(dtype: DType) -> list[Case]:
    cases = []
    for number, (shape, axis) in enumerate(AXES):
        if shape[axis]:
            x = values(dtype, shape, seed=number)
            op = ("argmax", "argmin")[number % 2]
            cases.append(Case(op, [x], {"axis": axis, "keepdims": bool(number % 3)}))
    return cases


def searches(dtype: DType) -> list[Case]:
    drawn = values(dtype, (50,), seed=3)
    # NumPy itself does not know where the NaNs of bfloat16 go.
    table = np.sort(drawn.astype(np.float32) if dtype is bfloat16 else drawn).astype(dtype.numpy)
    wanted = values(dtype, (3, 20), seed=4)
    return [
        Case("searchsorted", [table[:size], wanted], {"side": side})
        for size, side in ((50, "left"), (50, "right"), (33, "left"), (1, "right"), (0, "left"))
    ]


def running(dtype: DType) -> list[Case]:
    return [
        Case(op, [values(dtype, shape, seed=number)], {"axis": axis})
        for number, (shape, axis) in enumerate([*AXES, ((3, 5, 40), 1)])
        for op in ("cumulative_sum", "cumulative_prod")
    ]


TABLES: dict[str, list[Case]] = {
    **{f"sorts {d.name}": sorts(d) for d in REAL},
    **{f"extremes {d.name}": extremes(d) for d in REAL},
    **{f"searches {d.name}": searches(d) for d in REAL},
    **{f"running {d.name}": running(d) for d in NUMBERS},
}


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    build_cases([case for cases in TABLES.values() for case in cases], EMITTERS)


@pytest.mark.parametrize("table", TABLES)
def test_kernels_equal_the_cards(table: str) -> None:
    for case in TABLES[table]:
        check_case(case)


def plain(*numbers: float) -> Array:
    return np.asarray(numbers, np.float32)


@pytest.mark.parametrize("length", [5, 40, 300])
@pytest.mark.parametrize(
    "row",
    [
        plain(0.0, -0.0),
        plain(1.0),
        plain(np.nan),
        plain(np.nan, 1.0, -np.inf),
        plain(np.inf, -np.inf, -0.0, 0.0, 1e-45, -1e-45),
    ],
)
def test_rows_that_are_special(row: Array, length: int) -> None:
    """All equal, all NaN, only ties: the first wins, and the order of equals stays."""
    x = np.resize(row, length)
    cases = [
        Case("argmax", [x], {"axis": 0, "keepdims": False}),
        Case("argmin", [x], {"axis": 0, "keepdims": False}),
        Case("sort", [x], {"axis": 0, "descending": True}),
        Case("argsort", [x], {"axis": 0, "descending": True}),
        Case("argsort", [x], {"axis": 0, "descending": False}),
    ]
    build_cases(cases, EMITTERS)
    for case in cases:
        check_case(case)


def test_large_rows() -> None:
    rng = np.random.default_rng(0)
    cases = [
        Case("argsort", [rng.normal(size=70_000).astype(np.float32)], {"axis": 0, "descending": d})
        for d in (False, True)
    ]
    cases.append(Case("sort", [rng.integers(-9, 9, 70_000)], {"axis": 0, "descending": True}))
    cases.append(Case("argmax", [rng.normal(size=70_003)], {"axis": 0, "keepdims": False}))
    cases.append(Case("sort", [rng.normal(size=(70, 900))], {"axis": 0, "descending": False}))
    build_cases(cases, EMITTERS)
    for case in cases:
        check_case(case)


def test_a_number_is_sorted() -> None:
    case = Case("sort", [np.asarray(3.0)], {"axis": 0, "descending": False})
    build_cases([case], EMITTERS)
    assert case.run() == (0, [np.asarray(3.0)])


def test_with_narrow_vectors() -> None:
    cases = [*extremes(uint64), *extremes(float16), *extremes(int8), *running(bfloat16)]
    cases += [*sorts(dtypes.uint16), *running(complex64)]
    build_cases(cases, EMITTERS, narrow_target())
    for case in cases:
        check_case(case)


def test_sums_in_short_integers_have_no_emitter() -> None:
    case = Case("cumulative_sum", [values(int8, (3,))], {"axis": 0})
    build_cases([case], EMITTERS)
    assert case.kernels is None
