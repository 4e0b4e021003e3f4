"""Indices and pointers of generated code: what is known folds as Python has it, the rest runs."""

from __future__ import annotations

import ctypes
import itertools
import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from weft.base.errors import InternalError
from weft.codegen.index import Index, Ptr, Size, divide, maximum, minimum, offset, unravel
from weft.codegen.jit import build
from weft.codegen.machine import host
from weft.codegen.text import Function, Module

ROOT = Path(__file__).resolve().parents[2] / "weft"
TOP, BOTTOM = 2**63 - 1, -(2**63)

#: Two indices to one; the last two are of numbers that are not negative.
RULES: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "minimum": minimum,
    "maximum": maximum,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
}
NUMBERS = [0, 1, -1, 2, -7, 12, 3_000_000_000, -3_000_000_000, TOP, BOTTOM, TOP - 1]


def function() -> Function:
    module = Module(host())
    return module.function("f", "i64", [("i64", "a"), ("i64", "b")], linkage="")


def run(make: Callable[[Any, Any], Any], numbers: list[tuple[int, int]]) -> list[int]:
    f = function()
    f.do(f"ret i64 {make(f.index('%a'), f.index('%b'))}")
    library = build(f.module.text(), ["f"])
    called = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(library.address("f"))
    return [called(*pair) for pair in numbers]


def with_one_known(
    make: Callable[[Any, Any], Any], known: int, side: int
) -> Callable[[Any, Any], Any]:
    return lambda a, b: make(known, b) if side == 0 else make(a, known)


def defined(rule: str, a: int, b: int) -> bool:
    """Whether an index may have this result: no overflow, no division but of natural numbers."""
    if rule in ("floordiv", "mod"):
        return a >= 0 and b > 0
    return BOTTOM <= RULES[rule](a, b) <= TOP


@pytest.mark.parametrize("rule", RULES)
def test_numbers_of_the_run_are_computed_as_known_ones_are(rule: str) -> None:
    make = RULES[rule]
    pairs = [(a, b) for a, b in itertools.product(NUMBERS, NUMBERS) if defined(rule, a, b)]
    expected = [make(a, b) for a, b in pairs]
    assert all(type(number) is int for number in expected)
    assert run(make, pairs) == expected
    for side in (0, 1):  # one of the two is known
        for known in {pair[side] for pair in pairs}:
            some = [pair for pair in pairs if pair[side] == known]
            assert run(with_one_known(make, known, side), some) == [make(*pair) for pair in some]


@pytest.mark.parametrize(
    ("rule", "known", "side", "result"),
    [
        ("add", 0, 1, "same"),
        ("add", 0, 0, "same"),
        ("sub", 0, 1, "same"),
        ("mul", 1, 1, "same"),
        ("mul", 1, 0, "same"),
        ("mul", 0, 1, 0),
        ("mul", 0, 0, 0),
        ("floordiv", 1, 1, "same"),
        ("floordiv", 0, 0, 0),
        ("mod", 1, 1, 0),
        ("mod", 0, 0, 0),
    ],
)
def test_what_changes_nothing_writes_nothing(
    rule: str, known: int, side: int, result: object
) -> None:
    f = function()
    i = f.index("%a")
    made = RULES[rule](known, i) if side == 0 else RULES[rule](i, known)
    assert made is i if result == "same" else made == result
    assert minimum(i, i) is i
    assert maximum(i, i) is i
    assert not f._lines


def test_a_constant_that_no_i64_holds_is_an_error() -> None:
    f = function()
    i = f.index("%a")
    for known in (TOP + 1, BOTTOM - 1):
        with pytest.raises(InternalError, match="is not an i64"):
            i + known
        with pytest.raises(InternalError, match="is not an i64"):
            f.ptr("%p") + known
    assert str(i + TOP) == "%v.1"
    for known in (0, -1):
        with pytest.raises(InternalError, match="is divided by"):
            i % known


def test_places_in_a_shape() -> None:
    shape, strides = (3, 1, 4, 5), (20, 20, 5, 1)
    for number in range(60):
        places = unravel(number, shape)
        assert all(0 <= place < size for place, size in zip(places, shape, strict=True))
        assert offset(0, zip(places, strides, strict=True)) == number
    assert unravel(7, ()) == []

    def back(i: Index, more: Index) -> Size:
        return offset(more, zip(unravel(i, shape), strides, strict=True))

    assert run(back, [(i, 100) for i in range(60)]) == [100 + i for i in range(60)]
    assert unravel(5, (2, 0, 3)) == [1, 0, 2]  # an axis of nothing: such code never runs
    assert divide(17, 5) == (3, 2)


def test_sizes_may_be_known_or_not() -> None:
    """The same code with a size that is known, and with one that the run brings."""

    def place(i: Size, size: Size) -> Size:
        row, column = divide(i, size)
        return column * 3 + row * size + minimum(row, size - 1)

    numbers = [(i, 7) for i in range(40)]
    assert run(place, numbers) == [place(i, 7) for i in range(40)]
    assert run(lambda i, _: place(i, 7), numbers) == [place(i, 7) for i in range(40)]


def test_pointers_step_by_elements_or_bytes() -> None:
    module = Module(host())
    f = module.function("f", "i32", [("ptr", "p"), ("i64", "i")], linkage="")
    p, i = f.ptr("%p", "i32"), f.index("%i")
    assert p + 0 is p
    assert p.bytes(0) is p
    assert p.of("i32") is p
    assert not f._lines
    q = p + i + 2
    (q + -1).store(f(f"add i32 {q.load()}, {p.bytes(i * 4).load(4)}"))
    both = p.of("i64").load_index()  # the first two as one number
    (p.of("ptr") + 3).store(q)
    again = (p.of("ptr") + 3).load_ptr("i32")
    (p + 5).store(f(f"trunc i64 {both % 1000} to i32"))
    f.do(f"ret i32 {again.load()}")
    data = (ctypes.c_int32 * 8)(10, 0, 12, 13, 14, 15, 16, 17)
    library = build(module.text(), ["f"])
    call = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64)(library.address("f"))
    assert call(ctypes.addressof(data), 1) == 13
    assert list(data[:6]) == [10, 0, 13, 13, 14, 10]
    assert isinstance(q, Ptr)


def test_one_module_writes_and_reads_steps_of_pointers() -> None:
    found = [path for path in ROOT.rglob("*.py") if "getelementptr" in path.read_text()]
    found = sorted(path.relative_to(ROOT).as_posix() for path in found)
    # The others are the text of fixed functions, not emitters.
    fixed = ["distributed/combine_code.py", "distributed/shared_code.py"]
    assert found == ["codegen/index.py", *fixed]
