"""How long the whole pipeline takes for graphs of 100,000 nodes, and what each pass takes of it.

    python benchmarks/passes.py [NODES]

The promise: under 15 s for each of them, and time that grows with the number of nodes, not faster.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable

import numpy as np

import weft
from weft.base.device import CPU
from weft.ir.graph import Graph, Value
from weft.ir.literal import CONSTANT, constant_attrs
from weft.ir.op import OPS
from weft.ir.types import TensorType
from weft.passes.pipeline import timings

LIMIT = 15.0


def call(graph: Graph, op: str, *inputs: Value, **attrs: object) -> Value:
    return graph.add(OPS[op], *inputs, **attrs).out


def number(graph: Graph, value: float) -> Value:
    return graph.add(CONSTANT, **constant_attrs(np.asarray(value, np.float32), CPU)).out


def new(*shapes: tuple[int, ...]) -> Graph:
    graph = Graph("bench")
    graph.set_inputs([TensorType(weft.float32, shape) for shape in shapes])
    return graph


def chain(count: int) -> Graph:
    """One node after the other; half of the operands stand in the wrong order."""
    graph = new((8, 8), (8, 8))
    x, y = graph.inputs
    while len(graph.nodes) < count:
        x = call(graph, "tanh", call(graph, "multiply", call(graph, "add", y, x), y))
    graph.outputs = (x,)
    return graph


def wide(count: int) -> Graph:
    """Many short independent computations, summed up in the end in a tree."""
    graph = new(*[(4,)] * 1000)
    layer = list(graph.inputs)
    ends = [call(graph, "exp", x) for i in range(count // 3000) for x in layer]
    ends = [call(graph, "multiply", e, layer[i % 1000]) for i, e in enumerate(ends)]
    while len(ends) > 1:
        paired = zip(ends[::2], ends[1::2], strict=False)
        rest = ends[-1:] if len(ends) % 2 else []
        ends = [call(graph, "add", a, b) for a, b in paired] + rest
    graph.outputs = tuple(ends)
    return graph


def duplicated(count: int) -> Graph:
    """The same few computations again and again, operands in either order."""
    graph = new((8,), (8,))
    x, y = graph.inputs
    outputs = []
    while len(graph.nodes) < count:
        swap = len(graph.nodes) % 8 < 4
        a = call(graph, "add", *((y, x) if swap else (x, y)))
        b = call(graph, "multiply", call(graph, "exp", a), number(graph, len(outputs) % 10))
        outputs.append(b)
    graph.outputs = tuple(outputs)
    return graph


def reshapes(count: int) -> Graph:
    """Reshapes, permutations, broadcasts, slices and casts that mostly undo one another."""
    graph = new((4, 6))
    (x,) = graph.inputs
    while len(graph.nodes) < count:
        x = call(graph, "reshape", call(graph, "reshape", x, shape=(24,)), shape=(2, 12))
        x = call(graph, "permute_dims", call(graph, "permute_dims", x, axes=(1, 0)), axes=(1, 0))
        x = call(graph, "reshape", x, shape=(1, 4, 6))
        x = call(graph, "broadcast_to", x, shape=(3, 4, 6))
        x = call(graph, "getitem", call(graph, "exp", x), index=(1,))
        x = call(graph, "getitem", x, index=(slice(None, None, -1),))
        x = call(graph, "getitem", x, index=(slice(None, None, -1),))
        x = call(graph, "astype", call(graph, "astype", x, dtype=weft.float64), dtype=weft.float32)
    graph.outputs = (x,)
    return graph


def arithmetic(count: int) -> Graph:
    """Neutral elements, double signs, constants to fold, divisions by powers of two."""
    graph = new((8, 8))
    (x,) = graph.inputs
    while len(graph.nodes) < count:
        x = call(graph, "multiply", x, number(graph, 1.0))
        x = call(graph, "negative", call(graph, "negative", x))
        x = call(graph, "divide", x, number(graph, 4.0))
        k = call(graph, "add", number(graph, 1.5), number(graph, 2.5))
        x = call(graph, "subtract", call(graph, "add", k, x), number(graph, 0.0))
        x = call(graph, "pow", x, number(graph, 2.0))
    graph.outputs = (x,)
    return graph


def training(count: int) -> Graph:
    """The recorded forward and backward of a deep network of small layers."""
    depth = max(1, count // 21)
    weights = [weft.ones((4, 4), dtype=weft.float32) for _ in range(4)]
    for weight in weights:
        weight.requires_grad = True

    def step(x: weft.Tensor) -> list[weft.Tensor]:
        for i in range(depth):
            x = weft.tanh(x @ weights[i % 4] + 0.5) * 2 + x / 2
        x.mean().backward()
        return [weight.grad for weight in weights]

    return weft.make_graph(step, weft.spec((2, 4)))


KINDS: list[Callable[[int], Graph]] = [chain, wide, duplicated, reshapes, arithmetic, training]


def main(count: int) -> int:
    slow = 0
    for kind in KINDS:
        graph = kind(count)
        gc.collect()
        begin, begin_cpu = time.perf_counter(), time.process_time()
        after = weft.optimize(graph)
        seconds, cpu = time.perf_counter() - begin, time.process_time() - begin_cpu
        slow += seconds > LIMIT * max(1.0, len(graph.nodes) / 100_000)
        sizes = f"{len(graph.nodes):>7,} → {len(after.nodes):>7,} nodes"
        print(f"{kind.__name__:<11} {sizes}  {seconds:6.2f} s ({cpu:.2f} s of CPU time)")
        parts = sorted(timings(after).items(), key=lambda part: -part[1])
        print("            " + ", ".join(f"{name} {t:.2f}" for name, t in parts))
    print(f"limit: {LIMIT:g} s for 100,000 nodes;", "too slow" if slow else "all within it")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000))
