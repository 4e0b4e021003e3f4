"""Programs that are deep: expressions of a thousand terms, and recursion that ends, or does not."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from weft.base.recursion import call_deeply, raised_limit
from weft.errors import CaptureError

TERMS = 1000
DEEP: dict[str, str] = {
    "a sum": " + ".join(f"x * {k % 7}" for k in range(TERMS)),
    "products": "x" + " * 0.999" * TERMS,
    "calls of methods": "x" + ".add(0.5)" * (TERMS // 2),
    "items": "[" * 80 + "x" + "]" * 80 + "[0]" * 80,
    "nested calls": "weft.sin(" * 80 + "x" + ")" * 80,
}
#: Statements that stand inside each other.
CHAIN = "".join(f"    elif k == {i}:\n        y = x * {i}\n" for i in range(100))


@pytest.fixture(scope="module")
def functions(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("deep")
    lines = ["import weft\n"]
    lines += [f"def f{i}(x):\n    return {text}\n" for i, text in enumerate(DEEP.values())]
    lines += [f"def chain(x, k):\n    if k < 0:\n        y = x\n{CHAIN}    return y\n"]
    (folder / "weft_deep.py").write_text("\n".join(lines))
    sys.path.insert(0, str(folder))
    yield importlib.import_module("weft_deep")
    sys.path.remove(str(folder))


@pytest.mark.parametrize("capture", ["source", "trace"])
@pytest.mark.parametrize("what", DEEP)
def test_deep_expressions(what: str, capture: str, functions: Any) -> None:
    f = getattr(functions, f"f{list(DEEP).index(what)}")
    before = sys.getrecursionlimit()
    compiled = weft.compile(f, capture=capture)
    for data in ([1.0, -2.0], [0.5, 3.0]):
        x = weft.tensor(data)
        np.testing.assert_array_equal(compiled(x).numpy(), f(x).numpy())
    assert sys.getrecursionlimit() == before


def test_a_sum_of_a_thousand_terms_as_machine_code(functions: Any) -> None:
    f = functions.f0
    compiled = weft.compile(f, backend="native")
    slope = weft.compile(weft.grad(lambda x: f(x).sum()), backend="native")
    for data in ([1.0, -2.0], [0.5, 3.0]):
        x = weft.tensor(data)
        np.testing.assert_allclose(compiled(x).numpy(), f(x).numpy(), rtol=1e-5)
        np.testing.assert_allclose(slope(x).numpy(), sum(k % 7 for k in range(TERMS)), rtol=1e-5)


def test_many_branches(functions: Any) -> None:
    compiled = weft.compile(functions.chain)
    for k in (3, 99, -1):
        assert float(compiled(weft.tensor(2.0), k)) == functions.chain(2.0, k)


# --- recursion -----------------------------------------------------------------------------------


def until_zero(x: Any, n: Any) -> Any:
    if n <= 0:
        return x
    return until_zero(x * 2, n - 1)


def even(x: Any, n: Any) -> Any:
    return x if n <= 0 else odd(x + 1, n - 1)


def odd(x: Any, n: Any) -> Any:
    return -x if n <= 0 else even(x * 2, n - 1)


def known_depth(x: Any, n: int) -> Any:
    if n == 0:
        return x
    y = known_depth(x, n - 1)
    return y * 2 if y > 0 else y - 1


def endless(x: Any, n: int) -> Any:
    return endless(x + 1, n + 1)


@pytest.mark.parametrize(
    ("function", "line"),
    [(until_zero, "return until_zero(x * 2, n - 1)"), (even, "n <= 0 else")],
    ids=["itself", "each other"],
)
def test_recursion_on_the_value_of_a_tensor(function: Any, line: str) -> None:
    compiled = weft.compile(function)
    with pytest.raises(CaptureError, match="calls itself, and whether it goes on depends") as found:
        compiled(weft.tensor(1.0), weft.tensor(5))
    said = str(found.value)
    assert line in said
    assert Path(__file__).name in said
    assert "`while` loop" in said
    assert 'capture="trace"' in said
    traced = weft.compile(function, capture="trace")
    for n in (5, 2, 5):
        given = weft.tensor(1.0), weft.tensor(n)
        assert float(traced(*given)) == float(function(*given))


def test_recursion_that_python_ends() -> None:
    compiled = weft.compile(known_depth)
    for x in (1.0, -1.0):
        assert float(compiled(weft.tensor(x), 12)) == float(known_depth(weft.tensor(x), 12))


def test_recursion_that_does_not_end_eagerly_either() -> None:
    with pytest.raises(RecursionError):
        weft.compile(endless)(weft.tensor(1.0), 0)


# --- the limit -----------------------------------------------------------------------------------


def down(n: int) -> int:
    return n if n == 0 else down(n - 1)


def test_the_limit_is_what_it_was() -> None:
    before = sys.getrecursionlimit()
    with raised_limit(3):
        assert sys.getrecursionlimit() == 3 * before
        assert call_deeply(lambda: down(20 * before)) == 0
        assert sys.getrecursionlimit() == 3 * before
    assert sys.getrecursionlimit() == before
    with pytest.raises(ZeroDivisionError):
        call_deeply(lambda: 1 // 0)
    assert sys.getrecursionlimit() == before
