"""Convolutions: values, derivatives of first and second order, dtypes, layouts and errors."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from op_calls import TypeChecker, tensors
from peer import figures

import weft
from weft.core.bind import bind, recording
from weft.ir.op import OPS
from weft.ops import conv_plan
from weft.ops.conv import conv, conv_transpose
from weft.ops.windows import Window, slices

Array = np.ndarray[Any, Any]


def rand(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng([seed, *shape]).standard_normal(shape)


def naive(
    x: Array,
    w: Array,
    stride: tuple[int, ...],
    padding: tuple[tuple[int, int], ...],
    dilation: tuple[int, ...],
    groups: int,
) -> Array:
    """A convolution as it is defined: a loop over outputs and, in it, over taps."""
    n_axes = w.ndim - 2
    sizes, kernel = x.shape[2:], w.shape[2:]
    counts = tuple(
        (sizes[i] + sum(padding[i]) - dilation[i] * (kernel[i] - 1) - 1) // stride[i] + 1
        for i in range(n_axes)
    )
    out = np.zeros((x.shape[0], w.shape[0], *counts), np.result_type(x, w))
    per_group = w.shape[0] // groups
    for n, o in itertools.product(range(x.shape[0]), range(w.shape[0])):
        first = o // per_group * w.shape[1]
        for at in np.ndindex(*counts):
            for c in range(w.shape[1]):
                for tap in np.ndindex(*kernel):
                    place = tuple(
                        at[i] * stride[i] + tap[i] * dilation[i] - padding[i][0]
                        for i in range(n_axes)
                    )
                    if all(0 <= p < size for p, size in zip(place, sizes, strict=True)):
                        out[(n, o, *at)] += x[(n, first + c, *place)] * w[(o, c, *tap)]
    return out


@dataclass(frozen=True)
class Setting:
    """Shapes and options of one convolution."""

    x: tuple[int, ...]
    w: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]
    groups: int

    @property
    def attrs(self) -> dict[str, Any]:
        return {
            "stride": self.stride,
            "padding": self.padding,
            "dilation": self.dilation,
            "groups": self.groups,
        }


@st.composite
def settings(draw: Any) -> Setting:
    axes = draw(st.integers(1, 3))

    def each(low: int, high: int) -> tuple[int, ...]:
        return tuple(draw(st.integers(low, high)) for _ in range(axes))

    groups = draw(st.sampled_from([1, 1, 2, 3]))
    inputs, outputs = groups * draw(st.integers(1, 4)), groups * draw(st.integers(1, 3))
    sizes, kernel, stride, dilation = each(1, 6), each(1, 3), each(1, 3), each(1, 2)
    padding = tuple(zip(each(-1, 2), each(-1, 2), strict=True))
    for n, k, d, pad in zip(sizes, kernel, dilation, padding, strict=True):
        assume(n + sum(pad) >= d * (k - 1) + 1)
    batch = draw(st.integers(0, 3))
    return Setting(
        (batch, inputs, *sizes), (outputs, inputs // groups, *kernel),
        stride, padding, dilation, groups,
    )  # fmt: skip


#: How work is cut up makes no difference to what comes out.
CUTS = {
    "as it is": (conv_plan.CHUNK, conv_plan.THIN, conv_plan.WIDE),
    "together": (conv_plan.CHUNK, 0, 10**9),
    "one by one": (1, 0, 10**9),
    "two by two, apart": (2000, 10**9, 0),
}


@pytest.fixture(params=CUTS)
def cut(request: Any, monkeypatch: Any) -> Any:
    for name, value in zip(("CHUNK", "THIN", "WIDE"), CUTS[request.param], strict=True):
        monkeypatch.setattr(conv_plan, name, value)
    conv_plan.plan_for.cache_clear()
    yield
    conv_plan.plan_for.cache_clear()


@pytest.mark.usefixtures("cut")
class TestKernels:
    @given(setting=settings())
    def test_against_loops_and_its_transposes(self, setting: Setting) -> None:
        x, w = rand(*setting.x), rand(*setting.w, seed=1)
        want = naive(x, w, **setting.attrs)
        g = rand(*want.shape, seed=2)
        tx, tw, tg = map(weft.asarray, (x, w, g))
        with recording(TypeChecker()):
            y = bind(OPS["conv"], tx, tw, **setting.attrs)
            for_x = bind(OPS["conv_input"], tg, tw, size=setting.x[2:], **setting.attrs)
            for_w = bind(OPS["conv_weight"], tx, tg, size=setting.w[2:], **setting.attrs)
        np.testing.assert_allclose(y.numpy(), want, atol=1e-12)
        inner = np.vdot(want, g)
        np.testing.assert_allclose(np.vdot(for_x.numpy(), x), inner, atol=1e-10)
        np.testing.assert_allclose(np.vdot(for_w.numpy(), w), inner, atol=1e-10)

    @given(setting=settings())
    def test_against_the_reference_evaluation(self, setting: Setting) -> None:
        x, w, b = rand(*setting.x), rand(*setting.w, seed=1), rand(setting.w[0], seed=3)
        y = run("conv", x, w, **setting.attrs)
        g = rand(*y.shape, seed=2)
        run("conv_bias", x, w, b, **setting.attrs)
        run("conv_input", g, w, size=setting.x[2:], **setting.attrs)
        run("conv_weight", x, g, size=setting.w[2:], **setting.attrs)


def run(name: str, *arrays: Array, **attrs: Any) -> Array:
    """A card's NumPy kernel and its evaluation rule agree; the kernel writes none of its inputs."""
    op = OPS[name]
    for array in arrays:
        array.flags.writeable = False
    got: Array = op.kernels[np.ndarray][arrays[0].dtype](*arrays, **attrs)
    assert callable(op.eval)
    want = op.eval(np, *arrays, **attrs)
    assert got.dtype == want.dtype
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, atol=1e-12)
    return got


@given(
    size=st.integers(0, 7),
    taps=st.integers(1, 4),
    stride=st.integers(1, 3),
    dilation=st.sampled_from([-2, -1, 1, 2]),
    low=st.integers(-3, 3),
    out=st.integers(0, 6),
)
def test_slices_of_windows(
    size: int, taps: int, stride: int, dilation: int, low: int, out: int
) -> None:
    window = Window(size, out, taps, stride, dilation, low)
    for tap, (outside, inside) in enumerate(slices(window)):
        read = {o: o * stride + tap * dilation - low for o in range(out)}
        want = {o: p for o, p in read.items() if 0 <= p < size}
        got = dict(zip(range(out)[outside], range(size)[inside], strict=True))
        assert got == want


# --- PyTorch -----------------------------------------------------------------------------------

#: name -> shape of x, of the weight, options
CONVS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "plain1": ((2, 3, 7), (4, 3, 3), {}),
    "options1": ((2, 4, 9), (6, 2, 3), {"stride": 2, "padding": 1, "dilation": 2, "groups": 2}),
    "same1": ((1, 2, 6), (3, 2, 4), {"padding": "same", "dilation": 1}),
    "unbatched1": ((3, 7), (4, 3, 3), {"padding": 1}),
    "plain2": ((2, 3, 5, 6), (4, 3, 3, 2), {}),
    "padded2": ((2, 6, 5, 5), (4, 6, 3, 3), {"padding": 1}),
    "few_inputs2": ((2, 1, 6, 6), (5, 1, 3, 3), {"padding": 1}),
    "stride2": ((2, 3, 7, 6), (4, 3, 3, 3), {"stride": (2, 3), "padding": (1, 2)}),
    "dilated2": ((1, 2, 8, 9), (3, 2, 3, 3), {"dilation": (2, 3), "padding": 3}),
    "depthwise2": ((2, 4, 5, 5), (4, 1, 3, 3), {"padding": 1, "groups": 4}),
    "widened2": ((2, 4, 5, 5), (8, 1, 3, 3), {"padding": 1, "groups": 4}),
    "one_by_one2": ((2, 5, 4, 4), (3, 5, 1, 1), {}),
    "one_by_one_stride2": ((2, 5, 4, 5), (3, 5, 1, 1), {"stride": 2}),
    "patches2": ((2, 3, 6, 6), (4, 3, 3, 3), {"stride": 3}),
    "same2": ((1, 2, 5, 6), (3, 2, 2, 3), {"padding": "same", "dilation": (1, 2)}),
    "valid2": ((1, 2, 5, 6), (3, 2, 2, 3), {"padding": "valid"}),
    "unbatched2": ((2, 5, 6), (3, 2, 2, 3), {"padding": 1}),
    "plain3": ((1, 2, 4, 4, 5), (3, 2, 2, 3, 2), {"padding": (1, 0, 1)}),
    "options3": (
        (2, 4, 5, 4, 5),
        (4, 2, 3, 2, 3),
        {"stride": (2, 1, 2), "padding": 1, "dilation": (1, 2, 1), "groups": 2},
    ),
}

TRANSPOSED: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "plain1": ((2, 3, 5), (3, 4, 3), {}),
    "options1": (
        (2, 4, 5),
        (4, 2, 3),
        {"stride": 3, "padding": 2, "output_padding": 2, "dilation": 2, "groups": 2},
    ),
    "wide_output_padding1": ((1, 2, 5), (2, 3, 3), {"output_padding": 1, "dilation": 2}),
    "unbatched1": ((3, 5), (3, 4, 3), {"stride": 2}),
    "plain2": ((2, 3, 4, 5), (3, 4, 3, 2), {}),
    "double2": ((2, 3, 4, 4), (3, 2, 4, 4), {"stride": 2, "padding": 1}),
    "odd2": ((1, 3, 4, 4), (3, 2, 3, 3), {"stride": 2, "padding": 1, "output_padding": 1}),
    "groups2": ((2, 4, 3, 3), (4, 3, 3, 3), {"stride": (1, 2), "groups": 2}),
    "one_by_one2": ((2, 5, 4, 4), (5, 3, 1, 1), {}),
    "plain3": ((1, 2, 3, 3, 4), (2, 3, 2, 2, 3), {"stride": (1, 2, 1), "padding": (0, 1, 1)}),
}


PIECES = ("y", "dx", "dw", "db", "ddx", "ddw", "ddg")


def pieces(library: Any, function: Any, shapes: Any, outputs: int) -> Array:
    """The result, the gradients, and the gradients of these: of each, eight random projections.

    These differ if anything does, and take little room to store.
    """
    x_shape, w_shape, options = shapes
    x, w, b = (
        library.tensor(rand(*shape, seed=seed), requires_grad=True)
        for seed, shape in enumerate((x_shape, w_shape, (outputs,)))
    )
    y = function(x, w, b, **options)
    g = library.tensor(rand(*y.shape, seed=5), requires_grad=True)
    grads = library.autograd.grad((y * g).sum(), (x, w, b), create_graph=True)
    total = sum(((grad * grad).sum() for grad in grads), start=0)
    found = (y, *grads, *library.autograd.grad(total, (x, w, g)))
    return np.stack([projected(part.detach().numpy()) for part in found])


def projected(array: Array) -> Array:
    return rand(8, array.size, seed=array.shape[-1]) @ array.ravel()


def compare(name: str, cases: dict[str, Any], functions: Any, mine: Any, outputs: Any) -> None:
    """What `mine` makes in all cases, beside what PyTorch does."""

    def work(torch: Any) -> dict[str, Any]:
        return {
            case: pieces(torch, functions(torch, len(shapes[1]) - 2), shapes, outputs(shapes))
            for case, shapes in cases.items()
        }

    want = figures(name, work)
    for case, shapes in cases.items():
        got = pieces(weft, mine, shapes, outputs(shapes))
        for part, mine_part, theirs in zip(PIECES, got, want[case], strict=True):
            np.testing.assert_allclose(
                mine_part, theirs, rtol=1e-8, atol=1e-8, err_msg=f"{case}: {part}"
            )


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel:UserWarning")
def test_convolutions_as_in_pytorch() -> None:
    def functions(torch: Any, axes: int) -> Any:
        return getattr(torch.nn.functional, f"conv{axes}d")

    compare("conv", CONVS, functions, conv, lambda shapes: shapes[1][0])


def test_transposed_convolutions_as_in_pytorch() -> None:
    def functions(torch: Any, axes: int) -> Any:
        return getattr(torch.nn.functional, f"conv_transpose{axes}d")

    def outputs(shapes: Any) -> Any:
        return shapes[1][1] * shapes[2].get("groups", 1)

    compare("conv_transpose", TRANSPOSED, functions, conv_transpose, outputs)


# --- derivatives -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["options1", "padded2", "stride2", "depthwise2", "plain3"])
def test_derivatives_of_third_order(name: str) -> None:
    x, w, options = CONVS[name]
    args = [weft.asarray(rand(*x)), weft.asarray(rand(*w, seed=1)), weft.asarray(rand(w[0]))]
    weft.check_grads(lambda x, w, b: conv(x, w, b, **options), args, order=3)


@pytest.mark.parametrize("name", ["options1", "odd2", "groups2"])
def test_derivatives_of_transposed_ones(name: str) -> None:
    x, w, options = TRANSPOSED[name]
    args = [weft.asarray(rand(*x)), weft.asarray(rand(*w, seed=1))]
    weft.check_grads(lambda x, w: conv_transpose(x, w, **options), args, order=3)


def test_derivatives_for_complex_numbers() -> None:
    def numbers(*shape: int) -> weft.Tensor:
        return weft.asarray(rand(*shape) + 1j * rand(*shape, seed=9))

    args = [numbers(2, 4, 6), numbers(4, 2, 3)]
    weft.check_grads(lambda x, w: conv(x, w, stride=2, padding=1, groups=2), args, order=2)


def test_only_what_is_asked_for_is_computed() -> None:
    x = weft.asarray(rand(2, 3, 5, 5))
    w = weft.tensor(rand(4, 3, 3, 3), requires_grad=True)
    checker = TypeChecker()
    y = conv(x, w)
    with recording(checker):
        weft.autograd.grad(y.sum(), w, create_graph=True)
    assert "conv_weight" in checker.seen
    assert "conv_input" not in checker.seen


# --- dtypes and layouts ------------------------------------------------------------------------

ATTRS: dict[str, Any] = {
    "stride": (2, 1),
    "padding": ((1, 1), (0, 0)),
    "dilation": (1, 2),
    "groups": 2,
}


@pytest.mark.parametrize("dtype", [weft.float16, weft.bfloat16])
def test_narrow_floats_are_rounded_once(dtype: Any) -> None:
    x, w, b = (weft.asarray(rand(*s), dtype=dtype) for s in ((2, 4, 6, 6), (6, 2, 3, 3), (6,)))
    for bias in (None, b):
        out = conv(x, w, bias, stride=(2, 1), padding=(1, 0), dilation=(1, 2), groups=2)
        assert out.dtype is dtype
        want = naive(x.numpy().astype(np.float64), w.numpy().astype(np.float64), **ATTRS)
        if bias is not None:
            want += bias.numpy().astype(np.float64)[:, None, None]
        rounded = want.astype(np.float32).astype(dtype.numpy).astype(np.float64)
        eps = float(weft.finfo(dtype).eps)
        got = out.numpy().astype(np.float64)
        np.testing.assert_allclose(got, rounded, rtol=eps, atol=1e-6)  # half-way cases
        assert (got == rounded).mean() > 0.98


@pytest.mark.parametrize("dtype", [weft.float16, weft.bfloat16])
def test_gradients_of_narrow_floats(dtype: Any) -> None:
    narrow = [weft.asarray(rand(*s), dtype=dtype) for s in ((8, 4, 9, 9), (6, 4, 3, 3), (6,))]
    found = []
    for wide in (dtype, weft.float64):
        x, w, b = (weft.tensor(t.astype(wide), requires_grad=True) for t in narrow)
        out = conv(x, w, b, padding=1)
        found.append(weft.autograd.grad((out * out).sum() / out.size, (x, w, b)))
    for mine, exact in zip(*found, strict=True):
        assert mine.dtype is dtype
        want = exact.numpy()
        off = np.abs(mine.numpy().astype(np.float64) - want).max()
        assert off < 8 * float(weft.finfo(dtype).eps) * np.abs(want).max()


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8", "complex64", "complex128"])
def test_other_dtypes(dtype: str) -> None:
    rng = np.random.default_rng(0)
    x, w = (rng.integers(0, 5, shape).astype(dtype) for shape in ((2, 4, 6, 6), (6, 2, 3, 3)))
    if "complex" in dtype:
        x, w = x * (1 + 2j), w * (2 - 1j)
    x, w = x.astype(dtype), w.astype(dtype)
    out = conv(
        weft.asarray(x),
        weft.asarray(w),
        stride=(2, 1),
        padding=(1, 0),
        dilation=(1, 2),
        groups=2,
    )
    assert out.dtype.name == dtype
    np.testing.assert_allclose(out.numpy(), naive(x, w, **ATTRS), rtol=1e-5)


def test_dtypes_are_promoted() -> None:
    x, w = weft.asarray(rand(1, 2, 5), dtype=weft.float32), weft.asarray(rand(3, 2, 2))
    assert conv(x, w).dtype is weft.float64
    assert conv_transpose(w, x.reshape(2, 1, 5).astype(weft.float64)).dtype is weft.float64


@pytest.mark.parametrize("layout", ["negative strides", "transposed", "every second"])
@pytest.mark.parametrize("name", ["padded2", "few_inputs2", "stride2", "one_by_one2", "plain3"])
def test_how_elements_lie_makes_no_difference(name: str, layout: str) -> None:
    x_shape, w_shape, options = CONVS[name]
    x, w = rand(*x_shape), rand(*w_shape, seed=1)
    want = conv(weft.asarray(x), weft.asarray(w), **options)
    got = conv(tensors(x, layout), tensors(w, layout), **options)
    np.testing.assert_allclose(got.numpy(), want.numpy(), atol=1e-12)
    g = rand(*want.shape, seed=2)
    want_x, want_w = gradients(weft.asarray(x), weft.asarray(w), weft.asarray(g), options)
    got_x, got_w = gradients(tensors(x, layout), tensors(w, layout), tensors(g, layout), options)
    np.testing.assert_allclose(got_x, want_x, atol=1e-12)
    np.testing.assert_allclose(got_w, want_w, atol=1e-12)


def gradients(x: Any, w: Any, g: Any, options: Any) -> list[Array]:
    x, w = x.detach(), w.detach()
    x.requires_grad = w.requires_grad = True
    conv(x, w, **options).backward(g)
    return [x.grad.numpy(), w.grad.numpy()]


def test_results_are_their_own() -> None:
    """No call writes what an earlier one returned, though they work in the same buffers."""
    x, w = weft.asarray(rand(4, 8, 6, 6)), weft.asarray(rand(8, 8, 3, 3))
    first = conv(x, w)
    before = first.numpy(copy=True)
    conv(x * 2, w)
    conv(x[:1] * 3, w)
    np.testing.assert_array_equal(first.numpy(), before)


def test_in_several_threads() -> None:
    x, w = weft.asarray(rand(8, 8, 12, 12)), weft.asarray(rand(8, 8, 3, 3))
    want = conv(x, w, padding=1).numpy()
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda k: conv(x * k, w, padding=1).numpy(), range(1, 33)))
    for k, got in enumerate(found, 1):
        np.testing.assert_allclose(got, want * k, rtol=1e-9, atol=1e-9)


# --- empty ones and errors ---------------------------------------------------------------------


@pytest.mark.parametrize("kernel", [1, 3])
def test_an_empty_batch(kernel: int) -> None:
    x = weft.tensor(np.zeros((0, 3, 5, 5)), requires_grad=True)
    w = weft.tensor(rand(4, 3, kernel, kernel), requires_grad=True)
    b = weft.tensor(rand(4), requires_grad=True)
    y = conv(x, w, b, padding=1)
    assert y.shape == (0, 4, 8 - kernel, 8 - kernel)
    y.sum().backward()
    assert x.grad is not None
    assert x.grad.shape == x.shape
    for parameter in (w, b):
        assert parameter.grad is not None
        np.testing.assert_array_equal(parameter.grad.numpy(), np.zeros(parameter.shape))


def test_no_channels() -> None:
    y = conv(weft.zeros((2, 0, 5)), weft.zeros((3, 0, 2)), weft.ones(3))
    np.testing.assert_array_equal(y.numpy(), np.ones((2, 3, 4)))
    assert conv(weft.zeros((2, 3, 5)), weft.zeros((0, 3, 2))).shape == (2, 0, 4)
    assert conv_transpose(weft.zeros((2, 3, 5)), weft.zeros((3, 0, 2))).shape == (2, 0, 6)


X = weft.zeros((2, 4, 5, 6))
W = weft.zeros((6, 4, 3, 3))


@pytest.mark.parametrize(
    ("call", "parts"),
    [
        (lambda: conv(X, weft.zeros((6, 4, 3, 7))), ["(3, 7)", "(5, 6)", "larger"]),
        (lambda: conv(X, W, dilation=3), ["(3, 3)", "(7, 7)", "(5, 6)"]),
        (lambda: conv(X, weft.zeros((6, 3, 3, 3))), ["takes 3 input channels", "has 4"]),
        (lambda: conv(X, W, groups=2), ["4 input channels in each of 2 groups", "has 4"]),
        (lambda: conv(X, W, groups=3), ["do not divide into 3 groups"]),
        (lambda: conv(X, W, groups=0), ["do not divide into 0 groups"]),
        (lambda: conv(X, W, weft.zeros(5)), ["bias", "(5,)", "(6,)"]),
        (lambda: conv(X, W, weft.zeros(1)), ["bias", "(1,)", "(6,)"]),
        (lambda: conv(X, W, stride=0), ["stride", "at least 1"]),
        (lambda: conv(X, W, stride=(1, 1, 1)), ["stride", "2 spatial axes"]),
        (lambda: conv(X, W, padding=-1), ["padding", "at least 0"]),
        (lambda: conv(X, W, stride=2, padding="same"), ["same", "stride 1"]),
        (lambda: conv(X, weft.zeros((6, 4))), ["4 axes", "2 axes"]),
        (lambda: conv(weft.zeros((5, 6)), W), ["2 axes", "4 axes"]),
        (lambda: conv_transpose(X, W[:4], weft.zeros(1)), ["bias", "(1,)", "(4,)"]),
        (lambda: conv_transpose(X, W), ["takes 6 input channels", "has 4"]),
        (lambda: conv_transpose(X, weft.zeros((4, 2, 3, 3)), groups=3), ["3 groups"]),
        (lambda: conv_transpose(X, weft.zeros((4, 2, 3, 3)), padding=9), ["sizes (-11, -10)"]),
        (
            lambda: conv_transpose(X, weft.zeros((4, 2, 3, 3)), stride=2, output_padding=2),
            ["output_padding (2, 2)", "stride (2, 2)"],
        ),
    ],
)
def test_errors_name_the_sizes(call: Any, parts: list[str]) -> None:
    with pytest.raises(weft.errors.ShapeError) as caught:
        call()
    error = caught.value  # its text also quotes the line of the call, with the parts on it
    assert error.op.startswith("conv")
    for part in parts:
        assert part in error.message


def test_errors_of_kind() -> None:
    with pytest.raises(weft.errors.DTypeError, match="'full'"):
        conv(X, W, padding="full")
    with pytest.raises(weft.errors.DTypeError, match="stride"):
        conv(X, W, stride=1.5)  # type: ignore[arg-type]
    with pytest.raises(weft.errors.DTypeError, match="bool"):
        conv(X.astype(weft.bool), W.astype(weft.bool))


def test_cost() -> None:
    types = [t.type for t in (X, W)]
    op = OPS["conv"]
    attrs = {"stride": (1, 1), "padding": ((0, 0), (0, 0)), "dilation": (1, 1), "groups": 1}
    out = op.infer(*types, **attrs)
    assert op.estimate(tuple(types), (out,), **attrs).flops == 2 * (2 * 6 * 3 * 4) * (4 * 3 * 3)
