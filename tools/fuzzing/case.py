"""A case: the text of a function, its arguments, and how it is run. Plain data, so that it passes
between processes, can be reduced, and prints as a regression test."""

from __future__ import annotations

import importlib.util
import itertools
import json
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import weft
from fuzzing.transforms import TRANSFORMS
from fuzzing.world import WORLD

HEAD = "import weft\nimport weft.nn.functional as F\nfrom weft import vmap\n\n\n"
#: What programs may call: functions with control flow of their own.
FUNCTIONS = {
    "grown": """def grown(z):
    n = 0
    while z.sum() < 1 and n < 3:
        z = z + weft.abs(z) * 0.5 + 0.2
        n = n + 1
    return z
""",
    "chosen": """def chosen(s, t):
    if s.sum() > t.sum():
        return s * 0.5
    t[0] = s[0]
    return weft.tanh(t)
""",
    "stepped": """def stepped(z, scale):
    parts = []
    for i in range(3):
        z = weft.tanh(z * scale + i)
        parts.append(z.sum())
        if z[0] > 0.7:
            break
    return z + weft.stack(parts).mean()
""",
    "repeated": """def repeated(n, z):
    return z if n <= 0 else repeated(n - 1, z * 0.9 + 0.1)
""",
}


class Pair(NamedTuple):
    """What some programs return."""

    one: Any
    two: Any


#: What the numbers of a float argument are like.
VALUES = ("normal", "small integers", "special", "positive")
#: What becomes of the sizes of a growing case, call by call; equal ones stay equal.
STEPS: tuple[Callable[[int], int], ...] = (
    lambda size: size,
    lambda size: size + 1,
    lambda size: 0,
    lambda size: 1,
    lambda size: size + 4,
)
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 65504.0, 1e-7]


@dataclass(frozen=True)
class Argument:
    """One argument.

    shape     of a tensor; None: a Python integer
    below     integers are drawn from 0 … below - 1
    fixed     the value of a Python integer that is the same in all calls
    values    what floats are like, see `VALUES`
    strided   the tensor lies in memory with gaps, in another order or backwards
    grad      whether it asks for a gradient, where floats can
    """

    name: str
    shape: tuple[int, ...] | None
    dtype: str = "float64"
    below: int = 3
    fixed: int | None = None
    values: str = "normal"
    strided: bool = False
    grad: bool = True

    @property
    def is_float(self) -> bool:
        return self.shape is not None and "float" in self.dtype

    def make(self, rng: np.random.Generator, count: int = 0, step: int = 0) -> Any:
        """The value; with `count`, that many along a new first axis; other sizes by `STEPS`."""
        if self.shape is None:
            return self.fixed if self.fixed is not None else int(rng.integers(0, self.below))
        shape = tuple(map(STEPS[step % len(STEPS)], self.shape))
        shape = (count, *shape) if count else shape
        way = ("gaps", "backwards", "turned")[int(rng.integers(3))] if self.strided else ""
        whole = (*shape[:-1], 2 * shape[-1]) if way == "gaps" and shape else shape
        if way == "turned":
            whole = shape[::-1]
        array: Any
        if self.dtype == "bool":
            array = rng.random(whole) < 0.5
        elif self.is_float:
            array = self._floats(rng, whole)
        else:
            array = rng.integers(0, self.below, whole)
        dtype = getattr(weft, self.dtype).numpy
        array = np.asarray(array).astype(dtype)
        made = weft.asarray(array)
        if shape and way:
            order = tuple(reversed(range(made.ndim)))
            turned = weft.permute_dims(made, order)
            return {"gaps": made[..., ::2], "backwards": weft.flip(made), "turned": turned}[way]
        return made

    def _floats(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
        array = np.clip(rng.standard_normal(shape), -3, 3)
        if self.values == "small integers":
            return np.round(array)
        if self.values == "positive":
            return np.abs(array) + 0.1
        if self.values == "special":
            return np.where(rng.random(shape) < 0.2, rng.choice(SPECIAL, shape), array)
        return array


@dataclass(frozen=True)
class Case:
    """A function and how it is run.

    kind        "graph": straight-line code, eager against native; "program": all modes; "sized":
                a program in other sizes
    body        the lines of `program`, the last of which returns a tuple
    transform   what is done with the function, a key of `TRANSFORMS`
    calls       seeds of the arguments of its calls
    second      whether gradients of gradients are compared, too
    growing     whether tensors have other sizes in each call, see `STEPS`
    effects     whether it writes to objects outside of it, see `fuzzing.world`
    shared      in the call of this number, arguments of one type are one tensor; -1: in none
    varied      whether calls ask for the gradients of other arguments, and one for none
    """

    kind: str
    seed: int
    body: tuple[str, ...]
    arguments: tuple[Argument, ...]
    transform: str = "none"
    calls: tuple[int, ...] = (0, 1)
    threads: int = 1
    optimized: bool = True
    second: bool = False
    growing: bool = False
    effects: bool = False
    shared: int = -1
    varied: bool = False

    @property
    def source(self) -> str:
        names = ", ".join(argument.name for argument in self.arguments)
        lines = "".join(f"    {line}\n" for line in self.body)
        called = [text for name, text in FUNCTIONS.items() if f"{name}(" in lines]
        head = HEAD + WORLD if self.effects else HEAD
        if "Pair(" in lines:
            head = head.replace(
                "from weft import", "from fuzzing.case import Pair\nfrom weft import"
            )
        text = head + "".join(f"{one}\n\n" for one in called) + f"def program({names}):\n{lines}"
        return text + "\n\n" + TRANSFORMS[self.transform].text(self.arguments)

    @property
    def size(self) -> int:
        """How much there is to read: what a reduction makes smaller."""
        return len("".join(line.strip() for line in self.body)) + 20 * len(self.body)

    def values(self, call: int) -> list[Any]:
        """The arguments of a call."""
        rng = np.random.default_rng([call, 7])
        count = TRANSFORMS[self.transform].mapped
        step = self.calls.index(call) if self.growing and call in self.calls else 0
        made = [argument.make(rng, count, step) for argument in self.arguments]
        if call not in self.calls or self.calls.index(call) != self.shared:
            return made
        first: dict[Any, Any] = {}
        return [
            value
            if one.shape is None
            else first.setdefault((one.shape, one.dtype, one.below), value)
            for one, value in zip(self.arguments, made, strict=True)
        ]

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Case:
        found = json.loads(text)
        given = []
        for argument in found.pop("arguments"):
            shape = argument.pop("shape")
            given.append(Argument(shape=None if shape is None else tuple(shape), **argument))
        tuples = {key: tuple(found.pop(key)) for key in ("body", "calls")}
        return Case(arguments=tuple(given), **tuples, **found)

    def but(self, **changes: Any) -> Case:
        return replace(self, **changes)


_numbers = itertools.count()
_folder: tempfile.TemporaryDirectory[str] | None = None


def load(case: Case, *, loops: bool = False) -> Callable[..., Any]:
    """The function of a case, from a file, so that its source can be read.

    With `loops`, `vmap` in it is a Python loop: the oracle of vmap.
    """
    global _folder
    if _folder is None:
        _folder = tempfile.TemporaryDirectory(prefix="weft-fuzz-")
    name = f"fuzzed_{next(_numbers)}"
    path = Path(_folder.name) / f"{name}.py"
    path.write_text(case.source)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    code = compile(case.source, str(path), "exec")
    exec(code, module.__dict__)
    if loops:
        module.vmap = loop
    function: Callable[..., Any] = module.entry
    function.__globals__["_path"] = path
    return function


def unload(function: Callable[..., Any]) -> None:
    function.__globals__["_path"].unlink(missing_ok=True)


def loop(function: Callable[..., Any], in_axes: Any = 0) -> Callable[..., Any]:
    """What `vmap` promises, as a loop."""

    def mapped(*args: Any) -> Any:
        axes = in_axes if isinstance(in_axes, tuple) else (in_axes,) * len(args)
        size = next(len(x) for x, axis in zip(args, axes, strict=True) if axis is not None)
        rows = [
            function(*[x if a is None else x[i] for x, a in zip(args, axes, strict=True)])
            for i in range(size)
        ]
        leaves, spec = zip(*map(weft.tree_flatten, rows), strict=True)
        stacked = [weft.stack([weft.asarray(x) for x in xs]) for xs in zip(*leaves, strict=True)]
        return weft.tree_unflatten(spec[0], stacked)

    return mapped
