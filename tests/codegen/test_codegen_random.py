"""Kernels that draw random numbers: the bits of eager draws, from any state, for any cut."""

from __future__ import annotations

import numpy as np
import pytest
from emitted import Array, Case, build_cases, check_case, narrow_target

from weft.base import dtypes
from weft.base.dtypes import (
    DType,
    bfloat16,
    complex64,
    complex128,
    float16,
    float32,
    float64,
    int8,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)
from weft.codegen.random import EMITTERS

#: Seeds and numbers of blocks: also where the counter's halves and the counter itself overflow.
STATES = [
    np.array(pair, np.uint64)
    for pair in ((0, 0), (2**64 - 1, 2**64 - 3), (123456789123456789, 2**32 - 5))
]
SHAPES: list[tuple[int, ...]] = [(), (0,), (3,), (5, 7), (1000, 3)]
FLOATS = [float16, bfloat16, float32, float64]


def draws(op: str, drawn: list[DType]) -> list[Case]:
    return [
        Case(op, [STATES[0]], {"shape": shape, "dtype": dtype})
        for dtype in drawn
        for shape in SHAPES
    ]


def ranges() -> list[Case]:
    bounds: list[tuple[DType, int, int]] = [
        (int64, 0, 6),
        (int8, -128, 128),
        (uint64, 0, 2**64),
        (int64, -(2**63), 2**63),
        (uint8, 3, 4),
        (int32, -5, 2**31),
        (int64, -7, 2**40),
        (int64, 0, 2**32),
        (uint16, 0, 2**16),
    ]
    return [
        Case("random_integers", [STATES[0]], {"shape": (371,), "dtype": d, "low": a, "high": b})
        for d, a, b in bounds
    ]


def chances(dtype: DType, *shape: int) -> Array:
    return np.asarray(np.random.default_rng(0).random(shape)).astype(dtype.numpy)


def coins() -> list[Case]:
    shapes: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
        ((), (1000,)),
        ((1000,), (1000,)),
        ((3, 1), (3, 333)),
        ((333,), (3, 333)),
        ((), ()),
        ((1,), (0,)),
    ]
    cases = [
        Case("random_bernoulli", [STATES[0], chances(d, *p)], {"shape": shape, "dtype": d})
        for d in FLOATS
        for p, shape in shapes
    ]
    wanted = {"shape": (300,)}
    for dtype in (dtypes.bool, int64, uint8, float16, bfloat16):
        for p in (0.0, 0.3, 1.0):
            p_array = np.asarray(p, np.float32)
            attrs = {**wanted, "dtype": dtype}
            cases.append(Case("random_bernoulli", [STATES[0], p_array], attrs))
    return cases


TABLES: dict[str, list[Case]] = {
    "bits": draws("random_bits", [uint32, uint64]),
    "uniform": draws("random_uniform", FLOATS),
    "normal": draws("random_normal", [*FLOATS, complex64, complex128]),
    "integers": ranges(),
    "coins": coins(),
    "advance": [Case("random_advance", [STATES[0]], {"blocks": n}) for n in (0, 5, 2**64 - 1)],
}


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    build_cases([case for cases in TABLES.values() for case in cases], EMITTERS)


@pytest.mark.parametrize("state", range(len(STATES)))
@pytest.mark.parametrize("table", TABLES)
def test_draws_are_those_of_eager_code(table: str, state: int) -> None:
    for case in TABLES[table]:
        check_case(case.on(STATES[state], *case.arrays[1:]))


@pytest.mark.parametrize("wrong", [-0.1, 1.5, float("nan"), float("inf")])
def test_what_is_no_probability_is_an_error(wrong: float) -> None:
    for case in TABLES["coins"]:
        state, p = case.arrays
        if p.size:
            bad = p.copy()
            bad.reshape(-1)[-1] = wrong
            assert case.on(state, bad).run()[0] == 1


def test_with_narrow_vectors() -> None:
    shape = {"shape": (77,)}
    cases = [
        Case("random_normal", [STATES[1]], {**shape, "dtype": float64}),
        Case("random_normal", [STATES[1]], {**shape, "dtype": float16}),
        Case("random_uniform", [STATES[1]], {**shape, "dtype": bfloat16}),
        Case("random_uniform", [STATES[1]], {**shape, "dtype": float64}),
        Case("random_integers", [STATES[1]], {**shape, "dtype": int32, "low": -5, "high": 2**31}),
        Case("random_bernoulli", [STATES[1], chances(float16, 77)], {**shape, "dtype": float16}),
        Case("random_bernoulli", [STATES[1], chances(float64, 1)], {**shape, "dtype": dtypes.bool}),
    ]
    build_cases(cases, EMITTERS, narrow_target())
    for case in cases:
        check_case(case)


def test_complex_coins_have_no_emitter() -> None:
    attrs = {"shape": (3,), "dtype": complex64}
    case = Case("random_bernoulli", [STATES[0], chances(float32)], attrs)
    build_cases([case], EMITTERS)
    assert case.kernels is None
