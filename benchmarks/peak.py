"""What the machine can do at most: multiply-adds in registers, and bytes from memory.

Measured by code that does nothing else, on as many threads as the suite uses.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable

import numpy as np

from weft.codegen.jit import build
from weft.codegen.target import host

CHAINS = 12  # independent sums: enough for the latency of a multiply-add, few enough for registers
ROUNDS = 1_000_000
BYTES = 256 << 20  # far more than caches hold
TRIES = 40  # of a few milliseconds each: one of them is not disturbed


def measured(threads: int) -> dict[str, float]:
    """Operations per second in float32 and float64, and bytes per second read from memory."""
    bits = {"flops32": ("float", 4), "flops64": ("double", 8)}
    found = {}
    for name, (kind, size) in bits.items():
        lanes = host().lanes(size)
        library = build(_multiply_adds(kind, lanes), ["entry"])
        function = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_int64)(library.address("entry"))
        took = _together(threads, lambda at, function=function: function(ROUNDS))
        found[name] = threads * 2.0 * CHAINS * lanes * ROUNDS / took
    library = build(_read(host().lanes(4)), ["entry"])
    reader = ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_void_p, ctypes.c_int64)(
        library.address("entry")
    )
    memory = np.ones(BYTES // 4, np.float32)
    each = len(memory) // threads // 256 * 256
    start = memory.ctypes.data
    took = _together(threads, lambda at: reader(start + 4 * at * each, each))
    found["bytes"] = threads * each * 4.0 / took
    return found


def _together(threads: int, work: Callable[[int], object]) -> float:
    """Seconds that all threads take to do it, at best."""
    took = []
    for _ in range(TRIES):
        workers = [threading.Thread(target=work, args=(at,)) for at in range(threads)]
        begin = time.perf_counter()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        took.append(time.perf_counter() - begin)
    return min(took)


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
    start = "\n".join(
        f"  %a{i} = phi {vector} [ zeroinitializer, %entry ], [ %b{i}, %loop ]" for i in chains
    )
    steps = "\n".join(
        f"""  %at{i} = add i64 %n, {i * lanes}
  %p{i} = getelementptr float, ptr %from, i64 %at{i}
  %v{i} = load {vector}, ptr %p{i}, align 4
  %b{i} = fadd {vector} %a{i}, %v{i}"""
        for i in chains
    )
    sums = "\n".join(f"  %s{i + 1} = fadd {vector} %s{i}, %b{i}" for i in chains)
    return f"""
define float @entry(ptr %from, i64 %count) {{
entry:
  br label %loop
loop:
  %n = phi i64 [ 0, %entry ], [ %next, %loop ]
{start}
{steps}
  %next = add i64 %n, {4 * lanes}
  %more = icmp slt i64 %next, %count
  br i1 %more, label %loop, label %done
done:
  %s0 = fadd {vector} %b0, %b1
{sums}
  %first = extractelement {vector} %s{len(chains)}, i64 0
  ret float %first
}}
"""


if __name__ == "__main__":
    for threads in (1, 2):
        print(
            threads, {name: f"{value / 1e9:.1f} G/s" for name, value in measured(threads).items()}
        )
