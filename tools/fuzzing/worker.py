"""A process that runs cases: it may crash or hang, and another takes its place.

It reads one job per line and answers each with one line, both JSON. A job names a kind and a seed,
or has a whole case; `shapes` asks what the names of a straight-line case hold.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import traceback
import warnings
from typing import Any

from fuzzing import graphs, programs
from fuzzing.case import HEAD, Case
from fuzzing.check import check

WRITERS = {"graph": graphs.write, "program": programs.write, "sized": programs.write_sized}
WRITERS["effect"] = programs.write_effects


def case_of(job: dict[str, Any]) -> Case:
    if "case" in job:
        return Case.from_json(job["case"])
    return WRITERS[job["kind"]](job["seed"])


def answer(job: dict[str, Any]) -> dict[str, Any]:
    try:
        case = case_of(job)
        if job.get("shapes"):
            return {"shapes": shapes(case)}
        result = vars(check(case))
    except Exception as error:  # the case is wrong, or the fuzzer
        text = traceback.format_exc()
        return {"state": "broken", "kind": type(error).__name__, "text": text[-1500:]}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return result | {"megabytes": peak // 1024}


def shapes(case: Case) -> dict[str, Any]:
    """The shape and dtype of each name that a straight-line case gives a value."""
    names = [argument.name for argument in case.arguments]
    space: dict[str, Any] = {}
    exec(HEAD, space)
    given = case.but(transform="none").values(case.calls[0])
    space.update(zip(names, given, strict=True))
    found: dict[str, Any] = {}
    for line in case.body[:-1]:
        exec(line, space)
        name = line.split(" = ")[0]
        value = space.get(name)
        if name.isidentifier() and hasattr(value, "dtype"):
            found[name] = [list(value.shape), value.dtype.name]
    return found


def main() -> None:
    warnings.simplefilter("ignore")
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a program prints is no answer
    for line in sys.stdin:
        out.write(json.dumps(answer(json.loads(line))) + "\n")
        out.flush()


if __name__ == "__main__":
    main()
