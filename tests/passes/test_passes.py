"""Passes: before and after as text, the contract, the pipeline and how users add to it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bitwise import difference, results, some

import weft
from weft.base.device import CPU
from weft.base.dim_algebra import Dim
from weft.base.errors import GraphError
from weft.ir.dispatch import _TABLES
from weft.ir.graph import Builder, Graph, Stage
from weft.ir.op import OPS, Op, Trait
from weft.ir.text import graph_text
from weft.ir.types import TOKEN, TensorType
from weft.passes import DropStopGradient, Notes, Pass, graph_pass, optimize, register, unregister
from weft.passes.lowering.decompose import decompose
from weft.passes.pipeline import DEFAULT, MOST_ROUNDS, passes, timings

FOLDER = Path(__file__).parent / "texts"
BY_NAME: dict[str, Pass] = {step.name: step for step in (*DEFAULT, DropStopGradient())}


def text_of(graph: Graph) -> str:
    return graph_text(graph, history=False, locations=False)


def cases() -> Iterator[Any]:
    """Each file has the graphs before and after one pass, each with the reason above it."""
    for path in sorted(FOLDER.glob("*.txt")):
        for number, case in enumerate(re.split(r"\n\n(?=#)", path.read_text().strip())):
            yield pytest.param(path.stem, case, id=f"{path.stem}-{number}")


@pytest.mark.parametrize(("name", "case"), list(cases()))
def test_before_and_after(name: str, case: str) -> None:
    assert case.startswith("# "), "each case says why"
    before_text, after_text = case.split("\n---\n")
    before_text = re.sub(r"(?m)^#.*\n", "", before_text)
    before = weft.parse_graph(before_text)
    before.verify()
    after = BY_NAME[name].run(before)
    assert text_of(before) == before_text.strip()  # it was not changed
    if after_text == "unchanged":
        assert after is before
        return
    after.verify()
    assert text_of(BY_NAME["dead_code"].run(after)) == after_text


@pytest.mark.parametrize(("name", "case"), list(cases()))
def test_before_and_after_give_the_same(name: str, case: str) -> None:
    before_text, after_text = (re.sub(r"(?m)^#.*\n", "", part) for part in case.split("\n---\n"))
    if after_text == "unchanged":
        return
    before, after = weft.parse_graph(before_text), weft.parse_graph(after_text)
    inputs = []
    for i, value in enumerate(before.inputs):
        shape = tuple(n if isinstance(n, int) else 3 for n in value.tensor_type.shape)
        inputs.append(some(value.tensor_type.dtype, shape, seed=i))
    assert not difference(results(before, inputs), results(after, inputs))


def test_every_pass_has_its_text() -> None:
    assert {path.stem for path in FOLDER.glob("*.txt")} == set(BY_NAME)


@pytest.mark.parametrize("step", BY_NAME.values(), ids=lambda step: step.name)
def test_every_pass_says_what_it_does(step: Pass) -> None:
    assert step.doc.endswith(".")
    assert len(step.doc) < 100
    assert repr(step) == f"<pass {step.name}: {step.doc}>"


# --- the pipeline ------------------------------------------------------------------------------


def model(x: weft.Tensor) -> weft.Tensor:
    y = x * 1 + (x / 4) * 2
    return (y - (x / 4) * 2).sum() * (weft.ones((2, 3)) * 3).sum()


def test_the_whole_pipeline() -> None:
    graph = weft.make_graph(model, weft.spec((2, 3)))
    text = text_of(graph)
    new = optimize(graph, verify=True)
    assert text_of(graph) == text
    assert [n.op.name for n in new.nodes if n.inputs] == [
        *("multiply", "multiply", "add", "subtract", "sum", "multiply")
    ]
    x = weft.asarray([[1.0, -2.0, 3.0], [0.5, np.inf, np.nan]])
    assert difference([graph(x).numpy()], [new(x).numpy()]) == ""


def test_nothing_to_do_gives_the_graph_itself() -> None:
    graph = weft.make_graph(lambda x: weft.exp(x), weft.spec(3))
    assert optimize(graph) is graph
    assert graph.history == ()
    for step in BY_NAME.values():
        assert step.run(graph) is graph


def test_the_history_says_what_each_pass_changed() -> None:
    graph = weft.make_graph(lambda x: x * 1 + weft.exp(x) + weft.exp(x), weft.spec(3))
    new = optimize(graph)
    notes = {stage.name: stage.note for stage in new.history}
    assert notes["cse"] == "1 equal call merged"
    assert notes["algebra"] == "1 × multiply(x, 1) → x"
    assert notes["dead_code"] == "1 node removed"
    assert all(stage.seconds > 0 for stage in new.history)
    assert "after algebra" in str(new)
    assert graph.history == ()
    assert set(timings(new)) == set(notes)


def test_show_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    graph = weft.make_graph(lambda x: x * 1, weft.spec(3))
    optimize(graph, show=True)
    printed = capsys.readouterr().out
    assert re.search(r"(?m)^algebra, .* ms: 1 × multiply\(x, 1\) → x$", printed)
    optimize(graph)
    assert not capsys.readouterr().out


def test_a_list_of_passes() -> None:
    graph = weft.make_graph(lambda x: x * 1 + weft.exp(x) + weft.exp(x), weft.spec(3))
    new = optimize(graph, ["cse", BY_NAME["dead_code"], lambda g: g])
    assert [stage.name for stage in new.history] == ["cse"]
    assert optimize(graph, []) is graph


@graph_pass
def log_of_exp(graph: Graph, notes: Notes) -> Graph:
    """log(exp(x)) → x, which is not exact."""
    builder = Builder(graph)
    for node in graph.nodes:
        inner = node.inputs[0].node if node.op.name == "log" else None
        if inner is not None and inner.op.name == "exp":
            builder.forward(node.outputs, [builder[inner.inputs[0]]])
            notes.add("logarithms undone")
        else:
            builder.copy(node)
    return builder.finish() if notes.counts else graph


def test_users_add_passes_and_remove_them() -> None:
    graph = weft.make_graph(lambda x: weft.log(weft.exp(x)) * 1, weft.spec(3))
    assert register(log_of_exp, after="cse") is log_of_exp
    try:
        names = [step.name for step in passes()]
        assert names.index("log_of_exp") == names.index("cse") + 1
        new = optimize(graph, verify=True)
        assert not new.nodes
        assert ("log_of_exp", "1 logarithms undone") in [(s.name, s.note) for s in new.history]
        with pytest.raises(GraphError, match="already a pass 'log_of_exp'"):
            register(log_of_exp)
    finally:
        unregister("log_of_exp")
    assert passes() == DEFAULT
    assert [n.op.name for n in optimize(graph).nodes] == ["exp", "log"]


def test_a_plain_function_is_a_pass() -> None:
    seen: list[str] = []

    def look(graph: Graph) -> Graph:
        seen.append(graph.name)
        return graph

    step = register(look, before="canonical")
    try:
        assert passes()[1] is step
        optimize(weft.make_graph(lambda x: x + 1, weft.spec(3)))
    finally:
        unregister(step)
    assert seen == ["lambda"]


def test_a_pass_without_notes_is_noted_by_its_nodes() -> None:
    graph = weft.make_graph(lambda x: weft.exp(x) + 1, weft.spec(3))
    once: list[Graph] = []

    @graph_pass(name="clone", nested=False)
    def cloned(graph: Graph) -> Graph:
        if not once:
            once.append(graph)
            return graph.clone()
        return graph

    new = optimize(graph, [cloned])
    assert [(s.name, s.note) for s in new.history] == [("clone", "3 → 3 nodes")]
    assert cloned(new) is new


def test_clear_errors() -> None:
    graph = weft.make_graph(lambda x: x + 1, weft.spec(3))
    with pytest.raises(GraphError, match="there is no pass 'cleanup'"):
        optimize(graph, ["cleanup"])
    with pytest.raises(GraphError, match="no pass 'later'"):
        register(log_of_exp, after="later")
    with pytest.raises(GraphError, match="one of Weft's own"):
        unregister("cse")
    with pytest.raises(GraphError, match="not both"):
        register(log_of_exp, after="cse", before="fold")
    with pytest.raises(GraphError, match="3 is no pass"):
        optimize(graph, [3])  # type: ignore[list-item]
    with pytest.raises(GraphError, match="returned NoneType, not a graph"):
        optimize(graph, [graph_pass(lambda g: None)])
    with pytest.raises(NotImplementedError):
        Pass().run(graph)


def test_verify_names_the_pass_that_broke_the_graph() -> None:
    def swap(graph: Graph) -> Graph:
        new = graph.clone()
        new.nodes.reverse()
        return new

    def drop_input(graph: Graph) -> Graph:
        new = graph.clone()
        new.inputs = new.inputs[:1]
        return new

    graph = weft.make_graph(lambda x, y: weft.exp(weft.tanh(x)), weft.spec(3), weft.spec(3))
    with pytest.raises(GraphError, match=r"after the pass 'swap': .*used before it is defined"):
        optimize(graph, [swap], verify=True)
    with pytest.raises(GraphError, match="'drop_input' changed the types of the inputs"):
        optimize(graph, [drop_input], verify=True)


def test_a_pass_that_never_ends_is_stopped() -> None:
    rounds: list[int] = []

    def restless(graph: Graph) -> Graph:
        rounds.append(1)
        return graph.clone()

    optimize(weft.make_graph(lambda x: x + 1, weft.spec(3)), [restless])
    assert len(rounds) == MOST_ROUNDS


# --- effects and nested graphs -----------------------------------------------------------------


@pytest.fixture
def effect() -> Iterator[Op]:
    """An op that does something: a token and a value in, a token and the value out."""

    def infer(token: Any, x: TensorType) -> Any:
        return TOKEN, x

    op = Op("test_shout", infer, lambda xp, t, x: (t, x), outputs=2, traits=Trait.EFFECT)
    yield op
    del OPS[op.name], _TABLES[op.name]


@pytest.fixture
def nested() -> Iterator[Op]:
    """An op that calls its nested graph."""

    def infer(*inputs: TensorType, graphs: Any) -> Any:
        return tuple(value.type for value in graphs[0].outputs)

    def evaluate(run: Any, *inputs: Any, graphs: Any) -> Any:
        return tuple(run(graphs[0], inputs))

    op = Op("test_call", infer, evaluate)
    yield op
    del OPS[op.name], _TABLES[op.name]


def test_effects_stay_and_are_not_merged(effect: Op) -> None:
    graph = Graph("f")
    token = graph.add_input(TOKEN, "t")
    x = graph.add_input(TensorType(weft.float32, (3,)), "x")
    needed = graph.add(OPS["exp"], x).out
    first = graph.add(effect, token, needed)
    second = graph.add(effect, first.outputs[0], needed)
    graph.add(OPS["tanh"], x)
    graph.outputs = (x,)
    graph.verify()
    new = optimize(graph, verify=True)
    assert [n.op.name for n in new.nodes] == ["exp", "test_shout", "test_shout"]
    assert second.inputs[0] is first.outputs[0]


def _inner() -> Graph:
    graph = Graph("inner")
    x = graph.add_input(TensorType(weft.float32, (3,)), "x")
    one = graph.add(OPS["full"], shape=(), value=1.0, dtype=weft.float32, device=CPU).out
    graph.add(OPS["tanh"], x)
    graph.outputs = (graph.add(OPS["multiply"], x, one).out,)
    return graph


def test_passes_reach_nested_graphs(nested: Op) -> None:
    middle = Graph("middle")
    x = middle.add_input(TensorType(weft.float32, (3,)), "x")
    middle.outputs = middle.add(nested, x, graphs=[_inner()]).outputs
    graph = Graph("outer")
    x = graph.add_input(TensorType(weft.float32, (3,)), "x")
    graph.outputs = graph.add(nested, x, graphs=[middle]).outputs
    graph.verify()
    text = text_of(graph)
    new = optimize(graph, verify=True)
    assert text_of(graph) == text
    assert new is not graph
    assert graph.node_count() == 5
    assert new.node_count() == 2  # the two calls; the innermost graph returns its input
    values = [np.asarray([1.0, -0.0, np.nan], np.float32)]
    assert not difference(results(graph, values), results(new, values))
    assert optimize(new) is new


def test_loops_are_optimized_inside() -> None:
    def body(carry: tuple[weft.Tensor, weft.Tensor]) -> tuple[weft.Tensor, weft.Tensor]:
        i, x = carry
        return i + 1, x * 1 + weft.exp(x) / 4 + weft.exp(x) / 4

    def loop(x: weft.Tensor) -> weft.Tensor:
        return weft.while_loop(lambda carry: carry[0] < 3, body, (weft.asarray(0), x))[1]

    graph = weft.make_graph(loop, weft.spec(("B", 3)))
    new = optimize(graph, verify=True)
    (node,) = [n for n in new.nodes if n.graphs]
    inside = [n.op.name for n in node.graphs[1].nodes if n.inputs]
    assert inside == ["add", "exp", "multiply", "add", "add"]
    x = [some(weft.float32, (2, 3), seed=0)]
    assert not difference(results(graph, x), results(new, x))


def test_a_pass_may_see_to_nested_graphs_itself(nested: Op) -> None:
    graph = Graph("outer")
    x = graph.add_input(TensorType(weft.float32, (3,)), "x")
    graph.outputs = graph.add(nested, x, graphs=[_inner()]).outputs
    seen: list[str] = []

    @graph_pass(nested=False)
    def alone(graph: Graph) -> Graph:
        seen.append(graph.name)
        return graph

    @graph_pass
    def both(graph: Graph) -> Graph:
        seen.append(graph.name)
        return graph

    alone.run(graph)
    both.run(graph)
    assert seen == ["outer", "inner", "outer"]


def test_effects_in_nested_graphs_keep_the_call(nested: Op, effect: Op) -> None:
    inner = Graph("inner")
    token = inner.add_input(TOKEN, "t")
    x = inner.add_input(TensorType(weft.float32, (3,)), "x")
    inner.outputs = inner.add(effect, token, x).outputs[1:]
    graph = Graph("outer")
    graph.set_inputs([TOKEN, TensorType(weft.float32, (3,))])
    graph.add(nested, *graph.inputs, graphs=[inner])
    graph.outputs = graph.inputs[1:]
    assert BY_NAME["dead_code"].run(graph) is graph


# --- single facts ------------------------------------------------------------------------------


def test_names_survive() -> None:
    graph = weft.parse_graph(
        """graph @f(%x: f32[4], %y: f32[4]) {
          %four: f32[] = constant[value={4.0}]
          %mean: f32[4] = divide %x, %four
          %sum: f32[4] = add %y, %mean
          %turned: f32[4] = add %sum, %x
          return %turned
        }"""
    )
    new = optimize(graph, verify=True)
    assert [n.outputs[0].name for n in new.nodes] == ["", "mean", "sum", "turned"]


def test_sizes_that_are_found_while_running_keep_their_maker() -> None:
    """A size may be all that is left of a node: the zeros have as many elements as it found."""
    x = np.asarray([1, 0, 2], np.int64)

    def count(x: weft.Tensor) -> weft.Tensor:
        (places,) = weft.nonzero(x)
        return places * 0

    graph = weft.make_graph(count, weft.spec(3, weft.int64))
    new = optimize(graph, verify=True)
    assert "full" in [n.op.name for n in new.nodes]
    assert not difference(results(graph, [x]), results(new, [x]))


def test_gradients_of_optimized_graphs_are_the_same() -> None:
    """Backward graphs are plain graphs; and stop_gradient still stops."""

    def step(x: weft.Tensor, w: weft.Tensor) -> tuple[weft.Tensor | None, ...]:
        loss = (weft.tanh(x @ w / 4 + 0.5) ** 2 + weft.stop_gradient(x.sum())).mean()
        loss.backward()
        return loss, x.grad, w.grad

    rng = np.random.default_rng(0)
    args = [weft.asarray(rng.normal(size=s).astype(np.float32)) for s in ((3, 4), (4, 2))]
    for arg in args:
        arg.requires_grad = True
    graph = weft.make_graph(step, *args)
    new = optimize(graph, verify=True)
    assert len(new.nodes) < len(graph.nodes)
    inputs = [arg.numpy() for arg in args]
    assert not difference(results(graph, inputs), results(new, inputs))


def test_a_long_chain_does_not_recurse() -> None:
    graph = Graph("chain")
    x = value = graph.add_input(TensorType(weft.float32, (2,)), "x")
    for _ in range(20_000):
        value = graph.add(OPS["negative"], value).out
    graph.outputs = (value,)
    new = optimize(graph)
    assert new.outputs == new.inputs
    assert x.index == 0


def test_stages_print() -> None:
    assert str(Stage("cse", 0.0015, "3 merged")) == "cse, 1.5 ms: 3 merged"


def test_composites_have_the_bounds_of_their_own_sizes() -> None:
    """Named sizes are equal also where their bounds differ: what was recorded for one that is at
    most 5 is not right for all."""
    for most in (5, None, 9):
        rows = weft.dim("B", min=1, max=most)
        graph = weft.make_graph(lambda x: weft.nn.functional.softmax(x, 1), weft.spec((rows, 4)))
        made = decompose(graph)
        sizes = [value.tensor_type.shape[0] for node in made.nodes for value in node.outputs]
        assert len(sizes) > 2
        assert {size.bounds for size in sizes if isinstance(size, Dim)} == {(1, most)}
