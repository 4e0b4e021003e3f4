"""The dataflow executor gives the bits of the reference interpreter."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from control_graphs import graphs
from control_programs import PROGRAMS

import weft
from weft.ir.interpret import PreparedGraph
from weft.runtime.dataflow.options import Dataflow
from weft.runtime.dataflow.program import DataflowProgram
from weft.runtime.dataflow.tasks import task_of
from weft.runtime.interpreted import interpreted


def bits(values: list[Any]) -> list[tuple[str, Any, bytes]]:
    arrays = [np.asarray(value._data) for value in values]
    return [(array.dtype.str, array.shape, array.tobytes()) for array in arrays]


@pytest.mark.parametrize("name", PROGRAMS)
def test_control_flow_and_its_gradients(name: str) -> None:
    for graph, given in graphs(name):
        for inputs in given:
            want = bits(interpreted(PreparedGraph(graph), list(inputs)))
            for options in (
                Dataflow(),
                Dataflow("fifo", parallel_iterations=1),
                Dataflow("deterministic", parallel_iterations=2),
            ):
                program = DataflowProgram(graph, options)
                assert bits(program(list(inputs))) == want
                assert bits(program(list(inputs))) == want


def test_as_a_backend() -> None:
    @weft.compile(backend="dataflow")
    def root(a: Any) -> Any:
        x = a
        while abs(x * x - a) > 1e-6 * a:
            x = (x + a / x) / 2
        return x

    assert abs(float(root(weft.tensor(2.0))) - 2**0.5) < 1e-6
    assert abs(float(root(weft.tensor(81.0))) - 9) < 1e-6
    assert len(root.recordings) == 1


def last_of_a_list(x: Any, n: Any) -> Any:
    seen = []
    i = weft.asarray(0)
    while i < n:
        seen.append(x * i)
        i = i + 1
    if x.sum() > 0:
        return seen[-2] * seen[0].sum() + seen[-1]
    return weft.stack(seen).sum(0)


def size_of_a_mask(x: Any, n: Any) -> Any:
    chosen = x[x > 0.5]
    total = weft.zeros(chosen.shape[0], dtype=weft.float64)
    for i in range(n):
        inner = chosen[chosen > i]
        total = total + weft.arange(chosen.shape[0]) * inner.sum() + inner.shape[0]
    return total * chosen


@pytest.mark.parametrize("function", [last_of_a_list, size_of_a_mask])
def test_lists_and_sizes_that_data_tell(function: Any) -> None:
    """With gradients, which read the lists from the other end."""
    ours = weft.compile(function, backend="dataflow")
    theirs = weft.compile(function, backend="interpret")
    for values in ([1.0, 2.0, 0.75], [-1.0, 0.6, -3.0], [5.0, 5.0, 5.0]):
        outcomes = []
        for call in (ours, theirs):
            x = weft.tensor(values, dtype=weft.float64, requires_grad=True)
            y = call(x, weft.asarray(4))
            (g,) = weft.autograd.grad((y * y).sum(), x)
            outcomes.append((y.detach().numpy().tobytes(), g.numpy().tobytes()))
        assert outcomes[0] == outcomes[1]


def test_what_is_cheap() -> None:
    """By the card: small elementwise ops and views are, large products are not."""

    @weft.custom_op("dataflow_unknown_cost")
    def unknown(xp: Any, x: Any) -> Any:
        return x

    def cheap(function: Any, *shape: Any) -> bool:
        graph = weft.make_graph(function, weft.spec(shape))
        return all(task_of(node).is_cheap for node in graph.nodes)

    assert cheap(lambda x: weft.sin(x) + x, 64)
    assert cheap(lambda x: x.reshape(1000, 1000)[3:].T, 1000, 1000)
    assert not cheap(lambda x: x @ x, 256, 256)
    assert not cheap(lambda x: x + x, 1000, 1000)
    assert not cheap(lambda x: x @ x.T, weft.dim("n"), 512)  # by a likely size
    assert not cheap(unknown, 4)


@pytest.mark.parametrize("watched", ["forward", "backward", "both", "neither"])
def test_what_a_loop_saved_is_read_by_tools_and_back(watched: str) -> None:
    """The stacks between a forward and a backward run: tools run graphs by the interpreter."""

    def f(x: Any) -> Any:
        total = x * 0
        while total.sum() < 20:
            y = x
            while y.sum() < 8:
                y = y * x
            total = total + y
        return total

    def run(call: Any) -> list[float]:
        x = weft.tensor([1.5, 2.0], dtype=weft.float64, requires_grad=True)
        with weft.detect_nan() if watched in ("forward", "both") else nullcontext():
            y = call(x)
        with weft.detect_nan() if watched in ("backward", "both") else nullcontext():
            (g,) = weft.autograd.grad((y * y).sum(), x)
        found: list[float] = g.tolist()
        return found

    want = run(weft.compile(f, backend="interpret"))
    for scheduler in ("fifo", "pool"):
        assert run(weft.compile(f, backend=Dataflow(scheduler))) == want
