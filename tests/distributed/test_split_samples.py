"""All cards on 2 and 4 ranks: every layout of every operand gives what one process computes."""

from __future__ import annotations

import itertools
import math
import warnings
from typing import Any

import numpy as np
import pytest
from op_calls import function, tensors
from samples import ROWS
from samples.table import Row, Sample

import weft
from weft import distributed
from weft.core.parts import Parts
from weft.core.tensor import type_of, wrap
from weft.ir.cuts import Cuts
from weft.ir.graph import Graph
from weft.passes.layouts.program import RankProgram, rank_program

MESHES = ((("a", 2),), (("a", 2), ("b", 2)))
#: What is recorded with numbers of its own, or gives no tensors of one shape.
LEFT_OUT = {"bernoulli", "permutation", "rand_like", "randn_like", "multinomial", "empty_like"}


def graph_of(row: Row, sample: Sample) -> tuple[Graph, list[weft.Tensor]] | None:
    """A call with its arrays as inputs."""
    given: list[Any] = []

    def lifted(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            given.append(tensors(value))
            return len(given) - 1, "input"
        if isinstance(value, list):
            return [lifted(part) for part in value]
        return tuple(lifted(part) for part in value) if isinstance(value, tuple) else value

    args = [lifted(arg) for arg in sample.args]
    kwargs = {key: lifted(value) for key, value in sample.kwargs.items()}

    def call(*inputs: weft.Tensor) -> Any:
        def filled(value: Any) -> Any:
            if isinstance(value, tuple) and len(value) == 2 and value[1] == "input":
                return inputs[value[0]]
            if isinstance(value, (list, tuple)):
                return type(value)(filled(part) for part in value)
            return value

        out = function(row.name)(*map(filled, args), **{k: filled(v) for k, v in kwargs.items()})
        return tuple(out) if isinstance(out, (tuple, list)) else out

    if not given:
        return None
    try:
        graph = weft.make_graph(call, *[type_of(x) for x in given])
    except weft.errors.WeftError:
        return None  # it asks for values
    return graph, given


def layouts_of(shape: tuple[int, ...], mesh: Any) -> list[Cuts]:
    """All layouts of a tensor in which each mesh axis cuts some axis."""
    found = []
    for axes in itertools.product(range(len(shape)), repeat=len(mesh)):
        names: list[tuple[str, ...]] = [()] * len(shape)
        for (name, _), axis in zip(mesh, axes, strict=True):
            names[axis] = (*names[axis], name)
        parts = [2 ** len(each) for each in names]
        if all(size and size % n == 0 for size, n in zip(shape, parts, strict=True)):
            found.append(Cuts(tuple(names)))
    return found


def laid(x: weft.Tensor, cuts: Cuts, mesh: Any) -> weft.Tensor:
    return wrap(Parts(x.numpy(), cuts.whole(x.shape, mesh), cuts, mesh))


def run(program: RankProgram, given: list[weft.Tensor]) -> list[weft.Tensor]:
    """The results of the ranks, put together."""

    def rank() -> list[weft.Tensor]:
        with distributed.Mesh(dict(program.mesh)):
            mine = [
                x if cuts is None else distributed.local(distributed.split(x, *cuts.axes))
                for x, cuts in zip(given, program.inputs, strict=True)
            ]
            out = program.local(*mine)
            outs = out if isinstance(out, (tuple, list)) else (out,)
            return [
                x if cuts is None else distributed.full(laid(x, cuts, program.mesh))
                for x, cuts in zip(outs, program.outputs, strict=True)
            ]

    results = distributed.run_virtual(math.prod(n for _, n in program.mesh), rank)
    for other in results[1:]:
        for one, two in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(one.numpy(), two.numpy())  # all ranks have the same bits
    return results[0]


def check(graph: Graph, given: list[weft.Tensor]) -> int:
    found = graph(*given)
    wanted = found if isinstance(found, (tuple, list)) else (found,)
    plain = [value.type for value in graph.inputs]
    count = 0
    for mesh in MESHES:
        for number, value in enumerate(graph.inputs):
            for cuts in layouts_of(given[number].shape, mesh):
                value.type = plain[number].cut(cuts)
                program = rank_program(graph, mesh)
                program.laid_out.verify()
                program.local.verify()
                got = run(program, given)
                for one, two in zip(got, wanted, strict=True):
                    a, b = one.numpy(), two.numpy()
                    if a.dtype.kind in "fc":
                        close = {"rtol": 1e-9, "atol": 1e-9 * max([1.0, *abs(b[np.isfinite(b)])])}
                        np.testing.assert_allclose(a, b, **close, err_msg=str(program.laid_out))
                    else:
                        np.testing.assert_array_equal(a, b, err_msg=str(program.laid_out))
                assert weft.parse_graph(
                    str(program.laid_out), constants=program.laid_out.constants()
                ).equals(program.laid_out)
                count += 1
            value.type = plain[number]
    return count


def dtype_for(row: Row) -> Any:
    known = row.dtypes()
    return next(d for d in (weft.float64, weft.int64, weft.complex128, weft.bool) if d in known)


@pytest.mark.parametrize("row", [r for r in ROWS if r.name not in LEFT_OUT], ids=lambda r: r.name)
def test_every_layout_of_an_operand(row: Row) -> None:
    seen = set()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for sample in row.samples(dtype_for(row)):
            made = graph_of(row, sample)
            if made is None:
                continue
            graph, given = made
            key = str(graph)
            if key not in seen and len(seen) < 12:
                seen.add(key)
                check(graph, given)
