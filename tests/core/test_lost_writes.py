"""Writes to tensors that nobody holds: `x[0][1] = 5` changes nothing, and says so at the line."""

from __future__ import annotations

import operator
import re
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import weft
from weft.base.errors import LostWriteWarning
from weft.core import temporaries

MODES: dict[str, Callable[..., Any]] = {
    "eager": lambda function: function,
    "trace": weft.trace,
    "compile": weft.compile,
}
in_all_modes = pytest.mark.parametrize("mode", MODES)

needs_counts = pytest.mark.skipif(
    temporaries.ITEM_OF_TEMPORARY < 0, reason="this Python counts no temporaries"
)

WEIGHT = weft.nn.Parameter(weft.ones((3, 3)))
HELD = [weft.zeros(3)]

# --- writes that go nowhere --------------------------------------------------------------------


def item_of_an_item(x: Any) -> None:
    x[0][1] = 5


def item_by_a_name(x: Any) -> None:
    i = 1
    x[i][1] = 5


def item_of_a_slice(x: Any) -> None:
    x[1:][0] = 5


def item_of_a_mask(x: Any) -> None:
    x[x > 0][0] = 5


def slice_of_an_item(x: Any) -> None:
    x[0, :][1:2] = 5


def item_of_a_view(x: Any) -> None:
    x.view(-1)[0] = 9


def item_of_a_transpose(x: Any) -> None:
    x.T[0] = 1


def item_of_a_function(x: Any) -> None:
    weft.reshape(x, (-1,))[0] = 1


def item_of_data(x: Any) -> None:
    WEIGHT.data[0] = x[0]


def augmented_item(x: Any) -> None:
    x[-1][1] += 5


def method_of_an_item(x: Any) -> None:
    x[0].zero_()


def method_of_data(x: Any) -> None:
    WEIGHT.data.copy_(x)


def in_a_loop(x: Any) -> None:
    for i in range(2):
        x[0][i] = 5


def in_a_branch(x: Any) -> None:
    if x.sum() > 0:
        x[0].copy_(x[1])


#: function -> how the warning says to fix it
LOST: dict[Callable[[Any], None], str] = {
    item_of_an_item: "x[0, 1] = …",
    item_by_a_name: "x[i, 1] = … if i is an integer; else part = x[i]; part[1] = …; x[i] = part",
    item_of_a_slice: "part = x[1:]; part[0] = …; x[1:] = part",
    item_of_a_mask: "part = x[x > 0]; part[0] = …; x[x > 0] = part",
    slice_of_an_item: "part = x[0, :]; part[1:2] = …; x[0, :] = part",
    item_of_a_view: "y = x.view(-1); y[0] = …; and use y from then on",
    item_of_a_transpose: "y = x.T; y[0] = …; and use y from then on",
    item_of_a_function: "y = weft.reshape(x, (-1,)); y[0] = …; and use y from then on",
    item_of_data: "with weft.no_grad(): WEIGHT[0] = …",
    augmented_item: "x[-1, 1] = …",
    method_of_an_item: "part = x[0]; part.zero_(); x[0] = part",
    method_of_data: "with weft.no_grad(): WEIGHT.copy_(…)",
    in_a_loop: "x[0, i] = …",
    in_a_branch: "part = x[0]; part.copy_(…); x[0] = part",
}


@in_all_modes
@pytest.mark.parametrize("function", LOST, ids=lambda function: function.__name__)
@needs_counts
def test_a_lost_write_is_told(mode: str, function: Callable[[Any], None]) -> None:
    def run(x: Any) -> Any:
        function(x)
        return x + 0

    x = weft.ones((3, 3))
    with pytest.warns(LostWriteWarning, match=re.escape(f"to fix: {LOST[function]}")) as seen:
        out = MODES[mode](run)(x)
    assert (out == 1).all()
    assert (WEIGHT == 1).all()
    code = function.__code__
    for warning in seen:
        assert warning.filename == __file__
        assert code.co_firstlineno < warning.lineno <= code.co_firstlineno + 3


# --- writes that somebody sees -----------------------------------------------------------------


class Holder:
    def __init__(self) -> None:
        self.value = weft.zeros(3)
        self.many = {"a": [weft.zeros(3)]}

    @property
    def seen(self) -> Any:
        return self.value

    def get(self) -> Any:
        return self.value


HOLDER = Holder()


def names(x: Any) -> None:
    x[0] = 1
    x[0] += 2
    x[0, 1] = 3
    y = x[0]
    y[1] = 4
    y.zero_()
    y.__setitem__(0, 5)
    operator.setitem(y, 0, 6)


def variables_of_functions_around(x: Any) -> None:
    y = x[0]

    def inner() -> None:
        y[1] = 3
        y.zero_()

    inner()


def items_and_attributes(x: Any) -> None:
    HELD[0][1] = x[0, 0]
    HOLDER.value[0] = 1
    HOLDER.many["a"][0][1] = 2
    HOLDER.many["a"][0].zero_()


def results_that_are_held(x: Any) -> None:
    HOLDER.get()[0] = x[0, 1]
    HOLDER.seen[1] = 2
    HOLDER.get().zero_()


def gradients(x: Any) -> None:
    WEIGHT.grad = weft.zeros((3, 3))
    WEIGHT.grad[0] = x[0]
    WEIGHT.grad.zero_()


def results_that_are_used(x: Any) -> None:
    y = x[0].zero_()
    z = weft.zeros(3).requires_grad_()
    assert (y.shape, z.shape) == ((3,), (3,))


def loops(x: Any) -> None:
    for row in x:
        row[0] = 1
    for _, row in enumerate([x[0], x[1]]):
        row.zero_()
    assert len([row.zero_() for row in x]) == 3


def argument(part: Any) -> None:
    part[0] = 1
    part.zero_()


def arguments(x: Any) -> None:
    argument(x[0])
    argument(part=x[1])


def named_in_an_expression(x: Any) -> None:
    (y := x[0])[1] = 4
    assert y.shape == (3,)


def methods_of_others(x: Any) -> None:
    model = weft.nn.Sequential(weft.nn.Linear(3, 3))
    model[0].requires_grad_(False)
    HOLDER.many["a"].append(x)
    HOLDER.many["a"].pop()


SEEN = [
    *(names, variables_of_functions_around, items_and_attributes, results_that_are_held),
    *(gradients, results_that_are_used, loops, arguments, named_in_an_expression),
    methods_of_others,
]


@in_all_modes
@pytest.mark.parametrize("function", SEEN, ids=lambda function: function.__name__)
def test_no_false_alarm(mode: str, function: Callable[[Any], None]) -> None:
    def run(x: Any) -> Any:
        function(x)
        return x + 0

    WEIGHT.grad = None
    for _ in range(3):
        with warnings.catch_warnings():
            warnings.simplefilter("error", LostWriteWarning)
            MODES[mode](run)(weft.ones((3, 3)))
    WEIGHT.grad = None


@needs_counts
def test_code_without_source() -> None:
    with pytest.warns(LostWriteWarning, match="give the new tensor a name"):
        exec("x[0][1] = 3", {"x": weft.ones((2, 2))})


def test_where_counts_tell_nothing_nobody_warns(monkeypatch: Any) -> None:
    """As on Python 3.14, which counts no references of local names to the stack."""
    same = temporaries._found(temporaries._item_of_temporary, temporaries._item_of_temporary)
    assert same == -1
    monkeypatch.setattr("weft.ops.index.ITEM_OF_TEMPORARY", same)
    x = weft.ones((2, 2))
    x[0][1] = 5
    assert (x == 1).all()


def test_a_method_in_place_that_there_is_not() -> None:
    x = weft.ones((2, 2))
    with pytest.raises(AttributeError, match=r"no attribute 'flip_'; say x = x\.flip\(\.\.\.\)"):
        x[0].flip_(0)
    with pytest.raises(AttributeError, match=r"no attribute 'stuff_'$"):
        x[0].stuff_(1)
    with pytest.warns(LostWriteWarning, match=r"x\[0\]\.add_\(1\) goes nowhere"):
        x[0].add_(1)
