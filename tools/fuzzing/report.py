"""Found cases as regression tests, and what a run amounts to, in lines."""

from __future__ import annotations

import ast
import collections
import re
from dataclasses import dataclass, field

from fuzzing.case import Case
from fuzzing.check import Result


def test_name(case: Case, result: Result) -> str:
    words = re.findall(r"[a-z]+", result.kind.lower())[:6]
    return "_".join(["test", *words, case.kind, str(case.seed)])


def as_test(case: Case, result: Result) -> str:
    """A test that fails as long as the case does; it is ready to be put into a test file."""
    note = result.text.strip().splitlines()[:8]
    lines = [f"def {test_name(case, result)}() -> None:"]
    lines += [f"    # {line}"[:100] for line in note]
    lines.append("    case = Case(")
    lines.append(f"        {case.kind!r},")
    lines.append(f"        {case.seed},")
    lines.append("        (")
    lines += [f"            {line!r}," for line in case.body]
    lines.append("        ),")
    lines.append("        (")
    for one in case.arguments:
        said = [repr(one.name), repr(one.shape), repr(one.dtype)]
        plain = type(one)(one.name, one.shape)
        keys = [k for k in vars(plain) if k not in ("name", "shape", "dtype")]
        said += [f"{k}={vars(one)[k]!r}" for k in keys if vars(one)[k] != vars(plain)[k]]
        lines.append(f"            Argument({', '.join(said)}),")
    lines.append("        ),")
    plain_case = Case("", 0, (), ())
    for key in ("transform", "calls", "threads", "optimized", "second", "growing", "effects"):
        if key == "calls" or getattr(case, key) != getattr(plain_case, key):
            lines.append(f"        {key}={getattr(case, key)!r},")
    lines.append("    )")
    lines.append("    result = check(case)")
    lines.append('    assert result.state == "same", result.text')
    return "\n".join(lines)


TEST_HEAD = "from fuzzing.case import Argument, Case\nfrom fuzzing.check import check\n"


def signature(case: Case, result: Result) -> str:
    """What makes two reduced cases the same: how they fail, and the words of their bodies."""
    if result.state != "found" or "raises" in result.kind or result.kind == "hang":
        return result.kind
    words: set[str] = set()
    for node in ast.walk(ast.parse("def f():\n" + "\n".join(f"    {x}" for x in case.body))):
        if isinstance(node, ast.Attribute):
            words.add(node.attr)
        elif isinstance(node, (ast.For, ast.While, ast.If, ast.With)):
            words.add(type(node).__name__)
    return f"{result.kind} | {case.transform} | {' '.join(sorted(words))}"


#: How many cases of one kind of refusal are named.
SHOWN = 3


@dataclass
class Tally:
    """What a run has seen so far."""

    ran: collections.Counter[str] = field(default_factory=collections.Counter)
    states: collections.Counter[tuple[str, str]] = field(default_factory=collections.Counter)
    refusals: collections.Counter[str] = field(default_factory=collections.Counter)
    found: collections.Counter[str] = field(default_factory=collections.Counter)
    distinct: dict[str, str] = field(default_factory=dict)
    #: Which cases these were, by kind.
    cases: dict[str, list[str]] = field(default_factory=dict)

    def add(self, kind: str, seed: int, result: Result) -> None:
        self.ran[kind] += 1
        self.states[kind, result.state] += 1
        if result.state in ("refused", "found", "broken"):
            self.cases.setdefault(result.kind, []).append(f"--{kind} {seed}")
        if result.state == "refused":
            self.refusals[result.kind] += 1
        elif result.state in ("found", "broken"):
            self.found[result.kind] += 1

    def share(self, kind: str, state: str) -> float:
        return 100 * self.states[kind, state] / max(1, self.ran[kind])

    def progress(self, seconds: float) -> str:
        total = sum(self.ran.values())
        refused = sum(self.refusals.values())
        programs = sum(count for kind, count in self.ran.items() if kind != "graph")
        return (
            f"{seconds:6.0f} s  {self.ran['graph']} graphs, {programs} programs "
            f"({total / max(seconds, 1e-9):.1f}/s), {sum(self.found.values())} found, "
            f"{refused} refused"
        )

    def summary(self, seconds: float, seed: int) -> list[str]:
        """The last lines of a run."""
        lines = []
        for name, counted in (("refused", self.refusals), ("found", self.found)):
            for why, n in counted.most_common():
                cases = self.cases.get(why, [])[: SHOWN if name == "refused" else None]
                lines.append(f"  {name} {n:5d}  {why}  ({', '.join(cases)})")
        for kind in ("graph", "program", "sized", "effect"):
            if self.ran[kind]:
                shares = [
                    f"{self.states[kind, state]} {state} ({self.share(kind, state):.2f} %)"
                    for state in ("same", "found", "refused", "invalid", "undecided", "broken")
                    if self.states[kind, state] or state in ("found", "refused")
                ]
                lines.append(f"{self.ran[kind]} {kind}s: {', '.join(shares)}")
        count, total = sum(self.found.values()), sum(self.ran.values())
        refused = sum(self.refusals.values())
        lines.append(
            f"seed {seed}, {seconds:.0f} s, {total} cases: {count} found, "
            f"{len(self.distinct)} of them different; {refused} refused "
            f"({100 * refused / max(1, total):.2f} %)"
        )
        return lines
