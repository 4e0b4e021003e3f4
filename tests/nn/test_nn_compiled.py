"""Layers and functions of nn as machine code: values and gradients are those of eager code."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from nn_samples import images, layers, losses
from nn_samples.table import Row, filled, flat, tensors, values

import weft

BAGS = [row for row in layers.ROWS if row.module.startswith("Embedding")]
MARGINS = [row for row in losses.ROWS if row.module.startswith(("Multi", "Soft", "TripletMarginW"))]


def one_of_each(rows: list[Row]) -> list[Row]:
    """Cheap: of rows that differ only in their sizes, one."""
    return [row for row in rows if "uneven" in row.label or "Pad" not in row.module]


def work_of(row: Row) -> tuple[Any, list[weft.Tensor], Any]:
    """A function of tensors, its arguments, and the module's parameters."""
    make = weft.asarray
    inputs, call = tensors(row.inputs, make), tensors(row.call, make)
    function: Any = getattr(weft.nn.functional, row.module, None)
    learned: list[weft.Tensor] = []
    if not row.is_function:
        function = getattr(weft.nn, row.module)(
            *tensors(row.args, make), **tensors(row.kwargs, make)
        ).double()
        state = function.state_dict()
        function.load_state_dict({k: make(filled(k, tuple(v.shape))) for k, v in state.items()})
        if row.prepare is not None:
            row.prepare(function)
        learned = list(function.parameters())
    places = [i for i, x in enumerate(inputs) if isinstance(x, weft.Tensor)]
    given = [inputs[i] for i in places]

    def run(*given: weft.Tensor) -> Any:
        full = list(inputs)
        for i, x in zip(places, given, strict=True):
            full[i] = x
        out = [y for y in flat(function(*full, **call)) if y.dtype.kind == "float"]
        loss = sum((y * make(values(*y.shape, seed=i + 3))).sum() for i, y in enumerate(out))
        return loss, out

    def step(*given: weft.Tensor) -> Any:
        """The results, and the gradients of all that can have one."""
        loss, out = run(*given)
        wanted = [x for x in (*given, *learned) if x.requires_grad]
        if wanted:
            loss.backward()
        grads = [x.grad for x in wanted if x.grad is not None]
        for x in wanted:
            x.grad = None
        return out, grads

    return step, given, learned


@pytest.mark.parametrize(
    "row", one_of_each([*images.ROWS, *BAGS, *MARGINS]), ids=lambda row: row.name
)
def test_machine_code_is_eager_code(row: Row) -> None:
    found = []
    for way in (lambda f: f, lambda f: weft.compile(f, backend="native")):
        step, given, _ = work_of(row)
        for x in given:
            x.requires_grad = x.dtype.kind == "float"
        program = way(step)
        first = program(*given)
        again = program(*given)  # as recorded
        found.append([*flat(first), *flat(again)])
    assert len(found[0]) == len(found[1])
    for mine, want in zip(found[1], found[0], strict=True):
        assert mine.shape == want.shape
        np.testing.assert_allclose(
            mine.detach().numpy(), want.detach().numpy(), rtol=1e-9, atol=1e-11
        )
