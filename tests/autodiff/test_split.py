"""What is saved for a backward: minimum cuts, late recomputation, planned memory, budgets."""

from __future__ import annotations

import gc
import itertools
import math
import tracemalloc
import warnings
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

import weft
import weft.nn
import weft.optim
from weft.autodiff.recompute_schedule import JointParts
from weft.autodiff.split import cut, price, saving, split
from weft.core.bind import bind
from weft.ir.graph import Graph, Value
from weft.ir.interpret import PreparedGraph
from weft.ir.op import OPS
from weft.nn import functional as F

# --- small graphs at random --------------------------------------------------------------------


def random_graph(seed: int, count: int) -> Graph:
    """A graph of ops on matrices: cheap ones, views, reductions, products."""
    rng = np.random.default_rng(seed)
    graph = Graph("random")
    graph.set_inputs([weft.spec((4, 4)), weft.spec((4, 8))], ["x", "y"])
    values = list(graph.inputs)
    while len(graph.nodes) < count:
        a = values[rng.integers(len(values))]
        kind = rng.integers(7)
        if kind == 0:
            node = graph.add(OPS["tanh"], a)
        elif kind == 1:
            same = [v for v in values if v.type == a.type]
            node = graph.add(OPS["add"], a, same[rng.integers(len(same))])
        elif kind == 2:
            axes = (1, 0) if a.tensor_type.ndim == 2 else (0,)
            node = graph.add(OPS["permute_dims"], a, axes=axes)
        elif kind == 3:
            size = math.prod(a.tensor_type.shape)
            node = graph.add(OPS["reshape"], a, shape=(size,))
        elif kind == 4 and a.tensor_type.ndim == 2:
            node = graph.add(OPS["sum"], a, axis=(0,), keepdims=False)
        elif kind == 5 and a.tensor_type.ndim == 2:
            b = [v for v in values if v.tensor_type.shape[0] == a.tensor_type.shape[-1]]
            b = [v for v in b if v.tensor_type.ndim == 2]
            if not b:
                continue
            node = graph.add(OPS["matmul"], a, b[rng.integers(len(b))])
        elif kind == 6 and a.tensor_type.ndim == 2:
            node = graph.add(OPS["softmax"], a, axis=1)
        else:
            continue
        values += node.outputs
    return graph


def random_pair(seed: int) -> JointParts:
    """The first nodes are the forward part, the last ones the backward part."""
    graph = random_graph(seed, 13)
    forward, backward = graph.nodes[:9], graph.nodes[9:]
    gradients = [node.out for node in backward]
    return JointParts(
        graph.inputs, forward, backward, lasting=[forward[-1].out], gradients=gradients
    )


def cost(pair: JointParts, saved: set[int]) -> float:
    """What saving these values costs, with what has to be repeated then."""
    total = sum(saving(pair, value) for value in saved)
    seen: set[int] = set()
    stack = [value for value in pair.needed if value not in saved]
    while stack:
        value = stack.pop()
        step = pair.maker[value]
        if value in seen or step is None:
            continue
        seen.add(value)
        again = price(step.node)
        if again is None:
            return math.inf
        total += again // len(step.outputs) + 1 if again else 0
        stack += [v for v in step.inputs if v not in saved and v >= pair.held]
    return total


@pytest.mark.parametrize("seed", range(40))
def test_the_cut_is_the_cheapest_of_all(seed: int) -> None:
    pair = random_pair(seed)
    made = [value for step in pair.forward for value in step.outputs]
    subsets = itertools.chain.from_iterable(
        itertools.combinations(made, n) for n in range(len(made) + 1)
    )
    assert cost(pair, cut(pair)) == min(cost(pair, set(each)) for each in subsets)


@pytest.mark.parametrize("seed", range(40))
def test_what_is_run_once_more_stands_right_before_its_use(seed: int) -> None:
    pair = random_pair(seed)
    outcome = pair.outcome(set())
    there = {*range(pair.held), *outcome.saved}
    waiting: list[Any] = []  # steps that were repeated for the next of the backward part
    for step, again in outcome.order:
        assert there.issuperset(step.inputs)
        there.update(step.outputs)
        if again:
            waiting.append(step)
            continue
        wanted = set(step.inputs)
        for before in reversed(waiting):
            assert wanted.intersection(before.outputs), "nobody needed it yet"
            wanted.update(before.inputs)
        waiting = []
    assert len(set(map(id, outcome.again))) == len(outcome.again)


# --- planned memory, and that of a run ---------------------------------------------------------


class Meter:
    """Calls ops, and counts the bytes of the arrays that they made and that are still there."""

    def __init__(self, inputs: Iterable[weft.Tensor]) -> None:
        self.now = self.peak = 0
        self.known = {id(storage(x._data)) for x in inputs}

    def call(self, op: Any, *inputs: Any, **attrs: Any) -> Any:
        out = bind(op, *inputs, **attrs)
        for part in out if isinstance(out, tuple) else (out,):
            self._note(storage(part._data), op.name)
        self.peak = max(self.peak, self.now)
        return out

    def _note(self, array: Any, name: str) -> None:
        if id(array) in self.known or name == "constant":
            return
        self.known.add(id(array))
        self.now += array.nbytes
        weakref.finalize(array, self._gone, id(array), array.nbytes)

    def _gone(self, name: int, size: int) -> None:
        self.known.discard(name)
        self.now -= size


def storage(array: Any) -> Any:
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


@pytest.mark.parametrize("seed", range(30))
def test_the_plan_is_what_the_interpreter_needs(seed: int) -> None:
    graph = random_graph(100 + seed, 15)
    graph.outputs = (graph.nodes[-1].out, graph.nodes[5].out)
    graph = weft.optimize(graph, ["dead_code"])
    inputs = [weft.randn(*value.tensor_type.shape) for value in graph.inputs]
    meter = Meter(inputs)
    program = PreparedGraph(graph)
    slots = program.run(inputs, meter.call)
    plan = graph.memory()
    assert meter.peak == plan.peak
    assert plan.peak == max(moment.during for moment in plan.timeline)
    assert plan.peak == sum(size for _, size in plan.at_peak)
    assert [slot is not None for slot in slots].count(True) >= len(set(program.outputs))
    ends = {id(storage(slots[i]._data)) for i in program.outputs} - {
        id(storage(x._data)) for x in inputs
    }
    assert plan.timeline[-1].after >= meter.now if ends else meter.now == 0


def test_plan_of_control_flow_symbolic_sizes_and_text() -> None:
    def body(x: Any) -> Any:
        return weft.while_loop(lambda x: x.sum() < 100, lambda x: weft.exp(x) + x * 2, x)

    graph = weft.make_graph(body, weft.spec(("n",)))
    plan = graph.memory(n=1000)
    # The result, and in the loop the exponential, the product, and their sum.
    assert plan.peak >= 4 * 4000
    assert graph.memory(n=10).peak < plan.peak
    assert graph.memory().held == 256 * 4
    assert "test_split.py" in str(plan)
    assert "f32[n]" in str(plan)
    assert str(Graph("empty").memory()) == "peak 0 bytes; the inputs have 0"


def test_views_live_in_what_they_are_views_of() -> None:
    def f(x: Any) -> Any:
        big = x * 2
        part = big[:1].reshape(-1)
        small = part + 1
        return small, part

    graph = weft.make_graph(f, weft.ones((100, 10)))
    plan = graph.memory()
    assert plan.timeline[-1].after == 4000 + 40  # `part` keeps `big`


# --- whole functions ---------------------------------------------------------------------------


def leaf(*shape: int, seed: int = 0) -> weft.Tensor:
    made = weft.randn(*shape, dtype=weft.float64, generator=weft.Generator(seed))
    return made.requires_grad_()


CHAIN = [leaf(8, 8, seed=i) for i in range(64)]
MLP = weft.nn.Sequential(
    *[
        layer
        for _ in range(8)
        for layer in (weft.nn.Linear(8, 8), weft.nn.GELU(), weft.nn.Dropout(0.2))
    ]
).to(weft.float64)


def encoder(dropout: float, activation: str) -> Any:
    options = {"activation": activation, "batch_first": True, "norm_first": True}
    layers = [weft.nn.TransformerEncoderLayer(8, 2, 32, dropout, **options) for _ in range(5)]
    return weft.nn.Sequential(*layers).to(weft.float64)


BLOCKS, PLAIN_BLOCKS = encoder(0.1, "gelu"), encoder(0.0, "relu")


def chain(x: Any) -> Any:
    for w in CHAIN:
        x = weft.tanh(x @ w)
    return x.sum()


def mlp(x: Any) -> Any:
    return (MLP(x) ** 2).sum()


def blocks(x: Any) -> Any:
    return (BLOCKS(x.reshape(-1, 16, 8)) ** 2).sum()


def plain_blocks(x: Any) -> Any:
    return (PLAIN_BLOCKS(x.reshape(-1, 16, 8)) ** 2).sum()


def branching(x: Any) -> Any:
    """A question (in a trace), and a loop of the graph on the way."""
    for w in CHAIN[:8]:
        x = weft.sin(x @ w)
    if x.sum() > 1e9:
        x = x * 2
    x = weft.while_loop(lambda x: x.sum() > 1e9, weft.cos, x)
    for w in CHAIN[8:20]:
        x = weft.sin(x @ w)
    return x.sum()


def gradients(call: Callable[[Any], Any], x: Any, others: list[Any]) -> list[Any]:
    weft.manual_seed(5)
    found = weft.autograd.grad(call(x), [x, *others])
    return [g.numpy() for g in found]


BUDGETS: list[tuple[Any, float, bool]] = [
    (chain, 1.0, True),
    (chain, 0.6, True),
    (chain, 0.3, True),  # 2√n of 64 layers is 16
    (chain, 0.05, False),
    (mlp, 0.5, True),
    (blocks, 0.4, True),
    (blocks, 0.3, True),
    (branching, 1.0, True),
    (branching, 0.0, False),
]


@pytest.mark.parametrize(("function", "budget", "reached"), BUDGETS)
@pytest.mark.parametrize("wrap", [weft.trace, weft.compile])
def test_budgets_are_met_or_reported(
    wrap: Any, function: Any, budget: float, reached: bool
) -> None:
    x = leaf(128, 8, seed=99)
    models = {mlp: MLP, blocks: BLOCKS}
    others = list(models[function].parameters()) if function in models else CHAIN[:20]
    want = gradients(function, x, others)
    compiled = wrap(function, memory_budget=budget)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            got = gradients(compiled, x, others)
    assert len(caught) == (not reached), [str(w.message) for w in caught]
    found = compiled.splits()[0]
    assert found.reached is reached
    assert (found.peak <= budget * found.peak_used) is reached
    assert ("not reached" in str(found)) is not reached
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
    if not reached:
        assert f"budget {budget:g} was not reached" in str(caught[0].message)


def measured(compiled: Any, x: Any, others: list[Any]) -> tuple[int, int, int]:
    """Peak of the forward, what is left after it, and peak of the backward, in bytes."""
    for _ in range(2):
        weft.autograd.grad(compiled(x), [x, *others])
    gc.collect()
    tracemalloc.start()
    try:
        start = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        y = compiled(x)
        left, forward = (n - start for n in tracemalloc.get_traced_memory())
        tracemalloc.reset_peak()
        weft.autograd.grad(y, [x, *others])
        backward = tracemalloc.get_traced_memory()[1] - start
    finally:
        tracemalloc.stop()
    return forward, left, backward


@pytest.mark.parametrize("budget", [None, 0.5, 0.3])
@pytest.mark.parametrize("function", [chain, plain_blocks])
def test_the_peak_is_that_of_the_run(function: Any, budget: float | None) -> None:
    x = leaf(4096, 8, seed=99)
    others = CHAIN if function is chain else list(PLAIN_BLOCKS.parameters())
    compiled = weft.trace(function, memory_budget=budget)
    forward, left, backward = measured(compiled, x, others)
    found = compiled.splits()[0]
    assert max(forward, backward) == pytest.approx(found.peak, rel=0.1)
    assert left == pytest.approx(found.bytes_saved, rel=0.05)


def test_a_budget_repeats_no_more_than_it_must() -> None:
    x = leaf(128, 8)
    work = {}
    for budget in (0.9, 0.7, 0.5, 0.3):
        compiled = weft.trace(chain, memory_budget=budget)
        compiled(x)
        work[budget] = compiled.splits()[0].flops
    assert work[0.9] < work[0.7] < work[0.5] < work[0.3]
    # Of 64 layers, a budget of half repeats little more than half.
    layer = 128 * 8 * 8 * 2 + 128 * 8
    assert work[0.5] <= 40 * layer


def test_histories_with_a_budget() -> None:
    """Twice, of second order, and freed: as without one."""
    x = leaf(64, 8)
    compiled = weft.trace(chain, memory_budget=0.3)
    y = compiled(x)
    (first,) = weft.autograd.grad(y, x, retain_graph=True)
    (again,) = weft.autograd.grad(y, x, create_graph=True)
    np.testing.assert_array_equal(first.numpy(), again.detach().numpy())
    (second,) = weft.autograd.grad((again**2).sum(), x, retain_graph=True)
    (plain,) = weft.autograd.grad(chain(x), x, create_graph=True)
    (want,) = weft.autograd.grad((plain**2).sum(), x)
    np.testing.assert_allclose(second.numpy(), want.numpy(), rtol=1e-9)
    weft.autograd.grad(y, x)
    with pytest.raises(weft.errors.GradientError, match="freed"):
        weft.autograd.grad(y, x)


@pytest.mark.parametrize("wrap", [weft.trace, weft.compile])
def test_training_steps_keep_a_budget(wrap: Any) -> None:
    def steps(budget: float | None, compiled: bool) -> tuple[Any, Any, Any]:
        weft.manual_seed(0)
        layers = [part for _ in range(16) for part in (weft.nn.Linear(8, 8), weft.nn.Tanh())]
        model = weft.nn.Sequential(*layers, weft.nn.Dropout(0.1), weft.nn.Linear(8, 3))
        optimizer = weft.optim.Adam(model.parameters(), lr=0.01)
        x, y = weft.randn(512, 8), weft.randint(0, 3, (512,))

        def step(x: Any, y: Any) -> Any:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        call = wrap(step, memory_budget=budget) if compiled else step
        losses = [call(x, y).item() for _ in range(4)]
        return losses, [p.numpy() for p in model.parameters()], call

    want, parameters, _ = steps(None, False)
    got, found, call = steps(0.5, True)
    np.testing.assert_allclose(got, want, rtol=1e-5)
    for a, b in zip(found, parameters, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
    for part in call.splits():
        assert part.reached
        assert part.recomputed


def test_a_training_step_that_asks_is_left_as_it_is() -> None:
    w = leaf(8, 8)

    def step(x: Any) -> Any:
        loss = weft.tanh(x @ w).sum()
        loss.backward()
        return [1, 2][int(loss.item() > w.grad.sum().item())]

    traced = weft.trace(step, memory_budget=0.5)
    with pytest.warns(weft.CaptureWarning, match="budget is not applied"):
        traced(leaf(4, 8))


def test_a_budget_is_a_part() -> None:
    for call in (weft.trace, weft.compile):
        with pytest.raises(weft.errors.RangeError, match=r"not in 0 … 1"):
            call(chain, memory_budget=1.5)


def test_large_graphs_are_split_in_time() -> None:
    """A long chain of nodes: the search is bounded, and nothing recurses."""
    graph = Graph("long")
    graph.set_inputs([weft.spec((16,))], ["x"])
    value: Value = graph.inputs[0]
    for _ in range(3000):
        value = graph.add(OPS["tanh"], value).out
    forward = list(graph.nodes)
    for node in reversed(forward):
        value = graph.add(OPS["multiply"], value, node.out).out
    backward = graph.nodes[3000:]
    found = split(graph.inputs, forward, backward, [value], budget=0.04)
    assert found.reached  # √(2 · 3000) values are 2.6 %
