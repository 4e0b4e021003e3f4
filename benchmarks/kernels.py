"""Where the time of a work's machine code goes, kernel by kernel.

    python benchmarks/kernels.py NAME [--threads 1] [--seconds 3] [--cpu-time]

The clock is read before and after each call of a kernel in the generated code; the least of each is
shown, as others may run on the machine, with how often it is called per step. On a busy machine,
--cpu-time (with one thread) leaves out when others had the core.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import re
import time
from dataclasses import replace
from typing import Any

os.environ["WEFT_CACHE"] = "0"

import look
from works import WORKS
from works.base import Kit

import weft
from weft.codegen import cache
from weft.runtime import native

_CALL = re.compile(r"  (%\S+) = call i32 (?:@(\S+?)|%\S+)\((?:ptr %\S+, ptr @(\S+), )?.*")
_KERNEL = re.compile(r"(loop|product|kernel|attention|attention_grad)\.")
_NEVER = (1 << 62) - 1


class Counters:
    """For each kernel that is called: the least number of ns, the sum, and the calls."""

    def __init__(self, clock: int) -> None:
        self.clock = clock
        self.names: list[str] = []
        self.library: Any = None

    def instrumented(self, text: str) -> str:
        lines = []
        for line in text.split("\n"):
            found = _CALL.fullmatch(line)
            name = found and (found[2] or found[3])
            if not found or not name or not _KERNEL.match(name):
                lines.append(line)
                continue
            at = len(self.names)
            self.names.append(name)
            lines += [f"  %begin.{at} = call i64 @clock.now()", line]
            lines += [f"  %stop.{at} = call i64 @clock.now()"]
            lines += [f"  call void @count(i64 {at}, i64 %begin.{at}, i64 %stop.{at})"]
        return "\n".join(lines) + self._counting()

    def _counting(self) -> str:
        table = f"[{max(1, 3 * len(self.names))} x i64]"
        slots = "".join(
            f"""
  %i{k} = add i64 %first, {k}
  %p{k} = getelementptr i64, ptr @counters, i64 %i{k}
  %v{k} = load i64, ptr %p{k}"""
            for k in range(3)
        )
        return f"""
declare i32 @clock_gettime(i32, ptr)
define internal i64 @clock.now() noinline {{
  %at = alloca [2 x i64], align 16
  call i32 @clock_gettime(i32 {self.clock}, ptr %at)
  %s = load i64, ptr %at
  %p = getelementptr i64, ptr %at, i64 1
  %ns = load i64, ptr %p
  %whole = mul i64 %s, 1000000000
  %sum = add i64 %whole, %ns
  ret i64 %sum
}}
declare i64 @llvm.umin.i64(i64, i64)
@counters = global {table} zeroinitializer
define internal void @count(i64 %n, i64 %begin, i64 %stop) noinline {{
  %took = sub i64 %stop, %begin
  %first = mul i64 %n, 3{slots}
  %none = icmp eq i64 %v2, 0
  %before = select i1 %none, i64 {_NEVER}, i64 %v0
  %least = call i64 @llvm.umin.i64(i64 %before, i64 %took)
  store i64 %least, ptr %p0
  %sum = add i64 %v1, %took
  store i64 %sum, ptr %p1
  %calls = add i64 %v2, 1
  store i64 %calls, ptr %p2
  ret void
}}
"""

    def read(self) -> list[tuple[str, int, int, int]]:
        kind = ctypes.c_int64 * (3 * len(self.names))
        found = list(kind.from_address(self.library.address("counters")))
        return [(n, *found[3 * i : 3 * i + 3]) for i, n in enumerate(self.names)]  # type: ignore[misc]


def watch(clock: int) -> list[Counters]:
    made: list[Counters] = []

    def cached(key: Any, make: Any, target: Any = None) -> Any:
        counters = Counters(clock)
        code = make()
        text = counters.instrumented(code.text)
        loaded = cache.cached(
            None, lambda: replace(code, text=text, exports=[*code.exports, "counters"]), target
        )
        counters.library = loaded.library
        made.append(counters)
        return loaded

    native.cached = cached  # type: ignore[attr-defined]
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description="a work's time, kernel by kernel")
    parser.add_argument("name", choices=[work.name for work in WORKS])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--cpu-time", action="store_true")
    options = parser.parse_args()
    weft.set_num_threads(options.threads)
    look.watch()
    counted = watch(time.CLOCK_THREAD_CPUTIME_ID if options.cpu_time else time.CLOCK_MONOTONIC)
    now = time.process_time if options.cpu_time else time.perf_counter
    work = next(work for work in WORKS if work.name == options.name)
    job = work.make(Kit(weft, weft.compile, lambda f: f, lambda f: f))
    job.step()
    print(look.summary(look.programs()))
    steps, end, least = 1, time.perf_counter() + options.seconds, float("inf")
    while time.perf_counter() < end:
        start = now()
        job.step()
        least = min(least, now() - start)
        steps += 1
    rows = [
        (least * calls / steps / 1e3, total / steps / 1e3, calls / steps, name)
        for counters in counted
        for name, least, total, calls in counters.read()
        if calls > 1  # others belong to a first recording, which is not used any more
    ]
    inside = sum(row[0] for row in rows)
    print(f"\na step: {least * 1e6:,.1f} µs at least, of that kernels {inside:,.1f} µs")
    print(f"{'least µs':>10}{'mean µs':>10}{'calls':>7}")
    for row in sorted(rows, reverse=True):
        print(f"{row[0]:>10,.2f}{row[1]:>10,.2f}{row[2]:>7,.0f}  {row[3]}")


if __name__ == "__main__":
    main()
