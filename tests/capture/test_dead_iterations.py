"""Gradients of loops in which some iterations make what nobody uses.

Eagerly such an iteration has no gradient at all. In a graph its cotangent is zeros, and these must
stay zeros where they meet the infinite slope of a root at 0, or the inf of a division by 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft.core.bind import bind
from weft.ops.cards import ONLY_WHERE

#: Programs of a tensor x of two numbers that give a number.
PROGRAMS: dict[str, Callable[..., Any]] = {}


def program(function: Callable[..., Any]) -> Callable[..., Any]:
    PROGRAMS[function.__name__.replace("_", " ")] = function
    return function


@program
def overwritten_in_for(x: Any) -> Any:
    y = x * 1
    for k in range(3):
        y = (x * k).sqrt()
    return y.sum()


@program
def overwritten_in_while(x: Any) -> Any:
    y, i = x * 1, x.sum() * 0
    while i < 2.5:
        y = (x * i).sqrt() * (x * x)
        i = i + 1
    return y.sum()


@program
def overwritten_in_scan(x: Any) -> Any:
    def step(y: Any, k: Any) -> Any:
        return (x * k).sqrt(), y * 2

    y, _ = weft.scan(step, x, weft.arange(3, dtype=weft.float32))
    return y.sum()


@program
def the_last_value_is_not_used(x: Any) -> Any:
    s, h = x * 0, x * 3
    for k in range(3):
        s = s + h * x
        h = (h * (2 - k)).sqrt()
    return s.sum()


@program
def a_value_of_inf(x: Any) -> Any:
    y = x * 1
    for k in range(3):
        y = x * (1 / (x.detach() * k))
    return y.sum()


@program
def an_exponential_that_overflows(x: Any) -> Any:
    y = x * 1
    for k in range(3):
        y = weft.exp(x * 100 * (2 - k))
    return y.sum()


@program
def products_that_overflow(x: Any) -> Any:
    y = x * 1
    for scale in weft.tensor([1e30, 1e15, 1.0]):
        y = (x * scale) * (x * scale) * x
    return y.sum()


@program
def a_matrix_times_inf(x: Any) -> Any:
    a = x[:, None] * (weft.arange(8, dtype=weft.float32) + 1)
    a = weft.concat([a] * 6)
    y = weft.zeros(12)
    for k in range(3):
        y = a @ (1 / (weft.ones(8) * x.detach().sum() * k)) + (a[0] * k).sqrt().sum()
    return y.sum()


@program
def an_element_of_a_long_table(x: Any) -> Any:
    table = (x[:, None] * weft.arange(9, dtype=weft.float32)).reshape(-1)
    y = x.sum()
    for k in range(3):
        y = (table[k] * k).sqrt()
    return y


@program
def one_of_two_is_overwritten(x: Any) -> Any:
    y, z = x * 1, x * 1
    for k in range(3):
        y = (z * k).sqrt()
        z = z * x
    return y.sum() + z.sum()


@program
def through_another_carry(x: Any) -> Any:
    y, z = x * 1, x * 1
    for k in range(3):
        y = (z * 2).sqrt()
        z = (x * k).sqrt()
    return y.sum()


@program
def early_end(x: Any) -> Any:
    y, i = x * 1, x.sum() * 0
    while True:
        y = (x * i).sqrt()
        i = i + 1
        if i > 2.5:
            break
    return y.sum()


@program
def early_return(x: Any) -> Any:
    i = x.sum() * 0
    while i < 9:
        y = (x * i).sqrt()
        if i > 1.5:
            return y.sum()
        i = i + 1
    return x.sum()


@program
def overwritten_in_a_branch(x: Any) -> Any:
    y = x * 1
    for k in range(4):
        z = (x * k).sqrt()
        if z.sum() < 4.2:
            y = z * x
    return y.sum()


@program
def in_nested_loops(x: Any) -> Any:
    y = x * 1
    for j in range(3):
        for k in range(2):
            y = (x * k * j).sqrt()
    return y.sum()


@program
def an_inner_loop_is_not_used(x: Any) -> Any:
    y = x * 1
    for j in range(3):
        y = x * j
        for _ in range(2):
            y = y.sqrt()
    return y.sum()


@program
def backward_inside(x: Any) -> Any:
    v = x.detach()
    v.requires_grad = True
    y = v * 1
    for k in range(3):
        y = (v * k).sqrt()
    (g,) = weft.autograd.grad(y.sum(), [v])
    return (g * x).sum()


@program
def a_list_of_which_some_are_used(x: Any) -> Any:
    xs = []
    for k in range(3):
        y = (x * k).sqrt()
        xs.append(y)
    return (xs[1] * xs[2]).sum()


@program
def a_list_of_a_while(x: Any) -> Any:
    xs, i = [], x.sum() * 0
    while i < 3:
        xs.append((x * i).sqrt())
        i = i + 1
    return (xs[1] * xs[-1]).sum()


@program
def a_list_without_its_first(x: Any) -> Any:
    xs = []
    for k in range(3):
        y = (x * k).sqrt()
        xs.append(y)
    del xs[0]
    return weft.stack(xs).sum()


@program
def a_part_of_a_list(x: Any) -> Any:
    xs = []
    for k in range(3):
        y = (x * k).sqrt()
        xs.append(y)
    s = x.sum() * 0
    for v in xs[1:]:
        s = s + v.sum()
    return s


@program
def the_end_of_a_list(x: Any) -> Any:
    xs = []
    for k in range(3):
        y = (x * k).sqrt()
        xs.append(y)
    return xs.pop().sum()


@program
def a_list_grown_in_an_inner_loop(x: Any) -> Any:
    xs = []
    for j in range(2):
        for k in range(2):
            y = (x * k * j).sqrt()
            xs.append(y)
    return xs[3].sum()


@program
def a_list_of_which_a_loop_uses_the_last(x: Any) -> Any:
    xs = []
    for k in range(3):
        y = (x * k).sqrt()
        xs.append(y)
    y = x * 1
    for v in xs:
        y = v * v.detach()
    return y.sum()


@program
def a_list_of_which_a_loop_uses_some(x: Any) -> Any:
    xs = []
    for k in range(4):
        y = (x * k).sqrt()
        xs.append(y)
    s = x.sum() * 0
    for k in range(2):
        s = s + xs[k + 1].sum()
    return s


@program
def one_result_is_thrown_away(x: Any) -> Any:
    y, z = x * 1, -x
    for _ in range(2):
        y = y * 1.1
        z = z.sqrt()
    if x.sum() > 0:
        z = y
    return (y * z).sum()


@program
def one_result_of_nested_loops_is_thrown_away(x: Any) -> Any:
    y, z = x * 1, -x
    for _ in range(2):
        i = x.sum() * 0
        while i < 2:
            i = i + 1
            y = y * 1.1
            z = z.sqrt()
    if x.sum() > 0:
        z = y
    return (y * z).sum()


@program
def one_result_of_a_branch_is_thrown_away(x: Any) -> Any:
    if x[0] > 0:
        y, z = x * 1.1, (x - x.detach()).sqrt()
    else:
        y, z = x * 2, x * 3
    if x.sum() > 0:
        z = y
    return (y * z).sum()


DATA = [[1.0, 4.0], [2.0, 0.5]]


@pytest.mark.parametrize("backend", ["interpret", "native"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_as_eager(name: str, backend: str) -> None:
    f = PROGRAMS[name]
    outside = weft.compile(f, backend=backend)
    inside = weft.compile(weft.grad(f), backend=backend)
    leaf = weft.zeros(2).requires_grad_()

    def step(x: Any) -> Any:  # a backward that frees what the forward kept
        leaf.grad = None
        f(leaf + x).backward()

    freeing = weft.compile(step, backend=backend)
    for data in DATA:
        wanted = _eager(f, data)
        assert np.isfinite(wanted).all()
        x = weft.tensor(data, requires_grad=True)
        outside(x).backward()
        np.testing.assert_allclose(x.grad.numpy(), wanted, rtol=1e-5)
        np.testing.assert_allclose(inside(weft.tensor(data)).numpy(), wanted, rtol=1e-5)
        freeing(weft.tensor(data))
        assert leaf.grad is not None
        np.testing.assert_allclose(leaf.grad.numpy(), wanted, rtol=1e-5)


def _eager(f: Callable[..., Any], data: list[float]) -> Any:
    x = weft.tensor(data, requires_grad=True)
    f(x).backward()
    return x.grad.numpy()


@program
def an_infinite_slope_in_a_branch_not_taken(x: Any) -> Any:
    s = x * 0
    for k in range(2):
        norm = weft.sqrt((x * k).sum())
        s = s + (x / norm if norm > 1e-8 else x * 0)
    return s.sum()


@program
def an_element_by_an_outer_product(x: Any) -> Any:
    xs = []
    y = x
    for _ in range(3):
        y = (y * x).sqrt()
        xs.append(y)
    return (xs[0] * weft.exp(xs[1])).sum()


@pytest.mark.parametrize("name", PROGRAMS)
def test_second_derivatives_from_outside_as_eager(name: str) -> None:
    """The compiled function is differentiated twice by eager code."""
    f = PROGRAMS[name]
    compiled = weft.compile(f, backend="native")

    def second(function: Any, data: list[float]) -> Any:
        x = weft.tensor(data, requires_grad=True)
        (g,) = weft.autograd.grad(function(x), [x], create_graph=True)
        if not g.requires_grad:
            return np.zeros(2)
        (found,) = weft.autograd.grad((g * x.detach()).sum(), [x], materialize_grads=True)
        return found.numpy()

    for data in DATA:
        wanted = second(f, data)
        assert np.isfinite(wanted).all()
        np.testing.assert_allclose(second(compiled, data), wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("backend", ["interpret", "native"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_second_derivatives_as_eager(name: str, backend: str) -> None:
    def slope(x: Any) -> Any:
        return (weft.grad(PROGRAMS[name])(x) * x).sum()

    compiled = weft.compile(weft.grad(slope), backend=backend)
    for data in DATA:
        x = weft.tensor(data)
        wanted = weft.grad(slope)(x).numpy()
        assert np.isfinite(wanted).all()
        np.testing.assert_allclose(compiled(x).numpy(), wanted, rtol=1e-4)


SCALES = (1.0, 1.5)


def _slope(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x: (weft.grad(f)(x) * x).sum()


def _mapped(f: Callable[..., Any]) -> Callable[..., Any]:
    scales = weft.tensor(SCALES)
    return lambda x: weft.vmap(lambda s: weft.grad(f)(x * s))(scales).sum()


def _one_by_one(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x: sum(weft.grad(f)(x * s).sum() for s in SCALES)


def _pair(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x: weft.stack([f(x), f(x * 1.5)])


#: Second and third derivatives, each as it is compiled, and as it is computed eagerly.
HIGHER: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    name: (both, both)
    for name, both in {
        "reverse over forward": lambda f: weft.jacrev(weft.jacfwd(f)),
        "of two results": lambda f: weft.jacrev(weft.jacrev(_pair(f))),
        "grad of grad of grad": lambda f: weft.grad(_slope(_slope(f))),
        "grad of hessian": lambda f: weft.grad(lambda x: weft.hessian(f)(x).sum()),
        "grad of jacrev of jacrev": lambda f: weft.grad(
            lambda x: weft.jacrev(weft.jacrev(f))(x).sum()
        ),
    }.items()
}
HIGHER["grad of vmap of grad"] = (
    lambda f: weft.grad(_mapped(f)),
    lambda f: weft.grad(_one_by_one(f)),
)


def _at_its_minimum(f: Callable[..., Any]) -> Callable[..., Any]:
    """The square of a residual that is 0: all gradients are 0, and their derivatives are not."""
    residual = float(f(weft.tensor(DATA[0])))
    return lambda x: (f(x) - residual) ** 2 + (f(x) - residual) ** 3


@pytest.mark.parametrize("kind", HIGHER)
@pytest.mark.parametrize("name", PROGRAMS)
def test_higher_derivatives_as_eager(name: str, kind: str) -> None:
    """Masks and gaps are found again in each order and under each transform."""
    _check_higher(PROGRAMS[name], kind)


@pytest.mark.parametrize("kind", ["grad of hessian", "grad of jacrev of jacrev"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_higher_derivatives_at_a_minimum_as_eager(name: str, kind: str) -> None:
    _check_higher(_at_its_minimum(PROGRAMS[name]), kind)


def _check_higher(f: Callable[..., Any], kind: str) -> None:
    compiled, eager = (transform(f) for transform in HIGHER[kind])
    x = weft.tensor(DATA[0])
    wanted = eager(x).numpy()
    assert np.isfinite(wanted).all()
    found = weft.compile(compiled, backend="interpret")(x).numpy()
    scale = max(1.0, float(np.abs(wanted).max()))
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4 * scale)


#: Run op by op, elements of a slice are read from the whole list: unused ones get zeros.
SLICED = "a part of a list"


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name != SLICED])
def test_derivatives_from_outside_at_a_minimum_as_eager(name: str) -> None:
    """The gradient is 0, and the compiled function is differentiated twice by eager code."""
    f = _at_its_minimum(PROGRAMS[name])
    compiled = weft.compile(f, backend="native")
    x = weft.tensor(DATA[0], requires_grad=True)
    found = []
    for function in (f, compiled):
        (g,) = weft.autograd.grad(function(x), [x], create_graph=True)
        (second,) = weft.autograd.grad((g * x.detach()).sum(), [x], materialize_grads=True)
        found.append(second.numpy())
    wanted, second = found
    assert np.isfinite(wanted).all()
    np.testing.assert_allclose(second, wanted, rtol=1e-3, atol=1e-4 * np.abs(wanted).max())


def _until(x: Any) -> Any:
    """The larger x, the more iterations; each overwrites y, the first has an infinite slope."""
    y, i = x * 1, x.sum() * 0
    while i < x.sum() / 3:
        y = (x * i).sqrt() * x
        i = i + 1
    return y.sum()


def _in_a_branch(x: Any) -> Any:
    y = x * 1
    for k in range(3):
        if x.sum() > 6 - k:
            y = (x * k).sqrt() * x
    return y.sum()


def _of_rows(x: Any) -> Any:
    y, i = x * 1, x.sum() * 0
    w = weft.tensor([[0.5, 1.0], [2.0, 0.3]])
    while i < x.sum() / 3:
        y = weft.softmax(w @ (x * i).sqrt(), axis=0) * x
        i = i + 1
    return (y * x).sum()


@pytest.mark.parametrize("backend", ["interpret", "native"])
@pytest.mark.parametrize("f", [_until, _in_a_branch, _of_rows])
def test_elements_that_go_different_ways(f: Callable[..., Any], backend: str) -> None:
    """Elements of a `vmap` of which some have used an iteration and others have overwritten it."""
    x = weft.tensor(DATA[0])
    scales = [0.7, 1.0, 1.5, 2.5]

    def mapped(x: Any) -> Any:
        return weft.vmap(weft.grad(f))(x * weft.tensor(scales)[:, None])

    def of_sum(x: Any) -> Any:
        return weft.grad(lambda x: weft.vmap(f)(x * weft.tensor(scales)[:, None]).sum())(x)

    wanted = np.stack([weft.grad(f)(x * scale).numpy() for scale in scales])
    assert np.isfinite(wanted).all()
    found = weft.compile(mapped, backend=backend)(x).numpy()
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    total = (wanted * np.asarray(scales)[:, None]).sum(axis=0)
    found = weft.compile(of_sum, backend=backend)(x).numpy()
    np.testing.assert_allclose(found, total, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_absent_gradients_of_narrow_floats_meet_others(dtype: str) -> None:
    """Rules of narrow floats compute with tensors, others with arrays: both add up."""
    w = weft.tensor([1.0, 2.0], requires_grad=True)
    y = w.astype(dtype) * 2
    nowhere = weft.zeros(2, dtype="bool")
    (bind(ONLY_WHERE, nowhere, y) * y).sum().backward()
    assert w.grad is not None
    np.testing.assert_array_equal(w.grad.numpy(), [8, 16])
