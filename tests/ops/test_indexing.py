"""x[…] and x[…] = v against NumPy: a table of indices, and drawn ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy_indices import INDICES, X
from op_calls import TypeChecker

import weft
from weft.core.bind import recording


def ids(index: Any) -> str:
    return repr(index).replace("\n", "")[:60]


def tensor_index(index: Any) -> Any:
    if isinstance(index, tuple):
        return tuple(tensor_index(part) for part in index)
    return weft.asarray(index) if isinstance(index, np.ndarray) else index


@pytest.mark.parametrize("index", INDICES, ids=ids)
def test_read(index: Any) -> None:
    x = weft.asarray(X)
    for key in (index, tensor_index(index)):  # NumPy arrays and tensors are both indices
        with recording(TypeChecker()):
            got = x[key]
        np.testing.assert_array_equal(got.numpy(), X[index])
        assert got.shape == X[index].shape


@pytest.mark.parametrize("index", INDICES, ids=ids)
@pytest.mark.parametrize("recorded", [False, True])
def test_write(index: Any, recorded: bool) -> None:
    """A number, and an array of the part's shape; in place, and as the recorded pure op."""
    for value in (-5, -np.arange(X[index].size).reshape(X[index].shape)):
        want = X.copy()
        want[index] = value
        x = weft.asarray(X)
        before = x[:]
        if recorded:
            with recording(TypeChecker()):
                x[tensor_index(index)] = weft.asarray(value)
        else:
            x[tensor_index(index)] = value
        np.testing.assert_array_equal(x.numpy(), want)
        np.testing.assert_array_equal(before.numpy(), X)


def test_repeated_indices_write_the_last_value() -> None:
    x = weft.zeros(3)
    x[weft.asarray([1, 1, 1])] = weft.asarray([1.0, 2.0, 3.0])
    assert x.tolist() == [0, 3, 0]


@pytest.mark.parametrize(
    ("shape", "index"),
    [
        ((3,), 3),
        ((3,), -4),
        ((3,), (0, 0)),
        ((2, 3), (0, 5)),
        ((), 0),
        ((3,), np.array([0, 3])),
        ((3,), np.array([-4])),
        ((3,), np.array([True, False])),
        ((3,), np.array([0.5])),
        ((3,), (..., ...)),
        ((3,), "a"),
        ((3,), 1.0),
        ((0,), 0),
    ],
)
def test_bad_index_is_an_index_error(shape: tuple[int, ...], index: Any) -> None:
    x = weft.zeros(shape)
    with pytest.raises(IndexError) as read:
        x[tensor_index(index)]
    with pytest.raises(IndexError):
        x[tensor_index(index)] = 1
    assert isinstance(read.value, weft.errors.IndexError)
    assert "test_indexing.py" in str(read.value)
    assert x.numpy().sum() == 0  # nothing was written


def test_a_failed_write_changes_nothing() -> None:
    x = weft.arange(4)
    with pytest.raises(IndexError):
        x[weft.asarray([0, 9])] = weft.asarray([7, 7])
    with pytest.raises(ValueError, match="does not fit"):
        x[:2] = weft.asarray([1, 2, 3])
    with pytest.raises(TypeError, match="float value cannot be written"):
        x[0] = 1.5
    with pytest.raises(OverflowError):
        weft.zeros(2, dtype=weft.int8)[0] = 300
    assert x.tolist() == [0, 1, 2, 3]


@given(data=st.data(), shape=hnp.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=4))
def test_drawn_basic_indices(data: st.DataObject, shape: tuple[int, ...]) -> None:
    x = np.arange(int(np.prod(shape))).reshape(shape)
    index = data.draw(hnp.basic_indices(shape, allow_newaxis=True, allow_ellipsis=True))
    with recording(TypeChecker()):
        np.testing.assert_array_equal(weft.asarray(x)[index].numpy(), x[index])


@given(data=st.data(), shape=hnp.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=4))
def test_drawn_integer_and_mixed_indices(data: st.DataObject, shape: tuple[int, ...]) -> None:
    x = np.arange(int(np.prod(shape))).reshape(shape)
    arrays = data.draw(hnp.integer_array_indices(shape))
    index = tuple(
        data.draw(st.sampled_from([part, slice(None), int(part.flat[0])]), label="part")
        if part.size
        else part
        for part in (arrays if isinstance(arrays, tuple) else (arrays,))
    )
    with recording(TypeChecker()):
        np.testing.assert_array_equal(weft.asarray(x)[tensor_index(index)].numpy(), x[index])
    value = -np.ones(x[index].shape, dtype=x.dtype)
    y = weft.asarray(x)
    y[tensor_index(index)] = value
    x[index] = value
    np.testing.assert_array_equal(y.numpy(), x)
