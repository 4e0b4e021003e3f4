"""NumPy's functions on tensors are Weft's, with gradients; none is lost in silence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft.base.errors import GradientError
from weft.core.public import PUBLIC
from weft.ops.numpy_protocol import COUNTERPARTS

ARRAY = np.array([[0.5, 1.0, -2.0], [1.5, 2.0, 3.0]])

#: Each is computed by NumPy of an array, and by Weft of a tensor.
CALLS: list[Callable[[Any], Any]] = [
    lambda x: np.sin(x) + np.add(ARRAY, x) + ARRAY * x + np.float64(2) * x - ARRAY / x,
    lambda x: ARRAY.T @ x,
    lambda x: np.power(x, 2) + np.maximum(x, 0.25) + np.arctan2(x, ARRAY),
    lambda x: np.sum(x, 0) + np.mean(x, axis=0) + np.std(x, 0, ddof=1) + np.max(x, 0),
    lambda x: np.prod(x, axis=1, keepdims=True) * np.var(x),
    lambda x: np.transpose(x) @ np.reshape(x, (2, 3)),
    lambda x: np.transpose(np.stack([x, ARRAY]), (1, 2, 0)),
    lambda x: np.concatenate([x, ARRAY], 1) + np.concatenate((x, x), axis=1),
    lambda x: np.where(x > 0, x, 0.0) + np.where(ARRAY > 0, 1.0, x),
    lambda x: np.clip(x, None, 1.6) * np.clip(x, -1.1, 1.2),
    lambda x: np.linalg.norm(x) + np.linalg.norm(x, axis=1) + np.linalg.norm(x, 1),
    lambda x: np.dot(x, ARRAY.T) + np.dot(ARRAY, np.dot(2.0, x).T),
    lambda x: np.cumsum(x, axis=1) + np.roll(x, 1, 0) + np.flip(x, 1) + np.sort(x),
    lambda x: np.expand_dims(x, 1) * np.squeeze(x[:1]) + np.moveaxis(x[None], 0, 1),
    lambda x: np.tile(x, (2, 1)) + np.repeat(x, 2, axis=0) + np.broadcast_to(x[0], (4, 3)),
    lambda x: np.real(np.fft.fft(x, axis=1)) + np.copy(x) * np.size(x) * np.shape(x)[0],
]


@pytest.mark.parametrize("number", range(len(CALLS)))
def test_values_and_gradients(number: int) -> None:
    call = CALLS[number]
    leaf = weft.tensor(ARRAY, requires_grad=True)
    made = call(leaf)
    assert isinstance(made, weft.Tensor)
    assert made.requires_grad
    want = call(ARRAY)
    np.testing.assert_allclose(made.detach().numpy(), want, rtol=1e-12)
    weft.check_grads(lambda x: (call(x) ** 2).sum(), [weft.asarray(ARRAY)], order=1)
    compiled = weft.compile(lambda x: call(x))
    for values in (ARRAY, ARRAY + 0.25):
        np.testing.assert_allclose(compiled(weft.asarray(values)).numpy(), call(values), rtol=1e-12)
    stacked = weft.vmap(call)(weft.asarray(np.stack([ARRAY, ARRAY])))
    np.testing.assert_allclose(stacked.numpy()[1], want, rtol=1e-12)


LOSES: list[Callable[[Any], Any]] = [
    lambda x: np.cbrt(x),
    lambda x: np.median(x),
    lambda x: np.add.reduce(x),
    lambda x: np.add(ARRAY, x, dtype=np.float32),
    lambda x: np.round(x, 1),
]


@pytest.mark.parametrize("number", range(len(LOSES)))
def test_a_gradient_is_never_dropped(number: int) -> None:
    call = LOSES[number]
    with pytest.raises(GradientError, match="a gradient would be lost"):
        call(weft.tensor(ARRAY, requires_grad=True))
    assert np.array_equal(call(weft.asarray(ARRAY)), call(ARRAY))


def test_an_array_is_not_written_before_it_is_refused() -> None:
    array = np.zeros_like(ARRAY)
    array += weft.asarray(ARRAY)
    assert np.array_equal(array, ARRAY)
    with pytest.raises(GradientError):
        array += weft.tensor(ARRAY, requires_grad=True)
    assert np.array_equal(array, ARRAY)


def test_questions_have_answers_without_gradients() -> None:
    leaf = weft.tensor(ARRAY, requires_grad=True)
    assert np.array_equal(leaf, ARRAY)
    assert np.allclose(leaf, ARRAY)
    assert np.argmax(leaf) == 5
    assert np.shape(leaf) == (2, 3)
    assert np.ndim(leaf) == 2
    assert np.asarray(leaf).flags.writeable is False  # its values, as leaf.numpy()


def test_the_table_names_functions_that_exist() -> None:
    names = {ours for ours in COUNTERPARTS.values() if isinstance(ours, str)}
    assert names <= set(PUBLIC)
