"""Derivatives of reading and writing parts of tensors, and `scatter_add`, which they rest on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from index_cases import IDS, INDICES, numbers

import weft
from weft.core.bind import bind
from weft.core.tensor import type_of
from weft.ir.op import OPS
from weft.ops.index_cards import TENSOR

SCATTER_ADD = OPS["scatter_add"]


EVERY = pytest.mark.parametrize(("shape", "index"), INDICES, ids=IDS)


def wanted(x: weft.Tensor) -> weft.Tensor:
    return weft.tensor(x, requires_grad=True)


@EVERY
def test_read(shape: tuple[int, ...], index: Any) -> None:
    for x in (numbers(shape), numbers(shape, complex=True)):
        weft.check_grads(lambda x: x[index] * x[index], [x])


@EVERY
def test_read_adds_up_what_is_read_twice(shape: tuple[int, ...], index: Any) -> None:
    x = wanted(numbers(shape))
    part = x[index]
    g = numbers(part.shape, seed=1)
    part.backward(g)
    want = np.zeros(shape)
    np.add.at(want, index, g.numpy())
    np.testing.assert_allclose(x.grad.numpy(), want)


@EVERY
def test_write(shape: tuple[int, ...], index: Any) -> None:
    target = numbers(shape)[index].shape

    def write(x: weft.Tensor, value: weft.Tensor) -> weft.Tensor:
        out = x * 1.0
        out[index] = value
        return out * out

    further = (1, *target) if target else ()  # NumPy's rule: axes of size 1 in front are dropped
    for value in {target, target[1:], (), (1,) * len(target), further}:
        weft.check_grads(write, [numbers(shape), numbers(value, seed=1)])
    weft.check_grads(write, [numbers(shape, True), numbers(target, True, seed=1)])


def test_the_last_write_stays_and_has_the_gradient() -> None:
    x, value = wanted(weft.asarray([1.0, 1.0, 1.0])), wanted(weft.asarray([5.0, 6.0, 7.0, 8.0]))
    out = x * 1.0
    out[weft.asarray([2, 0, 2, 2])] = value
    out.backward(weft.asarray([10.0, 20.0, 30.0]))
    assert out.tolist() == [6.0, 1.0, 8.0]
    assert x.grad.tolist() == [0.0, 20.0, 0.0]
    assert value.grad.tolist() == [0.0, 10.0, 0.0, 30.0]


def test_a_number_that_is_written_takes_all_places() -> None:
    x, value = wanted(weft.asarray([1.0, 1.0, 1.0])), wanted(weft.asarray(5.0))
    out = x * 1.0
    out[:2] = value
    out.backward(weft.asarray([10.0, 20.0, 30.0]))
    assert (x.grad.tolist(), value.grad.tolist()) == ([0.0, 0.0, 30.0], 30.0)


def test_writes_in_a_loop() -> None:
    """Each write replaces the name's value; the reads before keep theirs."""
    x = wanted(weft.asarray([1.0, 2.0, 3.0]))
    out = weft.zeros(3) + 0.0
    for i in range(3):
        out[i] = x[i] * (out[i - 1] + 1.0)
    out[2].backward()
    # out[2] = x2 (x1 (x0 + 1) + 1)
    assert x.grad.tolist() == [6.0, 6.0, 5.0]


# --- scatter_add -------------------------------------------------------------------------------


def scattered(value: Any, shape: tuple[int, ...], index: Any) -> weft.Tensor:
    parts = index if isinstance(index, tuple) else (index,)
    arrays = [part for part in parts if isinstance(part, np.ndarray)]
    static = tuple(TENSOR if isinstance(part, np.ndarray) else part for part in parts)
    given = [weft.asarray(value), *map(weft.asarray, arrays)]
    out: weft.Tensor = bind(SCATTER_ADD, *given, shape=shape, index=static)
    types = [type_of(tensor) for tensor in given]
    assert SCATTER_ADD.infer(*types, shape=shape, index=static) == type_of(out)
    general = SCATTER_ADD.eval(
        np, *(t.numpy().astype(np.float64) if t is given[0] else t.numpy() for t in given),
        shape=shape, index=static,
    )  # fmt: skip
    np.testing.assert_allclose(out.numpy().astype(np.float64), general, rtol=1e-2)
    return out


def has_mask(index: Any) -> bool:
    parts = index if isinstance(index, tuple) else (index,)
    return any(isinstance(part, np.ndarray) and part.dtype == bool for part in parts)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int32"])
@pytest.mark.parametrize(
    ("shape", "index"),
    [(shape, index) for shape, index in INDICES if not has_mask(index)],  # masks become positions
    ids=repr,
)
def test_scatter_add(shape: tuple[int, ...], index: Any, dtype: str) -> None:
    part = np.zeros(shape)[index]
    value = np.arange(1, part.size + 1).reshape(part.shape)
    out = scattered(value.astype(getattr(weft, dtype).numpy), shape, index)
    want = np.zeros(shape)
    np.add.at(want, index, value)
    np.testing.assert_allclose(out.numpy().astype(np.float64), want, rtol=1e-2)


def test_scatter_add_rounds_narrow_sums_once() -> None:
    """257 ones: added up in bfloat16 itself they would stop at 256."""
    ones = np.ones(300, dtype=weft.bfloat16.numpy)
    out = scattered(ones, (2,), np.zeros(300, dtype=np.int64))
    assert out.astype(weft.float32).tolist() == [300.0, 0.0]


def test_scatter_add_says_what_does_not_fit() -> None:
    value = type_of(weft.zeros((3, 4)))
    with pytest.raises(weft.errors.ShapeError, match="no part"):
        SCATTER_ADD.infer(value, shape=(5, 4), index=(slice(2),))


def test_gradients_are_the_same_each_time() -> None:
    rng = np.random.default_rng(0)
    table = wanted(weft.asarray(rng.normal(size=(50, 8)).astype(np.float32)))
    rows = weft.asarray(rng.integers(0, 50, (1000,)))
    g = weft.asarray(rng.normal(size=(1000, 8)).astype(np.float32))
    first, second = (
        weft.autograd.grad(weft.take(table, rows, axis=0), table, g)[0].numpy() for _ in range(2)
    )
    np.testing.assert_array_equal(first, second)
