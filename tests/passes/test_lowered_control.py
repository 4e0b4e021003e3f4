"""Control flow in frames: golden text, the way back, and what the verifier refuses."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from control_flow_rows import ROWS
from control_graphs import graphs
from control_programs import PROGRAMS

import weft
from weft.ir.graph import Graph
from weft.ir.text import graph_text
from weft.passes.lowering.frames import LowerControlFlow
from weft.passes.lowering.lift import LiftControlFlow
from weft.runtime.dataflow import program
from weft.runtime.dataflow.options import Dataflow

TEXTS = Path(__file__).parent / "lowered_control_flow.txt"
CASES = re.split(r"\n\n(?=#)", TEXTS.read_text().strip())


def text_of(graph: Graph) -> str:
    return graph_text(graph, history=False, locations=False)


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_before_and_after(case: str) -> None:
    assert case.startswith("# "), "each case says why"
    before_text, after_text = (re.sub(r"(?m)^#.*\n", "", part) for part in case.split("\n---\n"))
    before, after = weft.parse_graph(before_text), weft.parse_graph(after_text)
    lowered = LowerControlFlow().run(before)
    lowered.verify()
    assert text_of(lowered) == after_text
    assert lowered.equals(after)
    assert text_of(before) == before_text  # it was not changed
    lifted = LiftControlFlow().run(after)
    lifted.verify()
    assert lifted.equals(before)


def check_round_trip(graph: Graph) -> None:
    lowered = LowerControlFlow().run(graph)
    lowered.verify()
    assert LowerControlFlow().run(lowered) is lowered
    lifted = LiftControlFlow().run(lowered)
    lifted.verify()
    assert lifted.equals(graph)
    text = lowered.text()
    if "opaque(" not in text:  # Python's functions have no text
        read = weft.parse_graph(text, lowered.constants())
        read.verify()
        assert read.equals(lowered)
        assert read.text() == text


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_and_their_gradients(name: str) -> None:
    for graph, _ in graphs(name):
        check_round_trip(graph)
        check_round_trip(weft.optimize(graph))


@pytest.mark.parametrize("name", ROWS)
def test_rows_of_the_table(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each graph that the executor gets, of gradients too; it gives the interpreter's bits."""
    seen: list[Graph] = []

    class Checked(program.DataflowProgram):
        def __init__(self, graph: Graph, options: Dataflow) -> None:
            check_round_trip(graph)
            seen.append(graph)
            super().__init__(graph, options)

    monkeypatch.setattr(program, "DataflowProgram", Checked)
    function, inputs = ROWS[name]
    ours = weft.compile(function, backend=Dataflow("pool", threads=2, parallel_iterations=3))
    theirs = weft.compile(function, backend="interpret")
    for values in inputs:
        assert outcome(ours, values) == outcome(theirs, values)
    assert seen


def outcome(call: Any, values: list[float]) -> list[Any]:
    x = weft.tensor(values, dtype=weft.float64, requires_grad=True)
    weft.manual_seed(3)
    try:
        y = call(x)
        (g,) = weft.autograd.grad(y.sum(), x)
    except Exception as error:
        return [type(error), str(error)]
    return [y.detach().numpy().tobytes(), g.numpy().tobytes()]


HEAD = "graph @f(%n: f32[], %x: f32[]) {"
ENTERED = """
  %e: f32[] = flow.enter[frame='w', role='carry'] %x
  %m: f32[] = flow.merge[of='w'] %e
  %c: f32[] = flow.enter[frame='w', role='const'] %n
  %p: bool[] = less %m, %c
  %q: bool[] = flow.loop_cond[frame='w'] %p
  %b: f32[], %o: f32[] = flow.switch[of='w'] %m, %q
"""
SENT = "  %y: f32[] = add %b, %b\n  flow.next_iteration[frame='w'] %m, %y\n"
LEFT = "  %r: f32[] = flow.exit[frame='w'] %o\n"

#: body -> what the error says
REFUSED = {
    "a cycle outside of a frame": (
        "\n  %m: f32[] = flow.merge[of='w'] %x\n  %y: f32[] = add %m, %n\n"
        "  flow.next_iteration[frame='w'] %m, %y\n  return %y\n}",
        r"a cycle outside of a frame: %m -> add -> %y -> flow.next_iteration -> %m",
    ),
    "a value of the frame used outside": (
        f"{ENTERED}{SENT}{LEFT}  %z: f32[] = add %r, %m\n  return %z\n}}",
        r"%r stands outside of all branches and loops, and %m in w",
    ),
    "a value from outside in the frame": (
        f"{ENTERED}{SENT}{LEFT}  %z: f32[] = add %b, %x\n  return %r\n}}",
        r"%b stands in w, in side 0 of w, and %x outside",
    ),
    "an output in a frame": (f"{ENTERED}{SENT}{LEFT}  return %m\n}}", r"the output %m stands in w"),
    "nothing sent": (f"{ENTERED}{LEFT}  return %r\n}}", "no next_iteration gives a value"),
    "sent twice": (
        f"{ENTERED}{SENT}  flow.next_iteration[frame='w'] %m, %b\n{LEFT}  return %r\n}}",
        "%m gets two values",
    ),
    "sent from the exit": (
        f"{ENTERED}  flow.next_iteration[frame='w'] %m, %o\n{LEFT}  return %r\n}}",
        "%o stands in w, in side 1 of w, not in the body of w",
    ),
    "no condition": (
        "\n  %e: f32[] = flow.enter[frame='w', role='carry'] %x\n"
        "  %m: f32[] = flow.merge[of='w'] %e\n  return %x\n}",
        "has no loop_cond",
    ),
    "an exit of the body": (
        f"{ENTERED}{SENT}  %r: f32[] = flow.exit[frame='w'] %b\n  return %r\n}}",
        "%b stands in w, in side 0 of w, not at the exit",
    ),
    "a merge of one side twice": (
        "\n  %p: bool[] = less %x, %n\n  %a: f32[], %b: f32[] = flow.switch[of='i'] %x, %p\n"
        "  %y: f32[] = flow.merge[of='i'] %a, %a\n  return %y\n}",
        "%a stands in side 0 of i, and side 1 of i is merged",
    ),
    "switches by two values": (
        "\n  %p: bool[] = less %x, %n\n  %q: bool[] = less %n, %x\n"
        "  %a: f32[], %b: f32[] = flow.switch[of='i'] %x, %p\n"
        "  %c: f32[], %d: f32[] = flow.switch[of='i'] %n, %q\n  return %x\n}",
        "the switches of i are not all by the same value",
    ),
    "a frame in another place": (
        f"{ENTERED}  %f: f32[] = flow.enter[frame='v', role='const'] %x\n"
        "  %g: f32[] = flow.enter[frame='v', role='const'] %b\n"
        f"{SENT}{LEFT}  return %r\n}}",
        "v stands outside of all branches and loops, and this node in w",
    ),
    "an unknown role": (
        "\n  %e: f32[] = flow.enter[frame='w', role='guest'] %x\n  return %x\n}",
        "the role is one of const",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    body, message = REFUSED[name]
    with pytest.raises(weft.errors.GraphError, match=message):
        weft.parse_graph(HEAD + body).verify()


def test_what_is_right_is_not_refused() -> None:
    graph = weft.parse_graph(f"{HEAD}{ENTERED}{SENT}{LEFT}  return %r\n}}")
    graph.verify()
    lifted = LiftControlFlow().run(graph)
    assert [node.op.name for node in lifted.nodes] == ["while"]
    made = program.DataflowProgram(graph, Dataflow())
    assert made([weft.tensor(5.0), weft.tensor(1.0)])[0].item() == 8.0
