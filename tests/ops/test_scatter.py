"""Scatter, ranks, counts: errors, in-place methods, narrow floats, native programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import weft
from weft.errors import DTypeError, GradientError, IndexError, RangeError, ShapeError, WeftError

X = np.arange(12.0, dtype=np.float32).reshape(3, 4)
AT = np.array([[2, 0, 0, 1]])
ONES = np.ones((1, 4), dtype=np.float32)


def tensors(*arrays: Any) -> list[weft.Tensor]:
    return [weft.asarray(a) for a in arrays]


# --- errors ------------------------------------------------------------------------------------

x, at, ones = tensors(X, AT, ONES)
WRONG: dict[str, tuple[Callable[[], Any], type[WeftError], str]] = {
    "beyond": (lambda: weft.gather(x, 0, at + 2), IndexError, r"index 4 .*out of (range|bounds)"),
    "before": (lambda: weft.scatter_add(x, 0, at - 9, ones), IndexError, "out of range"),
    "a float index": (lambda: weft.gather(x, 0, ones), IndexError, "must be of integers"),
    "axes": (lambda: weft.gather(x, 0, at[0]), ShapeError, "x has 2 axes and index 1"),
    "too wide": (
        lambda: weft.gather(x, 0, weft.zeros((1, 5), dtype=weft.int64)),
        ShapeError,
        "size 5 along axis 1, where x has 4",
    ),
    "too few": (lambda: weft.scatter(x, 0, at, ones[:, :2]), ShapeError, "has no element for each"),
    "a float into ints": (
        lambda: weft.scatter_add(at, 0, at, ones),
        DTypeError,
        "cannot be written",
    ),
    "no reduction": (lambda: weft.scatter_reduce(x, 0, at, ones, "max"), WeftError, "one of sum"),
    "parts": (lambda: weft.index_add(x, 0, at[0], ones), ShapeError, r"\(4, 4\) is needed"),
    "a segment": (
        lambda: weft.segment_sum(x, weft.asarray([0, -1, 1]), 2),
        IndexError,
        "out of range",
    ),
    "no segment": (
        lambda: weft.segment_max(x, weft.asarray([0, 5, 1]), 2),
        IndexError,
        "out of range",
    ),
    "segments": (lambda: weft.segment_sum(x, at[0], 3), ShapeError, "for each row"),
    "too few values": (
        lambda: weft.masked_scatter(x, x > -1, ones),
        IndexError,
        "index 4 is out of (range|bounds)",
    ),
    "k": (lambda: weft.topk(x, 5), RangeError, "k is 5, and the axis has 4"),
    "k from 1": (lambda: weft.kthvalue(x, 0), RangeError, "k=1"),
    "q": (lambda: weft.quantile(x, 1.5), RangeError, "from 0 to 1"),
    "q of a tensor": (
        lambda: weft.quantile(x, weft.asarray([-0.1])),
        IndexError,
        "out of (range|bounds)",
    ),
    "a method": (lambda: weft.quantile(x, 0.5, method="cubic"), RangeError, "one of linear"),
    "negative numbers": (lambda: weft.bincount(at[0] - 1), RangeError, "must not be negative"),
    "bins": (lambda: weft.histc(x, 0), RangeError, "at least one"),
    "einsum sizes": (lambda: weft.einsum("ij,jk", x, x), ShapeError, "sizes 4 and 3"),
    "einsum axes": (lambda: weft.einsum("i,jk", x, x), ShapeError, "operand 0 has 2 axes"),
    "einsum operands": (lambda: weft.einsum("ij", x, x), ShapeError, "1 terms, .* 2 operands"),
    "einsum result": (lambda: weft.einsum("ij->k", x), ShapeError, "'k' of the result"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_calls(name: str) -> None:
    call, error, said = WRONG[name]
    with pytest.raises(error, match=said) as raised:
        call()
    assert "test_scatter.py" in str(raised.value)  # the user's line


def reads(i: weft.Tensor) -> weft.Tensor:
    return weft.scatter_add(weft.zeros((3, 4)), 0, i, weft.ones((1, 4)))


def test_wrong_indices_in_native_code() -> None:
    run = weft.compile(reads, backend="native")
    np.testing.assert_array_equal(run(at).numpy()[0], [0, 1, 1, 0])
    with pytest.raises(IndexError, match="out of range"):
        run(at + 2)
    np.testing.assert_array_equal(run(at).numpy()[0], [0, 1, 1, 0])


# --- in place ----------------------------------------------------------------------------------

IN_PLACE: dict[str, tuple[Any, ...]] = {
    "scatter": (0, AT, ONES),
    "scatter_add": (0, AT, ONES),
    "scatter_reduce": (0, AT, ONES, "prod"),
    "index_add": (1, AT[0], X),
    "index_copy": (1, AT[0], X),
    "index_fill": (1, AT[0], 7.0),
    "index_put": ((AT[0],), 5.0),
    "put": (AT, ONES),
    "masked_scatter": (X > 4, X),
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place(name: str) -> None:
    """The name holds the result; no other tensor changes, and gradients flow as without."""
    arguments = [
        weft.asarray(a)
        if isinstance(a, np.ndarray)
        else tuple(map(weft.asarray, a))
        if isinstance(a, tuple)
        else a
        for a in IN_PLACE[name]
    ]
    want = getattr(weft, name)(x, *arguments)
    leaf = weft.tensor(X, requires_grad=True)
    y = leaf * 1
    kept = y.detach()
    out = getattr(y, f"{name}_")(*arguments)
    assert out is y
    np.testing.assert_array_equal(y.numpy(), want.numpy())
    np.testing.assert_array_equal(kept.numpy(), X)
    weft.sum(y * y).backward()
    gradient = weft.grad(lambda v: weft.sum(getattr(weft, name)(v, *arguments) ** 2))(x)
    np.testing.assert_array_equal(leaf.grad.numpy(), gradient.numpy())
    with pytest.raises(GradientError, match="leaf"):
        getattr(leaf, f"{name}_")(*arguments)


def test_in_place_in_a_loop_of_compiled_code() -> None:
    def count(numbers: weft.Tensor) -> weft.Tensor:
        total = weft.zeros(4)
        for number in numbers:
            total.scatter_add_(0, number, weft.ones(2))
        return total

    numbers = weft.asarray([[0, 3], [3, 3], [1, 0]])
    for backend in ("native", "interpret"):
        got = weft.compile(count, backend=backend)(numbers)
        np.testing.assert_array_equal(got.numpy(), [2, 1, 0, 3])


# --- order and rounding ------------------------------------------------------------------------


def test_the_last_write_counts_whatever_the_layout() -> None:
    """NumPy goes over index arrays in the order of memory."""
    index = np.array([[0, 1], [0, 1], [1, 0]])
    value = np.arange(6.0).reshape(3, 2)
    for flip in (np.s_[::-1, ::-1], np.s_[:, ::-1]):
        i, v = np.ascontiguousarray(index[flip])[flip], np.ascontiguousarray(value[flip])[flip]
        y = weft.zeros(2)
        y[weft.asarray(i)] = weft.asarray(v)
        np.testing.assert_array_equal(y.numpy(), [5, 4])
    turned = weft.zeros(2)
    turned[weft.asarray(index.T.copy()).T] = weft.asarray(value)
    np.testing.assert_array_equal(turned.numpy(), [5, 4])


@pytest.mark.parametrize("backend", ["eager", "native", "interpret"])
def test_narrow_floats_are_rounded_once(backend: str) -> None:
    def add(y: weft.Tensor, i: weft.Tensor, v: weft.Tensor) -> weft.Tensor:
        return weft.scatter_add(y, 0, i, v)

    run = add if backend == "eager" else weft.compile(add, backend=backend)
    start = weft.asarray(np.array([256.0, 1.0], dtype=ml_dtypes.bfloat16))
    many = weft.ones(100, dtype=weft.bfloat16)
    got = run(start, weft.zeros(100, dtype=weft.int64), many)
    assert got.dtype is weft.bfloat16
    np.testing.assert_array_equal(got.numpy().astype(np.float32), [356.0, 1.0])


def test_products_with_zeros_have_second_derivatives() -> None:
    index = weft.asarray([0, 0, 1, 0, 1])
    for values in ([0.0, 2, 3, 4, 5], [0.0, 0, 3, 4, 0], [1.0, 2, 3, 4, 5]):
        given = weft.asarray(np.array(values))
        start = weft.asarray(np.array([2.0, 0.0, 7.0]))
        weft.check_grads(
            lambda y, v: weft.scatter_reduce(y, 0, index, v, "prod"), (start, given), order=2
        )


# --- native programs ---------------------------------------------------------------------------

NATIVE: dict[str, Callable[..., Any]] = {
    "gather": lambda v, i: weft.gather(v, 0, i),
    "scatter": lambda v, i: weft.scatter(v, 0, i, v),
    "scatter_reduce": lambda v, i: [
        weft.scatter_reduce(v, 0, i, v, how) for how in ("sum", "prod", "mean", "amax", "amin")
    ],
    "index_add": lambda v, i: weft.index_add(v, 1, i[0], v),
    "masked_scatter": lambda v, i: weft.masked_scatter(v, v > 3, v),
    "segment_softmax": lambda v, i: weft.segment_softmax(v, i[0, :3], 3),
    "topk": lambda v, i: weft.topk(v, 2),
    "median": lambda v, i: weft.median(v, axis=1),
    "quantile": lambda v, i: weft.quantile(v, [0.1, 0.7], axis=1),
    "mode": lambda v, i: weft.mode(v, 1),
    "cummax": lambda v, i: weft.cummax(v, 0),
    "logcumsumexp": lambda v, i: weft.logcumsumexp(v, 1),
    "bincount": lambda v, i: weft.bincount(i[0], length=5),
    "histogram": lambda v, i: weft.histogram(v, 4),
    "isin": lambda v, i: weft.isin(i, v.astype(weft.int64)),
    "searchsorted": lambda v, i: weft.searchsorted(v, v + 0.5),
    "einsum": lambda v, i: weft.einsum("ij,kj,kl->il", v, v, v),
}


@pytest.mark.parametrize("name", NATIVE)
def test_native_programs_call_no_python(name: str) -> None:
    f = NATIVE[name]

    def loss(v: weft.Tensor, i: weft.Tensor) -> Any:
        out = f(v, i)
        first = out[0] if isinstance(out, (list, tuple)) else out
        return weft.sum(first.astype(weft.float32) ** 2)

    for function in (f, weft.grad(loss)):
        graph = weft.make_graph(function, x, at)
        program = weft.runtime.native.NativeProgram(weft.optimize(graph))
        assert not list(program.calls), program.calls
