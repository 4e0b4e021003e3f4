"""Gradients through control flow: recorded graphs against the eager tape, of orders 1 to 3."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from control_programs import PROGRAMS

import weft
from weft import Tensor, autograd

CASES = [
    pytest.param(name, number, id=f"{name}-{number}")
    for name, (_, inputs) in PROGRAMS.items()
    for number in range(len(inputs))
]
THIRD = ["branch", "powers", "while_in_while", "rnn", "while_in_scan", "branch_in_while"]


def tensors_of(inputs: tuple[Any, ...]) -> list[Tensor]:
    return [weft.asarray(np.array(x)) for x in inputs]


def leaves_of(inputs: tuple[Any, ...]) -> list[Tensor]:
    return [x.requires_grad_() if x.dtype.kind == "float" else x for x in tensors_of(inputs)]


def flat(out: Any) -> list[Tensor]:
    return [x for x in weft.tree_leaves(out) if x.dtype.kind == "float"]


def weighted(out: Any, inputs: list[Tensor]) -> Tensor:
    """A number that depends on all of a result, each element in its own way, and on all inputs."""
    total = sum(((x**4).sum() for x in inputs), weft.zeros((), dtype=weft.float64))
    for i, x in enumerate(flat(out)):
        weights = weft.reshape(weft.arange(x.size, dtype=weft.float64) + 1.3 + i, x.shape)
        total = total + (weights * x).sum()
    return total


def gradient(f: Callable[..., Any], order: int) -> Callable[..., Any]:
    """The gradients of an order, by the inputs that are floating."""

    def of(*args: Tensor) -> Any:
        leaves = [x.detach().requires_grad_() if x.dtype.kind == "float" else x for x in args]
        smooth = [x for x in leaves if x.dtype.kind == "float"]
        found: Any = f(*leaves)
        for step in range(order):
            found = autograd.grad(
                weighted(found, smooth),
                smooth,
                create_graph=step < order - 1,
                materialize_grads=True,
            )
        return found

    return of


def same(one: Any, two: Any, exact: bool = False) -> None:
    a, b = weft.tree_leaves(one), weft.tree_leaves(two)
    assert len(a) == len(b)
    for x, y in zip(a, b, strict=True):
        assert x.dtype is y.dtype
        assert x.shape == y.shape
        if exact:
            np.testing.assert_array_equal(x.numpy(), y.numpy())
        else:
            np.testing.assert_allclose(x.numpy(), y.numpy(), rtol=1e-10, atol=1e-10)


def recorded(f: Callable[..., Any], args: list[Tensor]) -> weft.Graph:
    graph = weft.make_graph(f, *args)
    graph.verify()
    return graph


@pytest.mark.parametrize(("name", "number"), CASES)
def test_values(name: str, number: int) -> None:
    f, inputs = PROGRAMS[name]
    args = tensors_of(inputs[number])
    graph = recorded(f, tensors_of(inputs[0]))
    same(graph(*args), f(*args), exact=True)
    assert weft.parse_graph(graph.text(), graph.constants()).equals(graph)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize(("name", "number"), CASES)
def test_gradients(name: str, number: int, order: int) -> None:
    f, inputs = PROGRAMS[name]
    args = tensors_of(inputs[number])
    graph = recorded(gradient(f, order), tensors_of(inputs[0]))
    same(graph(*args), gradient(f, order)(*args))
    assert weft.parse_graph(graph.text(), graph.constants()).equals(graph)


@pytest.mark.parametrize("name", THIRD)
def test_third_order(name: str) -> None:
    f, inputs = PROGRAMS[name]
    graph = recorded(gradient(f, 3), tensors_of(inputs[0]))
    for each in inputs:
        args = tensors_of(each)
        same(graph(*args), gradient(f, 3)(*args))


@pytest.mark.parametrize(("name", "number"), CASES)
def test_tape_through_a_recorded_graph(name: str, number: int) -> None:
    f, inputs = PROGRAMS[name]
    args = tensors_of(inputs[number])
    graph = recorded(f, leaves_of(inputs[0]))
    same(gradient(graph, 1)(*args), gradient(f, 1)(*args))
    same(gradient(graph, 2)(*args), gradient(f, 2)(*args))


@pytest.mark.parametrize(("name", "number"), CASES)
def test_tape_through_a_recorded_gradient(name: str, number: int) -> None:
    """Eager gradients of a graph that pushes and pops: their history lies on the stacks."""
    f, inputs = PROGRAMS[name]
    args = tensors_of(inputs[number])

    def first(*xs: Tensor) -> Any:
        smooth = [x for x in xs if x.dtype.kind == "float"]
        return autograd.grad(
            weighted(f(*xs), smooth), smooth, create_graph=True, materialize_grads=True
        )

    graph = recorded(first, leaves_of(inputs[0]))
    same(gradient(graph, 1)(*args), gradient(f, 2)(*args))


# --- against finite differences ----------------------------------------------------------------


@pytest.mark.parametrize("name", ["branch_in_while", "while_in_while", "rnn_reversed", "choice"])
def test_finite_differences(name: str) -> None:
    f, inputs = PROGRAMS[name]
    graph = recorded(f, leaves_of(inputs[0]))
    first = recorded(gradient(f, 1), tensors_of(inputs[0]))
    for each in inputs:
        args = tensors_of(each)
        weft.check_grads(lambda *xs: flat(graph(*xs)), args, order=2)
        smooth = [i for i, x in enumerate(args) if x.dtype.kind == "float"]
        for at, i in enumerate(smooth):
            step = np.zeros(args[i].shape)
            step.flat[0] = 1e-6
            moved = [[*args[:i], args[i] + weft.asarray(s * step), *args[i + 1 :]] for s in (1, -1)]
            high, low = (weighted(f(*xs), [xs[k] for k in smooth]).item() for xs in moved)
            slope = (high - low) / 2e-6
            assert first(*args)[at].numpy().flat[0] == pytest.approx(slope, rel=1e-6, abs=1e-7)


# --- only what is needed is kept ---------------------------------------------------------------


def loops(graph: weft.Graph) -> list[Any]:
    return [node for node in graph.nodes if node.op.name in ("while", "scan")]


def kept(f: Callable[..., Any], *args: Any) -> list[str]:
    """What the first loop of a recorded gradient leaves for its backward, as types."""
    node = loops(weft.make_graph(gradient(f, 1), *tensors_of(args)))[0]
    found = [str(value.type) for value in node.outputs]
    return [kind for kind in found if kind.startswith("stack")]


def test_a_linear_loop_keeps_nothing() -> None:
    def f(x: Any, n: Any) -> Any:
        def body(c: Any) -> Any:
            return c[0] + 1, c[1] * 2 + x

        return weft.while_loop(lambda c: c[0] < n, body, (0, x))[1]

    assert kept(f, [1.0, 2.0], 3) == []


def test_what_does_not_change_is_computed_once_outside() -> None:
    f, inputs = PROGRAMS["invariants"]
    graph = weft.make_graph(gradient(f, 1), *tensors_of(inputs[0]))
    forward, backward = loops(graph)
    # Of tanh(decay @ y), the result and y; the matrix is no part of any iteration.
    assert [str(v.type) for v in forward.outputs[3:]] == ["stack<f64[3]>"] * 2
    between = [n.op.name for n in graph.nodes]
    assert "exp" in between
    assert not any(n.op.name == "exp" for n in backward.graphs[1].nodes)


def test_one_value_is_kept_once_and_views_not_at_all() -> None:
    def f(x: Any, n: Any) -> Any:
        def body(c: Any) -> Any:
            i, y = c
            column = y[:, None]
            return i + 1, (column * y).sum(axis=1) * y + y * y

        return weft.while_loop(lambda c: c[0] < n, body, (0, x))[1]

    assert len(kept(f, [1.0, 2.0], 3)) == 2  # y, and the sum that it is multiplied with


def test_masks_are_made_again() -> None:
    def f(x: Any, n: Any) -> Any:
        def body(c: Any) -> Any:
            return c[0] + 1, weft.where(c[1] > 0, c[1] * c[1], x)

        return weft.while_loop(lambda c: c[0] < n, body, (0, x))[1]

    assert kept(f, [1.0, 2.0], 3) == ["stack<f64[2]>"]


def test_gradients_that_are_asked_twice_share_what_is_kept() -> None:
    def f(x: Any, w: Any) -> Any:
        x, w = x.detach().requires_grad_(), w.detach().requires_grad_()

        def body(c: Any) -> Any:
            return c[0] + 1, (c[1] * w).sin(), c[2] * c[1]

        _, a, b = weft.while_loop(lambda c: c[0] < 3, body, (weft.asarray(0), x, w))
        one = autograd.grad(a.sum(), x, retain_graph=True)
        two = autograd.grad(b.sum(), [x, w], retain_graph=True)
        again = autograd.grad(a.sum(), x, retain_graph=True)
        three = autograd.grad((a * b).sum(), [x, w])
        return one, two, again, three

    args = tensors_of(([0.3, -0.2], [0.5, 0.7]))
    graph = recorded(f, args)
    same(graph(*args), f(*args))
    forward = loops(graph)[0]
    assert len(forward.outputs) == 3 + 1 + 3  # carries, the count; two carries and a product

    def freed(x: Any) -> Any:
        x = x.detach().requires_grad_()
        y = weft.while_loop(lambda c: c.sum() < 9, lambda c: c * x + 1, x).sum()
        return autograd.grad(y, x), autograd.grad(y, x)

    with pytest.raises(weft.errors.GradientError, match="freed"):
        weft.make_graph(freed, args[0])


def test_two_histories_of_one_stack() -> None:
    """Both gradients pop the same stack: its cotangent is the sum of two stacks."""

    def f(x: Any, w: Any) -> Any:
        x, w = x.detach().requires_grad_(), w.detach().requires_grad_()

        def body(c: Any) -> Any:
            return c[0] + 1, (c[1] * w).sin()

        y = weft.while_loop(lambda c: c[0] < 3, body, (weft.asarray(0), x))[1].sum()
        (one,) = autograd.grad(y, x, create_graph=True)
        (two,) = autograd.grad(y * y, w, create_graph=True)
        return autograd.grad((one * two * one).sum(), [x, w])

    args = tensors_of(([0.3, -0.2], [0.5, 0.7]))
    graph = recorded(f, args)
    same(graph(*args), f(*args))


# --- sizes -------------------------------------------------------------------------------------


def sized_while(x: Any, w: Any, n: Any) -> Any:
    def body(c: Any) -> Any:
        return c[0] + 1, (c[1] * w).sin() + weft.ones(x.shape, dtype=weft.float64)

    return weft.while_loop(lambda c: c[0] < n, body, (0, x))[1]


def sized_scan(x: Any, w: Any, n: Any) -> Any:
    return weft.scan(lambda c, row: ((c * row).sin() * n, c * row), w, x)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("f", [sized_while, sized_scan])
def test_symbolic_sizes(f: Callable[..., Any], order: int) -> None:
    specs = [weft.spec(("B", 3), weft.float64), weft.spec(3, weft.float64)]
    graph = weft.make_graph(gradient(f, order), *specs, weft.spec((), weft.int64))
    graph.verify()
    for rows in (0, 1, 3):
        args = tensors_of((np.linspace(0, 1, rows * 3).reshape(rows, 3), [0.1, 0.2, 0.3], 2))
        same(graph(*args), gradient(f, order)(*args))


def chosen_while(x: Any, n: Any) -> Any:
    def body(c: Any) -> Any:
        i, y = c
        z = y[y > 0.1 * i]  # how many there are depends on the values
        return i + 1, y * 0.9 + (z * z).sum() * 0.1

    return weft.while_loop(lambda c: c[0] < n, body, (0, x))[1]


def chosen_branch(x: Any, n: Any) -> Any:
    def some() -> Any:
        z = x[x > 0.2]
        return (z * z * z).sum()

    return weft.cond(n > 2, some, lambda: x.sum()) * x


def chosen_scan(x: Any, n: Any) -> Any:
    def step(c: Any, t: Any) -> Any:
        z = c[c > t]
        return c * 0.9 + (z.sin() * z).sum() * 0.1, None

    return weft.scan(step, x, weft.asarray(np.array([0.1, 0.2])))[0] * n


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("f", [chosen_while, chosen_branch, chosen_scan])
def test_sizes_that_depend_on_values(f: Callable[..., Any], order: int) -> None:
    graph = recorded(gradient(f, order), tensors_of(([0.3, -0.2, 0.5, 0.15], 3)))
    for n in (1, 3):
        args = tensors_of(([0.3, -0.2, 0.5, 0.15], n))
        same(graph(*args), gradient(f, order)(*args))


# --- further -----------------------------------------------------------------------------------


def test_random_numbers_in_bodies_have_gradients() -> None:
    def f(x: Any) -> Any:
        noise = weft.cond(x.sum() > 0, lambda: x * weft.rand(2, dtype=weft.float64), lambda: x)
        return weft.scan(
            lambda c, _: (c * weft.randn(2, dtype=weft.float64) * x, None), noise, None, length=3
        )[0]

    for each in ([0.3, 0.2], [-1.0, 0.2]):
        args = tensors_of((each,))
        graph = recorded(gradient(f, 2), args)
        weft.manual_seed(1)
        got = graph(*args), weft.rand(1)
        weft.manual_seed(1)
        same(got, (gradient(f, 2)(*args), weft.rand(1)))


def test_backward_inside_a_recorded_function() -> None:
    w = weft.tensor([0.5, -0.25], requires_grad=True)

    def f(x: Any) -> Any:
        def body(c: Any) -> Any:
            y = weft.cond(c[1].sum() > 0, lambda: (c[1] * w).sin(), lambda: c[1] + w)
            return c[0] + 1, y

        loss = weft.while_loop(lambda c: c[0] < 4, body, (weft.asarray(0), x))[1].sum()
        loss.backward()
        return loss

    for x in (weft.asarray([1.0, 2.0]), weft.asarray([-1.0, -2.0])):
        w.grad = None
        graph = recorded(f, [x])
        want = f(x).item(), w.grad.tolist()
        w.grad = None
        assert graph(x).item() == want[0]
        np.testing.assert_allclose(w.grad.numpy(), want[1], rtol=1e-6)
        before = w.grad.tolist()
        w.grad = w.grad * 1
        graph = recorded(f, [x])
        graph(x)
        np.testing.assert_allclose(w.grad.numpy(), 2 * np.array(before), rtol=1e-6)


def test_backward_of_an_outer_loop_inside_of_another() -> None:
    """The forward loop lies outside and is extended there; its backward runs in each iteration."""

    def f(x: Any, w: Any, n: Any) -> Any:
        w = w * 1
        y = weft.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, (c[1] * w).sin()), (0, x))[1]

        def body(c: Any) -> Any:
            i, total = c
            (g,) = autograd.grad((y * history(total)).sum(), w, create_graph=True)
            return i + 1, total * 0.5 + g

        return weft.while_loop(lambda c: c[0] < 2, body, (weft.asarray(0), x))[1]

    def history(total: Any) -> Any:
        return total.detach() if cut else total

    inputs = ([0.3, -0.2], [0.5, 0.7], 2)
    cut = False  # then the gradient would go on through the iterations before
    with pytest.raises(weft.errors.GradientError, match=r"carry\[1\] is differ"):
        weft.make_graph(gradient(f, 1), *tensors_of(inputs))
    cut = True
    for order in (1, 2):
        graph = recorded(gradient(f, order), tensors_of(inputs))
        args = tensors_of(inputs)
        same(graph(*args), gradient(f, order)(*args))


def test_complex_numbers() -> None:
    def f(z: Any, n: Any) -> Any:
        z = z.detach().requires_grad_()
        out = weft.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, c[1] * c[1] + z), (0, z))[1]
        return autograd.grad(out.abs().sum(), z)

    args = [weft.asarray(np.array([0.1 + 0.2j, -0.3j])), weft.asarray(3)]
    same(recorded(f, args)(*args), f(*args))


def test_under_no_grad_there_is_no_history() -> None:
    def f(x: Any, w: Any) -> Any:
        with weft.no_grad():
            y = weft.while_loop(lambda c: c.sum() < 9, lambda c: c * w + 1, x)
            z = weft.cond(x.sum() > 0, lambda: x * w, lambda: w * 2)
        assert not z.requires_grad  # y has the history of x where the loop ends at once
        return (y * z * x).sum()

    args = tensors_of(([0.3, 0.2], [1.5, 1.7]))

    def first(x: Any, w: Any) -> Any:
        x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
        return autograd.grad(f(x, w), [x, w], materialize_grads=True)

    same(recorded(first, args)(*args), first(*args))
    graph = recorded(f, [x.requires_grad_() for x in tensors_of(([0.3, 0.2], [1.5, 1.7]))])
    leaves = [x.requires_grad_() for x in tensors_of(([0.3, 0.2], [1.5, 1.7]))]
    same(autograd.grad(graph(*leaves), leaves, materialize_grads=True), first(*args))


class Halved(weft.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * x

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g / 2


def test_a_function_of_ones_own_in_a_loop() -> None:
    def f(x: Any) -> Any:
        return weft.while_loop(lambda c: c.sum() < 9, lambda c: Halved.apply(c * x) + 1, x)

    args = tensors_of(([1.5, 2.0],))
    same(recorded(f, args)(*args), f(*args), exact=True)
    for order in (1, 2):
        same(recorded(gradient(f, order), args)(*args), gradient(f, order)(*args))


def test_a_hook_in_a_loop() -> None:
    def f(x: Any) -> Any:
        def body(c: Any) -> Any:
            y = c * x
            y.register_hook(lambda g: g * g)
            return y + 1

        return weft.while_loop(lambda c: c.sum() < 9, body, x)

    args = tensors_of(([1.5, 2.0],))
    for order in (1, 2):
        same(recorded(gradient(f, order), args)(*args), gradient(f, order)(*args))


def test_what_a_graph_does_not_hold_is_refused_in_backward_only() -> None:
    args = tensors_of(([1.5, 2.0],))

    def hooked(x: Any) -> Any:
        def body(c: Any) -> Any:
            y = c * x
            y.grad_fn.register_hook(lambda ins, outs: ins)
            return y + 1

        return weft.while_loop(lambda c: c.sum() < 9, body, x)

    with pytest.raises(weft.errors.GradientError, match="through a hook"):
        weft.make_graph(gradient(hooked, 1), *args)

    def leaf(x: Any) -> Any:
        x = x.detach().requires_grad_()
        w = weft.ones(2, dtype=weft.float64).requires_grad_()

        def body(c: Any) -> Any:
            loss = c + (x * w).sum()
            with weft.no_grad():
                w.copy_(w * 0.5)
            return loss

        total = weft.while_loop(lambda c: c < 9, body, x.sum())
        return autograd.grad(total, w)

    with pytest.raises(weft.errors.GradientError, match="leaf is written to"):
        weft.make_graph(leaf, *args)


def test_a_backward_that_leaves_the_iteration_is_refused() -> None:
    w = weft.tensor(2.0, requires_grad=True)

    def f(n: Any) -> Any:
        def body(c: Any) -> Any:
            y = c[1] * w
            y.backward()
            return c[0] + 1, y

        return weft.while_loop(lambda c: c[0] < n, body, (0, weft.asarray(1.0)))[1]

    with pytest.raises(weft.errors.GradientError, match=r"carry\[1\] is differ"):
        weft.make_graph(f, weft.asarray(3))


def test_many_iterations() -> None:
    def f(x: Any, n: Any) -> Any:
        y = weft.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, c[1] * 0.999 + x), (0, x))[1]
        return (y * y).sum()

    graph = recorded(gradient(lambda x, n: f(x * x, n), 1), tensors_of(([1.0], 5)))
    (found,) = graph(*tensors_of(([1.0], 20_000)))
    assert np.isfinite(found.numpy()).all()


def unused_carry(x: Any, k: Any) -> Any:
    """y is carried, and nobody uses it afterwards: its slope is NaN for negative x."""
    z = x * 0.5
    y = x * 1.0
    n = k * 0
    while n < 3:
        n = n + 1
        y = weft.sin(y)
        y = weft.sqrt(z) if k < 3 else 1.7 * y
        if z > 0:
            y = weft.tanh(x)
            x = y + x
    return x * 0.3 + z


def test_a_carry_that_leads_nowhere_has_no_gradient() -> None:
    """Zeros times its infinite slope must not get in: also where an `if` gives it with others."""
    slope = weft.compile(weft.grad(unused_carry))
    for x, k in ((-1.5, 1), (1.5, 1), (-1.5, 4)):
        given = weft.asarray(x, dtype="f8"), weft.asarray(k)
        np.testing.assert_allclose(slope(*given).numpy(), weft.grad(unused_carry)(*given).numpy())


def test_a_leaf_that_a_loop_only_reads_has_no_gradient_where_it_is_not_used() -> None:
    """One that the loop carries on may have zeros: docs/control_flow.md says so."""

    def reads(x: Any, lim: Any) -> Any:
        y = x[0]
        for row in x:
            if row.sum() > 100:
                y = y * lim
        return y

    def carries(x: Any, lim: Any) -> Any:
        y = x[0]
        for row in x:
            if row.sum() > 100:
                y = y * lim
            lim = lim - 0.1
        return y

    for f, unused in ((reads, [None]), (carries, [None, 0.0])):
        compiled = weft.compile(f)
        for size, used in ((1.0, False), (200.0, True)):
            grads: list[Any] = []
            for call in (f, compiled):
                x = weft.tensor([[size, 1.0], [2.0, 2.0]], requires_grad=True)
                lim = weft.tensor(1.5, requires_grad=True)
                call(x, lim).sum().backward()
                grads.append((x.grad.tolist(), None if lim.grad is None else lim.grad.item()))
            assert grads[0][0] == grads[1][0]
            assert grads[1][1] == grads[0][1] if used else grads[1][1] in unused
