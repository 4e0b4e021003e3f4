"""Source capture: what is refused, what the error shows, and the ways around it."""

from __future__ import annotations

import inspect
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from source_constructs import IN

import weft
from weft.capture.from_source import branches
from weft.errors import CaptureError


def undefined_name(x):
    if x.sum() > 0:
        y = x
    return y


def types_differ(x):
    if x.sum() > 0:
        y = x
    else:
        y = x[:1]
    return y


def structures_differ(x):
    while x.sum() < 10:
        made = x * 2 if x.sum() > 0 else (x, x)
        x = x + 1
    return made


def carry_grows(x):
    while x.sum() < 10:
        x = weft.concat([x, x])
    return x


def asks_inside(x):
    while x.sum() < 10:
        x = x * float(x.numpy()[0])
    return x


def foreign(x):
    return x + np.cbrt(x)


def strings_differ(x):
    while x.sum() < 10:
        name = "small"
        if x.sum() > 3:
            name = "large"
        x = x + {"small": 1, "large": 2}[name]
    return x


ERRORS = [
    (undefined_name, "'y' is used here, and it has no value where the condition does not hold"),
    (types_differ, "'y' is f64.2. where the condition holds .*: y = x.*f64.1. where .*x.:1."),
    (structures_differ, "the value is f64\\[2\\] .*x . 2 if.* and a tuple .*\\(x, x\\)"),
    (carry_grows, "'x' is f64\\[2\\] before the loop, and f64\\[4\\] after the body .*concat"),
    (
        asks_inside,
        "asks a tensor .f64.*. for its value .tolist, numpy.(.|\n)*x = x . float.x.numpy.*",
    ),
    (foreign, "numpy.cbrt: this function takes numbers(.|\n)*weft.py_call"),
    (strings_differ, "'name' is the str 'large' .* and the str 'small'"),
]


@pytest.mark.parametrize(("function", "message"), ERRORS, ids=lambda e: getattr(e, "__name__", ""))
def test_errors(function: Any, message: str) -> None:
    for x in IN[:2]:
        with pytest.raises(CaptureError, match=message) as caught:
            weft.compile(function)(x)
        assert "test_source_errors.py" in str(caught.value)
        assert caught.value.hint


def test_no_source() -> None:
    names: dict[str, Any] = {}
    exec("def made(x):\n    return x", names)
    made = names["made"]
    with pytest.raises(CaptureError, match="cannot be converted: there is no source"):
        weft.compile(lambda x: made(x))(weft.ones(1))


def test_errors_are_those_of_the_path_that_is_taken() -> None:
    def division(x, i):
        if x.sum() > 0:
            return x / [1, 2][1]
        return x / {"a": 1}["b"]

    compiled = weft.compile(division)
    assert compiled(weft.ones(1), 0).tolist() == [0.5]
    with pytest.raises(KeyError):
        compiled(-weft.ones(1), 0)


def test_both_sides_raise() -> None:
    def refuses(x):
        if x.sum() > 0:
            raise ValueError("positive")
        raise KeyError("negative")

    compiled = weft.compile(refuses)
    with pytest.raises(ValueError, match="positive"):
        compiled(weft.ones(1))
    with pytest.raises(KeyError):
        compiled(-weft.ones(1))


def test_a_name_that_only_the_loop_defines() -> None:
    def last(x):
        while x.sum() < 4:
            y = x * 2
            x = x + 1
        return y

    compiled = weft.compile(last)
    assert compiled(weft.ones(1)).tolist() == [6.0]
    with pytest.raises(UnboundLocalError, match="'y' has no value where the loop ends before"):
        compiled(weft.ones(1) * 5)


def unset_after_a_return(x, n):
    if x.sum() > 0:
        return x + extra  # noqa: F821
    extra = x
    return extra


def unset_in_a_loop(x, n):
    for _ in range(n):
        while x.sum() < 4:
            x = x + step  # noqa: F821
        step = 1.0  # noqa: F841
    return x


def unset_in_a_condition(x, n):
    y = unset if n > 1 else x  # noqa: F821
    unset = x
    return y + unset


def unset_and_added_to(x, n):
    if n > 1:
        total += x  # noqa: F821
    total = x
    return total


UNSET = (unset_after_a_return, unset_in_a_loop, unset_in_a_condition, unset_and_added_to)


@pytest.mark.parametrize("function", UNSET, ids=lambda f: f.__name__)
def test_a_name_without_a_value_is_the_error_of_python(function: Any) -> None:
    """Parts of a function become functions of their own, in which Python says NameError."""
    with pytest.raises(UnboundLocalError) as wanted:
        function(weft.ones(1), 2)
    name = str(wanted.value).split("'")[1]
    with pytest.raises(UnboundLocalError, match=f"variable '{name}'"):
        weft.compile(function)(weft.ones(1), 2)


def test_a_name_without_a_value_can_be_caught() -> None:
    def caught(x, n):
        try:
            if n > 1:
                return x + late  # noqa: F821
        except UnboundLocalError:
            x = x * 2
        late = x
        return late

    compiled = weft.compile(caught)
    for n in (1, 2, 1):
        assert compiled(weft.ones(1), n).tolist() == caught(weft.ones(1), n).tolist()


def test_a_name_that_only_the_else_of_a_loop_gives_anew() -> None:
    """It is dead at the end of the loop, and what a loop in it leaves there does not matter."""

    def last(x, v):
        a, more = x * 1.0, x > 0.3
        while more:
            for row in v:
                a = row * 2
            more = x > 1
        else:
            a = v[0] * 2
        return a

    compiled = weft.compile(last)
    for x in (0.1, 0.5):
        args = weft.asarray(x), weft.asarray([1.0, 2.0, 3.0])
        assert compiled(*args).tolist() == last(*args).tolist()


def test_py_call_and_fallback() -> None:
    def ranked(x):
        order = weft.py_call(lambda v: np.argsort(v.numpy()), weft.spec(2, weft.int64), x)
        return x[order] if x.sum() > 0 else x

    compiled = weft.compile(ranked)
    for x in (IN[0], IN[3], IN[1]):
        assert compiled(x).tolist() == ranked(x).tolist()
    assert len(compiled.recordings) == 1
    called = weft.compile(foreign, fallback="python")
    for x in IN:
        assert np.allclose(called(x), foreign(x))
    assert any(node.op.name == "py_call" for node in called.paths()[0].nodes)


@pytest.mark.parametrize("n", [0, 3])
@pytest.mark.parametrize("positive", [True, False])
def test_no_gradient_passes_through_py_call_in_control_flow(n: int, positive: bool) -> None:
    def f(x: Any, n: Any) -> Any:
        y = x * 1
        for _ in range(n):
            y = y + x * weft.py_call(lambda v: v.numpy() * 2, weft.spec(2, "float64"), x)
        return weft.py_call(lambda v: -v.numpy(), weft.spec(2, "float64"), y) if x[0] > 0 else y

    value = [1.0 if positive else -1.0, 2.0]
    x = weft.asarray(value, dtype="float64").requires_grad_()
    made = weft.compile(f)(x, weft.asarray(n))
    expected = np.array(value) + 2 * n * np.array(value) ** 2
    assert np.allclose(made.detach(), -expected if positive else expected)
    made.sum().backward()
    slope = np.zeros(2) if positive else 1 + 2 * n * np.array(value)
    assert np.allclose(np.zeros(2) if x.grad is None else x.grad.numpy(), slope)


def _descent(x0: Any, n: Any) -> Any:
    x, k = x0.detach().requires_grad_(), 0
    while k < n:
        (x**4).sum().backward()
        x = (x - 0.1 * x.grad).detach().requires_grad_()
        k += 1
    return x.detach(), k


def _carried_loss(x: Any, n: Any) -> Any:
    w = weft.ones(2).requires_grad_()
    loss = ((w * x) ** 2).sum()
    while loss > 0.1 * n:
        (g,) = weft.autograd.grad(loss, w)
        with weft.no_grad():
            w -= 0.1 * g
        loss = ((w * x) ** 2).sum()
    return w.detach(), loss.detach()


def _growing_history(w: Any, n: Any) -> Any:
    w = w.detach().requires_grad_()
    y, k, g = w * 1, 0, weft.zeros(2)
    while k < n:
        y = y * 2
        k += 1
        g = g + weft.autograd.grad(y.sum(), w, retain_graph=True)[0]
    return g, k


def _grows(x: Any, n: Any) -> Any:
    k = 0
    while k < n:
        x = weft.concat([x[:2], x])
        x = x[:3] + weft.ones(x.shape[0] - 1)
        k += 1
    return x, k


@pytest.mark.parametrize("function", [_descent, _carried_loss, _growing_history, _grows])
def test_no_iteration_is_lost(function: Any) -> None:
    """An error in recording an iteration after the first is not taken for one of the program's."""
    x, compiled = weft.tensor([0.5, -0.7]), weft.compile(function)
    for n in (1, 2, 3):
        try:
            wanted = function(x, weft.tensor(n))
        except weft.errors.WeftError:
            with pytest.raises(weft.errors.WeftError):
                compiled(x, weft.tensor(n))
            continue
        try:
            found = compiled(x, weft.tensor(n))
        except weft.errors.CaptureError:
            continue
        for a, b in zip(found, wanted, strict=True):
            assert float(weft.abs(weft.asarray(a) - b).sum()) < 1e-5


# --- whose error it is: the program's, which a branch raises where it is taken, or ours -----------


class NoText:
    def __str__(self) -> Any:
        return 3


def _key(x):
    return {}["a"] * x


def prints_no_text(x):
    if x.sum() > 0:
        print(NoText())  # here
    return -x


def chooses_by_many(x):
    if x.sum() > 0:
        return weft.cond(x, lambda: x, lambda: -x)  # here
    return -x


def multiplies_other_sizes(x):
    if x.sum() > 0:
        y = x * 2
        return y @ weft.ones(3)  # here
    return -x


def fails_in_a_function(x):
    if x.sum() > 0:
        y = x * 2
        return _key(y)  # here
    return -x


def scans_nothing(x):
    if x.sum() > 0:
        if x.sum() > 1:
            return weft.scan(lambda c, _: (c, c), x, None)[0]  # here
    return -x


@pytest.mark.parametrize("backend", ["interpret", "native"])
@pytest.mark.parametrize(
    "function",
    [prints_no_text, chooses_by_many, multiplies_other_sizes, fails_in_a_function, scans_nothing],
)
def test_an_error_of_the_program_is_raised_where_its_side_is_taken(
    function: Any, backend: str
) -> None:
    """Files were told by their names once, and those names had changed: it was raised always."""
    compiled = weft.compile(function, backend=backend)
    for number in (-1.0, 3.0, -2.0):
        x = weft.full((2,), number)
        if number < 0:
            np.testing.assert_array_equal(compiled(x).numpy(), function(x).numpy())
            continue
        with pytest.raises(Exception) as eager:  # noqa: PT011
            function(x)
        with pytest.raises(eager.type) as found:
            compiled(x)
        assert type(found.value) is eager.type
        lines, start = inspect.getsourcelines(function)
        here = start + next(i for i, line in enumerate(lines) if line.endswith("# here\n"))
        seen = [(entry.path.name, entry.lineno + 1) for entry in found.traceback]
        assert (Path(__file__).name, here) in seen


def test_a_mistake_of_ours_is_not_an_error_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    def f(x):
        if x.sum() > 0:
            if x.sum() > 1:
                x = x * 2
            return x
        return -x

    def broken(*_args: Any) -> Any:
        raise KeyError("a mistake")

    monkeypatch.setattr(branches, "_merged_entries", broken)
    with pytest.raises(weft.errors.InternalError, match="a KeyError while control flow is recor"):
        weft.compile(f)(-weft.ones(2))


def branches_of_different_sizes(x):
    if x.sum() > 0:
        which = (x.sum() > 1).astype(weft.int64)
        return weft.switch(which, [lambda: x, lambda: x[:1]]).sum()
    return x.sum()


def carries_of_different_structures(x):
    if x.sum() > 0:
        return weft.scan(lambda c, _: ((c[0], c[0]), c[0]), (x,), None, length=2)[1].sum()
    return x.sum()


@pytest.mark.parametrize("function", [branches_of_different_sizes, carries_of_different_structures])
def test_what_only_a_graph_cannot_do_is_refused_on_a_side_too(function: Any) -> None:
    """Plain Python can: so it is an error of the recording, on whichever side it stands."""
    function(weft.ones(2))
    with pytest.raises(CaptureError) as found:
        weft.compile(function)(-weft.ones(2))
    assert isinstance(found.value, (weft.errors.ShapeError, weft.errors.DTypeError))


def test_a_traceback_names_each_function_once() -> None:
    """Bodies of branches and loops are functions of their own in rewritten code; nobody sees it."""
    with pytest.raises(CaptureError) as found:
        weft.compile(carries_of_different_structures)(-weft.ones(2))
    entries = traceback.extract_tb(found.value.__traceback__)
    here = [(entry.name, entry.line) for entry in entries if entry.filename == __file__]
    assert [name for name, _ in here[1:]] == ["carries_of_different_structures"]
    assert "weft.scan" in here[1][1]


WRONG_CALLS: list[Any] = [
    lambda x: len(),  # type: ignore[call-arg]
    lambda x: getattr(x),  # type: ignore[call-overload]
    lambda x: isinstance(x),  # type: ignore[call-arg]
    lambda x: next(),  # type: ignore[call-overload]
    lambda x: sum(),  # type: ignore[call-overload]
    lambda x: reversed(),  # type: ignore[call-overload]
    lambda x: setattr(x, "a"),  # type: ignore[call-arg]
    lambda x: bool(1, 2),  # type: ignore[call-arg]
]


@pytest.mark.parametrize("capture", [weft.trace, weft.compile])
@pytest.mark.parametrize("wrong", WRONG_CALLS)
def test_wrong_arguments_of_a_builtin(wrong: Any, capture: Any) -> None:
    """The error is the builtin's own: no name of Weft's inner functions is in it."""
    with pytest.raises(TypeError) as eager:
        wrong(weft.ones(2))
    with pytest.raises(TypeError) as found:
        capture(wrong)(weft.ones(2))
    assert str(found.value) == str(eager.value)
