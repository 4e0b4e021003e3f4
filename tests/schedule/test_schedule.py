"""Views as strides, groups of nodes, and the plan of memory."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.nn.functional as F
from weft.codegen.cpu import CpuTarget
from weft.codegen.machine import host
from weft.ir.graph import Graph
from weft.ir.op import OPS
from weft.passes.lowering.decompose import decompose
from weft.passes.pipeline import optimize, passes
from weft.passes.stop_gradient import DropStopGradient
from weft.schedule.grouping import Grouping
from weft.schedule.memory import ALIGN, planned
from weft.schedule.views import View, dense, viewed

# --- views --------------------------------------------------------------------------------------


def _looked(base: Any, view: View) -> Any:
    strides = [8 * step for step in view.strides]
    return np.lib.stride_tricks.as_strided(base[view.offset :], view.shape, strides)


def _random_view(rng: random.Random, array: Any) -> tuple[str, dict[str, Any], Any]:
    op = rng.choice(["permute_dims", "reshape", "getitem", "broadcast_to"])
    if op == "permute_dims":
        axes = tuple(rng.sample(range(array.ndim), array.ndim))
        return op, {"axes": axes}, array.transpose(axes)
    if op == "reshape":
        sizes, left = [], array.size
        while left > 1 and len(sizes) < 4:
            sizes.append(rng.choice([d for d in range(1, left + 1) if left % d == 0]))
            left //= sizes[-1]
        return op, {}, array.reshape([*sizes, left])
    if op == "broadcast_to":
        shape = [rng.choice([1, 3]) if size == 1 else size for size in array.shape]
        return op, {}, np.broadcast_to(array, [2] * rng.randint(0, 1) + shape)
    index: list[Any] = []
    for size in array.shape:
        roll = rng.random()
        if roll < 0.2 and size:
            index.append(rng.randrange(-size, size))
        elif roll < 0.6:
            index.append(slice(None))
        else:
            bounds = (rng.choice([None, 0, 1]), rng.choice([None, size, -1]))
            index.append(slice(*bounds, rng.choice([1, 2, -1])))
        if rng.random() < 0.2:
            index.append(None)
    if rng.random() < 0.2:
        index = [*index[:1], ...] if len(array.shape) else [...]
    return op, {"index": tuple(index)}, array[tuple(index)]


def test_views_are_those_of_numpy() -> None:
    rng = random.Random(0)
    for _ in range(3000):
        shape = tuple(rng.choice([1, 2, 3, 4, 6]) for _ in range(rng.randint(0, 4)))
        base = np.arange(int(np.prod(shape)))
        array, view = base.reshape(shape), dense(shape)
        for _ in range(3):
            op, attrs, after = _random_view(rng, array)
            found = viewed(view, OPS[op], attrs, after.shape)
            if found is None:
                assert op == "reshape"
                assert not np.shares_memory(after, base)  # NumPy had to copy, too
                break
            if after.size:
                assert (_looked(base, found) == after).all()
            array, view = after, found


# --- groups -------------------------------------------------------------------------------------


def groups(function: Callable[..., Any], *args: Any) -> list[str]:
    graph: Graph = weft.make_graph(function, *args)
    graph = decompose(optimize(graph, [DropStopGradient(), *passes()]))
    return [group.kind for group in Grouping(graph, CpuTarget(host())).groups]


def _gradients(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: weft.grad(function, argnums=tuple(range(len(args))))(*args)


X, W, B = weft.spec((64, 32)), weft.spec(32), weft.spec(32)


def _norm(x: Any, w: Any, b: Any) -> Any:
    return (F.gelu(F.layer_norm(x, (32,), w, b)) * weft.sigmoid(x)).sum()


def _chain(x: Any, w: Any, b: Any) -> Any:
    for _ in range(10):
        x = weft.tanh(x * w + b)
    return x


ROWS: list[tuple[str, Callable[..., Any], tuple[Any, ...], list[str]]] = [
    ("a chain", _chain, (X, W, B), ["loop"]),
    ("softmax", lambda x: weft.softmax(x, axis=1), (X,), ["loop"]),
    ("log-softmax over rows", lambda x: weft.log_softmax(x, axis=-1), (X,), ["loop"]),
    ("layer norm, gelu, sigmoid", _norm, (X, W, B), ["loop", "loop"]),
    ("and its gradients", _gradients(_norm), (X, W, B), ["loop"]),
    (
        "a layer",
        lambda x, w, b: F.relu(F.linear(x, w, b)),
        (X, weft.spec((16, 32)), weft.spec(16)),
        ["product"],
    ),
    ("transposed operands", lambda x, y: x.T @ y.T, (X, weft.spec((8, 64))), ["product"]),
    ("views between", lambda x: (x.reshape(8, 8, 32) + 1).permute(1, 0, 2) * 2, (X,), ["loop"]),
    ("two sums of one", lambda x: (x.sum(axis=1), (x * x).sum(axis=1)), (X,), ["loop"]),
    ("an inverse", lambda x: weft.linalg.inv(x @ x.T), (X,), ["product", "kernel"]),
]


@pytest.mark.parametrize(("name", "function", "args", "kinds"), ROWS, ids=[r[0] for r in ROWS])
def test_what_is_one_kernel(name: str, function: Any, args: Any, kinds: list[str]) -> None:
    assert groups(function, *args) == kinds


# --- memory -------------------------------------------------------------------------------------


def test_buffers_that_live_together_do_not_overlap() -> None:
    rng = random.Random(1)
    for _ in range(50):
        count = rng.randint(1, 80)
        sizes = {i: rng.choice([4, 64, 100, 4096, 10000]) for i in range(count)}
        born = {i: rng.randint(0, 30) for i in range(count)}
        dies = {i: born[i] + rng.randint(0, 10) for i in range(count)}
        plan = planned(sizes, born, dies)
        for a in range(count):
            assert plan.offsets[a] % ALIGN == 0
            assert plan.offsets[a] + sizes[a] <= plan.peak
            for b in range(a):
                if born[a] <= dies[b] and born[b] <= dies[a]:
                    first, second = sorted((a, b), key=plan.offsets.__getitem__)
                    assert plan.offsets[first] + sizes[first] <= plan.offsets[second]
        assert plan.lower_bound <= plan.peak <= 2 * plan.lower_bound


def test_a_chain_takes_turns_in_two_buffers() -> None:
    steps = range(100)
    plan = planned(dict.fromkeys(steps, 1000), {i: i for i in steps}, {i: i + 1 for i in steps})
    assert plan.peak == plan.lower_bound == 2 * 1024
