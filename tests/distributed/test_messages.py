"""Messages that travel while a compiled step computes: starts and finishes."""

from __future__ import annotations

import time
from collections import deque
from typing import Any

import pytest

import weft
from weft import distributed, nn, optim
from weft.base.world import own_copy
from weft.passes.lowering.messages import Messages

LAYERS, WIDTH = 5, 400


def trained(steps: int, times: list[float] | None = None) -> tuple[Any, Any]:
    """The scheduled graph of a data parallel step, and the losses."""
    weft.manual_seed(0)
    layers = [m for _ in range(LAYERS) for m in (nn.Linear(WIDTH, WIDTH), nn.Tanh())]
    model = distributed.data_parallel(nn.Sequential(*layers))
    optimizer = optim.SGD(model.parameters(), lr=0.1)

    @weft.compile(backend="native")
    def step(x: weft.Tensor) -> weft.Tensor:
        optimizer.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    x = weft.ones((8, WIDTH)) * (1 + distributed.rank())
    losses = []
    for _ in range(steps):
        begin = time.perf_counter()
        losses.append(distributed.all_reduce(step(x), op="mean").item())
        if times is not None:
            times.append(time.perf_counter() - begin)
    return own_copy(step, None).programs[-1].program.scheduled(), losses


def halves(graph: weft.Graph) -> list[str]:
    """What happens, in order: starts, finishes, products."""
    names = {"message_start": "start", "message_finish": "finish", "matmul": "work"}
    return [names[node.op.name] for node in graph.nodes if node.op.name in names]


def test_gradients_travel_while_the_backward_goes_on() -> None:
    graph = distributed.run_virtual(2, trained, 2)[0][0]
    graph.verify()
    assert weft.parse_graph(str(graph), constants=graph.constants()).equals(graph)
    # A bundle for each layer starts when it is complete; they are waited for behind the backward.
    forward = ["work"] * LAYERS
    backward = ["work", "work", "start"] * (LAYERS - 1) + ["work", "start"]
    assert halves(graph) == forward + backward + ["finish"] * LAYERS


def in_order(graph: weft.Graph) -> None:
    """Messages are finished in the order in which they were started, and no other call of a group
    is made while one is on its way."""
    flying: deque[Any] = deque()
    for node in graph.nodes:
        if node.op.name == "message_start":
            flying.append(node.inputs[:-1])
        elif node.op.name == "message_finish":
            assert flying.popleft() == node.inputs[:-1]
        elif node.op.collective:
            assert not flying
    assert not flying


#: Not needed by what follows it: what is computed in its place.
PARALLEL = """graph @f(%x: f32[64,64], %y: f32[64,64], %i: i64[1]) {
  %0: f32[64,64] = all_reduce[mesh=(('r', 2),), over=('r',)] %x
  %1: f32[64,64] = all_reduce_extreme[mesh=(('r', 2),), over=('r',), kind='max'] %y
  %2: f32[64,64] = matmul %y, %y
  %3: bool[64,64] = greater %2, %y
  %4: f32[64,64] = broadcast_from[mesh=(('r', 2),), over=('r',), root=1] %2
  %6: f32[64,64] = add %0, %1
  %7: f32[64,64] = matmul %6, %4
  return %7
}"""


def test_the_order_of_messages() -> None:
    graph = weft.parse_graph(PARALLEL)
    made = Messages().run(graph)
    made.verify()
    in_order(made)
    names = [node.op.name.replace("message_", "") for node in made.nodes]
    # what broadcasts has no halves: nothing is on its way across it
    assert names.index("finish") < names.index("broadcast_from")
    assert names.count("start") == 2


def test_what_nothing_is_computed_beside_stays_whole() -> None:
    text = """graph @f(%x: f32[8]) {
  %0: f32[8] = all_reduce[mesh=(('r', 2),), over=('r',)] %x
  %1: f32[8] = exp %0
  return %1
}"""
    graph = weft.parse_graph(text)
    assert Messages().run(graph) is graph


def test_a_slow_link_costs_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five bundles on a link of 80 ms: they travel together, beside the backward. Without, each of
    them is waited for."""
    latency = 0.08
    losses = []
    for overlaps in (True, False):
        if not overlaps:
            monkeypatch.setattr(Messages, "rewrite", lambda _self, graph, _notes: graph)
            monkeypatch.setenv("WEFT_CACHE", "0")
        times: list[float] = []
        found = distributed.run_virtual(2, trained, 4, times, link=(latency, 0.0))
        losses.append(found[0][1])
        least = min(times) - latency  # the all_reduce of the loss
        if overlaps:
            assert latency < least < 3 * latency
        else:
            assert least > LAYERS * latency
    assert losses[0] == losses[1]
