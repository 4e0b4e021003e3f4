"""Sizes that depend on data: one recording and one native program serve all of them.

Each op is a result, an inner value, inside of a gradient, and in a loop; with masks that choose
some elements, others, none and all. Nothing is recorded again, interpreted, or called in Python.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft.base.pytree import tree_leaves
from weft.runtime import card_calls
from weft.runtime.native import NativeProgram

Op = Callable[[Any, Any], Any]


_attend = weft.nn.functional.scaled_dot_product_attention


def _written(x: Any, m: Any) -> Any:
    (p,) = weft.nonzero(m)
    z = x * 1
    z[p] *= 2
    z[m] = z[m] + x[m]
    return z


def _experts(x: Any, m: Any) -> Any:
    out = x * 0
    chosen = m.astype(weft.int64) + (x[:, 0] > 0).astype(weft.int64)
    for k in range(3):
        (p,) = weft.nonzero(chosen == k)
        out[p] = x[p] @ (x.T @ x) * (k + 1)
    return out


def _listed(x: Any, m: Any) -> Any:
    rows, row, i = [], x[0], m.sum()
    while i >= 0:
        row = row * 0.5 + 1
        rows.append(row)
        i = i - 1
    return weft.stack(rows)


OPS: dict[str, Op] = {
    "mask": lambda x, m: x[m],
    "masked_select": lambda x, m: weft.masked_select(x, m[:, None]),
    "nonzero": lambda x, m: x[weft.nonzero(m)[0]],
    "repeat": lambda x, m: x.repeat(m.astype(weft.int64) * 2, axis=0),
    "repeat by one number": lambda x, m: x.repeat(m.sum().reshape(1), axis=0),
    "written by positions": _written,
    "experts": _experts,
    "list": _listed,
    "product": lambda x, m: x[m] @ x.T,
    "queries of attention": lambda x, m: _attend(x[m][None], x[None], x[None])[0],
    "keys of attention": lambda x, m: _attend(x[None], x[m][None], x[m][None])[0],
    "both parts": lambda x, m: weft.concat([x[m], x[~m]]),
    "rows of rows": lambda x, m: (x[m] * 2)[x[m][:, 0] > 0],
    "softmax": lambda x, m: weft.softmax(x[m], axis=-1),
}
INTEGERS: dict[str, Op] = {
    "argwhere": lambda x, m: weft.argwhere(x * m[:, None] > 0),
    "unique_all": lambda x, m: weft.unique_all(weft.floor(x[m] * 2)),
    "unique_values": lambda x, m: weft.unique_values(x * m[:, None] > 0),
    "unique_consecutive": lambda x, m: weft.unique_consecutive(m, return_counts=True),
    "unique of columns": lambda x, m: weft.unique(x[:, 0] * m, return_inverse=True),
}


def _total(value: Any) -> Any:
    total = weft.zeros(())
    for part in tree_leaves(value):
        total = total + (part.astype(weft.float32) ** 2).sum() * 0.1
    return total


def _in_loop(op: Op) -> Op:
    def loop(x: Any, m: Any) -> Any:
        total = weft.zeros(())
        for row in x.T:
            total = total + _total(op(x, weft.logical_and(m, row > 0)))
        return total

    return loop


USES: dict[str, Callable[[Op], Op]] = {
    "result": lambda op: op,
    "inner": lambda op: lambda x, m: _total(op(x, m)),
    "gradient": lambda op: weft.grad(lambda x, m: _total(op(x, m))),
    "loop": _in_loop,
    "gradient of a loop": lambda op: weft.grad(_in_loop(op)),
}
#: Where an operand is empty, a product with more than that in its kernel is left to the cards.
CARDS = ("product", "queries of attention", "keys of attention")
#: `list_all` in the body of a loop is a list in a loop; its gradient is tested elsewhere.
LOOPS_APART = ("list",)

CASES = [
    (name, use) for name in OPS for use in USES if not (name in LOOPS_APART and "loop" in use)
] + [(name, use) for name in INTEGERS for use in ("result", "inner", "loop")]


def _calls() -> list[tuple[Any, Any]]:
    rng = np.random.default_rng(7)
    masks = [rng.random(6) > 0.5, rng.random(6) > 0.2, np.zeros(6, bool), np.ones(6, bool)]
    return [(rng.standard_normal((6, 4)).astype(np.float32), mask) for mask in masks]


def _same(found: Any, wanted: Any) -> None:
    mine, theirs = tree_leaves(found), tree_leaves(wanted)
    assert len(mine) == len(theirs)
    for a, b in zip(mine, theirs, strict=True):
        assert a.shape == b.shape
        assert a.dtype is b.dtype
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=2e-4, atol=1e-4)


@pytest.mark.parametrize(("name", "use"), CASES)
def test_one_native_program(name: str, use: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise AssertionError("not by machine code")

    monkeypatch.setattr(NativeProgram, "_interpret", fail)
    if name not in CARDS:
        monkeypatch.setattr(card_calls, "_run_empty", fail)
    function = USES[use]((OPS | INTEGERS)[name])
    compiled = weft.compile(function, backend="native")
    for x, mask in _calls():
        _same(
            compiled(weft.asarray(x), weft.asarray(mask)),
            function(weft.asarray(x), weft.asarray(mask)),
        )
    assert len(compiled.recordings) == 1
    (executable,) = compiled.programs
    assert isinstance(executable.program, NativeProgram)
    assert executable.program.calls == []


@pytest.mark.parametrize("name", ["mask", "both parts", "experts", "repeat", "rows of rows"])
def test_sizes_of_inputs_vary_too(name: str) -> None:
    """Two recordings: that of the first call, and one with the sizes of inputs as names."""
    function = OPS[name]
    compiled = weft.compile(function, backend="native")
    rng = np.random.default_rng(3)
    for n in (3, 5, 1, 9, 0, 4):
        x, mask = rng.standard_normal((n, 4)).astype(np.float32), rng.random(n) > 0.4
        _same(
            compiled(weft.asarray(x), weft.asarray(mask)),
            function(weft.asarray(x), weft.asarray(mask)),
        )
    assert len(compiled.recordings) == 2


@pytest.mark.parametrize("name", ["mask", "product", "unique_all", "written by positions"])
def test_check_mode(name: str) -> None:
    """Check mode finds no access beyond a buffer, and nothing that is not written."""
    for use in ("result", "gradient of a loop") if name in OPS else ("result",):
        function = USES[use]((OPS | INTEGERS)[name])
        compiled = weft.compile(function, backend="native", check=True)
        for x, mask in _calls():
            _same(
                compiled(weft.asarray(x), weft.asarray(mask)),
                function(weft.asarray(x), weft.asarray(mask)),
            )


def test_the_backward_is_called_later() -> None:
    """The result is differentiated outside: its backward takes the sizes from what was kept."""
    compiled = weft.compile(lambda x, m: x[m] ** 2 * 3, backend="native")
    for x, mask in _calls():
        given = weft.tensor(x, requires_grad=True)
        (compiled(given, weft.asarray(mask)) ** 2).sum().backward()
        wanted = np.where(mask[:, None], 36 * x**3, 0)
        np.testing.assert_allclose(given.grad.numpy(), wanted, rtol=1e-4, atol=1e-5)
    assert len(compiled.recordings) == 1


# --- questions -----------------------------------------------------------------------------------


def _paths(function: Any) -> int:
    compiled = weft.compile(function, backend="native")
    for x, mask in _calls():
        found = compiled(weft.asarray(x), weft.asarray(mask))
        wanted = function(weft.asarray(x), weft.asarray(mask))
        if isinstance(found, (int, str)):
            assert found == wanted
        else:
            _same(found, wanted)
    return len(compiled.recordings)


@pytest.mark.parametrize(
    ("function", "count"),
    [
        (lambda x, m: x[m].shape[0], 1),
        (lambda x, m: x[m].sum() / len(x[m]) if m.any() else x.sum(), 1),
        (lambda x, m: x[m].sum() if x[m].shape[0] > 2 else x, 2),
        (lambda x, m: x[m].sum() if x[m].shape[0] == 0 else x[m].mean(), 2),
        (lambda x, m: f"{x[m].shape[0]} rows", 4),  # Python needs the number itself
    ],
)
def test_what_the_code_asks(function: Any, count: int) -> None:
    """A decision is a question of the recording; only where a number is needed, each has a path."""
    assert _paths(function) == count


@pytest.mark.parametrize(
    ("function", "error"),
    [
        (lambda x, m: x[m].max(axis=0), weft.errors.ShapeError),
        (lambda x, m: x[m][4], IndexError),
        (lambda x, m: x.repeat(m.astype(weft.int64) * 2 - 1, axis=0), ValueError),
    ],
)
def test_errors_are_those_of_eager(function: Any, error: type[Exception]) -> None:
    compiled = weft.compile(function, backend="native")
    ones, (x, none) = weft.ones(6, dtype=weft.bool), _calls()[2]
    _same(compiled(weft.asarray(x), ones), function(weft.asarray(x), ones))
    for run in (function, compiled):
        with pytest.raises(error):
            run(weft.asarray(x), weft.asarray(none))


def _count_in_a_branch(x: Any, m: Any) -> Any:
    if x.sum() > 0:
        x = x + weft.unique_values(m).shape[0] * x
    return x


def _count_in_a_loop(x: Any, m: Any) -> Any:
    k = weft.zeros((), dtype=weft.int64)
    while k < 2:
        k = k + 1
        x = x * m[m > 1].shape[0] + weft.full((m[m > 1].shape[0],), 2.0).sum() * x
    return x


@pytest.mark.parametrize("backend", ["interpret", "native"])
@pytest.mark.parametrize("function", [_count_in_a_branch, _count_in_a_loop])
def test_the_backward_of_a_branch_or_loop_knows_its_sizes(function: Any, backend: str) -> None:
    compiled = weft.compile(
        lambda x, m: weft.grad(lambda x: function(x, m).sum())(x), backend=backend
    )
    outside = weft.compile(function, backend=backend)
    for values in ([3.0, 1.0, 3.0, 2.0], [1.0, 1.0], []):
        m, grads = weft.tensor(values), []
        for call in (function, outside):
            x = weft.tensor([0.5, 2.0], requires_grad=True)
            call(x, m).sum().backward()
            assert x.grad is not None
            grads.append(x.grad.tolist())
        assert grads[1] == grads[0]
        assert compiled(weft.tensor([0.5, 2.0]), m).tolist() == grads[0]
