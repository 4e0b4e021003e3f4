"""Products of all iterations of a scan at once: which leave the loop, and that nothing changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from control_graphs import graphs
from control_programs import PROGRAMS

import weft
import weft.nn.functional as F
from weft.base.pytree import tree_leaves
from weft.ir.graph import Graph
from weft.passes.hoist import Hoist
from weft.passes.lowering.decompose import decompose
from weft.passes.lowering.scan_products import ScanProducts
from weft.runtime.native import NativeProgram

T, B, N, H = 10, 3, 4, 6  # longer loops than those that are unrolled


def values(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape)


def moved(graph: Graph) -> Graph:
    return ScanProducts().run(Hoist().run(decompose(weft.optimize(graph))))


def products(graph: Graph) -> tuple[int, int]:
    """How many products stand outside of loops, and in them."""
    inside = [n for part in graph.walk() if part is not graph for n in part.nodes]
    return tuple(sum(n.op.name == "matmul" for n in nodes) for nodes in (graph.nodes, inside))  # type: ignore[return-value]


def _seeded(graph: Graph, given: list[Any]) -> list[Any]:
    weft.manual_seed(1)
    return tree_leaves(graph(*given))


def agree(before: Graph, after: Graph, given: list[Any]) -> None:
    after.verify()
    want, found = (_seeded(graph, given) for graph in (before, after))
    for one, two in zip(found, want, strict=True):
        np.testing.assert_allclose(np.asarray(one), np.asarray(two), rtol=1e-12, atol=1e-12)


# --- bodies: (carry, x, weights) -> carry, y ----------------------------------------------------


def _cell(h: Any, x: Any, w: Any) -> Any:
    h = weft.tanh(F.linear(x, w["in"], w["b"]) + F.linear(h, w["hh"]))
    return h, h


def _out(h: Any, x: Any, w: Any) -> Any:
    h = weft.tanh(x @ w["in"].mT + h @ w["hh"])
    return h, weft.sigmoid(h @ w["hh"] * 2.0 + w["b"])


def _column(h: Any, x: Any, w: Any) -> Any:
    h = weft.tanh(w["in"] @ x + w["hh"] @ h)
    return h, (w["hh"] @ h, h)


def _twice(h: Any, x: Any, w: Any) -> Any:
    return weft.tanh(h @ w["hh"] + x @ w["in"].mT) @ w["hh"], x @ w["in"].mT


def _used_inside(h: Any, x: Any, w: Any) -> Any:
    y = h @ w["hh"]
    return weft.tanh(y + x.sum()), y


def _of_slices_only(h: Any, x: Any, w: Any) -> Any:
    return h + 1, (x.mT @ x) @ w["in"].mT


#: body, rank of an x, and how many products are (outside, inside): forward, then with gradients.
BODIES: dict[str, tuple[Callable[..., Any], int, tuple[int, int], tuple[int, int]]] = {
    "cell": (_cell, 2, (1, 1), (4, 2)),
    "out": (_out, 2, (2, 1), (7, 2)),
    "column": (_column, 1, (2, 1), (7, 2)),
    "twice": (_twice, 2, (1, 2), (7, 4)),
    "used_inside": (_used_inside, 2, (0, 1), (1, 2)),
    "slices": (_of_slices_only, 2, (1, 1), (3, 3)),
}


def _weights() -> dict[str, Any]:
    return {"in": values(H, N), "hh": values(H, H) / 3, "b": values(H)}


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", BODIES)
def test_products_leave_the_loop(name: str, reverse: bool) -> None:
    body, rank, forward_count, whole_count = BODIES[name]
    xs = values(T, B, N) if rank == 2 else values(T, N)
    h = values(B, H) if rank == 2 else values(H)
    keys, weights = zip(*_weights().items(), strict=True)

    def forward(h: Any, xs: Any, *w: Any) -> Any:
        given = dict(zip(keys, w, strict=True))
        return weft.scan(lambda c, x: body(c, x, given), h, xs, reverse=reverse)

    def gradients(*args: Any) -> Any:
        floats = [x.requires_grad_() for x in args]
        last, ys = forward(*floats)
        total = (last * last).sum() + sum((y * y * y).sum() for y in tree_leaves(ys))
        return weft.autograd.grad(total, floats, materialize_grads=True, allow_unused=True)

    given = [weft.asarray(value) for value in (h, xs, *weights)]
    for function, count in ((forward, forward_count), (gradients, whole_count)):
        graph = weft.make_graph(function, *[x.type for x in given])
        after = moved(graph)
        agree(graph, after, given)
        assert products(after) == count
        native = NativeProgram(weft.optimize(graph))(given)
        for one, two in zip(native, tree_leaves(graph(*given)), strict=True):
            np.testing.assert_allclose(np.asarray(one), np.asarray(two), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_with_loops(name: str) -> None:
    for graph, inputs in graphs(name):
        after = moved(graph)
        for given in inputs:
            agree(graph, after, given)
