"""Which dtype comes out: the standard's table, our rules beyond it, weak Python numbers."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
from weft.base.dtypes import DTYPES, DType
from weft.base.promotion import promote, promote_weak

STANDARD = [d for d in DTYPES.values() if not d.name.startswith("float8")]
RANK = {"bool": 0, "int": 1, "uint": 1, "float": 2, "complex": 3}


def within_a_kind(a: DType, b: DType) -> bool:
    return RANK[a.kind] == RANK[b.kind] or {a.kind, b.kind} == {"float", "complex"}


@pytest.mark.parametrize(("a", "b"), list(itertools.combinations_with_replacement(STANDARD, 2)))
def test_pairs(a: DType, b: DType) -> None:
    if {a.kind, b.kind} == {"int", "uint"} and weft.uint64 in (a, b):
        with pytest.raises(TypeError, match="no dtype holds"):
            promote(a, b)
        return
    got = promote(a, b)
    assert promote(b, a) is got
    if weft.bfloat16 not in (a, b) and within_a_kind(a, b):
        assert got.numpy == np.result_type(a.numpy, b.numpy)  # as the standard has it
    elif RANK[a.kind] != RANK[b.kind]:
        assert got.kind == max(a.kind, b.kind, key=RANK.__getitem__)
    # The functions really give what the table says.
    x, y = weft.ones(2, dtype=a), weft.ones(2, dtype=b)
    assert weft.equal(x, y).all()
    assert weft.where(weft.asarray(True), x, y).dtype is got
    assert weft.concat([x, y]).dtype is got
    assert weft.result_type(a, b) is got
    if got.kind != "bool":
        assert (x + y).dtype is got
        assert (x * y).tolist() == [1, 1]


@pytest.mark.parametrize("dtype", STANDARD, ids=lambda d: d.name)
@pytest.mark.parametrize("number", [True, 2, 2.5, 1j])
def test_python_numbers_are_weak(dtype: DType, number: complex) -> None:
    kind = weft.asarray(number).dtype.kind
    x = weft.ones(2, dtype=dtype)
    if RANK[kind] <= RANK[dtype.kind]:
        want = dtype
    elif kind == "complex":
        want = weft.complex128 if dtype is weft.float64 else weft.complex64
    else:
        want = weft.asarray(number).dtype
    assert promote_weak(dtype, kind) is want
    assert weft.result_type(dtype, number) is want
    if want.kind != "bool":
        assert (x * number).dtype is want
        assert (number * x).dtype is want
        assert (x * number)[0].item() == number


@pytest.mark.parametrize(
    ("source", "target", "can"),
    [
        (weft.int8, weft.int16, True),
        (weft.int16, weft.int8, False),
        (weft.uint8, weft.int8, False),
        (weft.uint64, weft.int64, False),
        (weft.float32, weft.float64, True),
        (weft.float64, weft.float32, False),
        (weft.float64, weft.complex64, False),
        (weft.bool, weft.int8, True),
    ],
)
def test_can_cast(source: DType, target: DType, can: bool) -> None:
    assert weft.can_cast(source, target) is can
    assert weft.can_cast(weft.ones(1, dtype=source), target) is can


def test_functions_of_floats_take_integers() -> None:
    x = weft.arange(1, 4)
    for function in (weft.sqrt, weft.exp, weft.sin, weft.log):
        assert function(x).dtype is weft.float32
    assert (x / 2).tolist() == [0.5, 1.0, 1.5]
    assert (x / x).dtype is weft.float32
    assert weft.mean(x).item() == 2
    assert weft.sqrt(weft.asarray([4], dtype=weft.bool)).item() == 1


def test_isdtype_and_limits() -> None:
    assert weft.isdtype(weft.bfloat16, "real floating")
    assert weft.isdtype(weft.int8, ("bool", "integral"))
    assert weft.isdtype(weft.bool, "bool")
    assert weft.isdtype(weft.float32, weft.float32)
    assert not weft.isdtype(weft.float32, weft.float64)
    with pytest.raises(TypeError, match="'whole'"):
        weft.isdtype(weft.float32, "whole")
    assert weft.finfo(weft.bfloat16).eps == 2**-7
    assert weft.finfo(weft.complex64).dtype is weft.float32
    assert weft.iinfo(weft.uint64).max == 2**64 - 1


@given(
    st.sampled_from([d for d in STANDARD if d.kind in ("int", "uint")]),
    st.lists(st.integers(-(2**63), 2**64 - 1), min_size=2, max_size=2),
    st.sampled_from(["+", "-", "*", "//", "%"]),
)
def test_integers_wrap_as_python_integers_modulo(dtype: DType, pair: list[int], sign: str) -> None:
    info = weft.iinfo(dtype)
    a, b = ((v - info.min) % 2**info.bits + info.min for v in pair)
    exact = {
        "+": a + b,
        "-": a - b,
        "*": a * b,
        "//": a // b if b else 0,
        "%": a % b if b else 0,
    }[sign]
    wrapped = (exact - info.min) % 2**info.bits + info.min
    x, y = weft.asarray(a, dtype=dtype), weft.asarray(b, dtype=dtype)
    got = {
        "+": lambda: x + y,
        "-": lambda: x - y,
        "*": lambda: x * y,
        "//": lambda: x // y,
        "%": lambda: x % y,
    }[sign]()
    assert got.item() == wrapped
