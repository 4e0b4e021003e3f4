"""Ways to run one graph: the table in docs/dataflow.md is made here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import split_graphs

import weft
import weft.nn.functional as F
from weft.core.bind import bind
from weft.ir.interpret import PreparedGraph, RunObserver
from weft.runtime.dataflow.program import DataflowProgram

PAGE = Path(__file__).resolve().parents[2] / "docs" / "dataflow.md"
HEAD = "| program | op by op | whole | split | by the dataflow executor | results |"

Program = Callable[..., Any]


def layers(x: Any, w: Any) -> Any:
    for _ in range(3):
        x = F.gelu(x @ w)
    return F.softmax(x, -1)


def wide(x: Any, w: Any) -> Any:
    parts = [(x * (i + 1)) @ w for i in range(4)]
    return parts[0] + parts[1] + parts[2] + parts[3]


def newton(x: Any, w: Any) -> Any:
    a = weft.abs(x) + 1
    y = a
    while weft.abs(y * y - a).max() > 1e-3:
        y = (y + a / y) / 2
    return y


def choosing(x: Any, w: Any) -> Any:
    for i in range(5):
        if x.sum() > i:  # noqa: SIM108
            x = weft.tanh(x @ w)
        else:
            x = x + 1
    return x


def recurrent(x: Any, w: Any) -> Any:
    return weft.scan(lambda h, row: (weft.tanh(row + h @ w),) * 2, x[0] * 0, x)[1]


PROGRAMS: dict[str, Program] = {
    "layers of a network": layers,
    "four products side by side": wide,
    "Newton's method: a `while`": newton,
    "a branch in a loop": choosing,
    "a recurrent layer: a `scan`": recurrent,
}


class Count(RunObserver):
    ops = 0

    def before(self, node: Any, slots: list[Any]) -> None:
        self.ops += not node.graphs


def row_of(name: str) -> str:
    """One row: what each way runs for the same input, and how the results compare."""
    function = PROGRAMS[name]
    x = weft.linspace(-1.0, 1.25, 160).reshape(20, 8)
    w = weft.linspace(-0.5, 0.5, 64).reshape(8, 8)
    eager = function(x, w).numpy()
    ways = {way: weft.compile(function, backend=way) for way in ("interpret", "native", "dataflow")}
    found = {way: call(x, w).numpy() for way, call in ways.items()}
    (program,) = [p.program for p in ways["dataflow"].programs]
    assert isinstance(program, DataflowProgram)
    count = Count()
    PreparedGraph(program.graph).run(_inputs(program, x, w), bind, watch=count)
    _, timeline = program.recorded(_inputs(program, x, w))
    ops = sum(not step.is_control for step in timeline.steps)
    control = len(timeline.steps) - ops
    same = {way: found[way].tobytes() == found["interpret"].tobytes() for way in found}
    assert same["dataflow"]
    np.testing.assert_allclose(found["native"], eager, rtol=2e-5, atol=2e-6)
    np.testing.assert_allclose(found["interpret"], eager, rtol=2e-5, atol=2e-6)
    steps = f"{ops} ops" + (f", {control} steps of control flow" if control else "")
    split = count_of(name, x, w, eager)
    results = "same bits; whole and split: to rounding"
    return f"| {name} | {count.ops} ops | 1 call | {split} | {steps} | {results} |"


def count_of(name: str, x: Any, w: Any, eager: Any) -> str:
    """The nodes of a graph whose products run on another device; bodies of loops count once."""
    with split_graphs.engines("npu"):
        call = weft.compile(PROGRAMS[name], backend=weft.Split({"products": "npu"}))
        np.testing.assert_allclose(call(x, w).numpy(), eager, rtol=2e-5, atol=2e-6)
        (program,) = [p.program for p in call.programs]
        graph = program.placement.split()
    segments, moved = split_graphs.segments(graph), split_graphs.transfers(graph)
    return f"{len(segments)} segments, {len(moved)} transfers"


def _inputs(program: DataflowProgram, x: Any, w: Any) -> list[Any]:
    return [x if value.tensor_type.shape == x.shape else w for value in program.graph.inputs]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_row_of_the_page(name: str) -> None:
    assert row_of(name) in PAGE.read_text().splitlines()


def test_the_page_has_these_rows() -> None:
    lines = PAGE.read_text().splitlines()
    at = lines.index(HEAD)
    rows = [line.split("|")[1].strip() for line in lines[at + 2 :] if line.startswith("| ")]
    assert rows[: len(PROGRAMS)] == list(PROGRAMS)
