"""Pooling: values, places, derivatives of first and second order, dtypes, layouts and errors."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from op_calls import TypeChecker, tensors
from peer import figures

import weft
from weft.core.bind import bind, recording
from weft.ir.op import OPS
from weft.ops.pool import adaptive_avg_pool, adaptive_max_pool, avg_pool, max_pool

Array = np.ndarray[Any, Any]


def rand(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng([seed, *shape]).standard_normal(shape)


def few(*shape: int) -> Array:
    """Numbers of which many are equal."""
    return np.random.default_rng([7, *shape]).integers(-2, 3, shape).astype(np.float64)


# --- naive references --------------------------------------------------------------------------


def elements(
    at: tuple[int, ...], sizes: tuple[int, ...], options: dict[str, Any]
) -> list[tuple[int, ...]]:
    """The places that the window `at` reads, in order, without padding."""
    along = [
        [o * s + tap * d - low for tap in range(k)]
        for o, k, s, d, (low, _) in zip(
            at,
            options["kernel"],
            options["stride"],
            options["dilation"],
            options["padding"],
            strict=True,
        )
    ]
    return [
        place
        for place in itertools.product(*along)
        if all(0 <= p < n for p, n in zip(place, sizes, strict=True))
    ]


def window_counts(sizes: tuple[int, ...], options: dict[str, Any]) -> tuple[int, ...]:
    return tuple(
        (n + sum(pad) - d * (k - 1) - 1) // s + 1
        for n, k, s, d, pad in zip(
            sizes,
            options["kernel"],
            options["stride"],
            options["dilation"],
            options["padding"],
            strict=True,
        )
    )


def naive_max(x: Array, options: dict[str, Any]) -> tuple[Array, Array]:
    """The largest of each window, and its number, by a loop."""
    n = len(options["kernel"])
    before, sizes = x.shape[:-n], x.shape[-n:]
    counts = window_counts(sizes, options)
    out = np.full((*before, *counts), -np.inf)
    where = np.zeros((*before, *counts), np.int64)
    for lead in np.ndindex(*before):
        for at in np.ndindex(*counts):
            best = -np.inf
            for place in elements(at, sizes, options):
                value = x[(*lead, *place)]
                if value > best or (np.isnan(value) and not np.isnan(best)):
                    best = value
                    where[(*lead, *at)] = np.ravel_multi_index(place, sizes)
            out[(*lead, *at)] = best
    return out, where


def naive_sum(x: Array, options: dict[str, Any]) -> Array:
    n = len(options["kernel"])
    before, sizes = x.shape[:-n], x.shape[-n:]
    counts = window_counts(sizes, options)
    out = np.zeros((*before, *counts))
    for lead in np.ndindex(*before):
        for at in np.ndindex(*counts):
            out[(*lead, *at)] = sum(x[(*lead, *place)] for place in elements(at, sizes, options))
    return out


@st.composite
def pools(draw: Any) -> tuple[tuple[int, ...], dict[str, Any]]:
    axes = draw(st.integers(1, 3))

    def each(low: int, high: int) -> tuple[int, ...]:
        return tuple(draw(st.integers(low, high)) for _ in range(axes))

    before = tuple(draw(st.lists(st.integers(0, 2), max_size=2)))
    sizes = each(1, 6)
    options: dict[str, Any] = {
        "kernel": each(1, 3),
        "stride": each(1, 4),
        "dilation": each(1, 2),
        "padding": tuple(zip(each(-1, 2), each(-1, 2), strict=True)),
    }
    assume(
        all(
            n + sum(pad) >= d * (k - 1) + 1
            for n, k, d, pad in zip(
                sizes, options["kernel"], options["dilation"], options["padding"], strict=True
            )
        )
    )
    return (*before, *sizes), options


def run(name: str, *arrays: Array, **attrs: Any) -> Array:
    """A card's NumPy kernel, its evaluation rule and its type rule agree."""
    op = OPS[name]
    for array in arrays:
        array.flags.writeable = False
    with recording(TypeChecker()):
        got: Array = bind(op, *map(weft.asarray, arrays), **attrs).numpy()
    assert callable(op.eval)
    np.testing.assert_allclose(got, op.eval(np, *arrays, **attrs), atol=1e-12)
    return got


@settings(max_examples=150)
@given(case=pools(), values=st.sampled_from(["random", "equal", "nan"]))
def test_largest_against_loops(case: tuple[tuple[int, ...], dict[str, Any]], values: str) -> None:
    shape, options = case
    x = rand(*shape) if values == "random" else few(*shape)
    if values == "nan":
        x[x == 2] = np.nan
    want, where = naive_max(x, options)
    out = run("max_pool", x, **options)
    np.testing.assert_array_equal(out, want)
    some = np.isfinite(want) | np.isnan(want)  # windows that are not all padding
    at = run("max_pool_indices", x, out, **options)
    np.testing.assert_array_equal(at[some], where[some])
    # The two companions of the card go by these places.
    n = len(options["kernel"])
    v, g = rand(*shape, seed=1), rand(*out.shape, seed=2)
    flat, numbers = (a.reshape(*shape[:-n], math.prod(a.shape[-n:])) for a in (v, where))
    picked = np.take_along_axis(flat, numbers, -1)
    picked = np.where(some, picked.reshape(where.shape), 0)
    np.testing.assert_array_equal(run("max_pool_pick", v, x, out, **options), picked)
    routed = run("max_pool_input", g, x, out, **options)
    np.testing.assert_allclose(np.vdot(routed, v), np.vdot(g, picked), atol=1e-10)


@settings(max_examples=150)
@given(case=pools())
def test_sums_against_loops(case: tuple[tuple[int, ...], dict[str, Any]]) -> None:
    shape, options = case
    options = {**options, "dilation": (1,) * len(options["kernel"])}
    x = rand(*shape)
    want = naive_sum(x, options)
    del options["dilation"]
    np.testing.assert_allclose(run("sum_pool", x, **options), want, atol=1e-12)
    g = rand(*want.shape, seed=1)
    size = shape[len(shape) - len(options["kernel"]) :]
    spread = run("sum_pool_input", g, size=size, **options)
    np.testing.assert_allclose(np.vdot(spread, x), np.vdot(want, g), atol=1e-10)


# --- PyTorch -----------------------------------------------------------------------------------

#: name -> function, shape of x, arguments
POOLS: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "max1": ("max_pool", (2, 3, 9), {"kernel_size": 3}),
    "max_ceil1": ("max_pool", (2, 3, 8), {"kernel_size": 3, "stride": 2, "ceil_mode": True}),
    "max_gaps1": ("max_pool", (2, 3, 4), {"kernel_size": 2, "stride": 3, "ceil_mode": True}),
    "max_dilated1": ("max_pool", (2, 3, 8), {"kernel_size": 2, "stride": 2, "dilation": 2}),
    "max2": ("max_pool", (2, 3, 6, 8), {"kernel_size": 2}),
    "max_uneven2": ("max_pool", (1, 2, 7, 5), {"kernel_size": 2}),
    "max_overlap2": ("max_pool", (2, 3, 7, 8), {"kernel_size": 3, "stride": 2, "padding": 1}),
    "max_stride_one2": ("max_pool", (1, 2, 5, 5), {"kernel_size": 3, "stride": 1, "padding": 1}),
    "max_options2": (
        "max_pool",
        (2, 2, 9, 8),
        {"kernel_size": (2, 3), "stride": (3, 2), "padding": (1, 0), "dilation": (2, 1)},
    ),
    "max_ceil2": (
        "max_pool",
        (2, 2, 7, 6),
        {"kernel_size": 3, "stride": (2, 3), "padding": 1, "ceil_mode": True},
    ),
    "max_ceil_dropped2": (
        "max_pool",
        (1, 2, 4, 4),
        {"kernel_size": 2, "stride": 3, "padding": 1, "ceil_mode": True},
    ),
    "max_unbatched2": ("max_pool", (3, 6, 8), {"kernel_size": 2, "axes": 2}),
    "max3": ("max_pool", (1, 2, 4, 5, 6), {"kernel_size": 2, "stride": (2, 1, 3)}),
    "avg1": ("avg_pool", (2, 3, 9), {"kernel_size": 3}),
    "avg_gaps1": ("avg_pool", (2, 3, 4), {"kernel_size": 2, "stride": 3, "ceil_mode": True}),
    "avg2": ("avg_pool", (2, 3, 6, 8), {"kernel_size": 2}),
    "avg_padded2": ("avg_pool", (2, 3, 7, 8), {"kernel_size": 3, "stride": 2, "padding": 1}),
    "avg_excluded2": (
        "avg_pool",
        (2, 3, 7, 8),
        {"kernel_size": 3, "stride": 2, "padding": 1, "count_include_pad": False},
    ),
    "avg_ceil2": (
        "avg_pool",
        (1, 2, 7, 6),
        {"kernel_size": 3, "stride": (2, 2), "padding": 1, "ceil_mode": True},
    ),
    "avg_ceil_excluded2": (
        "avg_pool",
        (1, 2, 7, 6),
        {
            "kernel_size": (3, 2),
            "stride": 2,
            "padding": (1, 0),
            "ceil_mode": True,
            "count_include_pad": False,
        },
    ),
    "avg_divisor2": ("avg_pool", (1, 2, 5, 6), {"kernel_size": 2, "divisor_override": 3}),
    "avg_unbatched2": ("avg_pool", (3, 6, 8), {"kernel_size": (2, 4), "axes": 2}),
    "avg3": ("avg_pool", (1, 2, 4, 5, 6), {"kernel_size": (2, 3, 2), "padding": (1, 0, 1)}),
    "adaptive_max1": ("adaptive_max_pool", (2, 3, 10), {"output_size": 4}),
    "adaptive_max2": ("adaptive_max_pool", (2, 3, 7, 8), {"output_size": (3, 4)}),
    "adaptive_max_kept2": ("adaptive_max_pool", (1, 2, 7, 5), {"output_size": (None, 2)}),
    "adaptive_max_more2": ("adaptive_max_pool", (1, 2, 3, 4), {"output_size": (5, 6)}),
    "adaptive_max3": ("adaptive_max_pool", (1, 2, 4, 5, 6), {"output_size": (2, 3, 4)}),
    "adaptive_avg1": ("adaptive_avg_pool", (2, 3, 10), {"output_size": 4}),
    "adaptive_avg2": ("adaptive_avg_pool", (2, 3, 7, 8), {"output_size": (3, 4)}),
    "adaptive_avg_one2": ("adaptive_avg_pool", (2, 3, 7, 5), {"output_size": 1}),
    "adaptive_avg_more2": ("adaptive_avg_pool", (1, 2, 3, 4), {"output_size": (5, 6)}),
    "adaptive_avg_unbatched2": (
        "adaptive_avg_pool",
        (3, 7, 8),
        {"output_size": (3, None), "axes": 2},
    ),
    "adaptive_avg3": ("adaptive_avg_pool", (1, 2, 4, 5, 6), {"output_size": (2, 3, 4)}),
}

FUNCTIONS: dict[str, Any] = {
    f.__name__: f for f in (max_pool, avg_pool, adaptive_max_pool, adaptive_avg_pool)
}


def pieces(library: Any, function: Any, x: Array, options: dict[str, Any]) -> Array:
    """Of the result, the gradient, and the gradients of that: four random projections each."""
    point = library.tensor(x, requires_grad=True)
    y = function(point, **options)
    g = library.tensor(rand(*y.shape, seed=5), requires_grad=True)
    (grad,) = library.autograd.grad((y * y * g).sum(), (point,), create_graph=True)
    second = library.autograd.grad((grad * grad).sum(), (point, g))
    return np.stack([projected(part.detach().numpy()) for part in (y, grad, *second)])


def projected(array: Array) -> Array:
    return rand(4, array.size, seed=array.shape[-1]) @ array.ravel()


def test_pools_as_in_pytorch() -> None:
    def work(torch: Any) -> dict[str, Any]:
        found = {}
        for name, (function, shape, options) in POOLS.items():
            axes = options.get("axes", len(shape) - 2)
            given = {key: value for key, value in options.items() if key != "axes"}
            theirs = getattr(torch.nn.functional, f"{function}{axes}d")
            points = (rand(*shape), few(*shape))
            found[name] = np.stack([pieces(torch, theirs, x, given) for x in points])
            if "max" in name:
                _, at = theirs(torch.tensor(few(*shape)), **given, return_indices=True)
                found[f"{name}.at"] = at.short()
        return found

    want = figures("pool", work)
    for name, (function, shape, options) in POOLS.items():
        mine = FUNCTIONS[function]
        for x, parts in zip((rand(*shape), few(*shape)), want[name], strict=True):
            got = pieces(weft, mine, x, options)
            for part, ours, theirs in zip(("y", "dx", "ddx", "ddg"), got, parts, strict=True):
                np.testing.assert_allclose(
                    ours, theirs, rtol=1e-9, atol=1e-9, err_msg=f"{name}: {part}"
                )
        if "max" in name:
            y, at = mine(weft.asarray(few(*shape)), **options, return_indices=True)
            assert at.dtype is weft.int64
            np.testing.assert_array_equal(at.numpy(), want[f"{name}.at"], err_msg=name)
            np.testing.assert_array_equal(
                y.numpy(), mine(weft.asarray(few(*shape)), **options).numpy()
            )


# --- derivatives -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", POOLS)
def test_derivatives(name: str) -> None:
    function, shape, options = POOLS[name]
    x = weft.asarray(rand(*shape))
    weft.check_grads(lambda x: FUNCTIONS[function](x, **options) ** 2, [x], order=3)


def test_the_first_of_equals_gets_the_gradient() -> None:
    x = weft.tensor([[[1.0, 2.0, 2.0, 2.0, 0.0, 0.0]]], requires_grad=True)
    max_pool(x, 3).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[[0.0, 1.0, 0.0, 1.0, 0.0, 0.0]]]


def test_gradients_of_nan_and_inf_stay_where_they_belong() -> None:
    x = weft.tensor([[[1.0, 2.0, 4.0, 3.0]]], requires_grad=True)
    max_pool(x, 2).backward(weft.asarray([[[np.inf, np.nan]]]))
    assert x.grad is not None
    np.testing.assert_array_equal(x.grad.numpy(), [[[0.0, np.inf, np.nan, 0.0]]])


def test_nan_is_the_largest() -> None:
    x = weft.tensor([[[1.0, np.nan, np.nan, 3.0, -np.inf, -np.inf]]], requires_grad=True)
    y, at = max_pool(x, 3, return_indices=True)
    np.testing.assert_array_equal(y.numpy(), [[[np.nan, 3.0]]])
    assert at.tolist() == [[[1, 3]]]
    y.backward(weft.asarray([[[1.0, 2.0]]]))
    assert x.grad is not None
    assert x.grad.tolist() == [[[0.0, 1.0, 0.0, 2.0, 0.0, 0.0]]]


def test_means_do_not_leak_between_windows() -> None:
    x = weft.asarray([[[1.0, 3.0, np.inf, 0.0, np.nan]]])
    np.testing.assert_array_equal(adaptive_avg_pool(x, 3).numpy(), [[[2, np.inf, np.nan]]])
    np.testing.assert_array_equal(avg_pool(x, 2).numpy(), [[[2, np.inf]]])


# --- dtypes and layouts ------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [weft.float16, weft.bfloat16])
def test_narrow_floats(dtype: Any) -> None:
    x = weft.asarray(rand(2, 3, 7, 8) * 10, dtype=dtype)
    wide = x.astype(weft.float32)
    for name, (function, shape, options) in POOLS.items():
        if len(shape) != 4:
            continue
        got = FUNCTIONS[function](x, **options)
        assert got.dtype is dtype, name
        want = FUNCTIONS[function](wide, **options).astype(dtype)
        np.testing.assert_array_equal(got.numpy(), want.numpy(), err_msg=name)
        point = weft.tensor(x, requires_grad=True)
        FUNCTIONS[function](point, **options).sum().backward()
        assert point.grad is not None
        assert point.grad.dtype is dtype


def test_sums_of_float16_do_not_overflow() -> None:
    x = weft.full((1, 1, 4, 4), 60000.0, dtype=weft.float16)
    assert avg_pool(x, 4).item() == adaptive_avg_pool(x, 1).item() == 60000.0


@pytest.mark.parametrize("dtype", ["int8", "int64", "uint8", "float32"])
def test_largest_of_other_dtypes(dtype: str) -> None:
    x = np.random.default_rng(0).integers(0, 100, (2, 3, 7, 8)).astype(dtype)
    if dtype.startswith("i"):
        x -= 101  # below any zero that padding might bring in
    options = {"kernel": (3, 3), "stride": (2, 2), "padding": ((1, 1), (1, 1)), "dilation": (1, 1)}
    got = max_pool(weft.asarray(x), 3, 2, 1, ceil_mode=True)
    assert got.dtype.name == dtype
    options["padding"] = ((1, 1), (1, 2))
    np.testing.assert_array_equal(got.numpy(), naive_max(x.astype(np.float64), options)[0])


def test_means_of_integers_are_floats() -> None:
    x = weft.asarray(np.array([[[100, 101, 102, 104]]], dtype=np.int8))
    assert avg_pool(x, 2).tolist() == [[[100.5, 103.0]]]
    assert avg_pool(x, 2).dtype is weft.float32


@pytest.mark.parametrize("layout", ["negative strides", "transposed", "every second"])
@pytest.mark.parametrize("name", POOLS)
def test_how_elements_lie_makes_no_difference(name: str, layout: str) -> None:
    function, shape, options = POOLS[name]
    found = []
    for x in (weft.asarray(few(*shape)), tensors(few(*shape), layout)):
        x = x.detach()
        x.requires_grad = True
        y = FUNCTIONS[function](x, **options)
        y.backward(weft.asarray(rand(*y.shape)))
        assert x.grad is not None
        found.append((y.detach().numpy(), x.grad.numpy()))
    for plain, laid_out in zip(*found, strict=True):
        np.testing.assert_allclose(laid_out, plain, atol=1e-12)


def test_results_are_their_own() -> None:
    x = weft.asarray(rand(1, 2, 4, 4))
    for y in (max_pool(x, 1), avg_pool(x, 1), max_pool(x, 2), adaptive_max_pool(x, 4)):
        before = x.numpy(copy=True)
        y[...] = 9
        np.testing.assert_array_equal(x.numpy(), before)


# --- empty ones and errors ---------------------------------------------------------------------


@pytest.mark.parametrize("name", POOLS)
def test_an_empty_batch(name: str) -> None:
    function, shape, options = POOLS[name]
    if "axes" in options:
        return
    full = FUNCTIONS[function](weft.asarray(rand(*shape)), **options)
    x = weft.tensor(np.zeros((0, *shape[1:])), requires_grad=True)
    y = FUNCTIONS[function](x, **options)
    assert y.shape == (0, *full.shape[1:])
    y.sum().backward()
    assert x.grad is not None
    assert x.grad.shape == x.shape


X = weft.zeros((2, 4, 5, 6))


@pytest.mark.parametrize(
    ("call", "parts"),
    [
        (lambda: max_pool(X, 7), ["max_pool", "(7, 7)", "(5, 6)", "larger"]),
        (lambda: avg_pool(X, (2, 7)), ["(2, 7)", "(5, 6)"]),
        (lambda: max_pool(X, 3, dilation=3), ["(3, 3)", "(7, 7)"]),
        (lambda: max_pool(X, 2, padding=2), ["padding (2, 2)", "half of the kernel (2, 2)"]),
        (lambda: max_pool(X, 0), ["kernel_size", "at least 1"]),
        (lambda: max_pool(X, 2, stride=0), ["stride", "at least 1"]),
        (lambda: max_pool(X, (2, 2, 2)), ["kernel_size (2, 2, 2)", "2 spatial axes"]),
        (lambda: max_pool(X, 2, axes=1), ["4 axes", "not 3, or 2 without a batch"]),
        (lambda: max_pool(weft.zeros((3, 4)), 2), ["2 axes"]),
        (lambda: avg_pool(X, 2, divisor_override=0), ["divisor_override"]),
        (lambda: adaptive_avg_pool(X, 0), ["output_size", "at least 1"]),
        (lambda: adaptive_max_pool(X, (1, 2, 3)), ["output_size (1, 2, 3)", "2 spatial axes"]),
        (lambda: adaptive_avg_pool(weft.zeros((1, 2, 0)), 1), ["nothing to pool", "(0,)"]),
    ],
)
def test_errors_name_the_sizes(call: Any, parts: list[str]) -> None:
    with pytest.raises(weft.errors.ShapeError) as caught:
        call()
    error = caught.value  # its text also quotes the line of the call, with the parts on it
    for part in parts:
        assert part in f"{error.op}: {error.message}"


def test_no_largest_of_complex_numbers() -> None:
    with pytest.raises(weft.errors.DTypeError, match="complex"):
        max_pool(X.astype(weft.complex64), 2)
