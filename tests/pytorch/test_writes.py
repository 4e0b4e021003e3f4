"""Writes in `weft.torch`: `x.data`, and what PyTorch would write to another tensor as well."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import weft
import weft.torch as torch
import weft.torch.nn as nn
from weft.errors import LostWriteWarning


def matrix() -> Any:
    return torch.zeros(2, 3)


def item_of_item() -> None:
    x = matrix()
    x[0][1] = 5


def item_of_view() -> None:
    x = matrix()
    x.view(-1)[0] = 9


def method_of_item() -> None:
    x = matrix()
    x[0].zero_()


def named_row() -> None:
    x = matrix()
    y = x[0]
    y += 1


def named_view() -> None:
    x = matrix()
    y = x.view(-1)
    y[0] = 9


def named_transpose() -> None:
    x = matrix()
    y = x.t()
    y.zero_()


def row_of_a_loop() -> None:
    x = matrix()
    for row in x:
        row += 1


LOST = [item_of_item, item_of_view, method_of_item, named_row, named_view, named_transpose]
LOST += [row_of_a_loop]


@pytest.mark.parametrize("program", LOST, ids=lambda f: f.__name__)
def test_a_write_that_pytorch_shows_elsewhere_warns(program: Any) -> None:
    with pytest.warns(LostWriteWarning):
        program()


@pytest.mark.parametrize("backend", ["interpret", "native"])
def test_a_write_to_a_view_of_an_argument_warns_in_compiled_code(backend: str) -> None:
    def f(x: Any) -> Any:
        y = x[0].view(-1)
        y[0] = 3
        return y

    with pytest.warns(LostWriteWarning, match="shares memory"):
        assert torch.compile(f, backend=backend)(matrix()).sum() == 3

    def g(x: Any) -> Any:
        y = (x * 2).view(-1)
        y.add_(1)
        z = x[0].clone()
        z.add_(1)
        x[1] += 1
        return y, z

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        y, z = torch.compile(g, backend=backend)(matrix())
    assert (y.sum(), z.sum()) == (6, 3)


def row_in_place() -> None:
    x = matrix()
    x[0] += 1
    assert x.sum() == 3


def part_in_place() -> None:
    x = matrix()
    x[:, 1] = 4
    x[0, :2] += 1
    assert x.tolist() == [[1, 5, 0], [0, 4, 0]]


def view_of_nothing_else() -> None:
    x = torch.zeros(6).view(2, 3)
    x[0] = 1
    x += 1
    assert x.sum() == 9


def rebound_to_its_view() -> None:
    x = torch.zeros(6)
    x = x.view(2, 3)
    x += 1
    assert x.sum() == 6


def copy_of_a_row() -> None:
    x = matrix()
    y = x[0].clone()
    y += 1
    assert (x.sum(), y.sum()) == (0, 3)


@pytest.mark.parametrize(
    "program",
    [row_in_place, part_in_place, view_of_nothing_else, rebound_to_its_view, copy_of_a_row],
    ids=lambda f: f.__name__,
)
def test_other_writes_do_not_warn(program: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program()


def test_what_is_the_tensor_itself_in_pytorch_is_it_here() -> None:
    x = matrix()
    same = [x.float(), x.contiguous(), x.cpu(), x.to("cpu"), x.type_as(x), torch.real(x)]
    same += [x.to(torch.float32), x.type(torch.float32), torch.atleast_2d(x), torch.as_tensor(x)]
    assert all(y is x for y in same)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for other in (x.repeat(1, 1), x.tile(1, 1), x.clone(), x + 0, x.to(x, copy=True)):
            other.add_(1)
    assert x.sum() == 0


def test_a_write_to_data_is_a_write_to_the_tensor() -> None:
    p = nn.Parameter(torch.ones(3))
    p.data.zero_()
    assert p.tolist() == [0, 0, 0]
    p.data += 2
    p.data[1] = 7
    assert p.tolist() == [2, 7, 2]
    p.data = torch.ones(3)
    p.detach().mul_(3)
    assert p.tolist() == [3, 3, 3]
    nn.init.constant_(p.data, 4.0)
    assert p.tolist() == [4, 4, 4]
    assert p.requires_grad
    assert p.is_leaf
    value = p.data
    assert not value.requires_grad
    (value * 2).sum()
    assert p.grad is None


def test_a_write_to_data_in_compiled_code() -> None:
    p = nn.Parameter(torch.ones(2))

    @torch.compile
    def decay(p: Any) -> None:
        p.data.mul_(0.5)

    for want in (0.5, 0.25, 0.125):
        decay(p)
        assert p.tolist() == [want, want]


def test_what_detach_gives_does_not_keep_the_history() -> None:
    x = torch.ones(2, requires_grad=True)
    loss = (x * 2).sum()
    kept = loss.detach()
    del loss
    kept += 1  # its owner is gone
    assert kept.item() == 5


# --- casts ---------------------------------------------------------------------------------------

MASK = torch.tensor([True, False, True])
#: Ways to write a value; each gives the array that NumPy's casts make of it.
CASTING: dict[str, tuple[Any, Any]] = {
    "x[0] = v": (lambda x, v: x.__setitem__(0, v), [0]),
    "x[:2] = v": (lambda x, v: x.__setitem__(slice(2), v), [0, 1]),
    "x[mask] = v": (lambda x, v: x.__setitem__(MASK, v), [0, 2]),
    "fill_": (lambda x, v: x.fill_(v), [0, 1, 2]),
    "masked_fill_": (lambda x, v: x.masked_fill_(MASK, v), [0, 2]),
    "masked_fill": (lambda x, v: x.copy_(torch.masked_fill(x, MASK, v)), [0, 2]),
    "index_fill_": (lambda x, v: x.index_fill_(0, torch.tensor([1]), v), [1]),
    "scatter_": (lambda x, v: x.scatter_(0, torch.tensor([1]), v), [1]),
    "full_like": (lambda x, v: x.copy_(torch.full_like(x, v)), [0, 1, 2]),
}
WRITTEN = (0, 2, 1.5, True, torch.tensor(1.5), torch.tensor(3))


@pytest.mark.parametrize("backend", [None, "interpret"])
@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.float32], ids=str)
@pytest.mark.parametrize("name", CASTING)
def test_what_is_written_is_cast(name: str, dtype: Any, backend: str | None) -> None:
    write, places = CASTING[name]
    of_tensors = name not in ("scatter_", "full_like")  # PyTorch takes numbers there

    def run(x: Any, v: Any) -> Any:
        x = x.clone()
        write(x, v)
        return x

    f = run if backend is None else torch.compile(run, backend=backend)
    for value in WRITTEN if of_tensors else WRITTEN[:4]:
        x = torch.tensor([0, 1, 1], dtype=dtype)
        wanted = x.numpy().copy()
        wanted[places] = np.asarray(value).astype(wanted.dtype)
        found = f(x, value)
        assert found.dtype is dtype
        assert found.tolist() == wanted.tolist()


def test_results_in_place_are_cast_within_their_kind() -> None:
    x, ints = torch.ones(2), torch.tensor([1, 2], dtype=torch.int32)
    x += torch.ones(2, dtype=torch.float64)
    ints *= torch.tensor([2, 3])
    assert (x.dtype, ints.dtype) == (torch.float32, torch.int32)
    assert (x.tolist(), ints.tolist()) == ([2.0, 2.0], [2, 6])
    x[0] = torch.tensor([[5.0]])
    assert x.tolist() == [5.0, 2.0]
    with pytest.raises(weft.errors.DTypeError, match="cannot hold"):
        ints += torch.ones(2)
    with pytest.raises(weft.errors.ShapeError):
        x[0] = torch.ones(1, 2)
