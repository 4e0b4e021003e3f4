"""The dataflow executor gives the bits of the reference interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from control_graphs import graphs
from control_programs import PROGRAMS

import weft
from weft.ir.interpret import PreparedGraph
from weft.runtime.dataflow.options import Dataflow
from weft.runtime.dataflow.program import DataflowProgram
from weft.runtime.interpreted import interpreted


def bits(values: list[Any]) -> list[tuple[str, Any, bytes]]:
    arrays = [np.asarray(value._data) for value in values]
    return [(array.dtype.str, array.shape, array.tobytes()) for array in arrays]


@pytest.mark.parametrize("name", PROGRAMS)
def test_control_flow_and_its_gradients(name: str) -> None:
    for graph, given in graphs(name):
        for inputs in given:
            want = bits(interpreted(PreparedGraph(graph), list(inputs)))
            for options in (
                Dataflow(),
                Dataflow("fifo", parallel_iterations=1),
                Dataflow("deterministic", parallel_iterations=2),
            ):
                program = DataflowProgram(graph, options)
                assert bits(program(list(inputs))) == want
                assert bits(program(list(inputs))) == want


def test_as_a_backend() -> None:
    @weft.compile(backend="dataflow")
    def root(a: Any) -> Any:
        x = a
        while abs(x * x - a) > 1e-6 * a:
            x = (x + a / x) / 2
        return x

    assert abs(float(root(weft.tensor(2.0))) - 2**0.5) < 1e-6
    assert abs(float(root(weft.tensor(81.0))) - 9) < 1e-6
    assert len(root.recordings) == 1
