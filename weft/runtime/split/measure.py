"""The rates of a device: measured once, and kept on disk."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import astuple
from typing import Any

import numpy as np

from weft.base import dtypes, store
from weft.codegen.machine import host
from weft.ir.graph import Graph
from weft.ir.op import OPS
from weft.ir.types import TensorType
from weft.runtime.split.devices import CPU, Engine, Rates
from weft.runtime.threads import get_num_threads

__all__ = ["known_rates", "measured", "rates_of"]

#: Elements of the sum that tells bytes per second, and rows of the product that tells flops.
ELEMENTS, ROWS = 1 << 20, 256


def rates_of(engine: Engine) -> Rates:
    """What the cost model counts with for a device."""
    return engine.rates or _kept(engine)


def known_rates(engine: Engine) -> Rates:
    """The same, where that takes no time: rates that were not measured yet are a guess."""
    return engine.rates or _measured.get(engine) or _read(engine) or _GUESS


#: Of a core of a usual machine.
_GUESS = Rates(2e10, 1e10, 1e-5, 1e10, 1e-6)
_measured: dict[Engine, Rates] = {}


def _kept(engine: Engine) -> Rates:
    found = _measured.get(engine) or _read(engine)
    if found is None:
        found = measured(engine)
        kept = [0.0 if rate == float("inf") else rate for rate in astuple(found)]
        store.write(_entry(engine), kept)  # JSON has no infinity
    _measured[engine] = found
    return found


def _read(engine: Engine) -> Rates | None:
    entry = store.read(_entry(engine))
    if entry is None:
        return None
    flops, moved, call, transfer, latency = entry[0]
    return Rates(flops, moved, call, transfer or float("inf"), latency)


def _entry(engine: Engine) -> str:
    machine = host()
    about = f"{engine.name} {engine.version} {get_num_threads()}"
    return store.name_of(b"rates 1", about.encode(), f"{machine.cpu} {machine.features}".encode())


def measured(engine: Engine) -> Rates:
    """The rates of a device, measured now: that takes some tenths of a second."""
    small, large = np.ones(4, np.float32), np.ones(ELEMENTS, np.float32)
    square = np.ones((ROWS, ROWS), np.float32)
    call = _best(_call(engine, "add", small), 50)
    moved = max(_best(_call(engine, "add", large), 7) - call, 1e-9)
    work = max(_best(_call(engine, "matmul", square), 7) - call, 1e-9)
    latency = transfer = 0.0
    if engine.name != CPU:
        latency = _best(lambda: engine.get(engine.put(small)), 50)
        transfer = max(_best(lambda: engine.get(engine.put(large)), 7) - latency, 0.0)
    rate = large.nbytes / transfer if transfer > 1e-7 else float("inf")
    return Rates(2.0 * ROWS**3 / work, 3.0 * large.nbytes / moved, call, rate, latency)


def _call(engine: Engine, op: str, array: Any) -> Callable[[], Any]:
    graph = Graph("measured")
    kind = TensorType(dtypes.float32, array.shape)
    node = graph.add(OPS[op], graph.add_input(kind), graph.add_input(kind))
    graph.outputs = node.outputs
    run = engine.compile(graph)
    given = engine.put(array)
    return lambda: run([given, given])


def _best(call: Callable[[], Any], times: int) -> float:
    call()
    found = float("inf")
    for _ in range(times):
        start = time.perf_counter()
        call()
        found = min(found, time.perf_counter() - start)
    return found
