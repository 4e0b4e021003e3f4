"""From a program for one machine to that of one rank: layouts for all values, then the split."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from weft.base.errors import DistributedError
from weft.base.world import Axes
from weft.ir.cuts import Cuts
from weft.ir.graph import Graph, Node, Stage
from weft.ir.types import TensorType, Type
from weft.ops.layout import LAYOUT
from weft.passes.layouts.costs import Costs
from weft.passes.layouts.propagate import Propagation
from weft.passes.layouts.split import Report, split
from weft.passes.layouts.states import States, of_cuts
from weft.passes.lowering.decompose import decompose
from weft.passes.pipeline import optimize, passes
from weft.passes.stop_gradient import DropStopGradient

__all__ = ["RankProgram", "mesh_of", "propagated", "rank_program"]

#: How often composite calls are taken apart, as their operands turn out to be cut.
MOST_ROUNDS = 4


@dataclass(frozen=True, slots=True)
class RankProgram:
    """The program of one rank, and how it came about.

    laid_out  the whole program: each type says its layout, and `layout` calls the changes
    local     the same on parts, with collectives
    inputs    how inputs lie over the mesh
    outputs   the same of outputs
    report    the collectives, what they send, and why
    """

    mesh: Axes
    laid_out: Graph
    local: Graph
    inputs: tuple[Cuts | None, ...]
    outputs: tuple[Cuts | None, ...]
    report: Report


def mesh_of(graph: Graph) -> Axes | None:
    """The mesh that the `layout` calls of a graph name; None if it has none."""
    found: Axes | None = None
    for part in graph.walk():
        for node in part.nodes:
            if node.op is LAYOUT:
                mesh = node.attrs["mesh"]
                if found is not None and mesh != found:
                    raise DistributedError(
                        f"layouts over two meshes in one program: {_shown(found)} and "
                        f"{_shown(mesh)}",
                        hint="use one mesh with all its axes",
                    )
                found = mesh
    return found


def _shown(mesh: Axes) -> str:
    return f"Mesh({', '.join(f'{name}={size}' for name, size in mesh)})"


def rank_program(
    graph: Graph,
    mesh: Axes,
    written: Mapping[int, int] | None = None,
    costs: Costs | None = None,
    hints: Mapping[str, int] | None = None,
) -> RankProgram:
    """The program of one rank. `written`: outputs that become the values of inputs, which keep
    their layouts. `hints`: usual numbers of named sizes."""
    start = time.perf_counter()
    inputs = [of_cuts(_cuts(value.type), mesh) for value in graph.inputs]
    whole = optimize(_without_cuts(graph), [DropStopGradient(), *passes()])
    for part in whole.walk():
        for node in part.nodes:
            if node.op.collective and node.op is not LAYOUT:
                raise DistributedError(
                    f"{node.op.name} is called in a program that layouts split over ranks",
                    op=node.op.name,
                    hint="such a program is written for one machine: the compiler inserts "
                    "collectives; call them in programs without layouts",
                )
    wanted = {output: inputs[to] for output, to in (written or {}).items()}
    laid_out = propagated(whole, mesh, inputs, wanted, costs or Costs(), hints)
    middle = time.perf_counter()
    laid_out.stamped(Stage("propagate", middle - start, _count(laid_out)))
    report = Report()
    local = split(laid_out, mesh, report)
    note = f"{len(report.inserted)} collectives"
    local.stamped(Stage("split", time.perf_counter() - middle, note))
    return RankProgram(
        mesh,
        laid_out,
        local,
        tuple([_cuts(value.type) for value in laid_out.inputs]),
        tuple([_cuts(value.type) for value in laid_out.outputs]),
        report,
    )


def _count(graph: Graph) -> str:
    values = [value for part in graph.walk() for value in part.values()]
    cut = sum(_cuts(value.type) is not None for value in values)
    return f"{cut} of {len(values)} values are cut"


def propagated(
    graph: Graph,
    mesh: Axes,
    inputs: Sequence[States],
    wanted: Mapping[int, States],
    costs: Costs,
    hints: Mapping[str, int] | None = None,
) -> Graph:
    """The graph with a layout for each value. Composite calls stay one call, unless an operand is
    cut in a way that only their parts can take."""
    for _ in range(MOST_ROUNDS):
        found = Propagation(graph, mesh, costs, inputs, wanted, hints).run()
        apart = set(_composites(found))
        if not apart:
            break
        graph = decompose(graph, lambda _: False, functools.partial(_stays, apart))
    return found.graph_with_layouts(wanted)


def _stays(apart: set[Node], node: Node) -> bool:
    return node not in apart


def _composites(found: Propagation) -> Iterator[Node]:
    """The composite calls that would have to put an operand together."""
    for node, choice in found.choices.items():
        for inner in choice.inner:
            yield from _composites(inner)
        if node.op.composite:
            for value, taken in zip(node.inputs, choice.inputs, strict=True):
                given = found.states[value]
                if any(isinstance(a, int) and b is None for a, b in zip(given, taken, strict=True)):
                    yield node
                    break


def _cuts(kind: Type) -> Cuts | None:
    return kind.cuts if isinstance(kind, TensorType) else None


def _without_cuts(graph: Graph) -> Graph:
    plain = graph.clone()
    for value in plain.inputs:
        if _cuts(value.type) is not None:
            value.type = value.tensor_type.cut(None)
    return plain
