"""Random programs of nested control flow do the same, captured, as they do eagerly."""

from __future__ import annotations

import collections
from pathlib import Path
from typing import Any

import program_fuzz
import pytest
from programs.compare import Outcome, call, difference
from programs.modes import MODES, allowed, capture

import weft
from weft import Tensor

SEEDS = range(150)
#: What went wrong once, by its seed.
REGRESSIONS = {
    187: "a swap after which the other way has returned is no alias",
    225: "what a loop returns is held by no other name where it did not return",
    255: "an index of a loop that is not entered, in its backward",
    271: "what an earlier loop of unrolled ones has returned",
    293: "the size of a stacked list that only a branch knows, in its backward",
    342: "an index out of range in the first iteration of a loop that is not entered",
    481: "a write to what one of two names holds, on a way that excludes the other",
    585: "a loop whose body stops half-way",
    782: "a name that is dead where a loop is left, and that its condition reads",
    890: "the same, behind a loop in the loop",
    978: "a name without a value, read in a part of a function that is one of its own",
    1447: "a name that a loop leaves without a value, and its `else` gives anew",
}


def run(function: Any, args: tuple[Any, ...], *, second: bool) -> Outcome:
    return call(function, args, {}, second=second)


def skipped(written: program_fuzz.Written, want: Outcome, got: Outcome, mode: str) -> bool:
    """What a graph may refuse as a whole, though some of its paths would run.

    A name that one path lacks and that is read afterwards; two names that hold one tensor on some
    paths only, and are written to; or a name and a loop that goes over its rows.
    """
    refused = got.error is not None and issubclass(got.error, weft.errors.CaptureError)
    hard = {"one path used", "aliases", "rows written"} & written.special
    return mode == "source" and refused and bool(hard)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", [*SEEDS, *REGRESSIONS])
def test_captured(seed: int, mode: str, tmp_path: Path) -> None:
    written = program_fuzz.write(seed)
    function = program_fuzz.load(written, tmp_path)
    captured = capture(mode, function)
    calls = program_fuzz.arguments(seed)
    for i, args in [*enumerate(calls), *reversed([*enumerate(calls)])]:
        want = run(function, args, second=True)
        got = run(captured, args, second=True)
        if skipped(written, want, got, mode):
            continue
        found = difference(want, got, **allowed(mode))
        assert not found, f"call {i}{_shown(args)}: {found}\n\n{written.source}"


def _shown(args: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(x.tolist() if isinstance(x, Tensor) else x for x in args)


def test_generator(tmp_path: Path) -> None:
    """Most programs run through, some raise; calls take several ways; all constructs occur."""
    outcomes: collections.Counter[str] = collections.Counter()
    words: collections.Counter[str] = collections.Counter()
    for seed in SEEDS:
        written = program_fuzz.write(seed)
        assert written.source == program_fuzz.write(seed).source
        function = program_fuzz.load(written, tmp_path)
        words.update({word for line in written.lines for word in line.split(maxsplit=1)[:1]})
        for args in program_fuzz.arguments(seed):
            out = run(function, args, second=False)
            outcomes[out.error.__name__ if out.error else "ran"] += 1
    assert outcomes["ran"] > 0.85 * sum(outcomes.values())
    assert outcomes["AssertionError"]
    assert outcomes["IndexError"]
    assert outcomes["UnboundLocalError"]
    wanted = "if elif else: while for break continue return assert items.append("
    assert all(any(found.startswith(word) for found in words) for word in wanted.split())
