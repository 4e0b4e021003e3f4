"""Reaching into the dynamic graph: hooks, Function, custom_op, anomalies, check_grads, to_dot."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest
from leaves import leaf
from peer import figures

import weft
from weft.base.errors import GradientError

# --- hooks -------------------------------------------------------------------------------------


def test_tensor_hooks_see_and_replace() -> None:
    x = leaf(2.0)
    y = x * 3
    seen = []
    handle = y.register_hook(lambda g: seen.append(g.item()))
    doubled = y.register_hook(lambda g: g * 2)
    (y * 5).backward(retain_graph=True)
    assert seen == [5]
    assert x.grad.item() == 30
    handle.remove()
    doubled.remove()
    x.grad = None
    with x.register_hook(lambda g: g + 1):
        (x * 1).backward()
    assert x.grad.item() == 2
    (x * 1).backward()
    assert x.grad.item() == 3
    bad = x.register_hook(lambda g: weft.ones(7))
    with pytest.raises(GradientError, match="same shape"):
        (x * 1).backward()
    bad.remove()
    with pytest.raises(GradientError, match="does not require"):
        weft.ones(1).register_hook(print)


def test_node_hooks_before_and_after() -> None:
    x, w = leaf(2.0), leaf(3.0)
    y = x * w
    calls: list[Any] = []
    y.grad_fn.register_prehook(lambda grads: calls.append(("pre", grads[0].item())))
    y.grad_fn.register_hook(
        lambda ins, outs: calls.append(("post", [g.item() for g in ins], outs[0].item()))
    )
    y.backward(retain_graph=True)
    assert calls == [("pre", 1), ("post", [3, 2], 1)]
    replace = y.grad_fn.register_hook(lambda ins, outs: (ins[0] * 10, None))
    y.backward()
    replace.remove()
    assert x.grad.item() == 33
    assert w.grad.item() == 2


def test_retain_grad_and_post_accumulate_hooks() -> None:
    x = leaf(2.0)
    y = x * x
    y.retain_grad()
    y.retain_grad()
    assert y.retains_grad
    done = []
    handle = x.register_post_accumulate_grad_hook(lambda t: done.append(t.grad.item()))
    (y * 3).backward()
    assert y.grad.item() == 3
    assert done == [12]
    handle.remove()
    (x * 1).backward()
    assert done == [12]
    with pytest.raises(GradientError):
        y.register_post_accumulate_grad_hook(print)


def test_hooks_run_with_the_users_numpy_settings() -> None:
    x = leaf(1.0)
    seen = []
    (y := x * 2).register_hook(lambda g: seen.append(np.geterr()["divide"]))
    with np.errstate(divide="raise"):
        y.backward()
    assert seen == ["raise"]


# --- Function and custom_op --------------------------------------------------------------------


class MyReLU(weft.autograd.Function):
    """As the third seed text writes it, with weft in place of torch."""

    @staticmethod
    def forward(ctx, input):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(input)
        return input.clamp(min=0)

    @staticmethod
    def backward(ctx, grad_output):  # type: ignore[no-untyped-def]
        (input,) = ctx.saved_tensors
        grad_input = grad_output.clone()
        grad_input[input < 0] = 0
        return grad_input


def test_my_relu_of_the_seed_text() -> None:
    x = weft.tensor([[1.0, -1.0], [2.0, 3.0]])
    w = weft.tensor([[2.0, 1.0]], requires_grad=True)
    b = weft.tensor([[3.0]], requires_grad=True)
    y = weft.tensor([[1.0], [2.0]])
    relu = MyReLU.apply
    y_hat = relu(x @ w.t() + b)
    loss = weft.mean(weft.pow(y_hat - y, 2))
    loss.backward()
    assert y_hat.grad_fn.name() == "MyReLUBackward"

    def work(torch: Any) -> dict[str, Any]:
        tx, ty = torch.tensor(x.numpy()), torch.tensor(y.numpy())
        tw = torch.tensor([[2.0, 1.0]], requires_grad=True)
        tb = torch.tensor([[3.0]], requires_grad=True)
        torch.mean(torch.pow(torch.relu(tx @ tw.t() + tb) - ty, 2)).backward()
        return {"w": tw.grad, "b": tb.grad}

    want = figures("my_relu", work)
    np.testing.assert_allclose(w.grad.numpy(), want["w"], rtol=1e-6)
    np.testing.assert_allclose(b.grad.numpy(), want["b"], rtol=1e-6)


def test_my_relu_twice() -> None:
    x = leaf(1.0, -2.0, 3.0)
    y = (MyReLU.apply(x) ** 3).sum()
    (g,) = weft.autograd.grad(y, x, create_graph=True)
    assert g.tolist() == [3, 0, 27]
    (h,) = weft.autograd.grad(g.sum(), x)
    assert h.tolist() == [6, 0, 18]


class SplitOff(weft.Function):
    @staticmethod
    def forward(ctx: Any, x: weft.Tensor, scale: float, w: weft.Tensor, *, power: int = 2) -> Any:
        ctx.needs = ctx.needs_input_grad
        ctx.power = power
        out = x**power * scale
        where = x > 0
        ctx.mark_non_differentiable(where)
        ctx.save_for_backward(x, out, None)
        return out, where, w * 1.0

    @staticmethod
    def backward(ctx: Any, g: weft.Tensor, _where: Any, gw: weft.Tensor) -> Any:
        x, out, nothing = ctx.saved_tensors
        assert nothing is None
        assert ctx.needs == (True, False, False)
        return g * ctx.power * out / x, None, None


def test_function_with_several_arguments_and_results() -> None:
    x = leaf(2.0, 3.0)
    out, where, extra = SplitOff.apply(x, 10.0, weft.ones(2, dtype=weft.float64), power=3)
    assert not where.requires_grad
    assert extra.requires_grad
    out.sum().backward()
    assert x.grad.tolist() == pytest.approx([120, 270])


def test_function_errors_and_edge_cases() -> None:
    class Wrong(weft.Function):
        @staticmethod
        def forward(ctx: Any, a: Any, b: Any) -> Any:
            return a + b

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g

    x = leaf(1.0)
    with pytest.raises(ValueError, match="1 gradients for 2 inputs"):
        Wrong.apply(x, x).backward()
    assert not Wrong.apply(weft.ones(1), weft.ones(1)).requires_grad
    y = MyReLU.apply(x)
    y.backward()
    with pytest.raises(GradientError, match="retain_graph"):
        y.backward()

    class Identity(weft.Function):
        @staticmethod
        def forward(ctx: Any, a: Any) -> Any:
            return a

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 2

    x.grad = None
    out = Identity.apply(x)
    assert out is not x
    out.backward()
    assert x.grad.item() == 2


def test_a_function_leaves_no_cycle_behind() -> None:
    gc.collect()
    gc.disable()
    try:
        x = leaf(1.0)
        y = MyReLU.apply(x)
        held = weakref.ref(y.grad_fn)
        del y
        assert held() is None
    finally:
        gc.enable()


def test_custom_op_is_an_op_like_any_other() -> None:
    name = "test_cube"
    cube = weft.custom_op(name, vjp=[lambda xp, g, _out, x: g * 3 * x * x])(lambda xp, x: x * x * x)
    try:
        x = leaf(2.0, -1.0)
        y = cube(x)
        assert y.grad_fn.name() == "TestCubeBackward"
        weft.check_grads(cube, [x.detach()])
        again = weft.custom_op(name)(lambda xp, x: x + 1)  # as when a cell is run again
        assert again(weft.ones(1)).tolist() == [2]
        for _ in range(2):
            with pytest.raises(ValueError, match="already an op named 'add'"):
                weft.custom_op("add")(lambda xp, x: x)
    finally:
        del weft.ir.op.OPS[name]


def test_custom_op_of_two_inputs_and_an_attribute() -> None:
    name = "test_scaled_product"

    def product(xp: Any, a: Any, b: Any, *, scale: float) -> Any:
        return a * b * scale

    scaled = weft.custom_op(
        name,
        vjp=[
            lambda xp, g, _out, _a, b, *, scale: g * b * scale,
            lambda xp, g, _out, a, _b, *, scale: g * a * scale,
        ],
    )(product)
    try:
        a, b = leaf(1.0, 2.0), leaf(3.0, 4.0)
        scaled(a, b, scale=10.0).sum().backward()
        assert a.grad.tolist() == [30, 40]
        assert b.grad.tolist() == [10, 20]
        weft.check_grads(lambda u, v: scaled(u, v, scale=0.5), [a.detach(), b.detach()])
        assert (scaled.op.inputs, scaled.op.attrs) == (("a", "b"), ("scale",))
    finally:
        del weft.ir.op.OPS[name]


def test_an_op_without_a_derivative_says_so() -> None:
    name = "test_opaque"
    opaque = weft.custom_op(name)(lambda xp, x: x + 1)
    try:
        y = opaque(leaf(1.0))
        with pytest.raises(GradientError, match="test_opaque has no derivative"):
            y.backward()
    finally:
        del weft.ir.op.OPS[name]


# --- looking inside ----------------------------------------------------------------------------


def test_detect_anomaly_names_the_forward_line() -> None:
    x = leaf(0.0, 4.0)
    with weft.detect_anomaly():
        y = weft.sqrt(x * 0)  # the culprit
        with pytest.raises(GradientError) as caught:
            (y * 0).sum().backward()
    assert "SqrtBackward" in str(caught.value)
    assert "# the culprit" in str(caught.value)
    (weft.sqrt(x * 0) * 0).sum().backward()  # without it, NaN is a number like others
    assert np.isnan(x.grad.numpy()).all()


def test_check_grads_catches_wrong_rules() -> None:
    weft.check_grads(lambda x, y: weft.sin(x) * y, [leaf(1.0, 2.0), leaf(0.5, 3.0)])
    weft.check_grads(lambda x, n: x**n, [leaf(2.0), weft.asarray(3)])
    weft.check_grads(weft.floor, [leaf(1.5)])

    class Wrong(weft.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * ctx.saved_tensors[0]

    with pytest.raises(GradientError, match="finite differences"):
        weft.check_grads(Wrong.apply, [leaf(2.0)])

    class WrongTwice(Wrong):
        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 2 * ctx.saved_tensors[0].detach()

    with pytest.raises(GradientError, match="gradient's"):
        weft.check_grads(WrongTwice.apply, [leaf(2.0)])
    weft.check_grads(WrongTwice.apply, [leaf(2.0)], order=1)


def test_to_dot() -> None:
    x = leaf(1.0, 2.0)
    text = weft.inspect.to_dot((x * x).sum())
    assert text.startswith("digraph {")
    assert "multiply" in text
    assert "f64[2]" in text
    assert text.count("->") == 4
    assert weft.inspect.to_dot(weft.ones(2)).count("->") == 0


OTHERS: dict[str, tuple[Any, int]] = {
    "dtype": (lambda xp, x: x.astype(np.float64), 1),
    "shape": (lambda xp, x: np.zeros(1, np.float32), 1),
    "larger": (lambda xp, x: np.zeros(9, np.float32), 1),
    "None": (lambda xp, x: None, 1),
    "one of two": (lambda xp, x: x, 2),
    "smaller second": (lambda xp, x: (x, x[:1]), 2),
}


@pytest.mark.parametrize("backend", ["eager", "interpret", "native", "dataflow", "split"])
@pytest.mark.parametrize("what", OTHERS)
def test_a_custom_op_that_gives_another_type_than_it_says(what: str, backend: str) -> None:
    """Machine code reads as much memory as the type rule says."""
    function, count = OTHERS[what]
    op = weft.custom_op(
        f"other_{what}".replace(" ", "_"),
        infer=lambda x: x if count == 1 else (x, x),
        outputs=count,
    )(function)

    def f(x: Any) -> Any:
        return op(x) + 1 if count == 1 else op(x)[1] + 1

    call = f if backend == "eager" else weft.compile(f, backend=backend)
    with pytest.raises(weft.errors.DTypeError, match="its type rule says"):
        call(weft.ones(3))
