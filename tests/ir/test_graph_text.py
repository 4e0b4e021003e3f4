"""What prints parses back, equal: graphs, attributes, constants; and errors that point."""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import graph_ops
import numpy as np
import pytest
from attribute_cases import ATTRIBUTES
from graph_ops import one_node, there_and_back
from op_calls import function, tensors
from samples import ROWS

import weft
from weft.base.device import Device
from weft.base.source import SourceLocation
from weft.core.bind import Recorder, recording
from weft.core.tensor import type_of
from weft.errors import GraphError
from weft.ir.attributes import attrs_key
from weft.ir.graph import Graph, Stage
from weft.ir.op import OPS, Op
from weft.ir.types import TensorType

F32 = TensorType(weft.float32, (2, 3))


@pytest.fixture(autouse=True)
def _ops() -> Iterator[None]:
    with graph_ops.graph_ops():
        yield


# --- the text itself ---------------------------------------------------------------------------


def test_the_example_of_the_design() -> None:
    text = """\
graph @f(%x: f32[B,4], %w: f32[4,2]) {          # after cse, 0.2 ms
  %0: f32[B,2] = matmul %x, %w                  # model.py:12 in f
  %1: f32[2] = sum[axis=(0,), keepdims=False] %0  # model.py:13 in f
  return %1
}"""
    graph = weft.parse_graph(text)
    graph.verify()
    assert graph.text() == text
    assert graph.history == (Stage("cse", 0.0002),)
    assert graph.nodes[1].location == SourceLocation("model.py", 13, "f")
    assert graph.nodes[1].attrs == {"axis": (0,), "keepdims": False}
    assert graph.inputs[0].type == TensorType(weft.float32, (weft.dim("B"), 4))
    assert Graph.parse(str(graph)).equals(graph)


def test_everything_at_once() -> None:
    text = """\
# after record, 1.5 ms
# after 'dce, twice', 0.25 ms: 3 nodes, 'x' too
graph @'a b'[B>=1, 2<=C<=8](%t: token, %x: bf16[B,C]:coo@cuda:1, %0: i64[B//2]) {  # after x, 1 ms
  %1: token = t_print[message='a "quoted" \\'line\\'\\n# 5%'] %t, %x  # '/my f/m.py':3 in <lambda>
  %'two words': f32[], %'7': f32[3] = t_choose %0, %x {  # m.py:4 in g
    # after inline, 1 ms
    graph @then(%p: f32[]) {                    # after nothing, 0 ms
      %0: f32[3] = constant[value={-0.0, nan, inf}]
      return %p, %0
    }
    graph @else() {
      %0: f32[] = constant[value={2.0}]
      %1: f32[3] = full[shape=(3,), value=1.0]
      return %0, %1
    }
  }
  't any' %0
  %2: f32[3] = negative %'7'
  return %1, %2, %2
}"""
    graph = weft.parse_graph(text)
    assert there_and_back(graph).text() == text
    assert graph.history[1] == Stage("dce, twice", 0.00025, "3 nodes, 'x' too")
    assert graph.inputs[1].type.device == Device("cuda", 1)
    assert graph.inputs[1].type.layout == "coo"
    assert graph.inputs[1].type.shape[1].bounds == (2, 8)
    assert graph.nodes[0].attrs["message"] == "a \"quoted\" 'line'\n# 5%"
    assert graph.nodes[1].graphs[0].history[0].name == "inline"
    assert graph.nodes[1].graphs[1].nodes[1].attrs["device"] == Device("cpu")


@pytest.mark.parametrize(
    "location",
    [
        SourceLocation("model.py", 12, "f"),
        SourceLocation("/home/u/my model.py", 1, "<lambda>"),
        SourceLocation("C:\\code\\x.py", 7, "<module>"),
        SourceLocation("<doctest a[3]>", 2, "it's"),
        SourceLocation("'odd", 2, "a b"),
        SourceLocation("line\nbreak # 3", 0, "ü"),
        SourceLocation("model.py", 12, "f", "Model.blocks.0"),
        SourceLocation("train.py", 3, "step", role="update"),
        SourceLocation("train.py", 3, "step", role="backward"),
        SourceLocation("of.py", 3, "of", "at of", "backward", SourceLocation("at", 1, "f"), "if"),
        SourceLocation(
            *("train.py", 3, "step", "Outer", "backward"),
            SourceLocation("model.py", 12, "f", "Model.blocks.0"),
            "matmul",
        ),
    ],
    ids=str,
)
def test_source_lines(location: SourceLocation) -> None:
    graph = Graph("f")
    graph.add(OPS["relu"], graph.add_input(F32, "x"), location=location)
    again = there_and_back(graph)
    assert again.nodes[0].location == location
    assert "#" not in str(graph)


@pytest.mark.parametrize(
    "names", [["x", "y"], ["", "0"], ["12", ""], ["a b", "a'b"], ["x.0", "ü"], ["", ""], ["²", "%"]]
)
def test_names(names: list[str]) -> None:
    graph = Graph("<lambda>")
    graph.set_inputs([F32, F32], names)
    graph.add(OPS["add"], *graph.inputs)
    there_and_back(graph)


def test_values_of_one_name_are_told_apart_in_print() -> None:
    graph = Graph("f")
    graph.set_inputs([F32, F32], ["x", "x"])
    assert str(graph).splitlines()[0] == "graph @f(%x: f32[2,3], %0: f32[2,3]) {"


def test_an_object_of_python_is_shown_and_not_read_back() -> None:
    graph = one_node(OPS["t any"], [], {"f": print}, [])
    assert "'t any'[f=opaque('<built-in function print>')]" in str(graph)
    with pytest.raises(GraphError, match="was only shown"):
        weft.parse_graph(str(graph))


# --- every op ----------------------------------------------------------------------------------


class Calls(Recorder):
    """Notes one call of each op for each set of dtypes, ranks and attributes."""

    def __init__(self) -> None:
        self.seen: dict[Any, Graph] = {}

    def call(self, op: Op, inputs: Any, attrs: Any) -> Any:
        out = super().call(op, inputs, attrs)
        types = tuple(map(type_of, inputs))
        results = tuple(map(type_of, out if isinstance(out, tuple) else (out,)))
        kinds = tuple([(type.dtype, type.ndim) for type in types])
        key = (op, kinds, attrs_key(attrs))
        if key not in self.seen:
            self.seen[key] = one_node(op, types, dict(attrs), results)
        return out


@functools.cache
def sample_calls() -> list[Graph]:
    calls = Calls()
    with recording(calls):
        for row in ROWS:
            for dtype in row.dtypes():
                for sample in row.samples(dtype):
                    function(row.name)(*tensors(sample.args), **tensors(sample.kwargs))
    return list(calls.seen.values())


def test_every_call_of_the_samples() -> None:
    graphs = sample_calls()
    assert len({graph.nodes[0].op for graph in graphs}) > 100
    for graph in graphs:
        there_and_back(graph).verify()


def test_every_call_of_a_training_step() -> None:
    """Convolutions, pooling, dropout, losses, optimizers: calls that have no row of samples."""
    nn = weft.nn
    layers = [nn.Conv2d(1, 2, 3, padding=1), nn.BatchNorm2d(2), nn.MaxPool2d(2), nn.Dropout(0.5)]
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(8, 3))
    makers = [weft.optim.SGD, weft.optim.Adam, weft.optim.RMSprop, weft.optim.Adagrad]
    calls = Calls()
    with recording(calls):
        for make in makers:
            optimizer = make(model.parameters(), lr=np.float64(0.1))
            logits = model(weft.ones((5, 1, 4, 4)))
            loss = nn.functional.cross_entropy(logits, weft.zeros(5, dtype=weft.int64))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    seen = {graph.nodes[0].op.name for graph in calls.seen.values()}
    assert {"conv_bias", "max_pool", "cross_entropy", "adam_update"} <= seen
    for graph in calls.seen.values():
        there_and_back(graph).verify()


def test_update_rules_are_read_before_anybody_uses_an_optimizer() -> None:
    calls, w = Calls(), weft.ones(2, requires_grad=True)
    w.grad = weft.ones(2)
    with recording(calls):
        weft.optim.SGD([w], lr=0.5).step()
    graph = next(g for g in calls.seen.values() if g.nodes[0].op.name == "sgd_update")
    code = f"import weft; print(weft.Graph.parse({str(graph)!r}).nodes[0].op.name)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "sgd_update", done.stderr


def test_a_model_and_its_step() -> None:
    model = weft.nn.Sequential(weft.nn.Linear(4, 8), weft.nn.ReLU(), weft.nn.Linear(8, 2))

    def loss(x: Any, y: Any) -> Any:
        return weft.nn.functional.cross_entropy(model(x), y)

    graph = weft.make_graph(loss, weft.spec(("B", 4)), weft.spec("B", weft.int64))
    there_and_back(graph).verify()


# --- errors ------------------------------------------------------------------------------------

HEAD = "graph @f(%x: f32[2], %y: f32[2]) {\n"
END = "\n  return %0\n}"

ERRORS = [
    ("", 1, 1, "expected 'graph'"),
    ("graph f() {", 1, 7, "expected the name of the graph"),
    ("graph @f(%x f32[2]) {\n  return\n}", 1, 13, "expected ':'"),
    ("graph @f(%x: f33[2]) {\n  return\n}", 1, 14, "there is no dtype 'f33'"),
    ("graph @f(%x: f32) {\n  return\n}", 1, 14, "expected a type such as f32[2,3]"),
    ("graph @f(%x: f32[2*]) {\n  return\n}", 1, 14, "'2*' is not a size"),
    ("graph @f(%x: f32[2], %x: f32[2]) {\n  return\n}", 1, 22, "%x is defined twice"),
    ("graph @f[B>=-1]() {\n  return\n}", 1, 10, "B cannot be from -1"),
    (f"{HEAD}  %0: f32[2] = ad %x, %y{END}", 2, 16, "there is no op 'ad'"),
    (f"{HEAD}  %0: f32[2] = add %x, %z{END}", 2, 24, "%z is not defined above"),
    (f"{HEAD}  %0: f32[2] = add %x,{END}", 2, 23, "expected a value"),
    (f"{HEAD}  %0: f32[2] = add %x %y{END}", 2, 23, "expected the end of the line"),
    (f"{HEAD}  %0: f32[2] add %x, %y{END}", 2, 14, "expected ','"),
    (f"{HEAD}  %y: f32[2] = add %x, %y{END}", 2, 3, "%y is defined twice"),
    (f"{HEAD}  %0: f32[2] = sum[axis 0] %x{END}", 2, 25, "expected '='"),
    (f"{HEAD}  %0: f32[2] = sum[axis=0, axis=1] %x{END}", 2, 28, "given twice"),
    (f"{HEAD}  %0: f32[2] = sum[axis=(0)] %x{END}", 2, 25, "a tuple of one value has a comma"),
    (f"{HEAD}  %0: f32[2] = sum[axis=(0 1)] %x{END}", 2, 28, "expected ',' or ')'"),
    (f"{HEAD}  %0: f32[2] = sum[axis=%x] %x{END}", 2, 25, "expected the value of an attribute"),
    (f"{HEAD}  %0: f32[2] = sum[a={{1}}] %x{END}", 2, 22, "expected the value of an attribute"),
    (
        f"{HEAD}  %0: f32[2] = constant[value={{1.0}}]{END}",
        2,
        31,
        "1 elements for an array of f32[2]",
    ),
    (f"{HEAD}  %0: i8[1] = constant[value={{300}}]{END}", 2, 30, "these are no elements of i8"),
    (f"{HEAD}  %0: f32[1] = sum[a=complex(1)] %x{END}", 2, 22, "expected complex(real, imaginary)"),
    (f"{HEAD}  %0: f32[1] = sum[a=dim(2 +)] %x{END}", 2, 22, "is not a size"),
    (f"{HEAD}  %0: f32[1] = sum[a=device(3)] %x{END}", 2, 22, "is not a device"),
    (f"{HEAD}  %0: f32[1] = sum[a='\\x0'] %x{END}", 2, 22, "this string does not read"),
    (f"{HEAD}  %0: f32[1] = sum[a=nan(0x{'f' * 17})] %x{END}", 2, 22, "no more than 64 bits"),
    (f"{HEAD}  %0: f32[1] = sum[a=f32[B]{{}}] %x{END}", 2, 22, "sizes of an array are numbers"),
    ("graph @'\\x0'() {\n  return\n}", 1, 13, "the quoted name before this does not read"),
    (f"{HEAD}  ? = 3{END}", 2, 3, "expected a call"),
    (f"{HEAD}  return %x", 2, 12, "expected '}'"),
    (f"{HEAD}  %0: f32[2] = add %x, %y\n", 3, 1, "the graph has no end"),
    (f"{HEAD}  return %x\n}} graph", 3, 3, "expected nothing after the graph"),
]


@pytest.mark.parametrize(("text", "line", "column", "message"), ERRORS, ids=[e[3] for e in ERRORS])
def test_errors_point(text: str, line: int, column: int, message: str) -> None:
    with pytest.raises(GraphError) as caught:
        weft.parse_graph(text)
    first, shown, pointer, *_ = str(caught.value).split("\n")
    assert first.startswith(f"line {line}, column {column}: "), str(caught.value)
    assert message in first
    lines = text.split("\n")
    assert shown.strip() == (lines[line - 1].strip() if line <= len(lines) else "")
    assert pointer.index("^") == column + 1


def test_text_with_a_slip_is_a_graph_or_an_error() -> None:
    """Nothing but a GraphError comes out, whatever is wrong; and what reads, reads back."""
    texts = [text for text, *_ in ERRORS if text]
    texts += [str(one_node(OPS["t any"], [], {"a": value}, [])) for value, _ in ATTRIBUTES]
    rng = np.random.default_rng(0)
    signs = list("%@#[](){}:,=.'\" \n-+019abfnxe_<>B")
    read = 0
    for _ in range(3000):
        text = texts[rng.integers(len(texts))]
        place = rng.integers(len(text))
        skip = rng.integers(2)
        slip = str(rng.choice(signs)) if rng.integers(3) else ""
        try:
            graph = weft.parse_graph(text[:place] + slip + text[place + skip :])
        except GraphError:
            continue
        there_and_back(graph)
        read += 1
    assert read > 100


def test_an_unknown_op_has_a_suggestion() -> None:
    with pytest.raises(GraphError, match="did you mean matmul"):
        weft.parse_graph("graph @f(%x: f32[2,2]) {\n  %0: f32[2,2] = matmull %x, %x\n")


def test_long_lines_are_cut_around_the_place() -> None:
    text = f"{HEAD}  %0: f32[2] = add %x, {'%y, ' * 100}%z{END}"
    with pytest.raises(GraphError) as caught:
        weft.parse_graph(text)
    _, shown, pointer, *_ = str(caught.value).split("\n")
    assert len(shown) < 110
    assert shown[pointer.index("^") :].startswith("%z")


# --- equality ----------------------------------------------------------------------------------

BASE = "graph @f(%x: f32[2], %y: f32[2]) {\n  %0: f32[2] = add %x, %y\n  return %0\n}"


@pytest.mark.parametrize(
    ("change", "equal"),
    [
        (("@f", "@g"), True),
        (("%0", "%named"), True),
        (("return", "# nothing\n  return"), True),
        (("{\n", "{  # after cse, 1 ms\n"), True),
        (("add %x, %y", "add %x, %y  # m.py:3 in f"), True),
        (("add %x, %y", "add %y, %x"), False),
        (("add", "multiply"), False),
        (("%0: f32[2]", "%0: f32[3]"), False),
        (("return %0", "return %x"), False),
        (("return %0", "return %0, %0"), False),
        (("%x", "%z"), False),
        (("%y: f32[2]", "%y: f64[2]"), False),
        (("return", "%1: f32[2] = relu %0\n  return"), False),
    ],
)
def test_equals(change: tuple[str, str], equal: bool) -> None:
    first, second = weft.parse_graph(BASE), weft.parse_graph(BASE.replace(*change))
    assert first.equals(second) is equal
    assert second.equals(first) is equal
    assert first.equals(first.clone())


def test_equals_looks_at_attributes_and_nested_graphs() -> None:
    text = """graph @f(%x: f32[2]) {
      %0: f32[2] = t_sized[size=0.0] %x
      %1: f32[2] = t_choose %x, %0 {
        graph @a(%p: f32[2]) {
          %0: f32[2] = relu %p
          return %0
        }
      }
      return %1
    }"""
    graph = weft.parse_graph(text)
    assert graph.equals(weft.parse_graph(text))
    assert not graph.equals(weft.parse_graph(text.replace("size=0.0", "size=-0.0")))
    assert not graph.equals(weft.parse_graph(text.replace("relu", "negative")))


@pytest.mark.parametrize(
    "kind",
    ["f32[8{data},4]", "f32[8{data,model},4{pipe}]", "f32[8,4]{+model}", "f32[8{data},B]{+a,b}",
     "f32[max(B,3),4{data}]", "stack<f32[8{data}]>", "f32[8{data}]@cuda"],
)  # fmt: skip
def test_cuts_read_back(kind: str) -> None:
    text = f"graph @f(%x: {kind}) {{\n  return %x\n}}"
    graph = weft.parse_graph(text)
    assert str(graph) == text
    assert graph.equals(weft.parse_graph(str(graph)))
    assert not graph.equals(weft.parse_graph(text.replace("data", "c").replace("{+", "{+c,")))


def test_cut_values_verify() -> None:
    graph = weft.parse_graph(
        "graph @f(%x: f32[8{data},4], %w: f32[4,2{model}]) {\n"
        "  %0: f32[8{data},2{model}] = matmul %x, %w\n"
        "  %1: f32[8{data},2{model}] = exp %0\n"
        "  return %1\n}"
    )
    graph.verify()
    assert graph.inputs[0].type.cuts.axes == (("data",), ())
