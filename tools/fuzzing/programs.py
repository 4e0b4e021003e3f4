"""Random programs, as text: nested control flow, writes, masks, lists, products in loops, parts
without gradients.

A program is a function of a scalar, a vector, a matrix, a Python integer and an integer tensor. All
its names are there from the start and keep their types, each loop ends by construction, and each
way out returns the same names. A small share of programs has what captures have trouble with: a
name that is defined on one path only, an assertion, an index that may be out of range, a list that
grows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from fuzzing.case import STEPS, Argument, Case
from fuzzing.effects import effect
from fuzzing.expressions import Expressions

HEAD = ["a = x * 1.0", "b = v.sum()", "w = v * 0.5", "p = q * 0.5", "m = n", "ok = x > 0.3"]
RESULTS = ["a", "b", "w", "p", "m"]

DTYPES = ["float64"] * 8 + ["float32"] * 6 + ["bfloat16", "float16"]
#: How often programs are run as they are, with gradients by the tape, and under transforms.
PROGRAM_TRANSFORMS = ["none"] * 12 + ["grad"] * 2 + ["jvp", "hessian", "jacobian"]
PROGRAM_TRANSFORMS += ["vmap", "vmap(grad)", "grad(vmap)"]
PROGRAM_TRANSFORMS += ["jacrev(jacrev)", "minimum", "hessian of minimum", "grad(hessian)"]
PROGRAM_TRANSFORMS += ["grad(jacrev(jacrev))"]
#: What is done with a list that loops have filled; its elements are not all used.
#: Containers of results.
FORMS = [
    "{{'a': {0}, 'b': [{1}, ({2}, {3})], 'm': {4}}}",
    "[{0}, {1}, {2}, {3}, {4}]",
    "({0}, {{'w': {2}, 'p': {3}}}), [{1}], {4}",
    "{{'m': {4}, 'none': None, 'all': ({0}, {1}, {2}, {3}), 'text': 'x', 'shape': v.shape}}",
    "Pair(({0}, {1}), [{2}, {3}]), {4}",
]
LISTS = [
    "b = b + weft.stack(items).sum()",
    "b = b + items[-1] * items[0]",
    "b = b + weft.exp(items[-1] * 0.3)",
    "b = b + sum(items[1:])",
    "a = a * items.pop()",
]


#: Writes to names that hold a part of another tensor, or the same one. S is a scalar.
VIEWS_WRITTEN = [
    ["t = p[0]", "t[0] = S", "b = b + (t * p[0]).sum()"],
    ["t = p.T", "t[0] = w", "t *= 0.9", "p = p + 0.1 * t"],
    ["t = w[::-1]", "t[0] += S", "w = w * 0.5 + t"],
    ["t = w", "t *= S", "a = a + (t - w).sum()"],
    ["t = q", "t[k % D] = v", "p = 0.5 * (p + t)"],
    ["t = p.reshape(-1)", "t[1:] = t[:-1]", "p = t.reshape(p.shape)"],
    ["t = weft.broadcast_to(w, q.shape)", "t[0] = v", "p = p * 0.5 + t"],
    ["t, u = p, p.mT", "t[0], u[0] = v, w", "p = t @ u * 0.3"],
    ["t = p.diagonal()", "t[0] = S", "w = w * 0.5 + t"],
    ["t = [w, w * 1.0]", "t[0][0] = S", "t[1] += v", "w = t[1] - w"],
]


class ProgramWriter(Expressions):
    """Writes statements, each a list of lines."""

    def __init__(self, seed: int, sized: bool = False, effects: bool = False) -> None:
        super().__init__(seed)
        self.seed = seed
        self.sized = sized
        self.effects = effects
        self.names = 0
        self.extra = ""  # a name that only some paths define
        self.transform = "none" if effects else self.pick(PROGRAM_TRANSFORMS)
        plain = self.transform == "none"
        self.deepest = self.pick([2, 2, 2, 3])  # bodies in bodies are recorded several times
        self.growing = (self.chance(0.12) or sized) and not effects
        self.rare = plain and self.chance(0.12) and not effects  # may raise
        twice = any(word in self.transform for word in ("hess", "jacrev", "minimum"))
        self.lists = self.chance(0.5 if twice else 0.15)
        self.partial = plain and self.chance(0.02)
        self.masks = "vmap" not in self.transform and self.chance(0.3)
        self.bounds = "vmap" not in self.transform and self.chance(0.1)
        self.views = self.chance(0.15)
        self.draws = "vmap" not in self.transform and self.chance(0.08)
        self.results = RESULTS if plain else RESULTS[:-1]
        form = self.pick(FORMS) if plain and self.chance(0.25) else ""
        self.tail = self.leaving(form, self.results)
        self.other = self.leaving(form, ["b", "a", "v * a", *self.results[3:]])

    @staticmethod
    def leaving(form: str, results: Sequence[str]) -> str:
        """The statement that returns these; in containers, if there is a form for them."""
        return f"return {form.format(*results) if form else ', '.join(results)}"

    def write(self) -> Case:
        lines = [*HEAD, *(["items = [a * 1.0]"] if self.lists else [])]
        lines += self.block(0, in_loop=False, sure=True, count=self.pick([2, 2, 3, 3, 4]))
        if self.extra and self.chance(0.5):
            lines.append(f"a = a + {self.extra}")
        if self.lists:
            lines.append(self.pick(LISTS))
        dtype = self.pick(DTYPES)
        size = self.size
        grads = [self.chance(0.85) for _ in range(3)]
        if self.transform != "none":
            grads = [True, True, True]
        arguments = (
            Argument("x", (), dtype, grad=grads[0]),
            Argument("v", (size,), dtype, grad=grads[1]),
            Argument("q", (size, size), dtype, grad=grads[2]),
            Argument("n", None, below=4, fixed=None if self.chance(0.25) else self.pick(range(4))),
            Argument("k", (), "int64", below=4),
        )
        first = self.seed % 1000
        case = Case(
            "effect" if self.effects else "sized" if self.sized else "program",
            self.seed,
            (*lines, self.tail),
            arguments,
            transform=self.transform,
            calls=tuple(range(first, first + (len(STEPS) if self.sized else 3))),
            threads=2 if self.chance(0.2) else 1,
            growing=self.growing,
            effects=self.effects,
            second=self.transform == "none" and self.chance(0.15),
            varied=self.transform == "none" and self.chance(0.15),
        )
        if self.chance(0.15):
            arguments = tuple([replace(one, strided=one.is_float) for one in arguments])
            case = case.but(arguments=arguments)
        if not self.chance(0.06):
            return case
        special = [replace(one, values="special") if one.is_float else one for one in arguments]
        return case.but(arguments=tuple(special))

    # --- statements ---------------------------------------------------------------------------

    def block(self, depth: int, in_loop: bool, sure: bool, count: int = 0) -> list[str]:
        """A few statements; `sure`: they are run whatever tensors say."""
        lines: list[str] = []
        for _ in range(count or self.pick([1, 1, 1, 2, 2])):
            lines += self.statement(depth, in_loop, sure)
        return lines

    def statement(self, depth: int, in_loop: bool, sure: bool) -> list[str]:
        if depth < self.deepest and self.chance(0.55 - 0.17 * depth):
            kinds = [self.branch, self.branch, self.loop_while, self.loop_for, self.loop_for]
            made: list[str] = self.pick([*kinds, self.without_grad])(depth, in_loop, sure)
            return made
        return self.simple(in_loop, sure)

    def simple(self, in_loop: bool, sure: bool) -> list[str]:
        if self.effects and self.chance(0.5):
            return [effect(self, sure)]
        name = self.pick(["a", "b"])
        place = self.pick(["0", "-1", f"k % {self.size}", f"m % {self.size}"])
        choices = [
            f"{name} = {self.new(2)}",
            f"{name} = {self.new(2)}",
            f"{name} {self.pick(['+=', '-='])} {self.scalar(1)}",
            f"{name} *= 0.8",
            f"w = {self.vector()}",
            f"w = {self.vector()}",
            f"p = {self.matrix()}",
            f"w[{place}] = {self.scalar(1)}",
            f"w[{place}] += {self.scalar(0)}",
            f"p[{place}] = {self.vector()}",
            f"p[:, {place}] *= 0.5",
            f"w[1:] = {self.pick(['v', 'w'])}[:-1]",
            "w *= a",
            "a, b = b, a",
            f"ok = {self.scalar(0)} > {self.number()}",
            "m = m + 1",
            "m += 2",
        ]
        if self.masks:
            mask = f"w > {self.number()}"
            choices += [f"w[{mask}] *= 0.5", f"w[{mask}] = a", f"b = b + (v[{mask}] ** 2).sum()"]
            choices += [
                f"b = b + (v[weft.nonzero({mask})[0]] * w[{mask}]).sum()",
                f"b = b + w.repeat(({mask}).astype(weft.int64) * 2).sum()",
                f"b = b + (p[{mask}].sum(axis=0) * v).sum()",
                f"b = b + 0.1 * (p[{mask}] @ v).shape[0]",
                "b = b + weft.unique_values(weft.floor(w * 2)).shape[0] * a",
            ]
        if self.draws:
            choices += [
                "a = a + 0.1 * weft.rand(dtype=v.dtype)",
                "w = w + weft.randn_like(w) * 0.1",
                "w = F.dropout(w, 0.4)",
                "a = a * weft.randint(0, 3, ()).astype(a.dtype)",
                f"p = p[weft.randperm({self.size})]",
                "w = weft.where(weft.rand_like(w) < 0.5, w, v)",
                "b = b + weft.random.normal(size=(2,), dtype=v.dtype).sum() * 0.1",
                "w = w * weft.bernoulli(weft.sigmoid(v.detach()))",
            ]
        if self.bounds:
            choices += [
                f"b = b + w[:k % {self.size + 1}].sum()",
                f"w[k % {self.size}:k % {self.size} + 1] = {self.scalar(0)}",
                f"a = a + v[m % {self.size}:].sum()",
            ]
        if self.lists and in_loop and sure:
            choices += [f"items.append({self.new(1)})"] * 3
        if self.views and self.chance(0.35):
            return self.written_view()
        if self.rare and self.chance(0.3):
            rare = [
                [f"assert {name} < 1.2, 'too large'"],
                [f"{name} = v[m]"],
                [f"if {self.condition()}:", "    raise ValueError('not so')"],
                [f"if {name} > 1.5:", "    raise ValueError(f'{m} is too large')"],
            ]
            found: list[str] = self.pick(rare)
            return found
        return [self.pick(choices)]

    def written_view(self) -> list[str]:
        """A write to a name of its own, as a name has one type in all branches."""
        at = self.random.randrange(len(VIEWS_WRITTEN))
        scalar, size = self.scalar(0), str(self.size)
        return [
            re.sub(r"\b[tu]\b", rf"\g<0>{at}", line).replace("S", scalar).replace("D", size)
            for line in VIEWS_WRITTEN[at]
        ]

    def without_grad(self, depth: int, in_loop: bool, sure: bool) -> list[str]:
        body = self.block(depth + 1, False, sure)
        head = self.pick(["with weft.no_grad():"] * 2 + ["with weft.set_grad_enabled(False):"])
        return [head, *self.indented(body)]

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
            lines.append(self.pick([self.tail, self.other]))
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
        size = self.size
        head, use = self.pick(
            [
                (f"for {i} in range({limit}):", f"a = a + 0.1 * {i}"),
                (f"for {i} in range({limit}):", f"w[{i} % {size}] += 0.1"),
                (f"for {i} in range({limit}):", "w = b * w + q @ w * 0.3"),
                (f"for {i} in range({limit}):", f"p = weft.tanh(p @ q) * (1 + {i}) / 3"),
                (f"for {i} in range({limit}):", f"a = weft.sqrt(weft.abs(x) * {i})"),  # of 0, first
                (f"for {i} in range({limit}):", f"w = w * weft.sqrt(v * v * {i})"),
                (f"for {i} in range(m % 4):", f"b = b - 0.2 * {i}"),
                (f"for {i} in range(k):", f"a = 0.9 * a + {i}"),
                (f"for {i} in v:", f"a = a + {i} * b"),
                (f"for {i} in q:", f"w = weft.tanh(w + {i} * a)"),
                (f"for {i}, {i}e in enumerate(w):", f"a = weft.sin(a) + {i} * {i}e"),
                (f"for {i}, {i}e in zip(v, p):", f"b = b + {i} * {i}e.sum()"),
                (f"for {i} in reversed(w):", f"b = 0.5 * b + {i}"),
            ]
        )
        body = self.block(depth + 1, True, sure)
        body = [use, *body] if self.chance(0.7) else [*body, use]
        lines = [head, *self.indented(body)]
        if self.chance(0.2):
            lines += ["else:", *self.indented(self.block(depth + 1, in_loop, sure))]
        return lines

    @staticmethod
    def indented(lines: list[str]) -> list[str]:
        return [f"    {line}" for line in lines]


def write(seed: int) -> Case:
    """The program of a seed."""
    return ProgramWriter(seed).write()


def write_effects(seed: int) -> Case:
    """The program of a seed that writes to objects outside of it."""
    return ProgramWriter(seed, effects=True).write()


def write_sized(seed: int) -> Case:
    """The program of a seed that is called with several sizes, 0 and 1 among them."""
    return ProgramWriter(seed, sized=True).write()
