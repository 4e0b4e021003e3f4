"""Random graphs and programs in every mode: `python tools/fuzz.py --minutes 2`.

What differs from eager, crashes or hangs is reduced to a few lines and printed as a test. A seed is
drawn unless one is given. Case number i of a run has seed `seed + i`, and a seed tells its kind, so
each case can be had again: `python tools/fuzz.py --graph 71` or `--program 121` runs one and shows
it. A run of many cases may be done in parts, each of which begins where the one before ended.

The exit code is 1 if anything was found. See docs/fuzzing.md.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import random
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from fuzzing import graphs, programs
from fuzzing.case import Case
from fuzzing.check import Result
from fuzzing.pool import PATIENCE, Worker, result
from fuzzing.reduce import reduced
from fuzzing.report import TEST_HEAD, Tally, as_test, signature

WRITERS = {"graph": graphs.write, "program": programs.write, "sized": programs.write_sized}
WRITERS["effect"] = programs.write_effects
#: How much of the time may go into reducing what was found.
REDUCING = 0.4


def kind_of(seed: int, options: argparse.Namespace) -> str:
    """What a seed is the seed of: `--programs` of any six in a row are programs."""
    if options.sizes or options.effects:
        return "sized" if options.sizes else "effect"
    return "program" if seed % 6 < options.programs else "graph"


class Run:
    """A run of several workers that share one tally."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.tally = Tally()
        self.lock = threading.Lock()
        self.numbers = itertools.count()
        self.start = time.monotonic()
        self.reducing = 0.0
        self.waiting: list[tuple[Case, Result]] = []
        self.stopped = False
        self.first_left = 0  # all cases before this one have run
        self.ahead: set[int] = set()  # and these after it

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.start

    def is_over(self) -> bool:
        return self.stopped or self.seconds > 60 * self.options.minutes

    def work(self) -> None:
        """What one thread does."""
        worker = Worker()
        try:
            while not self.is_over():
                number = next(self.numbers)
                if self.options.cases and number >= self.options.cases:
                    break
                self.watched(self.hand_out, worker, number)
                self.note_done(number)
                self.watched(self.reduce_waiting, worker, REDUCING)
            self.watched(self.reduce_waiting, worker, 1.0)
        finally:
            worker.stop()

    def watched(self, step: Callable[..., None], worker: Worker, what: float) -> None:
        """Do a step; a fault of the fuzzer itself is found, too, and the run goes on."""
        try:
            step(worker, what)
        except Exception:
            text = traceback.format_exc()
            worker.stop()
            with self.lock:
                self.tally.found["the fuzzer"] += 1
                self.show(text)

    def hand_out(self, worker: Worker, number: int) -> None:
        """Hand a seed to a worker, and count what it says."""
        seed = self.options.seed + number
        kind = kind_of(seed, self.options)
        found = result(worker.ask({"kind": kind, "seed": seed}))
        if found.kind == "hang":  # perhaps the machine was busy
            found = worker.check(WRITERS[kind](seed), PATIENCE)
        with self.lock:
            self.tally.add(kind, seed, found)
            if found.state in self.options.wanted:
                self.waiting.append((WRITERS[kind](seed), found))

    def note_done(self, number: int) -> None:
        with self.lock:
            self.ahead.add(number)
            while self.first_left in self.ahead:
                self.ahead.remove(self.first_left)
                self.first_left += 1

    def reduce_waiting(self, worker: Worker, share: float) -> None:
        """Reduce what was found, as long as that takes no more than a share of the time."""
        spare = 20 if share == 1.0 else 0
        while self.waiting:
            with self.lock:
                busy = self.reducing / self.options.jobs > share * self.seconds + 5
                late = self.seconds > 60 * self.options.minutes + spare
                if busy or late or not self.waiting:
                    return
                case, found = self.waiting.pop()
                if found.kind in self.tally.distinct:  # errors are told apart by what they say
                    continue
            start = time.monotonic()
            small, last = self.smaller(worker, case, found)
            with self.lock:
                self.reducing += time.monotonic() - start
                self.report(case, small, last)

    def smaller(self, worker: Worker, case: Case, found: Result) -> tuple[Case, Result]:
        if self.options.no_reduce or found.state == "broken":
            return case, found
        last = found

        def fails(candidate: Case) -> bool:
            nonlocal last
            got = worker.check(candidate, 20.0)
            if (got.state, got.kind) == (found.state, found.kind):
                last = got
                return True
            return False

        def shapes(candidate: Case) -> dict[str, object]:
            answer = worker.ask({"case": candidate.to_json(), "shapes": True})
            return dict(answer.get("shapes") or {})

        return reduced(case, fails, shapes, self.options.reduce_seconds), last

    def report(self, case: Case, small: Case, found: Result) -> None:
        """Print a found case, unless one like it was printed."""
        key = signature(small, found)
        if key in self.tally.distinct:
            return
        text = as_test(small, found)
        self.tally.distinct[key] = text
        self.show(f"--- {found.state}: {found.kind} (--{case.kind} {case.seed})\n\n{text}\n")
        if self.options.save:
            folder = Path(self.options.save)
            folder.mkdir(parents=True, exist_ok=True)
            note = "".join(f"# {line}\n" for line in found.text.splitlines()[:30])
            listing = "".join(
                f"# {line}\n".replace("#  \n", "#\n") for line in small.source.split("\n")
            )
            path = folder / f"fuzz_{case.kind}_{case.seed}.py"
            path.write_text(f"{note}{TEST_HEAD}\n\n{text}\n\n\n{listing}")

    def show(self, text: str) -> None:
        print(text, flush=True)

    def watch(self) -> None:
        """Say how far it is, now and then."""
        every = 5 if sys.stdout.isatty() or self.options.summary else 30
        while not self.is_over():
            time.sleep(0.2)
            if self.seconds // every != (self.seconds - 0.2) // every:
                with self.lock:
                    self.show(self.tally.progress(self.seconds))
                    self.keep_summary()

    def keep_summary(self) -> None:
        """Write the summary so far to its file: nothing is lost if the run is killed."""
        if self.options.summary:
            path = Path(self.options.summary)
            beside = path.with_name(path.name + ".new")
            tests = [f"\n{text}" for text in self.tally.distinct.values()]
            beside.write_text("\n".join([*self.summary(), *tests]) + "\n")
            beside.replace(path)

    def summary(self) -> list[str]:
        first, done = self.options.seed, self.first_left
        lines = self.tally.summary(self.seconds, first)
        if self.waiting:
            cases = sorted({f"--{case.kind} {case.seed}" for case, _ in self.waiting})
            lines.append(f"not reduced: {len(cases)}: {', '.join(cases)}")
        if done:
            lines.append(f"seeds {first} to {first + done - 1} have run")
        if done < self.options.cases:
            left = f"--seed {first + done} --cases {self.options.cases - done}"
            lines.append(f"to go on: {left}; {len(self.ahead)} of these have run")
        return lines

    def run(self) -> int:
        threads = [threading.Thread(target=self.work) for _ in range(self.options.jobs)]
        watcher = threading.Thread(target=self.watch, daemon=True)
        for thread in [*threads, watcher]:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        except KeyboardInterrupt:
            self.stopped = True
            for thread in threads:
                thread.join()
        self.stopped = True
        self.keep_summary()
        for line in self.summary():
            self.show(line)
        return 1 if self.tally.found else 0


def show_one(case: Case, options: argparse.Namespace) -> int:
    """Run one case, reduce it if it fails, and print it."""
    print(case.source)
    worker = Worker()
    found = worker.check(case, PATIENCE)
    print(f"{found.state}: {found.kind}\n{found.text}")
    if found.state in ("found", "refused"):
        run = Run(options)
        small, last = run.smaller(worker, case, found)
        run.report(case, small, last)
        print(small.source, last.text, sep="\n")
    worker.stop()
    return 1 if found.state in ("found", "broken") else 0


def parsed(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument(
        "--minutes", type=float, help="how long (default 2, or as long as `cases` take)"
    )
    parser.add_argument("--seed", type=int, help="the first seed (default: drawn)")
    parser.add_argument("--cases", type=int, default=0, help="stop after so many cases")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument(
        "--programs", type=int, default=1, metavar="N", help="N of 6 cases are programs (default 1)"
    )
    parser.add_argument(
        "--sizes", action="store_true", help="only programs that are called with several sizes"
    )
    parser.add_argument(
        "--effects", action="store_true", help="only programs that write to Python objects"
    )
    parser.add_argument(
        "--refusals", action="store_true", help="reduce and print what is refused, too"
    )
    parser.add_argument("--save", help="a folder for what is found")
    parser.add_argument(
        "--summary", help="a file for the summary and all tests, written anew as the run goes on"
    )
    parser.add_argument("--no-reduce", action="store_true", help="leave what is found as it is")
    parser.add_argument("--reduce-seconds", type=float, default=20.0, help="for one case")
    parser.add_argument("--graph", type=int, metavar="SEED", help="run this graph, and show it")
    parser.add_argument("--program", type=int, metavar="SEED", help="run this program, and show it")
    parser.add_argument("--sized", type=int, metavar="SEED", help="one of `--sizes`, shown")
    parser.add_argument("--effect", type=int, metavar="SEED", help="one of `--effects`, shown")
    options = parser.parse_args(words)
    if options.minutes is None:
        options.minutes = math.inf if options.cases else 2.0
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(10**9)
    options.wanted = ("found", "broken", "refused") if options.refusals else ("found", "broken")
    return options


def main(words: list[str] | None = None) -> int:
    options = parsed(words)
    for kind in WRITERS:
        if getattr(options, kind) is not None:
            return show_one(WRITERS[kind](getattr(options, kind)), options)
    print(f"seed {options.seed}, {options.jobs} processes", flush=True)
    return Run(options).run()


if __name__ == "__main__":
    sys.exit(main())
