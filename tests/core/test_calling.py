"""The forms in which a public function may be called give one result, in every mode."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft.core.calling import PLACED, SPELLINGS
from weft.core.public import PUBLIC

X = weft.asarray(np.arange(12.0).reshape(2, 3, 2))

#: A call as the Array API has it, and others that mean the same.
FORMS: list[tuple[Callable[[Any], Any], ...]] = [
    (lambda x: x.sum(axis=0), lambda x: x.sum(0), lambda x: x.sum(dim=0), lambda x: weft.sum(x, 0)),
    (
        lambda x: x.sum(axis=0, keepdims=True),
        lambda x: x.sum(0, True),
        lambda x: x.sum(0, keepdim=True),
    ),
    (lambda x: x.sum(axis=(0, 1)), lambda x: x.sum((0, 1)), lambda x: weft.sum(x, dim=(0, 1))),
    (lambda x: x.max(axis=1), lambda x: x.max(1), lambda x: x.max(dim=1)),
    (
        lambda x: x.std(axis=1, correction=1),
        lambda x: x.std(1, unbiased=True),
        lambda x: x.std(1, ddof=1),
    ),
    (lambda x: x.softmax(axis=1), lambda x: x.softmax(1), lambda x: weft.softmax(x, dim=1)),
    (
        lambda x: weft.stack([x, x], axis=1),
        lambda x: weft.stack([x, x], 1),
        lambda x: weft.stack([x, x], dim=1),
    ),
    (
        lambda x: weft.concat([x, x], axis=1),
        lambda x: weft.concat([x, x], 1),
        lambda x: weft.concat([x, x], dim=1),
    ),
    (
        lambda x: weft.reshape(x, (4, -1)),
        lambda x: x.reshape(4, -1),
        lambda x: x.view(4, 3),
        lambda x: weft.reshape(x, shape=(4, 3)),
        lambda x: weft.reshape(x, 4, 3),
    ),
    (
        lambda x: weft.permute_dims(x, (0, 2, 1)),
        lambda x: x.permute(0, 2, 1),
        lambda x: x.permute([0, 2, 1]),
        lambda x: x.permute(dims=(0, 2, 1)),
    ),
    (
        lambda x: weft.tile(x, (2, 1, 2)),
        lambda x: x.tile(2, 1, 2),
        lambda x: x.tile(dims=(2, 1, 2)),
    ),
    (lambda x: weft.flip(x, axis=0), lambda x: x.flip(0), lambda x: x.flip(dims=(0,))),
    (
        lambda x: weft.roll(x, 1, axis=0),
        lambda x: x.roll(1, 0),
        lambda x: weft.roll(x, shifts=1, dims=0),
    ),
    (lambda x: weft.flatten(x, 1, 2), lambda x: x.flatten(start_dim=1), lambda x: x.flatten(1)),
    (lambda x: weft.squeeze(x[:1], 0), lambda x: x[:1].squeeze(), lambda x: x[:1].squeeze(dim=0)),
    (lambda x: weft.broadcast_to(x[:, :1], (2, 5, 2)), lambda x: x[:, :1].expand(-1, 5, -1)),
    (
        lambda x: weft.sort(x, axis=1, descending=True),
        lambda x: x.sort(1, True),
        lambda x: x.sort(dim=1, descending=True),
    ),
    (lambda x: weft.diff(x, axis=1, n=2), lambda x: x.diff(2, 1), lambda x: weft.diff(x, 2, dim=1)),
    (
        lambda x: weft.linalg.vector_norm(x, axis=1, ord=1),
        lambda x: weft.linalg.vector_norm(x, 1, 1),
    ),
    (
        lambda x: weft.fft.rfft(x, n=4, axis=1),
        lambda x: weft.fft.rfft(x, 4, 1),
        lambda x: weft.fft.rfft(x, n=4, dim=1),
    ),
    (lambda x: weft.tril(x, k=1), lambda x: x.tril(1), lambda x: x.tril(diagonal=1)),
    (
        lambda x: weft.cumulative_sum(x, axis=1),
        lambda x: x.cumulative_sum(1),
        lambda x: x.cumulative_sum(dim=1),
    ),
    (
        lambda x: weft.take_along_axis(x, x[:, :1].astype(weft.int64) * 0, axis=1),
        lambda x: x.take_along_axis(x[:, :1].astype(weft.int64) * 0, 1),
    ),
    (lambda x: weft.expand_dims(x, 1), lambda x: x.unsqueeze(dim=1), lambda x: x.unsqueeze(1)),
    (lambda x: x + weft.full((2, 1, 1), 3), lambda x: x + weft.full(size=(2, 1, 1), fill_value=3)),
    (lambda x: x + weft.linspace(0, 1, 2), lambda x: x + weft.linspace(0, 1, steps=2)),
]


@pytest.mark.parametrize("forms", FORMS, ids=lambda forms: str(FORMS.index(forms)))
def test_all_forms_mean_the_same(forms: tuple[Callable[[Any], Any], ...]) -> None:
    plain, *others = forms
    for other in others:
        assert np.array_equal(other(X), plain(X))
        compiled = weft.compile(other)
        assert np.array_equal(compiled(X), plain(X))
        assert np.array_equal(compiled(X + 1), plain(X + 1))
        stacked = weft.stack([X, X + 1])
        assert np.array_equal(weft.vmap(other)(stacked), weft.vmap(plain)(stacked))
        wants = weft.grad(lambda x, f=other: weft.abs(f(x) * 2.0).sum())(X)
        assert np.array_equal(wants, weft.grad(lambda x: weft.abs(plain(x) * 2.0).sum())(X))


@pytest.mark.parametrize("make", [weft.zeros, weft.ones, weft.empty, weft.rand, weft.randn])
def test_shapes_of_new_tensors(make: Any) -> None:
    shapes = [make(2, 3), make((2, 3)), make([2, 3]), make(shape=(2, 3)), make(size=(2, 3))]
    assert [x.shape for x in shapes] == [(2, 3)] * 5
    assert make(4).shape == make(shape=4).shape == (4,)
    assert make(()).shape == ()
    leaf = make(2, 3, dtype=weft.float64, requires_grad=True)
    assert leaf.requires_grad
    assert leaf.is_leaf
    assert leaf.dtype is weft.float64
    assert weft.compile(lambda x: x + make(2, 3).shape[1])(weft.zeros(1)).tolist() == [3.0]


def test_every_function_with_an_axis_takes_dim() -> None:
    """The rule holds for all public functions, not for a list of them."""
    for name, entry in PUBLIC.items():
        shown = inspect.signature(entry.function).parameters
        written = inspect.signature(inspect.unwrap(entry.function)).parameters
        for own in ("axis", "axes", "keepdims", "start_axis"):
            parameter = written.get(own)
            if parameter is not None and parameter.default is not parameter.empty:
                assert SPELLINGS[own][0] in shown, name
        placed = [p for p in written if p in shown and shown[p].kind is not written[p].kind]
        assert set(placed) <= PLACED, name


ERRORS: list[tuple[Callable[[], Any], str]] = [
    (lambda: X.sum(0, dim=1), "sum: got both axis and dim"),
    (lambda: X.sum(dmi=1), "sum: there is no argument 'dmi'.*did you mean dim"),
    (lambda: X.sum(0, weft.float32), "sum: keepdims must be True or False.*dtype="),
    (lambda: X.sum(0, out=X), "nothing to write into"),
    (lambda: weft.zeros((2, 3), weft.float32), "zeros: shape may be.*dtype="),
    (lambda: weft.zeros(2, 3, shape=(2, 3)), "zeros: got both shape and shape"),
    (lambda: weft.zeros(), "zeros: shape is missing"),
    (lambda: weft.full(fill_value=3), "full: shape is missing"),
    (lambda: X.unsqueeze(), "expand_dims: axis is missing"),
    (lambda: weft.max(X, X), "max: axis must be an int.*maximum"),
    (lambda: weft.max(weft.asarray([1, 2]), weft.asarray(0)), "max: axis must be an int.*maximum"),
    (lambda: X.std(False), "axis must be an int, not False"),
    (lambda: X.repeat(2, 1), r"x\.tile\(2, 1\)"),
    (lambda: weft.randn(2, requires_gard=True), "did you mean requires_grad"),
]


@pytest.mark.parametrize("number", range(len(ERRORS)))
def test_wrong_arguments_are_named(number: int) -> None:
    call, said = ERRORS[number]
    with pytest.raises(TypeError, match=f"(?s){said}"):
        call()


def test_the_function_is_shown_as_it_is_called() -> None:
    assert list(inspect.signature(weft.sum).parameters) == [
        *("x", "axis", "keepdims", "dtype", "dim", "keepdim")
    ]
    assert weft.sum.__doc__ is not None
    assert weft.sum.__name__ == weft.sum.__qualname__ == "sum"
    assert inspect.getsource(weft.sum).startswith('@public("sum")')
