"""Checks Weft on a GPU: what is there, every op on every dtype against the CPU, the tests, speed.

    python3 tools/gpu_check.py [--out DIR] [--workers N] [--limit SECONDS] [STAGE ...]

Stages: facts, ops, tests, bench (all by default), sanitize. Each runs in processes of its own, with
a limit of time, and goes on after errors. Where pytest is missing, its tests are left out.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import importlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]


def facts() -> None:
    """Versions, and what the GPU is."""
    names = "numpy llvmlite ml_dtypes threadpoolctl cupy torch jax cuda.bindings pytest hypothesis"
    for name in names.split():
        try:
            module = importlib.import_module(name)
            print(f"{name} {getattr(module, '__version__', 'there')}", end="; ")
        except Exception as error:
            print(f"{name} MISSING ({type(error).__name__})", end="; ")
    print(f"python {sys.version.split()[0]}")
    start = time.perf_counter()
    import weft

    print(f"import weft {time.perf_counter() - start:.2f} s", end="; ")
    start = time.perf_counter()
    print(weft.cuda.get_device_properties(), f"in {time.perf_counter() - start:.2f} s")
    start = time.perf_counter()
    x = weft.ones((4, 4), device="cuda")
    print((x @ x).sum().item(), f"first product {time.perf_counter() - start:.2f} s")
    for size in (32, 1_000_000):
        y = weft.ones((size,), device="cuda")
        (y * 2).sum()
        for name, run in {
            "x + x": lambda y=y: y + y,
            "x * 2": lambda y=y: y * 2,
            "x.sum()": lambda y=y: y.sum(),
            "tanh": lambda y=y: weft.tanh(y),
        }.items():
            run()
            weft.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(300):
                run()
            weft.cuda.synchronize()
            print(f"{name} of {size}: {(time.perf_counter() - start) / 300 * 1e6:.1f} µs", end="; ")
    print()
    _bfloat16()


def _bfloat16() -> None:
    """Which of CuPy's functions take bfloat16 arrays."""
    import cupy
    import ml_dtypes

    x = cupy.ones((4, 4), dtype=ml_dtypes.bfloat16)
    calls = {
        name: (lambda name=name: getattr(cupy, name)(x))
        for name in [
            "exp",
            "sum",
            "max",
            "argmax",
            "sort",
            "argsort",
            "cumsum",
            "any",
            "isnan",
            "unique",
            "nonzero",
        ]
    }
    calls |= {
        "matmul": lambda: cupy.matmul(x, x),
        "where": lambda: cupy.where(x > 0, x, x),
        "take": lambda: cupy.take(x, cupy.arange(2), axis=0),
        "setitem": lambda: x.copy().__setitem__((slice(None), 0), 1),
        "astype": lambda: x.astype("f4").astype(x.dtype),
        "concat": lambda: cupy.concatenate([x, x]),
        "from_dlpack": lambda: cupy.from_dlpack(x),
    }
    refused = []
    for name, call in calls.items():
        try:
            call()
        except Exception as error:
            refused.append(f"{name}: {str(error).splitlines()[0][:70]}")
    print("CuPy refuses bfloat16:", "; ".join(refused) or "nothing")


def ops(out: Path, workers: int, limit: int) -> None:
    """The samples table and the draws, shared among processes."""
    start = time.perf_counter()
    command = [sys.executable, __file__, "--out", str(out), "--workers", str(workers)]
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    running = [
        subprocess.Popen([*command, "--shard", str(i)], env=environment, stderr=subprocess.DEVNULL)
        for i in range(workers)
    ]
    for process in running:
        left = max(1.0, limit - (time.perf_counter() - start))
        try:
            process.wait(left)
        except subprocess.TimeoutExpired:
            process.kill()
    passed: collections.Counter[str] = collections.Counter()
    wrong: dict[str, list[str]] = {}
    seen = set()
    for i in range(workers):
        with contextlib.suppress(FileNotFoundError):
            for line in (out / f"shard{i}.jsonl").read_text().splitlines():
                found = json.loads(line)
                seen.add(found["case"])
                if found["wrong"]:
                    wrong[found["case"]] = found["wrong"]
                else:
                    passed[found["case"].partition(" ")[0]] += 1
    kinds: dict[str, list[str]] = {}
    for case, messages in wrong.items():
        for message in messages[:3]:
            kinds.setdefault(re.sub(r"[-\d.]+", "N", message)[:90], []).append(case)
    spent = time.perf_counter() - start
    print(f"ops: {len(seen)} cases, {len(seen) - len(wrong)} passed, {len(wrong)} failed", end=" ")
    print(f"in {spent:.0f} s with {workers} processes")
    for kind, cases in sorted(kinds.items(), key=lambda item: -len(item[1]))[:60]:
        example = next(m for m in wrong[cases[0]] if re.sub(r"[-\d.]+", "N", m)[:90] == kind)
        print(f"  {len(cases)} × {example[:180]} | {', '.join(dict.fromkeys(cases))[:160]}")
    (out / "ops.json").write_text(json.dumps({"passed": passed, "wrong": wrong}, indent=1))


def shard(number: int, workers: int, out: Path) -> None:
    """Every `workers`-th row, each result a line."""
    from cuda_samples import DRAWS, differences, same_draws
    from samples import ROWS

    cases: list[tuple[str, Any]] = [
        (f"{row.name} {dtype.name}", (row, dtype)) for row in ROWS for dtype in row.dtypes()
    ]
    random.Random(0).shuffle(cases)  # what a limit of time leaves out is spread over all ops
    with (out / f"shard{number}.jsonl").open("w") as file:
        for case, (row, dtype) in cases[number::workers]:
            found: list[str] = []
            try:
                for message in differences(row, dtype):
                    found.append(message)
                    if len(found) == 5:
                        break
            except Exception as error:
                found = [f"{type(error).__name__}: {str(error)[:200]}"]
            print(json.dumps({"case": case, "wrong": found}), file=file, flush=True)
        for name in list(DRAWS)[number::workers]:
            try:
                found = [] if same_draws(name) else ["other numbers"]
            except Exception as error:
                found = [f"{type(error).__name__}: {str(error)[:200]}"]
            print(json.dumps({"case": f"draw {name}", "wrong": found}), file=file, flush=True)


def run_tests(out: Path, limit: int, first: tuple[str, ...] = (), only: str = "test_cuda") -> None:
    """The tests about CUDA, with the GPU, each file in a process of its own.

    `first`: a program that runs them, such as compute-sanitizer.
    """
    try:
        import pytest  # noqa: F401
    except ImportError:
        print("tests: pytest is missing")
        return
    start = time.perf_counter()
    command = [*first, sys.executable, "-m", "pytest", "-q", "--maxfail=20", "--durations=3"]
    running = []
    for file in sorted((ROOT / "tests").rglob(f"{only}*.py")):
        log = out / f"{first[0].rpartition('/')[2] if first else 'tests'}.{file.stem}.txt"
        with log.open("w") as stream:
            given = [*command, "-p", "no:cacheprovider", str(file)]
            made = subprocess.Popen(given, cwd=ROOT, stdout=stream, stderr=stream)
        running.append((file, log, made))
    for file, log, process in running:
        try:
            process.wait(max(1.0, limit - (time.perf_counter() - start)))
        except subprocess.TimeoutExpired:
            process.kill()
            print(f"{file.name}: not done in {limit} s")
        text = log.read_text()
        words = ("E  ", "FAILED", "ERROR", "=========", "s call")
        lines = [x for x in text.splitlines() if x.startswith(words) or " in " in x[-16:]]
        print(f"{file.name}:", "\n  ".join(x[:200] for x in lines[-24:]), flush=True)
    with (out / "tests.txt").open("a") as whole:
        for _, log, _ in running:
            whole.write(log.read_text())
            log.unlink()


def sanitize(out: Path, limit: int) -> None:
    """Control flow and indexing under compute-sanitizer. It breaks loops of CUDA graphs that copy
    memory (`tools/gpu_conditional.cu` shows it without Weft), so kernels are launched one by one.
    """
    os.environ["WEFT_TESTS_WITHOUT_CUDA_GRAPHS"] = "1"
    found = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not os.path.exists(found):
        print("sanitize: there is no compute-sanitizer")
        return
    for name in ("test_cuda_control", "test_cuda_items"):
        run_tests(out, limit, (found, "--error-exitcode", "9"), name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("stages", nargs="*", default=["facts", "ops", "tests", "bench"])
    parser.add_argument("--out", type=Path, default=Path("gpu_check"))
    parser.add_argument("--workers", type=int, default=min(14, os.cpu_count() or 1))
    parser.add_argument("--limit", type=int, default=240, help="seconds for each stage")
    parser.add_argument("--shard", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    if given.shard is not None:
        shard(given.shard, given.workers, given.out)
        return
    if given.stages == ["facts!"]:
        facts()
        return
    for stage in given.stages:
        print(f"--- {stage}", flush=True)
        if stage == "ops":
            ops(given.out, given.workers, given.limit)
        elif stage in ("tests", "sanitize"):
            {"tests": run_tests, "sanitize": sanitize}[stage](given.out, given.limit)
        else:
            command = [sys.executable, str(ROOT / "benchmarks" / "gpu.py")]
            if stage == "facts":
                command = [sys.executable, __file__, "facts!", "--out", str(given.out)]
            with contextlib.suppress(subprocess.TimeoutExpired):
                subprocess.run(command, timeout=given.limit)


if __name__ == "__main__":
    main()
