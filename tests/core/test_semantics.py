"""Values, not aliases: no write shows anywhere but in the tensor written to."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft

ALIASES: dict[str, Callable[[weft.Tensor], weft.Tensor]] = {
    "slice": lambda x: x[:],
    "row": lambda x: x[0],
    "reshape": lambda x: x.reshape(-1),
    "transpose": lambda x: x.T,
    "broadcast": lambda x: weft.broadcast_to(x, (3, *x.shape)),
    "positive": lambda x: +x,
    "real": weft.real,
    "astype": lambda x: x.astype(x.dtype),
    "to_device": lambda x: x.to_device("cpu"),
    "clone": lambda x: x.clone(),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "asarray": weft.asarray,
    "tensor": weft.tensor,
    "from_dlpack": weft.from_dlpack,
    "pickle": lambda x: pickle.loads(pickle.dumps(x)),
    "clip": lambda x: weft.clip(x),
    "roll": lambda x: weft.roll(x, 0, axis=0),
    "diff": lambda x: weft.diff(x, n=0),
    "mean of one": lambda x: weft.mean(x, axis=()),
    "concat of one": lambda x: weft.concat([x]),
    "where": lambda x: weft.where(weft.asarray(True), x, x),
}
WRITES: dict[str, Callable[[weft.Tensor], Any]] = {
    "element": lambda x: x.__setitem__((0,) * x.ndim, -1),
    "all": lambda x: x.__setitem__(..., -1),
    "mask": lambda x: x.__setitem__(x > 0, -1),
    "gather": lambda x: x.__setitem__(weft.asarray([0]), -1),
    "+=": lambda x: x.__iadd__(5),
    "*= tensor": lambda x: x.__imul__(weft.ones(x.shape) * 3),
    "-= itself": lambda x: x.__isub__(x),
    "/=": lambda x: x.__itruediv__(2.0),
    "**=": lambda x: x.__ipow__(2),
    "//=": lambda x: x.__ifloordiv__(3),
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("alias", ALIASES)
def test_no_write_shows_in_another_tensor(alias: str, write: str) -> None:
    start = np.arange(1.0, 7.0, dtype=np.float32).reshape(2, 3)
    x = weft.asarray(start)
    y = ALIASES[alias](x)
    kept = y.numpy(copy=True)
    WRITES[write](x)
    np.testing.assert_array_equal(y.numpy(), kept)
    x = weft.asarray(start)
    y = ALIASES[alias](x)
    WRITES[write](y)
    np.testing.assert_array_equal(x.numpy(), start)


def test_numpy_arrays_are_neither_changed_nor_watched() -> None:
    array = np.arange(4.0)
    x = weft.asarray(array)
    x[0] = 9
    array[1] = 9
    assert array.tolist() == [0, 9, 2, 3]
    assert x.tolist() == [9, 1, 2, 3]


def test_numpy_view_is_read_only_and_does_not_change() -> None:
    x = weft.arange(3)
    view = x.numpy()
    with pytest.raises(ValueError, match="read-only"):
        view[0] = 5
    x[0] = 7
    assert view.tolist() == [0, 1, 2]
    own = x.numpy(copy=True)
    own[1] = 8
    assert x.tolist() == [7, 1, 2]


def test_shared_memory_only_when_asked() -> None:
    array = np.arange(3.0)
    x = weft.asarray(array, copy=False)
    array[0] = 5
    assert x.tolist() == [5, 1, 2]
    x[1] = 9  # ours is still never written
    assert array.tolist() == [5, 1, 2]
    with pytest.raises(ValueError, match="copy is needed"):
        weft.asarray([1.0], copy=False)
    with pytest.raises(ValueError, match="copy is needed"):
        weft.asarray(array, dtype=weft.int8, copy=False)


def test_in_place_keeps_the_object_dtype_and_shape() -> None:
    x = weft.ones((2, 2))
    same = x
    x += 1
    assert same is x
    assert same.tolist() == [[2, 2], [2, 2]]
    y = weft.ones(2, dtype=weft.int32)
    with pytest.raises(TypeError, match="cannot hold"):
        y += 0.5
    z = weft.ones(2)
    with pytest.raises(ValueError, match="cannot hold"):
        z += weft.ones((3, 2))
    half = weft.ones(2, dtype=weft.bfloat16)
    half *= 3
    assert half.dtype is weft.bfloat16
    assert half.tolist() == [3, 3]


def test_a_loop_of_writes_is_linear() -> None:
    """A copy for each of 100,000 writes would move 40 GB; the bound is far below that."""
    buffer = weft.zeros(100_000)
    address = None
    for i in range(0, 100_000, 1000):
        buffer[i] = 1
        now = buffer._data.ctypes.data
        assert address in (None, now), "the buffer was copied though nobody else holds it"
        address = now
    held = buffer[:]
    buffer[0] = 2
    assert buffer._data.ctypes.data != address
    assert held._data.ctypes.data == address


@given(
    st.lists(
        st.tuples(st.sampled_from(["write", "alias", "add", "drop"]), st.integers(0, 4)),
        max_size=30,
    )
)
def test_any_order_of_writes_and_aliases(steps: list[tuple[str, int]]) -> None:
    """Tensors behave as if every alias were a copy: the model is a list of NumPy copies."""
    tensors = [weft.arange(6)]
    model = [np.arange(6)]
    for number, (step, which) in enumerate(steps):
        i = which % len(tensors)
        if step == "alias":
            cut = slice(None, None, -1) if which % 2 else slice(None)
            tensors.append(tensors[i][cut])
            model.append(model[i][cut].copy())
        elif step == "write":
            tensors[i][which] = number
            model[i][which] = number
        elif step == "add":
            tensors[i] += number
            model[i] += number
        elif len(tensors) > 1:
            del tensors[i], model[i]
        for tensor, array in zip(tensors, model, strict=True):
            np.testing.assert_array_equal(tensor.numpy(), array)


def test_threads_have_their_own_results_and_recorders() -> None:
    results: dict[int, float] = {}

    def work(seed: int) -> None:
        x = weft.full(1000, float(seed))
        for _ in range(200):
            x = (x + 1) * 1.0 - 1
            x[0] = seed
        results[seed] = float(x.sum())

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {i: 1000.0 * i for i in range(8)}


def test_numpy_error_settings_are_neither_used_nor_changed() -> None:
    with np.errstate(all="raise"):
        inf = weft.asarray(1.0) / 0
        assert float(inf) == float("inf")
        assert weft.exp(weft.asarray(1000.0)).item() == float("inf")
        assert np.geterr()["divide"] == "raise"
        with pytest.raises(FloatingPointError):
            np.divide(1.0, 0.0)
