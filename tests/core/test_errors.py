"""Bad input: an error of the right type that names the op, the operands and the user's line."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest

import weft

F = weft.ones((2, 3))
V = weft.ones(4)
INT = weft.arange(3)
FLAG = weft.asarray([True, False])

#: what is done, which error (ours and Python's), and what the message must hold
BAD: list[tuple[Callable[[], Any], type, type, list[str]]] = [
    (lambda: F + V, weft.errors.ShapeError, ValueError, ["add:", "f32[2,3], f32[4]", "3 and 4"]),
    (lambda: F @ F, weft.errors.ShapeError, ValueError, ["matmul:", "3 and 2", "f32[2,3]"]),
    (lambda: FLAG + FLAG, weft.errors.DTypeError, TypeError, ["add:", "bool[2]", "numeric"]),
    (lambda: F & F, weft.errors.DTypeError, TypeError, ["bitwise_and:", "float32"]),
    (lambda: weft.add(F, "x"), weft.errors.DTypeError, TypeError, ["add:", "str 'x'"]),
    (lambda: weft.sin("x"), weft.errors.DTypeError, TypeError, ["sin:", "str 'x'"]),
    (
        lambda: weft.ones(2, dtype=weft.uint64) + weft.ones(2, dtype=weft.int8),
        weft.errors.DTypeError,
        TypeError,
        ["uint64", "int8", "cast"],
    ),
    (lambda: F.sum(axis=2), weft.errors.AxisError, IndexError, ["sum:", "axis 2", "-2 to 1"]),
    (lambda: F.sum(axis=(0, 0)), weft.errors.ShapeError, ValueError, ["twice"]),
    (lambda: F.sum(axis="x"), weft.errors.DTypeError, TypeError, ["axis must be an int"]),
    (lambda: weft.zeros(0).max(), weft.errors.ShapeError, ValueError, ["max:", "empty axis"]),
    (lambda: weft.zeros(0).argmin(), weft.errors.ShapeError, ValueError, ["argmin", "empty axis"]),
    (lambda: F.reshape(4, 2), weft.errors.ShapeError, ValueError, ["reshape:", "(4, 2)", "6"]),
    (lambda: F.reshape(-1, 4), weft.errors.ShapeError, ValueError, ["reshape:", "-1"]),
    (lambda: F.reshape(-1, -1), weft.errors.ShapeError, ValueError, ["reshape:"]),
    (lambda: F.reshape(-2, -3), weft.errors.ShapeError, ValueError, ["negative"]),
    (lambda: F.reshape("x"), weft.errors.DTypeError, TypeError, ["reshape:", "not a shape"]),
    (lambda: weft.zeros((2, -1)), weft.errors.ShapeError, ValueError, ["zeros:", "negative"]),
    (lambda: weft.zeros(2.5), weft.errors.DTypeError, TypeError, ["zeros:", "2.5"]),
    (lambda: weft.concat([]), weft.errors.ShapeError, ValueError, ["concat:", "nothing"]),
    (lambda: weft.concat([F, V]), weft.errors.ShapeError, ValueError, ["concat:", "f32[4]"]),
    (lambda: weft.stack([F, V]), weft.errors.ShapeError, ValueError, ["stack:", "(4,)"]),
    (lambda: weft.squeeze(F, 0), weft.errors.ShapeError, ValueError, ["squeeze:", "size 2"]),
    (lambda: weft.permute_dims(F, (0,)), weft.errors.ShapeError, ValueError, ["permute_dims:"]),
    (lambda: weft.broadcast_to(F, (3, 2)), weft.errors.ShapeError, ValueError, ["broadcast_to:"]),
    (lambda: V.T, weft.errors.ShapeError, ValueError, ["T:", "mT"]),
    (lambda: weft.where(F, 1, 2), weft.errors.DTypeError, TypeError, ["where:", "bool"]),
    (lambda: weft.take(V, F, axis=0), weft.errors.IndexError, IndexError, ["take:", "float32"]),
    (lambda: weft.take(V, INT + 9), weft.errors.IndexError, IndexError, ["take:", "out of bounds"]),
    (lambda: F.item(), weft.errors.ShapeError, ValueError, ["item:", "6 elements"]),
    (lambda: bool(F), weft.errors.ShapeError, ValueError, ["ambiguous", "any(x)"]),
    (lambda: len(weft.asarray(1)), weft.errors.DTypeError, TypeError, ["0-d"]),
    (lambda: iter(weft.asarray(1)), weft.errors.DTypeError, TypeError, ["0-d"]),
    (lambda: range(F), weft.errors.DTypeError, TypeError, ["index", "f32[2,3]"]),
    (lambda: weft.asarray([[1, 2], [3]]), weft.errors.ShapeError, ValueError, ["rectangular"]),
    (lambda: weft.asarray("abc"), weft.errors.DTypeError, TypeError, ["asarray:", "str"]),
    (lambda: weft.asarray(None), weft.errors.DTypeError, TypeError, ["asarray:", "NoneType"]),
    (lambda: weft.asarray({"a": 1}), weft.errors.DTypeError, TypeError, ["asarray:", "dict"]),
    (lambda: weft.zeros(2, dtype="f33"), weft.errors.DTypeError, TypeError, ["'f33'"]),
    (lambda: weft.zeros(2, device="moon"), weft.errors.DeviceError, RuntimeError, ["moon", "cpu"]),
    (lambda: weft.zeros(2, device=3), weft.errors.DeviceError, RuntimeError, ["3"]),
    (lambda: V.to("moon"), weft.errors.DeviceError, RuntimeError, ["moon"]),
    (
        lambda: weft.asarray([1j]).astype(weft.float32),
        weft.errors.DTypeError,
        TypeError,
        ["astype:", "imaginary", "weft.real"],
    ),
    (lambda: weft.iinfo(weft.float32), weft.errors.DTypeError, TypeError, ["finfo"]),
    (lambda: weft.finfo(weft.int8), weft.errors.DTypeError, TypeError, ["iinfo"]),
    (lambda: weft.arange(0, 3, 0), weft.errors.ShapeError, ValueError, ["arange:", "step"]),
    (lambda: weft.clip(INT, 0.5, 1), weft.errors.DTypeError, TypeError, ["clip:"]),
    (lambda: weft.cumulative_sum(F), weft.errors.ShapeError, ValueError, ["cumulative_sum:"]),
    (lambda: weft.Tensor().shape, weft.errors.DTypeError, TypeError, ["asarray"]),
    (
        lambda: weft.zeros((2**40, 2**40)),
        weft.errors.MemoryError,
        MemoryError,
        ["full:", "EiB", "(1099511627776, 1099511627776)"],
    ),
    (lambda: weft.ones((2**28, 2**20)), weft.errors.MemoryError, MemoryError, ["PiB"]),
]


@pytest.mark.parametrize(("act", "ours", "pythons", "parts"), BAD)
def test_error_says_what_and_where(
    act: Callable[[], Any], ours: type, pythons: type, parts: list[str]
) -> None:
    with pytest.raises(pythons) as caught:
        act()
    assert type(caught.value) is ours
    message = str(caught.value)
    # The user's line is quoted in the message, and here it holds the words we look for.
    said = "\n".join(line for line in message.split("\n") if not line.startswith("  at "))
    for part in parts:
        assert part in said
    assert f"{__file__}:" in message, "the user's file and line"
    line = caught.value.location.text  # type: ignore[union-attr]
    assert "lambda" in line or "(" in line
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == message


def test_python_integers_that_do_not_fit_overflow() -> None:
    small = weft.ones(2, dtype=weft.uint8)
    for bad in (lambda: small + 256, lambda: small * -1, lambda: weft.asarray(2**64)):
        with pytest.raises((OverflowError, weft.errors.DTypeError), match=r"bounds|64"):
            bad()
    with pytest.raises(OverflowError):
        weft.full(2, 300, dtype=weft.int8)
    with pytest.raises(OverflowError):
        weft.asarray([1, 300], dtype=weft.uint8)


def test_other_classes_get_their_turn() -> None:
    class Other:
        def __radd__(self, left: Any) -> str:
            return "other's"

    assert V + Other() == "other's"
    with pytest.raises(TypeError):
        V + [1]  # noqa: RUF005
    assert (V == "text") is False
    assert (V != None) is True  # noqa: E711


def test_everything_works_after_an_error() -> None:
    for _ in range(3):
        with pytest.raises(ValueError, match="broadcast"):
            F + V
        assert (F + 1).tolist() == [[2, 2, 2], [2, 2, 2]]


# --- dtypes that an op does not take, in every mode -----------------------------------------------

BOOLS = weft.asarray([True, False])
REFUSED: dict[str, Callable[[Any], Any]] = {
    "negative": lambda x: -x,
    "subtract": lambda x: x - x,
    "bitwise_and": lambda x: (x * 1.0) & (x * 1.0),
    "matmul": lambda x: x @ x,
    "floor": lambda x: weft.floor(x * 1j),
    "greater": lambda x: x * 1j > 0,
    "maximum": lambda x: weft.maximum(x * 1j, x * 1j),
    "sort": lambda x: weft.sort(x * 1j),
    "max": lambda x: weft.max(x * 1j),
    "conv": lambda x: weft.nn.functional.conv1d(x[None, None], x[None, None]),
    "max_pool": lambda x: weft.nn.functional.max_pool1d(x[None, None] * 1j, 2),
    "softmax": lambda x: weft.softmax(x * 1j),
}


@pytest.mark.parametrize("op", REFUSED)
def test_a_dtype_that_an_op_does_not_take_is_refused_in_the_same_words(op: str) -> None:
    def said(run: Callable[[Any], Any]) -> list[str]:
        with pytest.raises(weft.errors.DTypeError) as caught:
            run(BOOLS)
        lines = str(caught.value).splitlines()
        return [line for line in lines if not line.startswith("  at ")]

    function = REFUSED[op]
    eager = said(function)
    assert eager[0].startswith(f"{op}: ")
    assert any(line.startswith("  to fix: ") for line in eager)
    assert said(lambda x: weft.make_graph(function, weft.spec(x.shape, x.dtype))) == eager
    for backend in ("interpret", "native"):
        assert said(weft.compile(function, backend=backend)) == eager
        assert said(weft.trace(function, backend=backend)) == eager
