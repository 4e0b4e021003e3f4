"""Measures programs without side effects, by running them again on the inputs of a call."""

from __future__ import annotations

import time
from typing import Any

from weft.core.tensor import Tensor
from weft.ir.graph import Graph
from weft.ir.op import Trait
from weft.ir.types import StackType
from weft.runtime.executable import Executable
from weft.runtime.machine_code import MachineCode
from weft.runtime.output_routing import Call
from weft.runtime.timed import read_runs, site_totals

__all__ = ["Inputs", "kernel_seconds", "seconds_of"]

MOST_S, MOST_RUNS = 0.05, 200


class Inputs:
    """An instrument (`weft.runtime.executable`) that keeps the last inputs of each program."""

    def __init__(self) -> None:
        self.of: dict[Executable, list[Tensor]] = {}
        self._arrays: dict[Executable, list[Any]] = {}

    def __call__(self, executable: Executable, inputs: list[Tensor], proceed: Call) -> list[Tensor]:
        self.of[executable] = list(inputs)
        # A second reference to the arrays keeps programs from writing to them.
        self._arrays[executable] = [getattr(x, "_data", None) for x in inputs]
        return proceed(inputs)


def seconds_of(executable: Executable, inputs: list[Tensor]) -> float | None:
    """The best time of several runs; None if a run may have side effects."""
    if not _only_computes(executable.optimized):
        return None
    held = [x._data for x in inputs]
    call = executable.program.call
    best = float("inf")
    start = time.perf_counter()
    for _ in range(MOST_RUNS):
        before = time.perf_counter()
        call([_same(x) for x in inputs])
        now = time.perf_counter()
        best = min(best, now - before)
        if now - start > MOST_S:
            break
    del held
    return best


def kernel_seconds(code: MachineCode, inputs: list[Tensor]) -> dict[str, float]:
    """The best time of each kernel by number, measured in a copy of the program with timers."""
    timed = code.timed()
    numbers = {step.group: number for number, step in timed.code.numbered()}
    held = [x._data for x in inputs]
    best: dict[str, float] = {}
    start = time.perf_counter()
    for _ in range(MOST_RUNS):
        _, kept, beyond = timed.profiled([_same(x) for x in inputs])
        spent = site_totals(len(timed.sites), beyond, read_runs(kept))
        now: dict[str, float] = {}
        for site, (_, took) in zip(timed.sites, spent, strict=True):
            if not site.part:
                number = numbers[site.group]
                now[number] = now.get(number, 0.0) + took * 1e-9
        for number, seconds in now.items():
            best[number] = min(best.get(number, seconds), seconds)
        if time.perf_counter() - start > MOST_S:
            break
    del held
    return best


def _same(x: Tensor) -> Tensor:
    made = Tensor()
    made._data = x._data
    made._node = None
    return made


def _only_computes(graph: Graph) -> bool:
    if any(isinstance(value.type, StackType) for value in (*graph.inputs, *graph.outputs)):
        return False
    return not any(Trait.PYTHON in node.op.traits for part in graph.walk() for node in part.nodes)
