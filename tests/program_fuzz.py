"""Random programs of nested control flow, as source text.

A program is a function of a scalar, a vector, a Python integer and an integer tensor. All its
names are there from the start and keep their types, each loop ends by construction, and each way
out returns the same names. A small share of programs has what captures have trouble with: a name
that is defined on one path only, an assertion, an index that may be out of range, a list that
grows.
"""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import weft

HEAD = """import weft


def program(x, v, n, k):
    a = x * 1.0
    b = v.sum()
    w = v * 0.5
    m = n
    ok = x > 0.3
"""
TAIL = "return a, b, w, m"

SCALARS = ["a", "b", "x", "w[0]", "v[1]", "w[k % 3]", "v.max()", "w.sum()", "(v * w).sum()"]
VECTORS = ["v", "w"]


@dataclass
class Written:
    """A program: its text, and what is special about it."""

    seed: int
    lines: list[str] = field(default_factory=list)
    #: "one path used": a name that only one path defines is read afterwards; "aliases": two names
    #: may hold one tensor, so that a write in place shows in both; "rows written": w may be what a
    #: loop goes over, or another tensor, when it is written; "raises": some calls may raise
    special: set[str] = field(default_factory=set)

    @property
    def source(self) -> str:
        return HEAD + "".join(f"    {line}\n" for line in self.lines)


class _Writer:
    """Writes statements, each a list of lines."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.written = Written(seed)
        self.names = 0
        self.extra = ""  # a name that only some paths define
        self.rare = self.random.random() < 0.25  # may raise
        self.lists = self.random.random() < 0.15
        self.partial = self.random.random() < 0.12
        self.aliases = self.random.random() < 0.08

    def write(self) -> Written:
        lines = ["items = [a * 1.0]"] if self.lists else []
        if self.aliases:
            self.written.special.add("aliases")
        lines += self.block(0, in_loop=False, sure=True, count=self.random.randint(2, 5))
        if self.extra and self.chance(0.5):
            self.written.special.add("one path used")
            lines.append(f"a = a + {self.extra}")
        if self.lists:
            lines.append("b = b + weft.stack(items).sum()")
        self.written.lines = [*lines, TAIL]
        return self.written

    # --- expressions --------------------------------------------------------------------------

    def chance(self, p: float) -> bool:
        return self.random.random() < p

    def pick(self, options: list[Any]) -> Any:
        return self.random.choice(options)

    def number(self) -> str:
        return repr(round(self.random.uniform(-1.5, 1.5), 3))

    def scalar(self, depth: int = 1) -> str:
        if depth == 0 or self.chance(0.25):
            return self.pick([*SCALARS[:3], self.pick(SCALARS)])
        one, two = self.scalar(depth - 1), self.scalar(depth - 1)
        return self.pick(
            [
                f"{one} + {two}",
                f"{one} - 0.5 * {two}",
                f"weft.tanh({one}) * {two}",
                f"weft.sin({one})",
                f"0.7 * ({one}) + {self.number()}",
                f"({one}) / (1 + ({two}) ** 2)",
                f"({one} if {self.condition()} else {two})",
                f"weft.minimum({one}, {two})",
                f"{one} + 0.1 * m",
            ]
        )

    def new(self, depth: int) -> str:
        """A scalar that no other name holds, except in programs with aliases."""
        text = self.scalar(depth)
        bare = text in ("a", "b", "x") or " if " in text
        return f"1.0 * {text}" if bare and not self.aliases else text

    def vector(self) -> str:
        one = self.pick(VECTORS)
        return self.pick(
            [
                f"{one} * 0.5 + v",
                f"weft.tanh({one} + {self.scalar(0)})",
                f"weft.roll({one}, 1)",
                f"weft.where({one} > {self.number()}, v, w)",
                f"{one} - weft.mean({one})",
                f"{one} * {self.scalar(0)}",
            ]
        )

    def condition(self) -> str:
        return self.pick([self.on_tensors, self.on_tensors, self.on_python])()

    def on_tensors(self) -> str:
        one = f"{self.scalar(0)} {self.pick(['<', '>', '<=', '>='])} {self.number()}"
        two = f"{self.pick(['a', 'b'])} < {self.pick(['x', 'w.max()', 'b'])}"
        return self.pick(
            [
                one,
                one,
                two,
                "ok",
                "not ok",
                f"{one} and {two}",
                f"({one} or m > 1)",
                f"not ({two})",
                f"-1.0 < {self.scalar(0)} < 0.9",
                f"(w > {self.number()}).any()",
                "k % 2 == 0",
            ]
        )

    def on_python(self) -> str:
        return self.pick(["n > 1", "m % 2 == 0", "n == 0", "m < 3", "n in (0, 2)", "m > n"])

    # --- statements ---------------------------------------------------------------------------

    def block(self, depth: int, in_loop: bool, sure: bool, count: int = 0) -> list[str]:
        """A few statements; `sure`: they are run whatever tensors say."""
        lines: list[str] = []
        for _ in range(count or self.pick([1, 1, 2, 2, 3])):
            lines += self.statement(depth, in_loop, sure)
        return lines

    def statement(self, depth: int, in_loop: bool, sure: bool) -> list[str]:
        if depth < 3 and self.chance(0.5 - 0.1 * depth):
            return self.pick([self.branch, self.branch, self.loop_while, self.loop_for])(
                depth, in_loop, sure
            )
        return self.simple(in_loop, sure)

    def simple(self, in_loop: bool, sure: bool) -> list[str]:
        name = self.pick(["a", "b"])
        choices = [
            f"{name} = {self.new(2)}",
            f"{name} = {self.new(2)}",
            f"{name} {self.pick(['+=', '-='])} {self.scalar(1)}",
            f"{name} *= 0.8",
            f"w = {self.vector()}",
            f"w[{self.pick(['0', '1', '-1', 'k % 3', 'm % 3'])}] = {self.scalar(1)}",
            f"w[1] += {self.scalar(0)}",
            "a, b = b, a",
            f"ok = {self.scalar(0)} > {self.number()}",
            "m = m + 1",
            "m += 2",
        ]
        if self.lists and in_loop and sure:
            choices += [f"items.append({self.new(1)})"] * 3
        if self.rare and self.chance(0.3):
            self.written.special.add("raises")
            return [self.pick([f"assert {name} < 1.2, 'too large'", f"{name} = v[m]"])]
        return [self.pick(choices)]

    def branch(self, depth: int, in_loop: bool, sure: bool) -> list[str]:
        lines = [f"if {self.condition()}:", *self.indented(self.arm(depth, in_loop))]
        if self.chance(0.25):
            lines += [f"elif {self.condition()}:", *self.indented(self.arm(depth, in_loop))]
        if self.chance(0.6):
            lines += ["else:", *self.indented(self.arm(depth, in_loop))]
        return lines

    def arm(self, depth: int, in_loop: bool) -> list[str]:
        lines = self.block(depth + 1, in_loop, sure=False)
        if self.partial and self.chance(0.5):
            self.extra = "extra"
            lines = [f"extra = {self.new(1)}", *lines, "b = b + 0.1 * extra"]
        if in_loop and self.chance(0.3):
            lines.append(self.pick(["break", "continue"]))
        elif self.chance(0.12):
            lines.append(self.pick([TAIL, "return b, a, v * a, m"]))
        return lines

    def counter(self) -> str:
        self.names += 1
        return f"c{self.names}"

    def loop_while(self, depth: int, in_loop: bool, sure: bool) -> list[str]:
        c = self.counter()
        limit = self.random.randint(1, 4)
        start = self.pick([f"{c} = 0", f"{c} = weft.zeros((), dtype=weft.int64)"])
        head = self.pick(
            [
                f"while {c} < {limit}:",
                f"while {c} < {limit} and {self.on_tensors()}:",
                f"while {self.on_tensors()} and {c} < {limit}:",
                "while True:",
            ]
        )
        body = [f"{c} = {c} + 1", *self.block(depth + 1, True, sure)]
        if head == "while True:":
            body.insert(1, f"if {c} > {limit} or {self.on_tensors()}:")
            body.insert(2, "    break")
        lines = [start, head, *self.indented(body)]
        if head != "while True:" and self.chance(0.2):
            lines += ["else:", *self.indented(self.block(depth + 1, in_loop, sure))]
        return lines

    def loop_for(self, depth: int, in_loop: bool, sure: bool) -> list[str]:
        i = self.counter()
        limit = self.random.randint(0, 4)
        head, use = self.pick(
            [
                (f"for {i} in range({limit}):", f"a = a + 0.1 * {i}"),
                (f"for {i} in range({limit}):", f"w[{i} % 3] += 0.1"),
                (f"for {i} in range(m % 4):", f"b = b - 0.2 * {i}"),
                (f"for {i} in range(k):", f"a = 0.9 * a + {i}"),
                (f"for {i} in v:", f"a = a + {i} * b"),
                (f"for {i}, {i}e in enumerate(w):", f"a = weft.sin(a) + {i} * {i}e"),
                (f"for {i}, {i}e in zip(v, w):", f"b = b + {i} * {i}e"),
                (f"for {i} in reversed(w):", f"b = 0.5 * b + {i}"),
            ]
        )
        body = self.block(depth + 1, True, sure)
        body = [use, *body] if self.chance(0.7) else [*body, use]
        starts = {line.strip()[:2] for line in body}
        if "w)" in head and {"w[", "w "} <= starts:
            self.written.special.add("rows written")
        lines = [head, *self.indented(body)]
        if self.chance(0.2):
            lines += ["else:", *self.indented(self.block(depth + 1, in_loop, sure))]
        return lines

    @staticmethod
    def indented(lines: list[str]) -> list[str]:
        return [f"    {line}" for line in lines]


def write(seed: int) -> Written:
    """The program of a seed."""
    return _Writer(seed).write()


def load(written: Written, folder: Path) -> Callable[..., Any]:
    """The program as a function of a module with a file, so that its source can be read."""
    path = folder / f"fuzz_{written.seed}.py"
    path.write_text(written.source)
    spec = importlib.util.spec_from_file_location(f"fuzz_{written.seed}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function: Callable[..., Any] = module.program
    return function


def arguments(seed: int, count: int = 4) -> list[tuple[Any, ...]]:
    """Calls of a program."""
    rng = np.random.default_rng(seed)
    return [
        (
            weft.asarray(rng.uniform(-1, 1), dtype=weft.float64),
            weft.asarray(rng.uniform(-1, 1, 3)),
            [0, 1, 2, 3][i % 4],
            weft.asarray(int(rng.integers(0, 4))),
        )
        for i in range(count)
    ]
