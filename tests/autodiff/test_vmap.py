"""`vmap`: what a function gives for all elements of an axis is what it gives for each of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from derivative_calls import rebuilt
from index_cases import IDS, INDICES, numbers
from mapped_calls import same, varied
from nn_samples import ROWS as NN_ROWS
from nn_samples.table import Row as NNRow
from nn_samples.table import tensors as nn_tensors
from op_calls import flat, function, tensors
from samples import ROWS
from samples.table import Row

import weft
from weft.autodiff.transforms.control import is_mapped
from weft.base.dtypes import DType
from weft.base.pytree import tree_flatten, tree_unflatten

Tensor = weft.Tensor
CASES = [
    pytest.param(row, dtype, id=f"{row.name}-{dtype.name}")
    for row in ROWS
    for dtype in row.dtypes()
    if dtype.name in ("float64", "complex128", "int64", "bool")
]
#: Their results' sizes depend on values.
VARYING = {
    *("nonzero", "argwhere", "flatnonzero", "bincount"),
    *("unique_all", "unique_counts", "unique_inverse", "unique_values"),
    *("unique", "unique_consecutive", "masked_select"),
}


def compare(f: Callable[..., Any], given: list[Tensor], mask: list[bool], axis: int) -> None:
    """A function under vmap and in a loop, with some of its arguments mapped along an axis."""
    stacks = [[varied(x, i) for i in range(3)] for x in given]
    columns = [s if m else [x] * 3 for s, x, m in zip(stacks, given, mask, strict=True)]
    try:
        rows = [f(*row) for row in zip(*columns, strict=True)]
    except (weft.errors.WeftError, ValueError):
        return  # not every change of the arguments is possible
    if len({tuple(out.shape for out in row) for row in rows}) > 1:
        return
    want = [weft.stack(list(outs), axis=axis) for outs in zip(*rows, strict=True)]
    args = [
        weft.stack(s, axis=axis) if m else x for s, x, m in zip(stacks, given, mask, strict=True)
    ]
    in_axes = tuple(axis if m else None for m in mask)
    got = weft.vmap(f, in_axes, axis)(*args)
    same(list(got), want, f"{in_axes} {[x.shape for x in given]}")


@pytest.mark.parametrize(("row", "dtype"), CASES)
def test_every_function(row: Row, dtype: DType) -> None:
    for sample in row.samples(dtype):
        arguments = tensors(sample.args), tensors(sample.kwargs)
        given = flat(arguments)
        if not given:
            continue

        def call(*found: Tensor, arguments: Any = arguments) -> tuple[Tensor, ...]:
            args, kwargs = rebuilt(arguments, iter(found))
            return tuple(flat(function(row.name)(*args, **kwargs)))

        if row.name in VARYING:
            with pytest.raises(weft.errors.ShapeError, match="depends on values"):
                weft.vmap(call)(*[weft.stack([x, x]) for x in given])
            continue
        if row.name == "astype" and sample.args[1].name not in ("float64", "int64", "bool"):
            continue
        if row.name == "repeat":  # the counts cannot be mapped
            compare(call, given, [True, False][: len(given)], 0)
            continue
        compare(call, given, [True] * len(given), 0)
        compare(call, given, [True] * len(given), -1)
        for alone in range(len(given) if len(given) > 1 else 0):
            compare(call, given, [i == alone for i in range(len(given))], 0)


#: Layers that write what they saw to their buffers.
KEEPING = ("BatchNorm", "InstanceNorm2d")


@pytest.mark.parametrize("row", NN_ROWS, ids=lambda row: row.name)
def test_every_layer(row: NNRow) -> None:
    """With mapped inputs, with mapped parameters (an ensemble), and with both."""
    inputs, given = nn_tensors(row.inputs, weft.asarray), nn_tensors(row.call, weft.asarray)
    if row.module == "one_hot" and len(inputs) < 2:
        return  # how many classes there are depends on values
    params: dict[str, Tensor] = {}
    f: Any
    if row.is_function:
        plain = getattr(weft.nn.functional, row.module)

        def f(_params: Any, *args: Any) -> Any:
            return plain(*args, **given)

    else:
        parts = nn_tensors(row.args, weft.asarray), nn_tensors(row.kwargs, weft.asarray)
        module = getattr(weft.nn, row.module)(*parts[0], **parts[1]).double()
        if row.prepare is not None:
            row.prepare(module)
        if row.module.startswith(KEEPING):
            module.eval()
        params = {name: p.detach() for name, p in module.named_parameters()}

        def f(params: Any, *args: Any) -> Any:
            return weft.functional_call(module, params, *args, **given)

    leaves, spec = tree_flatten((params, inputs))
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]

    def call(*found: Tensor) -> tuple[Tensor, ...]:
        filled = list(leaves)
        for i, x in zip(places, found, strict=True):
            filled[i] = x
        params, args = tree_unflatten(spec, filled)
        return tuple(flat(f(params, *args)))

    count = len(params)
    for mask in (
        [True] * len(places),
        [i < count for i in range(len(places))],
        [i >= count for i in range(len(places))],
    ):
        if any(mask):
            compare(call, [leaves[i] for i in places], mask, 0)


# --- parts -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("shape", "index"), INDICES, ids=IDS)
def test_parts_are_read_and_written(shape: tuple[int, ...], index: Any) -> None:
    x = numbers(shape)
    mask = any(
        isinstance(p, np.ndarray) and p.dtype == bool
        for p in (index if isinstance(index, tuple) else (index,))
    )
    compare(lambda x: (x[index],), [x], [True], 0)

    def write(x: Tensor, value: Tensor) -> tuple[Tensor]:
        x = x.clone()
        x[index] = value
        return (x,)

    part = x[index]
    for value in (part * 2, weft.asarray(7.0, dtype=part.dtype)):
        compare(write, [x, value], [True, True], 0)
        compare(write, [x, value], [True, False], 0)
        compare(write, [x, value], [False, True], 0)
    parts = index if isinstance(index, tuple) else (index,)
    tensors = [weft.asarray(p) for p in parts if isinstance(p, np.ndarray)]
    if mask or not tensors:
        return

    def filled(given: Any) -> Any:
        found = iter(given)
        return tuple(next(found) if isinstance(p, np.ndarray) else p for p in parts)

    for pattern in ([True, *[True] * len(tensors)], [False, *[True] * len(tensors)]):
        compare(lambda x, *at: (x[filled(at)],), [x, *tensors], pattern, 0)
    one = [True, True, *[False] * (len(tensors) - 1)]
    compare(lambda x, *at: (x[filled(at)],), [x, *tensors], one, 0)

    def write_at(x: Tensor, value: Tensor, *at: Tensor) -> tuple[Tensor]:
        x = x.clone()
        x[filled(at)] = value
        return (x,)

    for first in (True, False):
        for second in (True, False):
            pattern = [first, second, *[True] * len(tensors)]
            compare(write_at, [x, part * 2, *tensors], pattern, 0)


# --- axes --------------------------------------------------------------------------------------

A = numbers((3, 4))
B = numbers((4, 3), seed=1)


def test_axes_are_trees() -> None:
    def f(pair: dict[str, Any], scale: Tensor, offset: float) -> dict[str, Any]:
        return {"sum": (pair["x"] + pair["y"][0]) * scale + offset, "last": (pair["x"][-1], 5)}

    out = weft.vmap(f, in_axes=({"x": 1, "y": None}, 0, None), out_axes={"sum": 1, "last": 0})(
        {"x": A, "y": (B[:3, 0],)}, weft.arange(4.0, dtype=weft.float64), 10.0
    )
    want = (A.numpy() + B.numpy()[:3, :1]) * np.arange(4) + 10
    np.testing.assert_allclose(out["sum"].numpy(), want)
    np.testing.assert_allclose(out["last"][0].numpy(), A.numpy()[-1])
    assert out["last"][1].tolist() == [5] * 4


def test_inside_shapes_are_those_of_one_element() -> None:
    seen = []

    def f(x: Tensor) -> Tensor:
        seen.append((x.shape, x.ndim, x.size, x.dtype, len(x), str(x.type)))
        assert not x.requires_grad
        return x.sum()

    weft.vmap(f)(A)
    weft.vmap(f, in_axes=-1)(A)
    assert seen == [
        ((4,), 1, 4, weft.float64, 4, "f64[4]"),
        ((3,), 1, 3, weft.float64, 3, "f64[3]"),
    ]


def test_nested_with_different_axes() -> None:
    outer = weft.vmap(weft.vmap(lambda x, y: x * y, (0, None)), (None, 0), 1)
    np.testing.assert_allclose(outer(A[0], B[0]).numpy(), np.outer(A.numpy()[0], B.numpy()[0]))
    x = numbers((2, 3, 4))
    twice = weft.vmap(weft.vmap(lambda x: x.sum(), in_axes=1), in_axes=0, out_axes=1)(x)
    np.testing.assert_allclose(twice.numpy(), x.numpy().sum(axis=1).T)
    deep = weft.vmap(weft.vmap(weft.vmap(lambda x, y: x + y, (0, None)), (0, None)), (0, 0))
    np.testing.assert_allclose(deep(x, weft.ones(2, dtype=weft.float64)).numpy(), x.numpy() + 1)


def test_what_is_the_same_for_all() -> None:
    assert weft.vmap(lambda x: weft.ones(2))(A).shape == (3, 2)
    assert weft.vmap(lambda x: weft.ones(2), out_axes=None)(A).shape == (2,)
    assert weft.vmap(lambda: weft.ones(2), axis_size=5)().shape == (5, 2)
    assert weft.vmap(lambda x, y: (x, y), (0, None), (0, None))(A, B)[1].shape == (4, 3)


def test_no_elements_and_one() -> None:
    f = weft.vmap(lambda x, w: weft.tanh(x @ w).sum(), (0, None))
    assert f(weft.zeros((0, 4)), weft.zeros((4, 3))).shape == (0,)
    assert f(weft.zeros((1, 4)), weft.zeros((4, 3))).shape == (1,)


def test_arguments_are_not_changed() -> None:
    x = weft.tensor([[1.0, 2.0]], requires_grad=True)
    y = weft.tensor([1.0, 1.0])

    def f(x: Tensor, y: Tensor) -> Tensor:
        x += 1
        y[0] = x[1]
        return x * y

    out = weft.vmap(f, (0, None))(x, y)
    assert out.tolist() == [[6.0, 3.0]]
    assert x.tolist() == [[1.0, 2.0]]
    assert y.tolist() == [1.0, 1.0]
    assert x.grad is None
    out.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[3.0, 3.0]]


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda: weft.vmap(3), TypeError, "a function is needed"),
        (lambda: weft.vmap(lambda x: x)(), ValueError, "say axis_size=n"),
        (lambda: weft.vmap(lambda x: x, None)(A), ValueError, "no argument is mapped"),
        (lambda: weft.vmap(lambda x, y: x)(A, B), ValueError, "args[0] has 3, and args[1] 4"),
        (lambda: weft.vmap(lambda x: x, 2)(A), IndexError, "axis 2 cannot be mapped"),
        (lambda: weft.vmap(lambda x, y: x)(A, 1.0), IndexError, "in_axes=None"),
        (lambda: weft.vmap(lambda x, y: x)(A, "s"), TypeError, "in_axes=None"),
        (lambda: weft.vmap(lambda x: x, (0, 0))(A), ValueError, "in_axes does not fit"),
        (lambda: weft.vmap(lambda x: x, "0")(A), TypeError, "in_axes must be an int"),
        (lambda: weft.vmap(lambda x: x, 0, (0, 0))(A), ValueError, "out_axes does not fit"),
        (lambda: weft.vmap(lambda x: x, 0, None)(A), ValueError, "out_axes says None"),
        (lambda: weft.vmap(lambda x: x, 0, 5)(A), IndexError, "axis 5"),
        (lambda: weft.vmap(lambda x: "s")(A), TypeError, "not a tensor or a number"),
        (lambda: weft.vmap(lambda x: x + B)(A), ValueError, "operands: f64[4], f64[4,3]"),
        (lambda: weft.vmap(lambda x: x if x.sum() > 0 else -x)(A), RuntimeError, "weft.where"),
        (lambda: weft.vmap(lambda x: float(x[0]))(A), RuntimeError, "for its value (float)"),
        (lambda: weft.vmap(lambda x: x.numpy())(A), RuntimeError, "for its value (numpy)"),
        (lambda: weft.vmap(lambda x: x[x > 0])(A), ValueError, "mask instead"),
        (lambda: weft.vmap(lambda x: x, axis_size=2)(A), ValueError, "axis_size 2"),
    ],
)
def test_errors(call: Callable[[], Any], kind: type, words: str) -> None:
    with pytest.raises(kind) as caught:
        call()
    assert words in str(caught.value)


def test_what_leaks_out_says_so() -> None:
    kept: list[Tensor] = []
    weft.vmap(lambda x: kept.append(x) or x)(A)
    with pytest.raises(weft.errors.CaptureError, match="let the function return it"):
        kept[0] + 1
    with pytest.raises(weft.errors.CaptureError, match="no numbers of its own"):
        kept[0].numpy()
    assert "mapped f64[4]" in repr(kept[0])


def test_writes_outside() -> None:
    total, count = weft.zeros(4, dtype=weft.float64), weft.tensor(0)

    def f(x: Tensor, keep: bool) -> Tensor:
        nonlocal count
        count += 1
        if keep:
            total[...] = x
        return x

    with pytest.raises(weft.errors.CaptureError, match="differs from element to element"):
        weft.vmap(f, (0, None))(A, True)
    assert (total.sum().item(), count.item()) == (0, 0)
    weft.vmap(f, (0, None))(A, False)
    assert count.item() == 1


# --- random numbers ----------------------------------------------------------------------------

DRAWS: list[Callable[[], Tensor]] = [
    lambda: weft.rand(3),
    lambda: weft.rand(()),
    lambda: weft.randn(2, 3),
    lambda: weft.randn(3, dtype=weft.complex64),
    lambda: weft.rand(5, dtype=weft.float64),
    lambda: weft.randint(0, 100, (3,)),
    lambda: weft.bernoulli(0.5, (5,)),
    lambda: weft.bernoulli(weft.tensor([0.2, 0.9, 0.5], dtype=weft.float64)),
    lambda: weft.permutation(5),
    lambda: weft.rand(0),
]


@pytest.mark.parametrize("draw", DRAWS)
def test_one_draw_is_that_of_a_loop(draw: Callable[[], Tensor]) -> None:
    weft.manual_seed(3)
    want, state = weft.stack([draw() for _ in range(4)]), weft.get_rng_state()
    weft.manual_seed(3)
    got = weft.vmap(lambda x: draw())(weft.zeros(4))
    assert got.tolist() == want.tolist()
    assert weft.get_rng_state().tolist() == state.tolist()


def test_probabilities_may_be_mapped() -> None:
    p = weft.tensor([[0.0, 1.0, 0.5], [1.0, 0.0, 0.5]])
    weft.manual_seed(0)
    want = weft.stack([weft.bernoulli(row) for row in p])
    weft.manual_seed(0)
    assert weft.vmap(weft.bernoulli)(p).tolist() == want.tolist()


def test_draws_are_independent() -> None:
    weft.manual_seed(0)

    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        return weft.rand(3), weft.rand(3)

    a, b = weft.vmap(weft.vmap(f))(weft.zeros((2, 3)))
    drawn = np.concatenate([a.numpy().reshape(-1), b.numpy().reshape(-1)])
    assert len(np.unique(drawn)) == 36
    x = weft.nn.functional.dropout(weft.ones(1000))
    y = weft.vmap(weft.nn.functional.dropout)(weft.ones((3, 1000)))
    assert 0.4 < (x == 0).astype(weft.float32).mean().item() < 0.6
    assert len({tuple(row) for row in y.tolist()}) == 3


# --- ops from outside --------------------------------------------------------------------------


def test_a_custom_op() -> None:
    def rule(op: Any, size: int, mapped: Any, inputs: Any, attrs: Any) -> Tensor:
        return doubled(*inputs)

    @weft.custom_op("vmap_twice", batch=rule)
    def doubled(xp: Any, x: Any) -> Any:
        return x * 2

    @weft.custom_op("vmap_reversed", vjp=[lambda xp, g, _out, _x: g[::-1]])
    def reversed_(xp: Any, x: Any) -> Any:
        return x[::-1]

    np.testing.assert_array_equal(weft.vmap(doubled)(A).numpy(), A.numpy() * 2)
    with pytest.warns(UserWarning, match="vmap_reversed once for each element"):
        got = weft.vmap(reversed_)(A)
    np.testing.assert_array_equal(got.numpy(), A.numpy()[:, ::-1])


# --- control flow ------------------------------------------------------------------------------

X = weft.tensor([-1.0, 2.0, -3.0])


def chosen(x: Tensor) -> tuple[Tensor, Tensor]:
    seen = x * 0

    def double(x: Tensor) -> Tensor:
        nonlocal seen
        seen += 1
        return x * 10

    return weft.cond(x > 0, double, lambda x: -x * x, x), seen


def test_branches_are_chosen_element_by_element() -> None:
    out, seen = weft.vmap(chosen)(X)
    assert out.tolist() == [-1.0, 20.0, -9.0]
    assert seen.tolist() == [0.0, 1.0, 0.0]
    slopes = [2.0, 10.0, 6.0]
    assert weft.grad(lambda x: weft.vmap(chosen)(x)[0].sum())(X).tolist() == slopes
    assert weft.vmap(weft.grad(lambda x: chosen(x)[0]))(X).tolist() == slopes
    assert weft.vmap(lambda x: weft.jvp(chosen, (x,), (1.0,))[1][0])(X).tolist() == slopes
    assert weft.jvp(weft.vmap(chosen), (X,), (weft.ones(3),))[1][0].tolist() == slopes
    graph = weft.make_graph(weft.vmap(chosen), weft.spec("B"))
    assert graph(X)[0].tolist() == [-1.0, 20.0, -9.0]
    assert is_mapped(X) is False
    index = weft.tensor([-5, 1, 2, 9])
    ways = [lambda: 1.0, lambda: weft.tensor(2.0), lambda: 3.0]
    assert weft.vmap(lambda i: weft.switch(i, ways))(index).tolist() == [1, 2, 3, 3]
    with pytest.raises(weft.errors.DTypeError, match="different structures"):
        weft.vmap(lambda x: weft.cond(x > 0, lambda: x, lambda: (x, x)))(X)
    with pytest.raises(weft.errors.DTypeError, match="only tensors and numbers"):
        weft.vmap(lambda x: weft.cond(x > 0, lambda: "a", lambda: "b"))(X)


def test_a_condition_that_is_the_same_for_all_chooses_one_branch() -> None:
    ran: list[str] = []

    def f(x: Tensor, flag: Tensor) -> Tensor:
        return weft.cond(flag, lambda: ran.append("true") or x, lambda: ran.append("false") or -x)

    assert weft.vmap(f, (0, None))(X, weft.tensor(True)).tolist() == X.tolist()
    assert ran == ["true"]


def doubled(x: Tensor) -> Any:
    return weft.while_loop(lambda c: c[0] < 100, lambda c: (c[0] * 2, c[1] + 1), (x, 0))


def test_a_loop_runs_until_all_are_done() -> None:
    start = weft.tensor([3.0, 40.0, 200.0])
    out, count = weft.vmap(doubled)(start)
    assert out.tolist() == [192.0, 160.0, 200.0]
    assert count.tolist() == [6, 2, 0]
    slopes = [64.0, 4.0, 1.0]
    assert weft.grad(lambda x: weft.vmap(doubled)(x)[0].sum())(start).tolist() == slopes
    assert weft.vmap(weft.grad(lambda x: doubled(x)[0]))(start).tolist() == slopes
    assert weft.vmap(weft.jacfwd(lambda x: doubled(x)[0]))(start).tolist() == slopes
    traced = weft.trace(weft.vmap(doubled))
    assert traced(start)[0].tolist() == traced(start)[0].tolist() == [192.0, 160.0, 200.0]
    total = weft.vmap(lambda x: weft.scan(lambda c, y: (c + y, c * x), x, weft.arange(3.0))[1])
    assert total(X).tolist() == [[x * x, x * x, x * (x + 1)] for x in X.tolist()]


# --- with the static graph ---------------------------------------------------------------------


def test_in_a_graph_of_any_size() -> None:
    def f(x: Tensor, w: Tensor) -> Tensor:
        return weft.softmax(weft.tanh(x @ w), axis=0)[0] * x.shape[0]

    mapped = weft.vmap(f, (0, None))
    graph = weft.make_graph(mapped, weft.spec(("B", 3)), weft.spec((3, 2)))
    for n in (0, 1, 4):
        x, w = weft.randn(n, 3), weft.randn(3, 2)
        np.testing.assert_allclose(graph(x, w).numpy(), mapped(x, w).numpy(), rtol=1e-6)
    traced = weft.trace(mapped)
    for _ in range(2):
        x, w = weft.randn(5, 3), weft.randn(3, 2)
        np.testing.assert_allclose(traced(x, w).numpy(), mapped(x, w).numpy(), rtol=1e-6)
    inner = weft.vmap(weft.trace(f), (0, None))
    np.testing.assert_allclose(inner(x, w).numpy(), mapped(x, w).numpy(), rtol=1e-6)
