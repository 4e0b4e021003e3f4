"""Control flow in compiled functions on the device "cuda", against op by op on the CPU: as one
kernel of one block, and around kernels of the whole GPU."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from control_programs import PROGRAMS
from cuda_device import REAL, cuda
from op_calls import flat

import weft
import weft.nn.functional as F
from weft import nn
from weft.codegen.cuda import emitter as emitters
from weft.codegen.cuda.machine import GpuMachine
from weft.codegen.cuda.ptx import ptx
from weft.runtime.cuda import opening, stacks
from weft.runtime.cuda.program import CudaProgram
from weft.schedule.planner import plan_program

__all__ = ["cuda"]
pytestmark = pytest.mark.usefixtures("cuda")
#: Control flow that is left to the interpreter if one block is not to run it.
INTERPRETED = {"choice", "while_in_scan"}


@pytest.fixture(params=["one block", "around launches"])
def way(request: Any, cuda: bool, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    driver = opening.driver()
    machine = driver.machine
    driver.machine = dataclasses.replace(machine, whole=False)
    if request.param != "one block":
        monkeypatch.setattr(emitters, "block_threads", lambda *_: 0)
        monkeypatch.setattr(emitters, "LARGE", 0)  # all values are copied by many blocks
    yield request.param
    driver.machine = machine


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
def test_values_and_gradients(name: str, way: str) -> None:
    function, inputs = PROGRAMS[name]
    work = both(function)
    expected, compiled = (weft.compile(work, backend=kind) for kind in ("interpret", "native"))
    for given in inputs:
        want = flat(expected(*tensors(given, "cpu")))
        for _ in range(2):
            got = flat(compiled(*tensors(given, "cuda")))
            for a, b in zip(want, got, strict=True):
                assert str(b.device) == "cuda"
                mine, theirs = (x.detach().numpy() for x in (b, a))
                np.testing.assert_allclose(mine, theirs, rtol=1e-10, atol=1e-12)
    if way == "one block" or name not in INTERPRETED:
        for made in compiled.programs:
            assert isinstance(made.program, CudaProgram), made.program.reason
            assert not made.program.calls


def test_stacks_grow_and_nothing_is_lost(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step of training whose loop saves more than there is memory for at first."""
    monkeypatch.setattr(stacks, "FIRST", 2048)

    def losses(device: str, compiled: bool) -> list[float]:
        weft.manual_seed(0)
        model = nn.Linear(6, 6).to(device)
        optimizer = weft.optim.SGD(model.parameters(), lr=0.1)
        x = weft.ones((3, 6)).to(device)

        def step(x: weft.Tensor, least: weft.Tensor) -> weft.Tensor:
            optimizer.zero_grad()
            y, turns = x, 0
            while y.abs().max() > least and turns < 40:
                y = 0.97 * weft.tanh(model(y)) + 0.01
                turns = turns + 1
            loss = F.mse_loss(y, x)
            loss.backward()
            optimizer.step()
            return loss

        run = weft.compile(step, backend="native" if compiled else "interpret")
        found = [run(x, weft.asarray(1e-9).to(device)).item() for _ in range(4)]
        if compiled:
            grown = [made.program._stacks for made in run.programs]
            assert max(memory.size for memory in grown if memory) > 2048
        return found

    np.testing.assert_allclose(losses("cuda", True), losses("cpu", False), rtol=1e-4)


def test_an_index_out_of_range_in_a_loop(way: str) -> None:
    @weft.compile(backend="native")
    def read(x: weft.Tensor, at: weft.Tensor) -> weft.Tensor:
        total = x[0]
        while total < 10:
            total = total + weft.take(x, at)
            at = at + 1
        return total

    x = weft.asarray([1.0, 2.0, 4.0]).cuda()
    for _ in range(2):
        assert read(x * 3, weft.asarray(1).cuda()).item() == 21.0
        with pytest.raises(IndexError, match="3"):
            read(x, weft.asarray(1).cuda())


def test_random_numbers_in_a_loop_are_those_of_the_cpu(way: str) -> None:
    def drawn(x: weft.Tensor) -> weft.Tensor:
        while x.sum() < 5:
            x = x + weft.rand((4,), device=x.device)
        return x

    found = []
    for device in ("cpu", "cuda"):
        weft.manual_seed(3)
        compiled = weft.compile(drawn, backend="native")
        found.append([compiled(weft.zeros(4).to(device)).tolist() for _ in range(3)])
        found[-1].append(weft.rand((1,)).item())  # the generator is where it is in eager
    assert found[0] == found[1]


@pytest.mark.skipif(REAL, reason="programs are made and loaded")
def test_llvm_makes_ptx(way: str) -> None:
    """All functions become part of their kernel, so threads wait for each other in it."""
    function, inputs = PROGRAMS["while_in_branch_in_while"]
    compiled = weft.compile(both(function), backend="native")
    compiled(*tensors(inputs[0], "cuda"))
    for made in compiled.programs:
        emitter = emitters.CudaEmitter(dataclasses.replace(GpuMachine(), whole=False))
        emitter.look_at(made.program._lowered)
        emitter.emit(plan_program(made.program._lowered, emitter))
        text = ptx(emitter.module.text(), emitter.machine)
        assert "call.uni" not in text
        assert ".extern" not in text
