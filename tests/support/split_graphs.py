"""Engines that are interpreters, and random placed graphs."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import weft
from weft.core.tensor import wrap
from weft.ir.graph import Graph, Node
from weft.ops.placed import SEGMENT, TRANSFER
from weft.runtime.interpreted import InterpretedProgram

#: Rates with round numbers: a node takes what its bytes take.
RATES = weft.Rates(1e9, 1e9, 1e-6, 1e9, 1e-6)


def interpreted(graph: Graph) -> Any:
    program = InterpretedProgram(graph)
    return lambda arrays: [x._data for x in program.call([wrap(array) for array in arrays])]


@contextlib.contextmanager
def engines(*names: str, **options: Any) -> Iterator[list[weft.Engine]]:
    """Engines that interpret, while the context lasts."""
    made = {"compile": interpreted, "rates": RATES, **options}
    found = [weft.register_engine(weft.Engine(name, **made)) for name in names]
    try:
        yield found
    finally:
        for name in names:
            weft.unregister_engine(name)


def random_graph(seed: int, count: int = 14) -> Graph:
    """A graph of elementwise ops with many joins."""
    chance = random.Random(seed)
    lines = ["graph @g(%x: f32[3], %y: f32[3]) {"]
    names = ["%x", "%y"]
    for i in range(count):
        a, b = chance.choice(names[-6:]), chance.choice(names[-6:])
        op = chance.choice([f"tanh {a}", f"sin {a}", f"add {a}, {b}", f"maximum {a}, {b}"])
        lines.append(f"  %v{i}: f32[3] = {op}")
        names.append(f"%v{i}")
    outs = [names[-1], chance.choice(names[2:])]
    return weft.parse_graph("\n".join([*lines, f"  return {', '.join(outs)}", "}"]))


def random_devices(graph: Graph, seed: int, names: list[str]) -> dict[Node, str]:
    chance = random.Random(seed)
    return {node: chance.choice(names) for node in graph.nodes}


def count(graph: Graph, op: Any) -> int:
    return sum(node.op is op for part in graph.walk() for node in part.nodes)


def segments(graph: Graph, device: str = "") -> list[Node]:
    """The segments of a split graph, of one device or of all."""
    found = [node for part in graph.walk() for node in part.nodes if node.op is SEGMENT]
    return [node for node in found if device in ("", node.attrs["device"])]


def transfers(graph: Graph) -> list[Node]:
    return [node for part in graph.walk() for node in part.nodes if node.op is TRANSFER]
