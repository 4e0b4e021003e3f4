"""Libraries against the same programs in this process, both on one thread.

An MLP's inference and its training step with Adam are built as a shared library for this machine,
and called in a loop by a C program; the other side is the compiled function, called from Python.
Sides alternate; the minimum of each counts, in seconds of the processor. The bar is 1.05. The last
lines are the size of the code of the training step on a Cortex-M4 (the bar: 100 KB with constants,
without the weights), and WebAssembly under Node, where that can be had.

    python benchmarks/library.py [--json]
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import weft
import weft.nn.functional as F
from weft import nn, optim

BAR, CODE_BAR = 1.05, 100_000
ROUNDS = 7
SOURCE = """\
#include "model.h"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
%s
static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}
int main(int count, char **words) {
  model *made;
  int calls = atoi(words[1]);
  if (model_create(&made)) return 1;
  for (int i = 0; i < 20; i++) if (model_%s(made%s)) return 2;
  double start = now();
  for (int i = 0; i < calls; i++) if (model_%s(made%s)) return 3;
  printf("%%.9g\\n", (now() - start) / calls);
  return count < 0;
}
"""
SCRIPT = """\
import { load } from "./model.js";
const model = await load();
const given = %s;
for (let i = 0; i < 200; i++) model.%s(...given);
let best = Infinity;
for (let round = 0; round < 7; round++) {
  const start = process.cpuUsage().user;
  for (let i = 0; i < 300; i++) model.%s(...given);
  best = Math.min(best, (process.cpuUsage().user - start) / 300e6);
}
console.log(best);
"""


def mlp(hidden: int) -> Any:
    layers = (nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
    return nn.Sequential(*layers, nn.Linear(hidden, 10))


def inference() -> tuple[Any, list[Any]]:
    return mlp(128).requires_grad_(False), [random((64, 64))]


def step_of(model: Any, rows: int) -> tuple[Any, list[Any]]:
    optimizer = optim.Adam(model.parameters(), lr=1e-3)

    def train_step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return train_step, [random((rows, 64)), np.arange(rows) % 10]


def training() -> tuple[Any, list[Any]]:
    return step_of(mlp(128), 64)


def digits() -> tuple[Any, list[Any]]:
    return step_of(nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)), 16)


def random(shape: tuple[int, ...]) -> Any:
    return np.random.default_rng(0).normal(size=shape).astype("f4")


def measured(make: Callable[[], tuple[Any, list[Any]]]) -> dict[str, float]:
    """Seconds of a call: in this process, and of the library."""
    function, arguments = make()
    compiled = weft.compile(function)
    tensors = [weft.tensor(x) for x in arguments]
    compiled(*tensors)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        built = weft.build_library(compiled, folder / "libmodel.so", target="native")
        program = _program(folder, built.function.partition("_")[2], arguments)
        inside, library = [], []
        for _ in range(20):
            compiled(*tensors)
        calls = 2000
        for _ in range(ROUNDS):
            start = time.process_time()
            for _ in range(calls):
                compiled(*tensors)
            inside.append((time.process_time() - start) / calls)
            done = subprocess.run([program, str(calls)], capture_output=True, text=True, check=True)
            library.append(float(done.stdout))
        found = {"process": min(inside), "library": min(library)}
        if importlib.util.find_spec("ziglang") and shutil.which("node"):
            weft.build_library(compiled, folder / "model.wasm")
            found["wasm"] = _wasm(folder, built.function.partition("_")[2], arguments)
    return found


def _program(folder: Path, word: str, arguments: list[Any]) -> Path:
    names = [*["x", "y"][: len(arguments)], "result"]
    kinds = {"x": "float", "y": "int64_t", "result": "float"}
    counts = {name: f"MODEL_{name.upper()}_COUNT" for name in names}
    data = []
    for name, array in zip(names, arguments, strict=False):
        text = ", ".join(repr(v) for v in array.ravel().tolist())
        data.append(f"static {kinds[name]} {name}[] = {{{text}}};")
    data.append(f"static float result[{counts['result']}];")
    given = "".join(f", {name}, {counts[name]}" for name in names)
    (folder / "main.c").write_text(SOURCE % ("\n".join(data), word, given, word, given))
    command = ["cc", "-O2", "-o", "main", "main.c", "libmodel.so", "-lm", f"-Wl,-rpath,{folder}"]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "main"


def _wasm(folder: Path, word: str, arguments: list[Any]) -> float:
    given = json.dumps([array.ravel().tolist() for array in arguments])
    for number, array in enumerate(arguments):
        if array.dtype == np.int64:
            given += f"; given[{number}] = BigInt64Array.from(given[{number}], BigInt)"
        else:
            given += f"; given[{number}] = Float32Array.from(given[{number}])"
    (folder / "main.mjs").write_text(SCRIPT % (given, word, word))
    run = ["node", "main.mjs"]
    done = subprocess.run(run, cwd=folder, capture_output=True, text=True, check=True)
    return float(done.stdout)


def code_size() -> int:
    """Bytes of code and constants of a training step for a Cortex-M4, without the state."""
    function, arguments = digits()
    compiled = weft.compile(function)
    compiled(*map(weft.tensor, arguments))
    with tempfile.TemporaryDirectory() as name:
        built = weft.build_library(compiled, Path(name) / "digits.o", target="cortex-m4")
        return loaded_bytes(built.path.read_bytes()) - built.state


def loaded_bytes(data: bytes) -> int:
    """The bytes of an object file (ELF, 32 bits) that lie in memory: code and constants."""
    start, size, count = (
        int.from_bytes(data[at : at + n], "little") for at, n in ((32, 4), (46, 2), (48, 2))
    )
    total = 0
    for at in range(start, start + size * count, size):
        kind, flags, _, _, length = (
            int.from_bytes(data[at + 4 * i : at + 4 * i + 4], "little") for i in range(1, 6)
        )
        if flags & 2 and kind == 1:  # allocated, with content
            total += length
    return total


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    weft.set_num_threads(1)
    found: dict[str, Any] = {make.__name__: measured(make) for make in (inference, training)}
    found["cortex_m4_bytes"] = code_size()
    if options.json:
        print(json.dumps(found, indent=2))
        return 0
    for name in ("inference", "training"):
        times = found[name]
        ratio = times["library"] / times["process"]
        said = f"{name:10} in process {times['process'] * 1e6:7.1f} µs, library "
        said += f"{times['library'] * 1e6:7.1f} µs: {ratio:.2f} (bar {BAR})"
        if "wasm" in times:
            said += f"; wasm {times['wasm'] * 1e6:7.1f} µs"
        print(said)
    print(f"Cortex-M4: {found['cortex_m4_bytes']} bytes of code and constants (bar {CODE_BAR})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
