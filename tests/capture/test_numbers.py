"""Python numbers that change from call to call: one recording serves them all (docs/tracing.md)."""

from __future__ import annotations

import math
from collections import deque
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tests.support.varying_rows  # noqa: F401  (adds its rows)
import weft
from tests.support.number_rows import EXPRESSIONS, PROGRAMS, Held, Settings, World

WAYS = {"compile": weft.compile, "trace": weft.trace}


def same(a: Any, b: Any) -> bool:
    """Whether two results are the same in classes, dtypes and values."""
    if type(a) is not type(b):
        return False
    if isinstance(a, weft.Tensor):
        alike = a.dtype is b.dtype and a.shape == b.shape
        return alike and np.allclose(a.numpy(), b.numpy(), rtol=1e-5, equal_nan=True)
    if isinstance(a, (tuple, list, deque)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, type):
        return same(*[{k: v for k, v in vars(c).items() if k[0] != "_"} for c in (a, b)])
    if isinstance(a, Held):
        return a.parts == b.parts
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    return bool(a == b) or (isinstance(a, float) and math.isclose(a, b, rel_tol=1e-6))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_give_what_plain_python_gives(name: str, way: str, capsys: Any) -> None:
    function, *limits = PROGRAMS[name]
    captured = WAYS[way](function)
    mine, theirs = World(), World()
    for i in range(6):
        x = weft.tensor([1.0, 2.0, 0.5]) * i
        expected = function(theirs, x)
        shown = capsys.readouterr().out
        got = captured(mine, x)
        assert same(got, expected), (i, got, expected)
        assert capsys.readouterr().out == shown
        assert same(vars(mine), vars(theirs)), i
    reasons = [str(r) for r in captured.recordings]
    assert len(captured.recordings) <= limits[way == "trace"], reasons


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", EXPRESSIONS)
def test_expressions_give_what_plain_python_gives(name: str, way: str) -> None:
    function, limit = EXPRESSIONS[name]
    captured = WAYS[way](function)
    for i, a in enumerate([1.5, 2.25, 3.5, 2.5, 1.5, 4.0]):
        x = weft.tensor([1.0, -2.0, 3.0, 0.5, 2.0]) * (i + 1)
        try:
            expected = function(x, a)
        except ArithmeticError as error:
            with pytest.raises(type(error), match=str(error)[:20]):
                captured(x, a)
            continue
        got = captured(x, a)
        assert same(got, expected), (a, got, expected)
    assert len(captured.recordings) <= limit, [str(r) for r in captured.recordings]


def _divides_in_a_loop(x: Any) -> Any:
    found = 0.0
    for i in range(3):
        found = found + 1 / (i + x.sum().item())
    return found


@pytest.mark.parametrize("backend", ["native", "interpret"])
@pytest.mark.parametrize("way", WAYS)
def test_what_python_raises_is_raised(way: str, backend: str) -> None:
    """Arithmetic on a number of a tensor: the graph checks what Python checks."""
    rows = {
        "division": (lambda x: 1 / x.sum().item(), ZeroDivisionError),
        "remainder": (lambda x: 7 % int(x.sum().item()), ZeroDivisionError),
        "logarithm": (lambda x: math.log(x.sum().item()), ValueError),
        "overflow": (lambda x: math.exp(x.sum().item() + 1000), OverflowError),
        "no number": (
            lambda x: int(x.sum().item() / 0.0 if False else math.nan + x.sum().item()),
            ValueError,
        ),
    }
    for name, (function, error) in rows.items():
        captured = WAYS[way](function, backend=backend)
        if name not in ("overflow", "no number"):
            assert captured(weft.ones(2)) == function(weft.ones(2)), name
            assert len(captured.recordings) == 1
        for _ in range(2):
            with pytest.raises(error):
                captured(weft.zeros(2))


@pytest.mark.parametrize("way", WAYS)
def test_errors_of_arithmetic_can_be_caught(way: str) -> None:
    def careful(x: Any) -> Any:
        total = x.sum().item()
        try:
            return 1 / total, math.log(x.max().item())
        except ZeroDivisionError:
            return "nothing"
        except ValueError:
            return "no logarithm"

    captured = WAYS[way](careful)
    for values in ([1.0, 2.0], [0.0, 0.0], [-1.0, -2.0], [1.0, 2.0], [-1.0, 1.0]):
        x = weft.tensor(values)
        assert same(captured(x), careful(x)), values


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.filterwarnings("ignore:.*runs as plain Python")
def test_a_side_that_is_not_taken_does_nothing_outside(way: str, tmp_path: Any) -> None:
    """Both sides of an `if` are recorded; a file is written only on the one that is taken."""
    place = tmp_path / "diverged"

    @WAYS[way]
    def step(x: Any) -> Any:
        loss = x.sum().item()
        if loss > 100:
            place.write_text(str(loss))
        return x * 2

    for size in (1.0, 2.0, 3.0):
        assert step(weft.ones(2) * size).tolist() == [2 * size] * 2
        assert not place.exists()
    step(weft.ones(2) * 80)
    assert place.read_text() == "160.0"


@pytest.mark.parametrize("way", WAYS)
def test_integers_are_exact_or_refused(way: str) -> None:
    grown = WAYS[way](lambda x: int(x.max().item()) * 10**12)
    assert grown(weft.tensor([5, 3])) == 5 * 10**12
    with pytest.raises(OverflowError):
        grown(weft.tensor([10**9, 3]))
    counted = WAYS[way](lambda x, n: (x, n * 10**12 + 1))
    for n in (1, 2, 10**9, 10**19):  # Python computes with those from outside: there is no limit
        assert counted(weft.ones(1), n)[1] == n * 10**12 + 1


def test_signatures_name_what_each_call_computes() -> None:
    o = World()

    @weft.compile
    def f(x: Any, k: int) -> Any:
        o.n += 1
        return x * (o.n / 2) + k, o.n

    for k in range(4):
        f(weft.ones(2), k)
    text = str(f.signatures()[-1])
    assert "takes k: i64[]" in text
    assert "state (o.n + 1) / 2: f64[]" in text


def test_numbers_beside_symbolic_sizes() -> None:
    rows = {
        "mean": lambda x, n: x.sum().item() / x.shape[0],
        "quotient": lambda x, n: n / x.shape[0],
        "remainder": lambda x, n: (n // x.shape[0], n % x.shape[0], x.shape[0] * n),
        "of tensors": lambda x, n: x.sum() * (n / x.shape[0]),
    }
    for name, function in rows.items():
        captured = weft.compile(function, dynamic="auto")
        for n, size in enumerate((3, 4, 0, 5, 1)):
            x = weft.ones(size)
            try:
                expected = function(x, n + 2)
            except ZeroDivisionError:
                with pytest.raises(ZeroDivisionError):
                    captured(x, n + 2)
                continue
            assert same(captured(x, n + 2), expected), (name, size)
        assert len(captured.recordings) == 2, [str(r) for r in captured.recordings]


def test_classes_of_numbers_are_told_apart() -> None:
    f = weft.compile(lambda x, n: x * n)
    x = weft.tensor([1, 2])
    for n in (1, 2, 3, 1.0, 2.0, True, 2):
        assert same(f(x, n), x * n), n


def test_what_python_decides_is_all_that_is_guarded() -> None:
    @weft.compile
    def f(x: Any, n: int) -> Any:
        return x * n if n % 100 == 0 else x + n

    for n in range(1, 250):
        assert f(weft.ones(2), n).tolist() == ([n, n] if n % 100 == 0 else [n + 1] * 2)
    assert len(f.recordings) == 3
    assert "n % 100 == 0 was False, now True" in f.recordings[-1].reason.replace("(", "").replace(
        ")", ""
    )


@pytest.mark.parametrize("way", WAYS)
def test_objects_that_are_replaced_are_known_by_their_class(way: str) -> None:
    """One that stays is guarded by its identity, until another one is in its place."""
    kept = SimpleNamespace(state=Settings("a", 1.0), other=Settings("b", 2.0))

    @WAYS[way]
    def f(x: Any) -> Any:
        kept.state = Settings(kept.state.name, kept.state.rate * 0.5)
        return x * kept.state.rate + kept.other.rate

    rate, other = 1.0, 2.0
    for i in range(12):
        if i in (6, 9):
            other = float(i)
            kept.other = kept.state if i == 9 else Settings("c", other)
        other = rate if i == 9 else other
        rate *= 0.5
        assert f(weft.ones(2)).tolist() == [rate + other] * 2
        assert kept.state == Settings("a", rate)
    assert len(f.recordings) <= 6, [str(r) for r in f.recordings]


class Refused(Exception):
    def __init__(self, message: str, step: int) -> None:
        super().__init__(message)
        self.message = message
        self.step = step


@pytest.mark.parametrize("way", WAYS)
def test_errors_hold_strings(way: str) -> None:
    @WAYS[way]
    def f(x: Any, n: int) -> Any:
        if n % 2:
            raise Refused(f"step {n}", n)
        return x * n

    for n in range(6):
        if n % 2 == 0:
            assert f(weft.ones(1), n).tolist() == [n]
            continue
        with pytest.raises(Refused) as caught:
            f(weft.ones(1), n)
        error = caught.value
        assert (error.args, error.step) == ((f"step {n}",), n)
        assert (type(error.message), type(error.step)) == (str, int)


@pytest.mark.parametrize("way", WAYS)
def test_texts_behave_as_strings(way: str) -> None:
    def f(x: Any, n: int) -> Any:
        text = f"{n} of " + str(n * 2) + f"{x.sum().item():.1f}"
        found = [text == "1 of 22.0", text < "5", "of" in text, text[0], len(text), text.split()]
        found += [isinstance(text, str), type(text) is str, bool(text), text.upper(), text * 2]
        found += [
            {text: 1},
            text in {text},
            sorted([text, "1"]),
            f"{text:>20}|{text!r}",
            "%s!" % text,  # noqa: UP031
        ]
        found += [
            text + "!",
            "!" + text,
            list(text)[:2],
            dict(zip([text], [n], strict=True)),
            hash(text) == hash(""),
        ]
        found += [max(text, "z"), text.format(), "-".join(text), tuple(part for part in [text])]
        return found

    captured = WAYS[way](f)
    for n in (1, 2, 3, 12):
        expected, got = f(weft.ones(2), n), captured(weft.ones(2), n)
        assert same(got, expected), (got, expected)
        assert all(type(key) is str for part in got if type(part) is dict for key in part)
