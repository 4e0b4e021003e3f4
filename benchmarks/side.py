"""One side of one work, in a process of its own: it waits until it is asked, so that the threads of
one library do not disturb another's. `suite.py` starts it and speaks to it in pickles.

    make     the job; answers the versions
    first    the first call, in seconds
    check    some steps; answers what they gave and the results after them
    time     so many calls; answers seconds per call
    least    the same with the least of the calls
    peak     the largest memory that the process has had, in MB
    look     of Weft: what the machine code consists of, and what is not machine code
"""

from __future__ import annotations

import importlib
import os
import pickle
import resource
import sys
import time
import traceback
from typing import Any, cast

import numpy as np
from works.base import Job, Kit, Work, numpy_of


def _same(function: Any) -> Any:
    return function


# Each side imports its own library only: a process with two of them has two pools of threads.


def _weft(work: Work, threads: int) -> tuple[Job, str]:
    from look import watch

    import weft

    watch()
    weft.set_num_threads(threads)
    return work.make(Kit(weft, weft.compile, _same, _same)), f"weft {weft.__version__}"


def _torch(work: Work, threads: int, compile: bool = False) -> tuple[Job, str]:
    import torch

    torch.set_num_threads(threads)
    torch.set_num_interop_threads(1)
    put = torch.compile if compile else _same
    return work.make(Kit(torch, _same, put, put)), f"torch {torch.__version__}"


def _compiled_torch(work: Work, threads: int) -> tuple[Job, str]:
    return _torch(work, threads, compile=True)


def _jax(work: Work, threads: int) -> tuple[Job, str]:
    jax = importlib.import_module("jax")
    assert work.jax is not None
    name, options = work.jax
    if any(np.asarray(a).dtype == np.float64 for a in options.get("arrays", ())):
        jax.config.update("jax_enable_x64", True)
    module, _, function = name.rpartition(":")
    side = importlib.import_module(module or "works.jax_side")
    return getattr(side, function)(**options), f"jax {jax.__version__}"


SIDES = {"weft": _weft, "torch": _torch, "torch.compile": _compiled_torch, "jax": _jax}


def _wait(out: Any) -> Any:
    """JAX gives results before they are there."""
    return out.block_until_ready() if hasattr(out, "block_until_ready") else out


def timed(step: Any, calls: int, clock: Any = time.perf_counter) -> float:
    start = clock()
    for _ in range(calls):
        out = step()
    _wait(out)
    return (clock() - start) / calls


def checked(job: Job, steps: int) -> dict[str, Any]:
    outs = np.array([numpy_of(_wait(job.step())) for _ in range(steps)])
    return {"outs": outs, "results": [np.array(array) for array in job.results()]}


def look() -> list[dict[str, Any]]:
    """What Weft made of it."""
    from look import programs

    return programs()


def found_work(name: str) -> Work:
    """Of the suite, else of `large.py`, whose works import more."""
    for module in ("works", "large_works"):
        for work in importlib.import_module(module).WORKS:
            if work.name == name:
                return cast(Work, work)
    raise KeyError(name)


def serve(side: str, name: str, threads: int, cpu_time: bool) -> None:
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print is not an answer
    work = found_work(name)
    job: Any = None
    clock = time.process_time if cpu_time else time.perf_counter
    while True:
        try:
            request, argument = pickle.load(requests)
        except EOFError:
            return
        try:
            answer: Any
            if request == "make":
                job, answer = SIDES[side](work, threads)
            elif request == "first":
                answer = timed(job.step, 1, clock)
            elif request == "check":
                answer = checked(job, argument)
            elif request == "time":
                answer = timed(job.step, argument, clock)
            elif request == "least":
                answer = min(timed(job.step, 1, clock) for _ in range(argument))
            elif request == "peak":
                answer = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            else:
                answer = look()
            found = ("ok", answer)
        except Exception as error:
            traceback.print_exc()
            found = ("error", f"{type(error).__name__}: {error}"[:400])
        pickle.dump(found, answers)
        answers.flush()


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4] == "cpu")
