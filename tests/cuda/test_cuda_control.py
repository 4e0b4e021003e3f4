"""Control flow in compiled functions on the device "cuda": one kernel, against eager on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from control_programs import PROGRAMS
from cuda_device import cuda
from op_calls import flat

import weft
from weft.runtime.cuda.program import CudaProgram

__all__ = ["cuda"]
pytestmark = pytest.mark.usefixtures("cuda")


def tensors(given: tuple[Any, ...], device: str) -> list[weft.Tensor]:
    made = [weft.asarray(x, dtype=weft.float64 if _is_float(x) else None) for x in given]
    found = [x.to(device) for x in made]
    for x in found:
        x.requires_grad = x.dtype.kind == "float"
    return found


def _is_float(given: Any) -> bool:
    return np.asarray(given).dtype.kind == "f"


def both(function: Any) -> Any:
    """A function of tensors: its results, and the gradients of a weighted sum of them."""

    def run(*args: weft.Tensor) -> Any:
        out = flat(function(*args))
        wanted = [x for x in args if x.requires_grad]
        parts = [(x * weft.cos(x.detach())).sum() for x in out if x.requires_grad]
        if not parts:
            return out
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        return out, weft.autograd.grad(total, wanted, allow_unused=True, materialize_grads=True)

    return run


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_and_gradients(name: str) -> None:
    function, inputs = PROGRAMS[name]
    work = both(function)
    expected, compiled = (weft.compile(work, backend=kind) for kind in ("interpret", "native"))
    for given in inputs:
        want = flat(expected(*tensors(given, "cpu")))
        for _ in range(2):
            got = flat(compiled(*tensors(given, "cuda")))
            for a, b in zip(want, got, strict=True):
                assert str(b.device) == "cuda"
                np.testing.assert_allclose(
                    b.detach().numpy(), a.detach().numpy(), rtol=1e-10, atol=1e-12
                )
    for made in compiled.programs:
        assert isinstance(made.program, CudaProgram), made.program.reason
        assert not made.program.calls
