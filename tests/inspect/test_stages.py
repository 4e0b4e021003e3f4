"""Graphs at their stages, what changed between them, and the code of kernels with source lines."""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

import numpy as np
import pytest
from explained import BACKENDS, flowing, line_of

import weft
from weft import nn

# --- stages and kernels --------------------------------------------------------------------------


def small(x: Any, w: Any) -> Any:
    y = weft.tanh(x * 2)
    z = y @ w
    return z.sum(axis=0)


def arguments() -> list[Any]:
    return [weft.rand((16, 8)), weft.rand((8, 4))]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("stage", ["captured", "optimized", "scheduled"])
@pytest.mark.parametrize("function", [small, flowing], ids=["small", "flowing"])
def test_each_stage_parses_back_and_computes_the_same(
    backend: str, stage: str, function: Any
) -> None:
    args = arguments() if function is small else [weft.rand((4, 4))]
    compiled = weft.compile(function, backend=backend)
    wanted = compiled(*args)
    graph = compiled.graph(stage)
    graph.verify()
    if function is small:
        read = weft.parse_graph(graph.text(), constants=graph.constants())
        assert read.equals(graph)
        found = read(*[args[i] for i in range(len(read.inputs))])
        assert np.allclose(np.asarray(found[0] if isinstance(found, tuple) else found), wanted)
    if stage == "scheduled" and backend == "native":
        assert re.search(r"^\s+# kernel 0: ", graph.text(), re.MULTILINE)
        assert "# kernel" not in str(graph)  # which is for comparing


def test_the_scheduled_text_names_the_kernels_in_their_order() -> None:
    compiled = weft.compile(flowing, backend="native")
    compiled(weft.ones((4, 4)))
    named = re.findall(r"# kernel ([\d.]+):", compiled.graph("scheduled").text())
    kernels = [kernel.number for kernel in compiled.kernels()]
    assert sorted(named) == sorted(kernels)
    outer = [int(name) for name in named if "." not in name]
    assert outer == sorted(outer)


def test_what_only_the_schedule_makes_is_counted_and_reads_back() -> None:
    def attends(q: Any, k: Any, v: Any) -> Any:
        return nn.functional.scaled_dot_product_attention(q, k, v)

    compiled = weft.compile(attends, backend="native")
    report = compiled.explain(*[weft.rand((2, 4, 16, 8)) for _ in range(3)])
    kernels = report["programs"][-1]["kernels"]
    (kernel,) = [kernel for kernel in kernels if kernel["kind"] == "attention"]
    scores = 2 * 4 * 16 * 16
    assert kernel["flops"] >= scores * (2 * 8 + 2 * 8)  # two products,
    assert kernel["flops"] <= scores * (2 * 8 + 2 * 8 + 10)  # and some for each score
    graph = compiled.graph("scheduled")
    assert weft.parse_graph(graph.text(), constants=graph.constants()).equals(graph)


def test_kernels_show_their_code_with_source_lines() -> None:
    compiled = weft.compile(small, backend="native")
    compiled(*arguments())
    kernels = compiled.kernels()
    assert [kernel.kind for kernel in kernels] == ["product", "loop"]
    assert [kernel.ops for kernel in kernels] == [["matmul", "multiply", "tanh"], ["sum"]]
    places = [[line_of(small, text) for text in texts] for texts in (("y @ w", "tanh"), ("sum(",))]
    for kernel, lines in zip(kernels, places, strict=True):
        assert [location.line for location in kernel.locations] == lines
        for location, (code, sign) in itertools.product(
            kernel.locations,
            [(kernel.llvm, ";"), (kernel.optimized_llvm, ";"), (kernel.assembly, "#")],
        ):
            here = f"test_stages.py:{location.line}  {location.text}"
            assert f"{sign}   {here}" in code  # in the head,
            assert re.search(rf"^\s+{sign} {re.escape(here)}$", code, re.MULTILINE)  # and inside
        assert kernel.llvm.count("define ") == 1
        assert f"@{kernel.name}(" in kernel.llvm
        assert f"{kernel.name}:" in kernel.assembly
        assert "ret" in kernel.assembly
        assert "!dbg" not in kernel.llvm
        others = {other.name for other in kernels} - {kernel.name}
        assert not any(f"{name}:" in kernel.assembly for name in others)


def test_a_kernel_of_several_lines_says_which_instructions_are_whose() -> None:
    def two(x: Any) -> Any:
        y = weft.sqrt(x)
        return y / (x + 3)

    compiled = weft.compile(two, backend="native")
    compiled(weft.ones(64))
    (kernel,) = compiled.kernels()
    code = kernel.llvm
    root, ratio = code.index("llvm.sqrt"), code.index("fdiv")
    first = code.rindex(f"test_stages.py:{line_of(two, 'sqrt')}", 0, root)
    second = code.rindex(f"test_stages.py:{line_of(two, 'y / (x')}", 0, ratio)
    assert first < root < second < ratio


def test_looking_at_code_changes_nothing() -> None:
    compiled = weft.compile(small, backend="native")
    args = arguments()
    before = compiled(*args)
    program = compiled.programs[0].program
    text = program.text
    _ = [kernel.assembly for kernel in compiled.kernels()]
    assert program.text == text
    assert "!dbg" not in text
    assert np.array_equal(compiled(*args).numpy(), before.numpy())


def test_without_machine_code_there_are_no_kernels() -> None:
    compiled = weft.compile(small, backend="interpret")
    compiled(*arguments())
    with pytest.raises(weft.errors.CaptureError, match="op by op"):
        compiled.kernels()


# --- differences ---------------------------------------------------------------------------------


def kinds(found: Any) -> dict[str, int]:
    return {kind: n for kind, n in found.counts().items() if n and kind != "same"}


#: two functions, and how many calls differ between them
PAIRS = [
    (lambda x: x * 2 + 1, lambda x: x * 2 + 1, {}),
    (lambda x: x * 2 + 1, lambda x: 1 + x * 2, {}),  # in any order
    (lambda x: weft.exp(x) + weft.tanh(x), lambda x: weft.tanh(x) + weft.exp(x), {}),
    (lambda x: weft.exp(x), lambda x: weft.exp(x).sum(), {"added": 1}),
    (lambda x: weft.exp(x).sum(), lambda x: weft.exp(x), {"removed": 1}),
    (lambda x: weft.exp(x) * x, lambda x: weft.square(weft.exp(x)) * x, {"added": 1, "changed": 1}),
    (lambda x: weft.exp(x).sum(axis=0), lambda x: weft.exp(x).sum(axis=1), {"changed": 1}),
    (lambda x: weft.exp(x), lambda x: weft.tanh(x), {"added": 1, "removed": 1}),
]


@pytest.mark.parametrize("case", range(len(PAIRS)))
def test_differences_of_graphs(case: int) -> None:
    first, second, wanted = PAIRS[case]
    graphs = [weft.make_graph(fn, weft.spec((3, 3))) for fn in (first, second)]
    for graph in graphs:  # told apart by what they do, and not by their lines
        for node in graph.nodes:
            node.location = None
    found = weft.inspect.diff(*graphs)
    assert kinds(found) == wanted
    assert found.same is (not wanted)
    back = {"added": "removed", "removed": "added", "changed": "changed"}
    turned = kinds(weft.inspect.diff(*graphs[::-1]))
    assert turned == {back[kind]: count for kind, count in wanted.items()}
    json.dumps(found.as_dict())
    assert str(found).startswith(f"graph @{graphs[1].name}")


def test_a_difference_between_stages_says_what_the_passes_did() -> None:
    def wasteful(x: Any) -> Any:
        y = x * 1
        z = weft.tanh(weft.exp(x)) + weft.exp(x) * y
        return z / 4

    compiled = weft.compile(wasteful)
    compiled(weft.ones(3))
    found = compiled.diff()
    assert compiled.diff("optimized", "optimized").same
    text = str(found)
    removed = [change for change in found.changes if change.kind == "removed"]
    assert any("divide" in change.text for change in removed)
    (twice,) = [c for c in removed if "exp" in c.text]
    assert twice.became  # it was merged with the other
    assert re.search(r"^- .* = divide ", text, re.MULTILINE)
    assert re.search(r"^\+ .* = multiply ", text, re.MULTILINE)
    assert f"test_stages.py:{line_of(wasteful, 'z / 4')}" in text


def test_differences_inside_of_control_flow_are_shown_there() -> None:
    def halves(x: Any) -> Any:
        while x.sum() > 1:
            x = x / 2
        return x

    compiled = weft.compile(halves)
    compiled(weft.ones(3))
    found = compiled.diff()
    (change,) = [c for c in found.changes if c.nested]
    assert change.kind == "changed"
    assert [inner.name for inner in change.nested] == ["body"]
    assert kinds(found) == {"changed": 1, "removed": 2, "added": 2}
