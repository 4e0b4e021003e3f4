"""All ops of the sample rows with names in place of sizes: one program, whose results are those of
the cards."""

from __future__ import annotations

import numpy as np
import pytest
from samples import ROWS
from samples.table import Row
from symbolic import OpCall, numbers
from symbolic_rows import outcome

import weft
from weft.core.tensor import type_of
from weft.errors import ShapeError
from weft.ir.concrete import names_in, names_of_inputs
from weft.ir.graph import Graph
from weft.ir.interpret import sizes_of
from weft.runtime.native import native
from weft.runtime.sized import SizedProgram

#: Control flow has tests of its own; a type rule may tell less of a graph than of a call.
_ELSEWHERE = ("if", "switch", "while", "scan")


def _graph(call: OpCall) -> Graph | None:
    """The graph of one call; None if its inputs do not tell all sizes."""
    op, inputs, attrs, _ = call
    graph = Graph("one")
    graph.set_inputs([type_of(x) for x in inputs])
    try:
        node = graph.add(op, *graph.inputs, **attrs)
        sizes_of(graph, [numbers(x) for x in inputs])
    except ShapeError:
        return None
    graph.outputs = tuple(node.outputs)
    given = names_of_inputs(graph)
    return graph if given and names_in(graph) <= given else None


def _calls(row: Row) -> list[tuple[OpCall, Graph]]:
    """The last call of each op, which has names for all sizes."""
    found: dict[str, tuple[OpCall, Graph]] = {}
    for _, call in reversed(outcome(row).calls):
        name = call[0].name
        graph = None if name in found or name in _ELSEWHERE else _graph(call)
        if graph is not None:
            found[name] = call, graph
    return list(found.values())


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_ops_of_a_row(row: Row) -> None:
    for (op, inputs, _, results), graph in _calls(row):
        program = native(graph)
        assert isinstance(program, SizedProgram), f"{op.name}: {getattr(program, 'why', '')}"
        wanted = results if isinstance(results, tuple) else (results,)
        for got, tensor in zip(program([numbers(x) for x in inputs]), wanted, strict=True):
            want = numbers(tensor)
            assert got.type == want.type, op.name
            if want.dtype.kind in ("float", "complex"):
                np.testing.assert_allclose(
                    got.numpy(), want.numpy(), rtol=1e-5, atol=1e-6, err_msg=op.name
                )
            else:
                np.testing.assert_array_equal(got.numpy(), want.numpy(), err_msg=op.name)


def test_a_call_with_other_numbers_would_be_found() -> None:
    """The comparison above looks at the numbers of this run."""
    graph = weft.make_graph(lambda x: x + 1, weft.spec(("B",)))
    program = native(graph)
    assert program([weft.ones(3)])[0].tolist() != [1.0, 1.0, 1.0]
