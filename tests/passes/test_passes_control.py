"""Passes over control flow: on every program with branches and loops, and on its gradients."""

from __future__ import annotations

import pytest
from control_graphs import graphs
from control_programs import PROGRAMS
from graph_cases import same

import weft
from weft.ir.graph import Graph
from weft.passes.pipeline import DEFAULT

CONTROL = (
    "push_constants",
    "constant_branches",
    "trim_branches",
    "select_branches",
    "trim_loops",
    "hoist",
    "unroll",
)


def check(before: Graph, after: Graph, inputs: list[list[weft.Tensor]]) -> None:
    after.verify()
    for given in inputs:
        weft.manual_seed(1)
        want = before(*given)
        weft.manual_seed(1)
        same(after(*given), want)


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_pass_alone_and_all_together(name: str) -> None:
    for graph, inputs in graphs(name):
        for step in DEFAULT:
            if step.name in CONTROL:
                after = step.run(graph)
                if after is not graph:
                    check(graph, after, inputs)
        check(graph, weft.optimize(graph, verify=True), inputs)


def test_what_is_stacked_but_not_used_costs_nothing() -> None:
    """The forward loop of a function whose gradient is not used is as it was without it."""

    def f(x: weft.Tensor) -> weft.Tensor:
        x.requires_grad_()
        y = weft.while_loop(lambda v: v < 100, lambda v: v * v, x)
        weft.autograd.grad(y, x)
        return y

    graph = weft.optimize(weft.make_graph(f, weft.spec(())))
    (loop,) = [node for node in graph.nodes if node.op.name == "while"]
    assert len(loop.outputs) == 1
    assert loop.attrs["counted"] is False


def test_a_loop_of_many_iterations_stays_one() -> None:
    graph = weft.make_graph(
        lambda xs: weft.scan(lambda c, x: (c + x, None), xs[0], xs)[0], weft.spec((1000,))
    )
    assert "scan" in [node.op.name for node in weft.optimize(graph).nodes]
