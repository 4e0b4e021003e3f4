"""Plans for a second target, which runs them in Python, give what the interpreter gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from reference_target import ReferenceEmitter

import weft
import weft.nn.functional as F
from weft.codegen.machine import host
from weft.codegen.program import CpuEmitter
from weft.codegen.text import Module
from weft.ir.graph import Graph
from weft.passes.lowering.lower import lowered
from weft.schedule.plan import ProgramPlan
from weft.schedule.planner import plan_program
from weft.schedule.verify import verify_plan

TABLE = np.random.default_rng(3).standard_normal((24, 20)).astype("float32")


def _gradients(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: weft.grad(function, argnums=tuple(range(len(args))))(*args)


def _attention(q: Any, k: Any, v: Any) -> Any:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def _prologue(x: Any, w: Any, s: Any) -> Any:
    return x @ (w * s), weft.relu(x) @ w, (x * 2).T @ x


def _while(x: Any) -> Any:
    def body(carried: Any) -> Any:
        y, n = carried
        return weft.tanh(y @ y.T @ y) + y.sum(axis=0), n + 1

    y, n = weft.while_loop(lambda carried: carried[1] < 3, body, (x, weft.tensor(0)))
    return y * n, x


def _scan(x: Any) -> Any:
    def step(carry: Any, row: Any) -> Any:
        old, new = carry
        return (new, weft.softmax(old * row, axis=0) @ weft.ones((6, 6)) + new.sum()), old * 2

    (old, new), rows = weft.scan(step, (x[0], x[1]), x, reverse=True)
    return old, new, rows


def _nested(x: Any) -> Any:
    def outer(carry: Any, row: Any) -> Any:
        def branch(y: Any) -> Any:
            return weft.while_loop(lambda z: z.sum() < 9, lambda z: weft.abs(z) * 2 + 1, y)

        carry = weft.cond(row.sum() > 0, branch, lambda y: y - row, carry)
        return carry, carry.max()

    return weft.scan(outer, x[0], x)


def _step(w: Any, m: Any, x: Any) -> Any:
    """A training step: weights and moments may be written where they lie."""
    g = weft.grad(lambda w: F.gelu(x @ w).sum())(w)
    m = 0.9 * m + g
    return w - 0.1 * m, m, weft.sqrt((g * g).sum())


#: name: function, shapes of its arguments, how many steps its plan has.
PROGRAMS: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]], int]] = {
    "elementwise": (lambda x, y: (weft.exp(x) * y + 1, x / (1 + y * y)), [(8, 6), (6,)], 1),
    "softmax": (lambda x: weft.softmax(x.T * 2, axis=0).sum(axis=1), [(8, 6)], 3),
    "layer norm": (_gradients(lambda x: F.gelu(F.layer_norm(x, (6,))).sum()), [(8, 6)], 4),
    "products": (lambda x, w: weft.exp(weft.exp(x @ w) @ w) @ w, [(8, 6), (6, 6)], 3),
    "totals": (lambda x, w: ((x @ w) ** 2).sum(), [(8, 6), (6, 6)], 1),
    "prologues": (_prologue, [(8, 6), (6, 5), (5,)], 3),
    "rows and columns": (lambda x: (x - x.mean(axis=1, keepdims=True)).sum(axis=0), [(90, 5)], 1),
    "views": (lambda x: (x[2:, ::-1].T.reshape(-1) * 2, x[None, 1:5, 0] @ x[4:]), [(8, 6)], 4),
    "many": (lambda x: sum(weft.roll(weft.exp(x * i), i, axis=0) for i in range(9)), [(8, 6)], 29),
    "constants": (lambda x: (x @ TABLE.T[:6], x + TABLE[0, :6], weft.tensor(TABLE)), [(8, 6)], 2),
    "kernels": (lambda x: weft.sort(weft.concat([x, x * 2]), axis=0).T[[0, 3]], [(8, 6)], 5),
    "called": (lambda x: weft.linalg.svd(x @ x.T)[1] * 2, [(5, 6)], 3),
    "given back": (lambda x, y: (x, y, x.T, y + 1, y + 1, x.reshape(6, 8)), [(8, 6), (3,)], 2),
    "convolution": (
        _gradients(lambda x, w: F.max_pool2d(weft.relu(F.conv2d(x, w)), 2).sum()),
        [(2, 3, 8, 8), (4, 3, 3, 3)],
        8,
    ),
    "pooled": (
        lambda x, w: F.max_pool2d(F.conv2d(x, w), 2),
        [(9, 3, 8, 8), (4, 3, 3, 3)],
        2,
    ),
    "attention": (_attention, [(2, 9, 4), (2, 9, 4), (2, 9, 4)], 4),
    "attention's backward": (
        _gradients(lambda *qkv: (_attention(*qkv) ** 2).sum()),
        [(2, 9, 4), (2, 9, 4), (2, 9, 4)],
        6,
    ),
    "while": (_while, [(4, 6)], 4),
    "scan": (_scan, [(5, 6)], 4),
    "nested": (_nested, [(5, 6)], 2),
    "step": (_step, [(6, 5), (6, 5), (8, 6)], 4),
}


def _graph(name: str) -> Graph:
    function, shapes, _ = PROGRAMS[name]
    return weft.make_graph(function, *map(weft.spec, shapes))


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_plan_runs_on_another_target(name: str) -> None:
    graph = _graph(name)
    emitter = ReferenceEmitter()
    plan = plan_program(lowered(graph), emitter)
    assert len(plan.root.steps) == PROGRAMS[name][2], str(plan)
    verify_plan(plan, emitter.target)
    _check(name, graph, plan)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_plan_of_the_cpu_runs_in_python(name: str) -> None:
    """The plan alone decides what is read and written where, not the code of its kernels."""
    graph = _graph(name)
    _check(name, graph, plan_program(lowered(graph), CpuEmitter(Module(host()))))


def _check(name: str, graph: Graph, plan: ProgramPlan) -> None:
    program = ReferenceEmitter().emit(plan)
    for seed in (0, 1):
        rng = np.random.default_rng(seed)
        given = [rng.standard_normal(shape).astype("float32") for shape in PROGRAMS[name][1]]
        wanted = graph(*map(weft.tensor, given))
        wanted = wanted if isinstance(wanted, (tuple, list)) else [wanted]
        for found, right in zip(program(given), wanted, strict=True):
            np.testing.assert_allclose(found, right.numpy(), rtol=1e-4, atol=1e-5)


def test_a_plan_that_is_wrong_gives_something_else() -> None:
    """Two values at one place: what the verifier looks for, seen in the numbers."""
    emitter = ReferenceEmitter()
    plan = plan_program(lowered(_graph("step")), emitter)
    given = [np.ones(shape, "float32") for shape in PROGRAMS["step"][1]]
    right = emitter.emit(plan)(given)
    plan.root.memory.offsets = dict.fromkeys(plan.root.memory.offsets, 0)
    assert not all(map(np.allclose, emitter.emit(plan)(given), right))


def test_what_is_planned_can_be_printed() -> None:
    plan = plan_program(lowered(_graph("nested")), ReferenceEmitter())
    lines = str(plan).splitlines()
    assert lines[0] == f"{plan.root.arena} bytes of memory, {plan.root.lower_bound} at least"
    assert sum("control: while" in line for line in lines) == 1
    assert [line for line in lines if line.startswith("control: scan")]
