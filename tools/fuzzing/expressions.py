"""Expressions of random programs: scalars, vectors, matrices and conditions over names that are
there from the start and keep their types."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

SCALARS = ["a", "b", "x", "w[0]", "v[-1]", "w[k % D]", "v.max()", "w.sum()", "(v * w).sum()"]
SCALARS += ["q.mean()", "p[0, -1]", "p.diagonal().sum()", "(p @ w)[0]", "w[m % D]"]

#: Vectors by transforms and control flow that a program calls itself.
TRANSFORMED = [
    "weft.grad(lambda t: (t**3).sum() * a)(ONE)",
    "weft.vjp(lambda t: weft.tanh(t * b), ONE)[1](w)[0]",
    "weft.jvp(lambda t: weft.sin(t) * a, (ONE,), (v,))[1]",
    "weft.vmap(lambda r: weft.tanh(r).sum() * b)(p)",
    "weft.vmap(weft.grad(lambda t: (t * w).sum() ** 2))(q).sum(axis=0) * 0.1",
    "weft.scan(lambda c, r: (weft.tanh(c + r), c * a), ONE, p)[0]",
    "weft.scan(lambda c, r: (c * 0.5 + r, weft.tanh(c) * r), w, q)[1][-1]",
    "weft.cond(a > b, lambda s, t: s * a, lambda s, t: s - t, ONE, v)",
    "weft.fori_loop(0, 2, lambda i, c: weft.tanh(c + i * ONE), w)",
    "weft.while_loop(lambda c: c.sum() < c.size, lambda c: c + weft.abs(c) + 0.3, ONE)",
    "grown(ONE * 0.5)",
    "grown(w) * a",
    "chosen(ONE * 1.0, v * b)",
    "chosen(w + v, ONE * 1.0)",
    "stepped(ONE, a)",
    "stepped(w * 0.5, x)",
    "repeated(n, ONE)",
    "weft.checkpoint(lambda t: weft.sin(t) * weft.exp(-t * t))(ONE)",
]


class Expressions:
    """Writes expressions.

    size      of vectors; `D` in the tables stands for it
    aliases   whether two names may hold one tensor
    masks     whether elements may be chosen by a mask
    growing   whether calls have tensors of other sizes: then no expression names a size
    """

    masks = True
    growing = False

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.size = self.pick([3, 3, 3, 4, 2, 1])
        self.aliases = self.chance(0.05)

    def chance(self, p: float) -> bool:
        return self.random.random() < p

    def pick(self, options: Sequence[Any]) -> Any:
        return self.random.choice(options)

    def number(self) -> str:
        return repr(round(self.random.uniform(-1.5, 1.5), 2))

    def scalar(self, depth: int = 1) -> str:
        if depth == 0 or self.chance(0.25):
            found: str = self.pick([*SCALARS[:3], self.pick(SCALARS)])
            return found.replace("D", str(self.size))
        one, two = self.scalar(depth - 1), self.scalar(depth - 1)
        made: str = self.pick(
            [
                f"{one} + {two}",
                f"{one} - 0.5 * {two}",
                f"weft.tanh({one}) * {two}",
                f"weft.sin({one})",
                f"0.7 * ({one}) + {self.number()}",
                f"({one}) / (1 + ({two}) ** 2)",
                f"({one} if {self.condition()} else {two})",
                f"weft.minimum({one}, {two})",
                f"weft.where({one} > {two}, {one}, {two})",
                f"{one} + 0.1 * m",
                f"({one}) * m / 4",
                f"weft.sqrt(weft.abs({one}) + 0.1)",
                f"({one}).detach() * ({two})",
                f"({self.matrix()}).sum() * 0.2",
                f"({self.vector()}).{self.pick(['sum()', 'mean()', 'max()', 'min()'])}",
                f"w[w > {self.number()}].sum()" if self.masks else f"w.sum() * {one}",
                f"weft.grad(lambda t: weft.sin(t) * {self.pick(['a', 'b', 't', '2.0'])})({one})",
            ]
        )
        return made

    def new(self, depth: int) -> str:
        """A scalar that no other name holds, except in programs with aliases."""
        text = self.scalar(depth)
        bare = text in ("a", "b", "x") or " if " in text
        return f"1.0 * {text}" if bare and not self.aliases else text

    def vector(self) -> str:
        one = self.pick(["v", "w", "w", "p[0]", "q[:, 0]", "p.diagonal()", "v[::-1]", "p.T[-1]"])
        options = [
            f"{one} * 0.5 + v",
            f"weft.tanh({one} + {self.scalar(0)})",
            f"weft.roll({one}, 1)",
            f"weft.where({one} > {self.number()}, v, w)",
            f"{one} - weft.mean({one})",
            f"{one} * {self.scalar(0)}",
            f"{self.pick(['q', 'p', 'q.T', 'p.T'])} @ {one}",
            f"{one} @ {self.pick(['q', 'p', 'q.mT'])} * 0.5",
            f"{self.scalar(0)} * {one} + {self.pick(['p', 'q'])} @ w",
            f"weft.softmax({one}, axis=0)",
            f"F.gelu({one}[::-1])",
            f"weft.sort({one})",
            f"weft.concat([{one}[1:], {one}[:1]])",
            f"{self.pick(['p', 'q'])}.sum(axis={self.pick([0, 1])}) * 0.3",
            f"weft.take({one}, weft.argsort(v))",
            f"weft.cumulative_sum({one}) * 0.4",
        ]
        options += [self.pick(TRANSFORMED).replace("ONE", one)]
        if not self.growing:
            options += [
                f"F.layer_norm({one}, ({self.size},), eps=0.1)",
                f"weft.stack([{', '.join(self.scalar(0) for _ in range(self.size))}])",
                f"weft.full(({self.size},), m / 4, dtype=v.dtype) + {one}",
            ]
        made: str = self.pick(options)
        return made

    def matrix(self) -> str:
        one = self.pick(["q", "p", "p", "q.T", "p.mT", "p[::-1]", "q[:, ::-1]"])
        size = self.size
        options = [
            f"weft.tanh({one} @ {self.pick(['p', 'q'])})",
            f"{one} * {self.scalar(0)}",
            f"weft.linalg.outer(w, v) * 0.5 + {one}",
            f"{one} - {one}.mean(axis=0)",
            f"weft.softmax({one}, axis=1)",
            f"weft.where({one} > 0, {one}, w)",
            f"{one}.T.reshape(-1).reshape({one}.shape)",
        ]
        if not self.growing:
            weight = f"weft.ones(({size}, {size}, 1), dtype=v.dtype) * 0.2"
            options += [
                f"F.rms_norm({one}, ({size},), eps=0.1)",
                f"F.conv1d({one}[None], {weight})[0]",
                f"weft.stack([w] * {size}) * 0.5 + {one}",
            ]
        made: str = self.pick(options)
        return made

    def condition(self) -> str:
        made: str = self.pick([self.on_tensors, self.on_tensors, self.on_python])()
        return made

    def on_tensors(self) -> str:
        one = f"{self.scalar(0)} {self.pick(['<', '>', '<=', '>='])} {self.number()}"
        two = f"{self.pick(['a', 'b'])} < {self.pick(['x', 'w.max()', 'b'])}"
        made: str = self.pick(
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
        return made

    def on_python(self) -> str:
        made: str = self.pick(
            ["n > 1", "m % 2 == 0", "n == 0", "m < 3", "n in (0, 2)", "m > n", "n < 3"]
        )
        return made
