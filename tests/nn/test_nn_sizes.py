"""The rows of the nn tests, compiled once, with inputs of other sizes: results, gradients and state
are those of eager, or both are an error.

`WEFT_TEST_ALL=1` takes all rows, sizes and backends.
"""

from __future__ import annotations

from typing import Any

import pytest
from nn_samples import ROWS
from nn_samples.table import Row, filled, tensors
from sized_calls import ALL, chosen, difference, resized, run
from symbolic import arrays_in, mapped

import weft

SIZES = (7, 0, 1, 2, 64) if ALL else (7, 0, 1)


def _sizes(row: Row) -> list[int]:
    return sorted({n for x in arrays_in((row.inputs, row.call)) for n in x.shape if n > 1})


CASES = [(row, old) for row in ROWS for old in _sizes(row)]
#: These always run: they have differed.
FOUND = ("BatchNorm1d", "interpolate", "pad")
INTERPRETED = [
    case for case in CASES if case[0].module in FOUND or chosen(8, case[0].name, case[1])
]
NATIVE = [case for case in CASES if chosen(80, case[0].name, case[1], "native")]


class _Made:
    """The function or module of a row, with the state of the row in each call."""

    def __init__(self, row: Row, backend: str | None) -> None:
        self.module: Any = None
        if row.is_function:
            self.call: Any = getattr(weft.nn.functional, row.module)
        else:
            args, kwargs = tensors((row.args, row.kwargs), weft.asarray)
            self.call = self.module = getattr(weft.nn, row.module)(*args, **kwargs).double()
            state = self.module.state_dict()
            self.state = {
                name: weft.asarray(filled(name, tuple(x.shape))) if x.dtype.kind == "float" else x
                for name, x in state.items()
            }
            self.state = {name: x.clone() for name, x in self.state.items()}
            if row.prepare is not None:
                row.prepare(self.module)
        if backend is not None:
            made = self.call
            self.call = weft.compile(lambda *a, **k: made(*a, **k), backend=backend)

    def run(self, args: Any, kwargs: Any) -> Any:
        held: list[weft.Tensor] = []
        if self.module is not None:
            self.module.load_state_dict(self.state)
            held = [*self.module.parameters(), *self.module.buffers()]
        return run(self.call, args, kwargs, held)


def _compare(row: Row, old: int, backend: str) -> None:
    eager, compiled = _Made(row, None), _Made(row, backend)
    compiled.run(row.inputs, row.call)
    for new in SIZES:
        args, kwargs = mapped(
            (row.inputs, row.call),
            lambda x, new=new: resized(x, old, new) if hasattr(x, "shape") else x,
        )
        said = difference(compiled.run(args, kwargs), eager.run(args, kwargs))
        assert not said, f"{old} -> {new}: {said}"


def _name(case: Any) -> str:
    return f"{case[0].name}-{case[1]}"


@pytest.mark.parametrize("case", INTERPRETED, ids=_name)
def test_row(case: tuple[Row, int]) -> None:
    _compare(*case, "interpret")


@pytest.mark.parametrize("case", NATIVE, ids=_name)
def test_machine_code(case: tuple[Row, int]) -> None:
    _compare(*case, "native")
