"""The peak performance of the machine: multiply-adds in registers, and memory bandwidth.

Measured with code that does nothing else, on a given number of threads: the best of several short
tries, because other processes may use the machine.
"""

from __future__ import annotations

import ctypes
import functools
import os
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np

from weft.codegen.index import step
from weft.codegen.jit import build
from weft.codegen.machine import host

__all__ = ["Peak", "machine_peak", "measured"]

CHAINS = 12  # independent sums: enough to hide latency, few enough for the registers
ROUNDS = 400_000  # some milliseconds
BYTES = 96 << 20  # larger than the caches
IN_CACHE, REPEATED = (
    512 << 10,
    256,
)  # per thread: a size that fits the caches, and how often it is read
TRIES = 40
BUDGET_S = 0.04  # for each of the four figures
USUAL_CACHE = 16 << 20  # if the system does not tell


@dataclass(frozen=True, slots=True)
class Peak:
    """Operations per second in float32 and float64; bytes per second read from memory and from
    caches; the size of the largest cache."""

    threads: int
    flops32: float
    flops64: float
    bytes: float
    cached: float
    cache: int

    def flops(self, itemsize: int) -> float:
        """Peak operations per second on elements of this size."""
        return self.flops64 if itemsize >= 8 else self.flops32

    def moved(self, footprint: int) -> float:
        """Bytes per second for a working set of this size."""
        return self.cached if footprint <= self.cache // 2 else self.bytes

    def as_dict(self) -> dict[str, float]:
        return asdict(self)


@functools.cache
def machine_peak(threads: int) -> Peak:
    """The peak, measured once per process in a few tenths of a second."""
    return measured(threads)


def measured(
    threads: int,
    *,
    tries: int = TRIES,
    rounds: int = ROUNDS,
    size: int = BYTES,
    budget_s: float = BUDGET_S,
) -> Peak:
    """Measure the peak now."""
    together = functools.partial(_together, threads, tries, budget_s)
    flops = []
    for word, itemsize in (("float", 4), ("double", 8)):
        lanes = host().lanes(itemsize)
        library = build(_multiply_adds(word, lanes), ["entry"])
        function = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_int64)(library.address("entry"))
        took = together(functools.partial(_call, function, rounds))
        flops.append(threads * 2.0 * CHAINS * lanes * rounds / took)
    # Both dtypes execute equally many instructions per second; one measurement may be disturbed.
    flops[0] = max(flops[0], flops[1] * host().lanes(4) / host().lanes(8))
    library = build(_read(host().lanes(4)), ["entry"])
    kind = ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    reader = kind(library.address("entry"))
    memory = np.ones(size // 4, np.float32)
    start = memory.ctypes.data
    each = len(memory) // threads // 256 * 256
    took = together(lambda at: reader(start + 4 * at * each, each, 1))
    few = IN_CACHE // 4
    again_took = together(lambda at: reader(start + 4 * at * few, few, REPEATED))
    return Peak(
        threads,
        flops[0],
        flops[1],
        threads * each * 4.0 / took,
        threads * IN_CACHE * float(REPEATED) / again_took,
        cache_size(),
    )


def cache_size() -> int:
    """The size of the largest cache, from the system."""
    for name in ("SC_LEVEL3_CACHE_SIZE", "SC_LEVEL2_CACHE_SIZE"):
        try:
            found = os.sysconf(name)
        except (AttributeError, ValueError, OSError):
            continue
        if found > 0:
            return found
    return USUAL_CACHE


def _call(function: Callable[[int], object], rounds: int, _at: int) -> None:
    function(rounds)


def _together(threads: int, tries: int, budget_s: float, work: Callable[[int], object]) -> float:
    """The best time of each thread while all threads do the same work.

    It is CPU time, so that time of other processes does not count.
    """
    best, tried, start = float("inf"), 0, time.perf_counter()
    while tried < tries and (tried < 6 or time.perf_counter() - start < budget_s):
        took = [0.0] * threads

        def timed(at: int, took: list[float] = took) -> None:
            begin = time.thread_time()
            work(at)
            took[at] = time.thread_time() - begin

        workers = [threading.Thread(target=timed, args=(at,)) for at in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        best = min(best, max(took))
        tried += 1
    return best


def _multiply_adds(kind: str, lanes: int) -> str:
    vector = f"<{lanes} x {kind}>"
    fma = f"@llvm.fma.v{lanes}f{32 if kind == 'float' else 64}"
    chains = range(CHAINS)
    start = "\n".join(
        f"  %a{i} = phi {vector} [ splat ({kind} {i}.0), %entry ], [ %b{i}, %loop ]" for i in chains
    )
    steps = "\n".join(
        f"  %b{i} = call {vector} {fma}({vector} %a{i}, {vector} splat ({kind} 0.5), "
        f"{vector} splat ({kind} 1.0))"
        for i in chains
    )
    sums = "\n".join(f"  %s{i + 1} = fadd {vector} %s{i}, %b{i}" for i in chains)
    widened = "%first" if kind == "double" else "%wide"
    widen = "" if kind == "double" else "  %wide = fpext float %first to double\n"
    return f"""
declare {vector} {fma}({vector}, {vector}, {vector})
define double @entry(i64 %rounds) {{
entry:
  br label %loop
loop:
  %n = phi i64 [ 0, %entry ], [ %next, %loop ]
{start}
{steps}
  %next = add i64 %n, 1
  %more = icmp slt i64 %next, %rounds
  br i1 %more, label %loop, label %done
done:
  %s0 = fadd {vector} %b0, %b1
{sums}
  %first = extractelement {vector} %s{CHAINS}, i64 0
{widen}  ret double {widened}
}}
"""


def _read(lanes: int) -> str:
    vector = f"<{lanes} x float>"
    chains = range(4)
    start = "\n".join(f"  %a{i} = phi {vector} [ %c{i}, %round ], [ %b{i}, %loop ]" for i in chains)
    kept = "\n".join(
        f"  %c{i} = phi {vector} [ zeroinitializer, %entry ], [ %b{i}, %again ]" for i in chains
    )
    steps = "\n".join(
        f"""  %at{i} = add i64 %n, {i * lanes}
  %p{i} = {step("float", "%from", f"%at{i}")}
  %v{i} = load {vector}, ptr %p{i}, align 4
  %b{i} = fadd {vector} %a{i}, %v{i}"""
        for i in chains
    )
    sums = "\n".join(f"  %s{i + 1} = fadd {vector} %s{i}, %b{i}" for i in chains)
    return f"""
define float @entry(ptr %from, i64 %count, i64 %rounds) {{
entry:
  br label %round
round:
  %r = phi i64 [ 0, %entry ], [ %later, %again ]
{kept}
  br label %loop
loop:
  %n = phi i64 [ 0, %round ], [ %next, %loop ]
{start}
{steps}
  %next = add i64 %n, {4 * lanes}
  %more = icmp slt i64 %next, %count
  br i1 %more, label %loop, label %again
again:
  %later = add i64 %r, 1
  %left = icmp slt i64 %later, %rounds
  br i1 %left, label %round, label %done
done:
  %s0 = fadd {vector} %b0, %b1
{sums}
  %first = extractelement {vector} %s{len(chains)}, i64 0
  ret float %first
}}
"""
