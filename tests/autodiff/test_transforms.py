"""`jvp`, `vjp`, `grad`, `linearize`, `jacobian` and `hessian`: values, trees, errors, side effects.

Pairs of them are in test_transforms_pairs.py, `vmap` is in test_vmap.py.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from derivative_calls import Call, calls
from samples import ROWS
from samples.derivatives import UNDEFINED
from samples.table import Row

import weft
from weft.base.dtypes import DType

Tensor = weft.Tensor
FLOATS = ("float", "complex")
ROWS_OF_FLOATS = [
    pytest.param(row, dtype, id=f"{row.name}-{dtype.name}")
    for row in ROWS
    for dtype in row.dtypes()
    if dtype.name in ("float64", "complex128") and row.name not in UNDEFINED
]


def random_like(x: Tensor, rng: np.random.Generator) -> Tensor:
    values = rng.standard_normal(x.shape)
    if x.dtype.kind == "complex":
        values = values + 1j * rng.standard_normal(x.shape)
    return weft.asarray(values, dtype=x.dtype)


def dot(a: Any, b: Any) -> float:
    pairs = zip(a, b, strict=True)
    return sum(float(np.vdot(x.numpy(), y.numpy()).real) for x, y in pairs)


def of_floats(call: Call) -> tuple[Callable[..., list[Tensor]], list[Tensor]]:
    """A call as a function of its floating arguments."""
    f, given = call
    places = [i for i, x in enumerate(given) if x.dtype.kind in FLOATS]

    def g(*floats: Tensor) -> list[Tensor]:
        full = list(given)
        for i, x in zip(places, floats, strict=True):
            full[i] = x
        return f(*full)

    return g, [given[i] for i in places]


@pytest.mark.parametrize(("row", "dtype"), ROWS_OF_FLOATS)
def test_forward_is_the_transpose_of_reverse(row: Row, dtype: DType) -> None:
    """jvp against finite differences, vjp and linearize, in random directions."""
    rng = np.random.default_rng(0)
    for call in calls(row, dtype):
        f, point = of_floats(call)
        t = [random_like(x, rng) for x in point]
        out, moved = weft.jvp(f, tuple(point), tuple(t))
        eps = 1e-6
        ahead = f(*[x + d * eps for x, d in zip(point, t, strict=True)])
        behind = f(*[x - d * eps for x, d in zip(point, t, strict=True)])
        for got, a, b, value in zip(moved, ahead, behind, out, strict=True):
            assert (got.shape, got.dtype) == (value.shape, value.dtype)
            want = (a.numpy() - b.numpy()) / (2 * eps)
            limit = 1e-5 * max(1, np.abs(want).max(initial=0))
            np.testing.assert_allclose(got.numpy(), want, rtol=1e-4, atol=limit)
        value, vjp_fn = weft.vjp(f, *point)
        g = [random_like(x, rng) for x in value]
        np.testing.assert_allclose(dot(g, moved), dot(vjp_fn(g), t), rtol=1e-8, atol=1e-8)
        for got, want in zip(weft.linearize(f, *point)[1](*t), moved, strict=True):
            np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-10, atol=1e-10)


# --- grad --------------------------------------------------------------------------------------

X = weft.tensor([1.0, 2.0, 3.0])


def test_arguments_and_trees() -> None:
    def loss(p: dict[str, Any], x: Tensor, scale: float = 1.0) -> Tensor:
        return (p["layers"][0] * x + p["bias"]).sum() * scale

    params = {"layers": [weft.tensor(2.0), None], "bias": weft.tensor(1.0)}
    assert str(weft.grad(loss)(params, X)) == str(
        {"layers": [weft.tensor(6.0), None], "bias": weft.tensor(3.0)}
    )
    by_x, by_p = weft.grad(loss, argnums=(1, 0))(params, X, scale=2.0)
    assert by_x.tolist() == [4, 4, 4]
    assert by_p["bias"].item() == 6
    assert weft.grad(loss, argnums=-1)(params, X).tolist() == [2, 2, 2]
    value, grads = weft.value_and_grad(loss, argnums=(1,))(params, X)
    assert value.item() == 15
    assert len(grads) == 1


def test_aux_is_passed_on_without_history() -> None:
    kept = weft.tensor(2.0, requires_grad=True)

    def loss(x: Tensor) -> Any:
        return (x * x).sum(), {"y": x * 2, "w": x[0] * kept, "name": "aux"}

    gradient, aux = weft.grad(loss, has_aux=True)(X)
    assert gradient.tolist() == [2, 4, 6]
    assert not aux["y"].requires_grad
    assert aux["w"].requires_grad
    assert aux["name"] == "aux"
    (value, _), _ = weft.value_and_grad(loss, has_aux=True)(X)
    assert not value.requires_grad
    _, _, more = weft.vjp(loss, X, has_aux=True)
    assert more["y"].tolist() == [2, 4, 6]
    _, moved, more = weft.jvp(loss, (X,), (X,), has_aux=True)
    assert moved.item() == 28
    assert more["y"].tolist() == [2, 4, 6]
    jacobian, more = weft.jacobian(lambda x: (x * 2, x), has_aux=True)(X)
    assert jacobian.shape == (3, 3)
    assert more.tolist() == [1, 2, 3]


def test_numbers_arrays_and_what_is_unused() -> None:
    assert weft.grad(lambda x: x**3)(2.0).item() == 12
    assert weft.grad(lambda x: (x * x).sum())(np.array([1.0, 2.0])).tolist() == [2, 4]
    assert weft.grad(lambda x, y: y * 2.0)(X, 1.0).tolist() == [0, 0, 0]
    assert weft.grad(lambda x: 3.0)(X).tolist() == [0, 0, 0]
    whole, by_int = weft.grad(lambda x, i: x[i].sum(), argnums=(0, 1), allow_int=True)(
        X, weft.tensor([0, 2])
    )
    assert whole.tolist() == [1, 0, 1]
    assert by_int.tolist() == [0, 0]
    assert by_int.dtype is weft.float32


def test_arguments_are_untouched() -> None:
    x = weft.tensor([1.0, 2.0], requires_grad=True)
    plain = weft.tensor([1.0, 2.0])

    def f(x: Tensor) -> Tensor:
        x += 1
        x[0] = x[1] * 2
        return (x * x).sum()

    for given in (x, plain):
        assert weft.grad(f)(given).tolist() == [0, 30]
        assert weft.jvp(f, (given,), (weft.ones(2),))[1].item() == 30
        assert weft.linearize(f, given)[1](weft.ones(2)).item() == 30
        assert given.tolist() == [1, 2]
        assert given.grad is None
        assert given.is_leaf
    assert x.requires_grad
    assert not plain.requires_grad
    same, tangent = weft.jvp(lambda x: x, (plain,), (plain,))
    assert same is not plain
    assert tangent is not plain


def test_results_go_on_in_the_eager_tape() -> None:
    x = weft.tensor(3.0, requires_grad=True)
    w = weft.tensor(2.0, requires_grad=True)
    for gradient in (
        weft.grad(lambda y: w * y**3)(x),
        weft.vjp(lambda y: w * y**3, x)[1](1.0)[0],
        weft.jvp(lambda y: w * y**3, (x,), (1.0,))[1],
        weft.linearize(lambda y: w * y**3, x)[1](1.0),
        weft.jacfwd(lambda y: w * y**3)(x),
        weft.vmap(weft.grad(lambda y: w * y**3))(x.reshape(1))[0],
    ):
        assert gradient.item() == 54
        found = weft.autograd.grad(gradient, [x, w])
        assert [g.item() for g in found] == [36, 27]
    assert not weft.grad(lambda y: y**3)(3.0).requires_grad
    with weft.no_grad():
        for f in (weft.grad(lambda y: w * y**3), weft.jacfwd(lambda y: w * y**3)):
            assert f(x).item() == 54
            assert not f(x).requires_grad
        assert weft.jvp(lambda y: w * y**3, (x,), (1.0,))[1].requires_grad is False


def test_backward_inside() -> None:
    """A function that trains something of its own, under transforms."""

    def step(x: Tensor) -> Tensor:
        w = weft.tensor([1.0, 2.0], requires_grad=True)
        (w * w * x).sum().backward()
        assert w.grad is not None
        return (w.grad * x).sum()

    def step_again(x: Tensor) -> Tensor:
        w = weft.tensor([1.0, 2.0], requires_grad=True)
        (g,) = weft.autograd.grad((w * w * x).sum(), w, create_graph=True)
        return (g * x).sum()

    x = weft.tensor([3.0, 4.0])
    assert weft.grad(step)(x).tolist() == [6, 16]  # a gradient without create_graph is constant
    assert weft.jvp(step, (x,), (weft.ones(2),))[1].item() == 22
    assert weft.grad(step_again)(x).tolist() == [12, 32]
    assert weft.jvp(step_again, (x,), (weft.ones(2),))[1].item() == 44
    assert weft.vmap(step)(weft.stack([x, x])).tolist() == [82, 82]
    assert weft.vmap(weft.grad(step_again))(weft.stack([x, x])).tolist() == [[12, 32]] * 2


def test_no_perturbation_confusion() -> None:
    for one in (weft.grad, lambda f: lambda x: weft.jvp(f, (x,), (1.0,))[1]):
        for two in (weft.grad, lambda f: lambda x: weft.jvp(f, (x,), (1.0,))[1]):
            assert one(lambda x: x * two(lambda y: x + y)(1.0))(1.0).item() == 1  # noqa: B023
            assert one(lambda x: x * two(lambda y: x * y)(2.0))(3.0).item() == 6  # noqa: B023


def test_forward_mode_keeps_no_history() -> None:
    seen: list[Any] = []

    def f(x: Tensor) -> Tensor:
        y = weft.sin(x)
        seen.append(weakref.ref(y._data.tensor))
        z = weft.cos(y)
        del y
        assert seen[-1]() is None
        return z

    weft.jvp(f, (X,), (X,))


def test_no_grad_inside_is_a_constant_both_ways() -> None:
    def f(x: Tensor) -> Tensor:
        with weft.no_grad():
            fixed = x * x
        return (x * fixed).sum() + weft.stop_gradient(x).sum() + x.detach().sum()

    assert weft.grad(f)(X).tolist() == [1, 4, 9]
    assert weft.jvp(f, (X,), (weft.ones(3),))[1].item() == 14
    assert weft.vmap(weft.grad(f))(weft.stack([X, X])).tolist() == [[1, 4, 9]] * 2
    assert (
        weft.grad(lambda x: weft.vmap(f)(x).sum())(weft.stack([X, X])).tolist() == [[1, 4, 9]] * 2
    )


def test_modules_write_their_statistics() -> None:
    eager, layer = weft.nn.BatchNorm1d(2), weft.nn.BatchNorm1d(2)
    x = weft.randn(4, 2)
    eager(x)
    weft.jvp(layer, (x,), (x,))
    assert layer.running_mean.tolist() == eager.running_mean.tolist()
    assert layer.num_batches_tracked.item() == 1


# --- complex numbers ---------------------------------------------------------------------------


def test_complex() -> None:
    z = weft.tensor([1 + 2j, 3 - 1j], dtype=weft.complex128)
    assert weft.grad(lambda z: weft.sum(weft.abs(z) ** 2))(z).tolist() == [2 + 4j, 6 - 2j]
    for mode in ("forward", "reverse", None):
        found = weft.jacobian(lambda z: z * z, mode=mode, holomorphic=True)(z)
        np.testing.assert_allclose(found.numpy(), np.diag(2 * z.numpy()))
    x = weft.tensor([1.0, 2.0], dtype=weft.float64)
    found = weft.jacobian(lambda x: weft.exp(1j * x))(x)
    np.testing.assert_allclose(found.numpy(), np.diag(1j * np.exp(1j * x.numpy())))
    with pytest.raises(weft.errors.GradientError, match="jacfwd"):
        weft.jacrev(lambda x: weft.exp(1j * x))(x)
    with pytest.raises(weft.errors.GradientError, match="holomorphic=True"):
        weft.jacfwd(lambda z: z)(z)


# --- jacobian and hessian ----------------------------------------------------------------------


def test_jacobians_of_trees() -> None:
    def f(p: dict[str, Tensor], x: Tensor) -> dict[str, Any]:
        return {"y": p["w"] @ x, "total": (x**2).sum()}

    p = {"w": weft.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])}
    for make in (weft.jacobian, weft.jacfwd, weft.jacrev):
        found = make(f, argnums=(0, 1))(p, X)
        assert found["y"][0]["w"].shape == (2, 2, 3)
        np.testing.assert_array_equal(
            found["y"][0]["w"].numpy(), np.einsum("ij,k->ijk", np.eye(2), X.numpy())
        )
        assert found["y"][1].tolist() == p["w"].tolist()
        assert found["total"][1].tolist() == [2, 4, 6]
        assert found["total"][0]["w"].tolist() == [[0, 0, 0], [0, 0, 0]]
    blocks = weft.hessian(lambda x, y: (x**2 * y).sum(), argnums=(0, 1))(X, X)
    assert blocks[0][1].tolist() == np.diag([2.0, 4.0, 6.0]).tolist()
    assert blocks[1][1].tolist() == np.zeros((3, 3)).tolist()
    both = weft.hvp(lambda x, y: (x**2 * y).sum(), (X, X), (X, X))
    assert [b.tolist() for b in both] == [[4, 16, 36], [2, 8, 18]]


def test_the_function_runs_once_whatever_the_mode() -> None:
    count = 0

    def f(x: Tensor) -> Tensor:
        nonlocal count
        count += 1
        return x[:2] * 2

    for mode in ("forward", "reverse", None):
        weft.jacobian(f, mode=mode)(X)
    assert count == 3
    out, jvp_fn = weft.linearize(f, X)
    assert [jvp_fn(X).tolist() for _ in range(3)] == [[2, 4]] * 3
    assert out.tolist() == [2, 4]
    _, vjp_fn = weft.vjp(f, X)
    assert [vjp_fn(out)[0].tolist() for _ in range(3)] == [[4, 8, 0]] * 3
    assert count == 5


def test_no_elements() -> None:
    none = weft.zeros(0)
    for make in (weft.jacfwd, weft.jacrev, weft.jacobian):
        assert make(lambda x: x * 2)(none).shape == (0, 0)
        assert make(lambda x: weft.ones(3) * x.sum())(none).shape == (3, 0)
        assert make(lambda x: x[:0])(X).shape == (0, 3)


# --- functional_call ---------------------------------------------------------------------------


def test_functional_call() -> None:
    model = weft.nn.Sequential(weft.nn.Linear(3, 2), weft.nn.Tanh(), weft.nn.Linear(2, 1))
    params = {name: p.detach() for name, p in model.named_parameters()}

    def loss(params: Any, x: Tensor) -> Tensor:
        return weft.functional_call(model, params, x).sum()

    model(X).sum().backward()
    grads = weft.grad(loss)(params, X)
    for name, p in model.named_parameters():
        assert p.grad is not None
        np.testing.assert_allclose(grads[name].numpy(), p.grad.numpy(), rtol=1e-6)
        assert p.requires_grad
    several = weft.stack([X, X * 2])
    each = weft.vmap(weft.grad(loss), (None, 0))(params, several)
    assert each["0.weight"].shape == (2, 2, 3)
    graph = weft.make_graph(weft.grad(loss), params, X)
    np.testing.assert_allclose(graph(params, X)["0.bias"].numpy(), grads["0.bias"].numpy())
    traced = weft.trace(weft.grad(loss))
    for _ in range(2):
        np.testing.assert_allclose(traced(params, X)["0.bias"].numpy(), grads["0.bias"].numpy())


def test_functional_call_and_buffers() -> None:
    layer = weft.nn.BatchNorm1d(2)
    mean = weft.zeros(2)
    weft.functional_call(layer, {"running_mean": mean}, weft.randn(4, 2) + 5)
    assert (mean.numpy() > 0).all()
    assert layer.running_mean.tolist() == [0, 0]
    with pytest.raises(weft.nn.StateDictError, match="it has weight, bias"):
        weft.functional_call(layer, {"wieght": mean}, X)
    shared = weft.nn.Linear(2, 2)
    pair = weft.nn.Sequential(shared, shared)
    weft.functional_call(pair, {"0.weight": weft.eye(2)}, weft.ones(2))
    with pytest.raises(weft.nn.StateDictError, match="shared under several names"):
        weft.functional_call(pair, {"0.weight": weft.eye(2), "1.weight": weft.eye(2)}, weft.ones(2))


# --- errors ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda: weft.grad(3), TypeError, "a function is needed"),
        (lambda: weft.grad(lambda: 1.0)(), ValueError, "with 0 positional arguments"),
        (lambda: weft.grad(lambda x: x, argnums=1)(X), ValueError, "argnums=1"),
        (lambda: weft.grad(lambda x: x, argnums="x"), TypeError, "argnums must be an int"),
        (lambda: weft.grad(lambda x: x, argnums=()), ValueError, "names no argument"),
        (lambda: weft.grad(lambda x, y: x, argnums=(0, -2))(X, X), ValueError, "0 twice"),
        (lambda: weft.grad(lambda x: x)(X), RuntimeError, "weft.jacobian"),
        (lambda: weft.grad(lambda x: (x.sum(), x))(X), RuntimeError, "has_aux=True"),
        (lambda: weft.grad(lambda x: None)(X), RuntimeError, "let it return the loss"),
        (lambda: weft.grad(lambda x: x.sum().astype(weft.int64))(X), RuntimeError, "a float"),
        (lambda: weft.grad(lambda x: (x * 1j).sum())(X), RuntimeError, "a real number"),
        (lambda: weft.grad(lambda x: x.sum(), has_aux=True)(X), TypeError, "a pair"),
        (lambda: weft.grad(lambda x: x)(weft.tensor(3)), RuntimeError, "allow_int=True"),
        (lambda: weft.grad(lambda x: x)("three"), TypeError, "not a tensor or a number"),
        (lambda: weft.vjp(lambda: 1.0), ValueError, "no primals"),
        (lambda: weft.vjp(lambda x: x, X)[1](weft.ones(2)), ValueError, "has shape (2,)"),
        (lambda: weft.vjp(lambda x: x, X)[1]((X,)), TypeError, "differ in structure"),
        (lambda: weft.vjp(lambda x: x, X)[1](X.double()), TypeError, "float64"),
        (lambda: weft.jvp(lambda x: x, X, X), TypeError, "weft.jvp(f, (x,), (t,))"),
        (lambda: weft.jvp(lambda x: x, (X,), (X, X)), TypeError, "differ in structure"),
        (lambda: weft.jvp(lambda x: x, (X,), (weft.ones(2),)), ValueError, "tangents[0]"),
        (lambda: weft.jvp(lambda x: x, (X,), (X.double(),)), TypeError, "float64"),
        (
            lambda: weft.jvp(lambda x: weft.nextafter(x, X), (X,), (X,)),
            RuntimeError,
            "has no derivative",
        ),
        (lambda: weft.linearize(lambda: 1.0), ValueError, "no primals"),
        (lambda: weft.linearize(lambda x: x, X)[1](weft.ones(2)), ValueError, "tangents[0]"),
        (lambda: weft.jacobian(lambda x: x, mode="both"), TypeError, "mode is"),
        (lambda: weft.jacobian(lambda x: x > 0)(X), RuntimeError, "has_aux=True"),
        (lambda: weft.hvp(lambda x: x, X, X), TypeError, "weft.hvp(f, (x,), (t,))"),
        (lambda: weft.functional_call(weft.nn.ReLU(), [X], X), RuntimeError, "a dictionary"),
    ],
)
def test_errors(call: Callable[[], Any], kind: type, words: str) -> None:
    with pytest.raises(kind) as caught:
        call()
    assert words in str(caught.value)
    assert isinstance(caught.value, weft.errors.WeftError)


def test_a_tensor_that_leaks_says_so() -> None:
    kept: list[Tensor] = []
    weft.jvp(lambda x: kept.append(x) or x, (X,), (X,))
    with pytest.raises(weft.errors.CaptureError, match="let the function return it"):
        kept[0] + 1


def test_values_decide_as_in_python() -> None:
    def f(x: Tensor) -> Tensor:
        return x * 2 if x.sum() > 0 else x * float(x[0])

    assert weft.jvp(f, (X,), (X,))[1].tolist() == [2, 4, 6]
    assert weft.jvp(f, (-X,), (X,))[1].tolist() == [-1, -2, -3]
    traced = weft.trace(lambda x: weft.jvp(f, (x,), (x,))[1])
    assert traced(X).tolist() == [2, 4, 6]
    assert traced(-X).tolist() == [1, 2, 3]


def test_what_a_transformed_function_reads_is_guarded() -> None:
    scale = 2.0

    def f(x: Tensor) -> Tensor:
        return (x * x * scale).sum()

    gradient = weft.grad(f)
    ways = [weft.trace(gradient), weft.trace(lambda x: gradient(x)), weft.trace(weft.vmap(f))]
    assert ways[0](X).tolist() == ways[1](X).tolist() == [4, 8, 12]
    assert ways[2](weft.ones((2, 3))).tolist() == [6, 6]
    scale = 3.0
    assert ways[0](X).tolist() == ways[1](X).tolist() == [6, 12, 18]
    assert ways[2](weft.ones((2, 3))).tolist() == [9, 9]


def cubes_or_squares(x: Tensor) -> Tensor:
    if x.sum() > 0:
        return (x**3).sum()
    return (x * x).sum()


def stepped(x: Tensor) -> Tensor:
    return weft.while_loop(
        lambda x: x < 10, lambda x: x * 2, weft.cond(x > 0, abs, lambda x: -x, x)
    )


@pytest.mark.parametrize("capture", [weft.trace, weft.compile])
def test_captured_in_either_order(capture: Any) -> None:
    f = cubes_or_squares
    for make in (weft.grad, weft.hessian, weft.jacfwd):
        outside, inside = capture(make(f)), make(capture(f))
        for x in (X, -X, X):
            assert outside(x).tolist() == inside(x).tolist() == make(f)(x).tolist()
    mapped = capture(weft.vmap(stepped))
    assert mapped(X).tolist() == [16, 16, 12]
    assert mapped(-X * 10).tolist() == [10, 20, 30]
    assert weft.vmap(capture(stepped))(X).tolist() == [16, 16, 12]
