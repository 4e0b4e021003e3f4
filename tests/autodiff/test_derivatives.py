"""The derivative of every card, on the rows of `support/samples`.

- first and second order against finite differences, in float64 and complex128;
- rules on raw arrays give what the same rules on tensors give;
- float32, bfloat16 and float16 give what float64 gives, to their precision;
- each card has derivatives, or a reason why not.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from derivative_calls import FLOATS, Call, calls
from op_calls import flat, function, tensors
from samples import ROWS
from samples.derivatives import CARDS_WITHOUT, UNDEFINED, WITHOUT_GRADIENT
from samples.table import Row

import weft
from weft.base.dtypes import DTYPES, DType
from weft.core.bind import Recorder, bind, recording
from weft.ir.op import OPS, Op, Trait

NO_GRADIENT = {name for names in WITHOUT_GRADIENT.values() for name in names}


def gradients(call: Call, create: bool = False, seed: int = 0) -> list[np.ndarray[Any, Any]] | None:
    """The gradients of a weighted sum of the results; None where none is asked for."""
    f, given = call
    leaves = [weft.tensor(x, requires_grad=x.dtype.kind in FLOATS) for x in given]
    results = [out for out in f(*leaves) if out.requires_grad]
    if not results:
        return None
    rng = np.random.default_rng(seed)
    weights = [weft.asarray(rng.uniform(0.5, 1.5, r.shape), dtype=r.dtype) for r in results]
    wanted = [leaf for leaf in leaves if leaf.requires_grad]
    found = weft.autograd.grad(results, wanted, weights, create_graph=create, allow_unused=True)
    for leaf, g in zip(wanted, found, strict=True):
        assert g is None or (g.shape == leaf.shape and g.dtype is leaf.dtype)
    return [
        np.zeros(x.shape) if g is None else g.numpy() for x, g in zip(wanted, found, strict=True)
    ]


def rows(*dtypes: str) -> list[Any]:
    return [
        pytest.param(row, dtype, id=f"{row.name}-{dtype.name}")
        for row in ROWS
        for dtype in row.dtypes()
        if dtype.name in dtypes and row.name not in UNDEFINED
    ]


@pytest.mark.parametrize(("row", "dtype"), rows("float64", "complex128"))
def test_against_differences(row: Row, dtype: DType) -> None:
    checked = 0
    for call in calls(row, dtype):
        on_arrays = gradients(call)
        if on_arrays is None:
            continue
        on_tensors = gradients(call, create=True)
        assert on_tensors is not None
        for mine, other in zip(on_arrays, on_tensors, strict=True):
            np.testing.assert_allclose(mine, other, rtol=1e-9, atol=1e-9)
        weft.check_grads(*call, order=2, rtol=1e-4, atol=1e-5)
        checked += 1
    takes_floats = any(flat(tensors((s.args, s.kwargs))) for s in row.samples(dtype))
    assert bool(checked) != (row.name in NO_GRADIENT or not takes_floats)


def in_double(call: Call) -> Call:
    """The same call with its values in float64."""
    f, given = call
    wide = {"float": DTYPES["float64"], "complex": DTYPES["complex128"]}
    return f, [x.astype(wide[x.dtype.kind]) if x.dtype.kind in FLOATS else x for x in given]


#: How far a gradient may be off, as a part of the largest.
PRECISION = {"float32": 1e-4, "complex64": 1e-4, "float16": 0.05, "bfloat16": 0.2}


@pytest.mark.parametrize(("row", "dtype"), rows(*PRECISION))
def test_in_lower_precision(row: Row, dtype: DType) -> None:
    for call in calls(row, dtype):
        got, want = gradients(call), gradients(in_double(call))
        for mine, exact in zip(got or (), want or (), strict=True):
            off = np.abs(mine.astype(np.complex128) - exact).max(initial=0)
            assert off <= PRECISION[dtype.name] * max(np.abs(exact).max(initial=0), 1)


@pytest.mark.parametrize("name", UNDEFINED)
def test_without_a_derivative_backward_is_an_error(name: str) -> None:
    x = weft.tensor([1.0, 2.0], requires_grad=True)
    out = flat(function(name)(*[x] * (2 if name == "nextafter" else 1)))[0]
    with pytest.raises(weft.errors.GradientError, match="has no derivative"):
        out.sum().backward()


# --- completeness ------------------------------------------------------------------------------


@pytest.mark.parametrize("op", OPS.values(), ids=lambda op: op.name)
def test_card_has_derivatives_or_a_reason(op: Op) -> None:
    reasons = [reason for reason, names in CARDS_WITHOUT.items() if op.name in names]
    if Trait.CREATION in op.traits:
        reasons.append("it has no inputs")
    if op.name.endswith("_update"):
        reasons.append("optimizers run it under no_grad")
    if op.nested:
        reasons.append("its derivative is another node: weft/record/control")
    if Trait.EFFECT in op.traits or op.name == "token":
        reasons.append("it is done for its effect")
    assert (not op.vjp) == bool(reasons), f"{op.name}: {reasons or 'no derivative'}"


class Seen(Recorder):
    """Notes which ops run."""

    def __init__(self) -> None:
        self.ops: set[str] = set()

    def call(self, op: Op, inputs: Any, attrs: Any) -> Any:
        self.ops.add(op.name)
        return bind(op, *inputs, **attrs)


def test_what_the_rows_reach_is_differentiated() -> None:
    """That rows reach all ops is held by test_ops.py; here, that gradients flow through them."""
    seen, behind = Seen(), set[str]()
    for row in ROWS:
        for dtype in row.dtypes():
            if dtype.name in ("float64", "complex128"):
                for f, given in calls(row, dtype):
                    leaves = [weft.tensor(x, requires_grad=x.dtype.kind in FLOATS) for x in given]
                    with recording(seen):
                        results = f(*leaves)
                    behind |= ops_behind(results)
    differentiable = {op.name for op in OPS.values() if any(op.vjp or ())}
    missing = differentiable & seen.ops - behind
    assert not missing, f"no gradient flows through {sorted(missing)} in any row"


def ops_behind(results: list[weft.Tensor]) -> set[str]:
    stack: list[Any] = [out.grad_fn for out in results if out.grad_fn is not None]
    seen: set[Any] = set()
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            stack += [behind for behind, _ in node.next_functions if behind is not None]
    return {node.op.name for node in seen if hasattr(node, "op")}


# --- what is kept alive ------------------------------------------------------------------------


def freed_after(f: Callable[[weft.Tensor], weft.Tensor]) -> tuple[bool, bool]:
    """Whether the arrays of f's input and result are freed while the graph behind it waits."""
    x = weft.tensor(np.linspace(0.5, 1.5, 12).reshape(3, 4), requires_grad=True)
    before = x + 1.0
    after = f(before)
    arrays = weakref.ref(before._data), weakref.ref(after._data)
    total = after.sum()
    del before, after
    dead = tuple(array() is None for array in arrays)
    total.backward()
    assert x.grad is not None
    return dead  # type: ignore[return-value]


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x.sum(axis=0),
        lambda x: x + 1.0,
        lambda x: x - 1.0,
        lambda x: -x,
        lambda x: x.reshape(4, 3) + 1.0,
        lambda x: x.mT + 1.0,
        lambda x: weft.broadcast_to(x, (2, 3, 4)) + 1.0,
        lambda x: x[1:] + 1.0,
        lambda x: weft.concat([x, x]),
        lambda x: weft.take(x, weft.asarray([0, 2]), axis=1),
        lambda x: weft.cumulative_sum(x, axis=0),
        lambda x: x.astype(weft.float32),
        lambda x: x.mean(axis=1),
        lambda x: weft.floor(x),
        lambda x: weft.fft.rfft(x).real + 1.0,
        lambda x: weft.linalg.trace(x) + 1.0,
    ],
)
def test_linear_ops_keep_nothing(f: Callable[[weft.Tensor], weft.Tensor]) -> None:
    assert freed_after(f) == (True, True)


@pytest.mark.parametrize(
    "f",
    [
        *(weft.tanh, weft.exp, weft.sqrt, weft.reciprocal),
        lambda x: weft.linalg.inv(x[:, :3] + 5.0 * weft.eye(3)),
    ],
)
def test_some_ops_keep_their_result_only(f: Callable[[weft.Tensor], weft.Tensor]) -> None:
    assert freed_after(f) == (True, False)


@pytest.mark.parametrize("f", [weft.sin, weft.log, weft.square, lambda x: x * x, weft.abs])
def test_some_ops_keep_their_input_only(f: Callable[[weft.Tensor], weft.Tensor]) -> None:
    assert freed_after(f) == (False, True)


def test_a_product_keeps_only_what_the_asked_gradient_needs() -> None:
    w = weft.tensor([[2.0, 1.0], [1.0, 3.0]], requires_grad=True)
    x = weft.asarray([[1.0, 2.0]]) + 0.0
    array, weight = weakref.ref(x._data), weakref.ref((w * 1.0)._data)
    total = (x @ w).sum()
    del x
    assert array() is not None  # w's gradient is made of it
    assert weight() is None
    total.backward()
    assert array() is None  # and after that it is gone
