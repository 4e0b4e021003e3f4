"""Random graphs, as straight-line text.

A graph is written from its results to its arguments: `tensor(shape)` writes an expression of
exactly that shape, whose operands are asked for in turn. So any view can stand in front of any
consumer, and every line is valid by construction. Numbers stay of moderate size.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from fuzzing.case import Argument, Case
from fuzzing.graph_complex import COMPLEX_FAMILY, PARTS, complex_tensor, made_of_parts
from fuzzing.graph_functions import FUNCTIONS
from fuzzing.graph_integers import DTYPES, INTEGERS
from fuzzing.graph_networks import NETWORKS
from fuzzing.graph_ops import OPS
from fuzzing.graph_several import SEVERAL
from fuzzing.graph_views import VIEWS

Shape = tuple[int, ...]

FAMILIES = OPS | NETWORKS | FUNCTIONS | SEVERAL | COMPLEX_FAMILY
SIZES = [1, 2, 2, 3, 3, 4, 4, 5, 6, 7, 8, 8, 9, 16, 17, 33]
#: How many elements a tensor may have, and how many an argument.
MOST = 3000
LARGE = 60_000

FLOATS = ["float32"] * 9 + ["float64"] * 6 + ["bfloat16"] * 2 + ["float16"] * 2


class GraphWriter:
    """Writes the lines of a function, and notes the arguments it takes.

    lines   statements so far, in order
    pool    names by what they hold: (shape, dtype)
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        chance = self.chance
        self.dtype = self.pick(FLOATS)
        self.large = chance(0.02)
        sizes = [64, 100, 130] if self.large else SIZES
        self.sizes = [self.pick(sizes) for _ in range(3)]
        if chance(0.05):
            self.sizes[0] = 0
        self.most = LARGE if self.large else MOST
        self.values = "normal"
        if chance(0.2):
            self.values = self.pick(["small integers", "small integers", "positive", "special"])
        self.lines: list[str] = []
        self.arguments: list[Argument] = []
        self.pool: dict[tuple[Shape, str], list[str]] = {}
        self.left = self.rng.randint(2, 9)  # how many consumers may still be written
        self.families = self.rng.sample(sorted(FAMILIES), 4)  # a few kinds that meet one another

    # --- choices --------------------------------------------------------------------------------

    def chance(self, p: float) -> bool:
        return self.rng.random() < p

    def pick(self, options: Sequence[Any]) -> Any:
        return self.rng.choice(options)

    def some_size(self) -> int:
        found: int = self.pick(self.sizes)
        return found

    def shape(self, ranks: Sequence[int] = (0, 1, 1, 2, 2, 2, 3, 3, 4)) -> Shape:
        """A shape that is not too large."""
        made = [self.pick([*self.sizes, self.pick(self.sizes), 1]) for _ in range(self.pick(ranks))]
        while product(made) > self.most // 4:
            made[made.index(max(made))] = self.pick([1, 2, 3])
        return tuple(made)

    def fits(self, shape: Sequence[int], times: int = 1) -> bool:
        return product(shape) * times <= self.most

    # --- statements -----------------------------------------------------------------------------

    def bind(self, text: str, shape: Shape, dtype: str) -> str:
        """A name for an expression."""
        name = f"t{len(self.lines)}"
        self.lines.append(f"{name} = {text}")
        self.pool.setdefault((shape, dtype), []).append(name)
        return name

    def bound(self, text: str, shape: Shape, dtype: str) -> str:
        """The expression, mostly under a name of its own."""
        return self.bind(text, shape, dtype) if self.chance(0.8) else text

    def argument(self, shape: Shape, dtype: str, **how: Any) -> str:
        name = f"x{len(self.arguments)}"
        values = self.values if "float" in dtype else "normal"
        strided = self.chance(0.1)
        grad = self.chance(0.85)
        made = Argument(name, shape, dtype, values=values, strided=strided, grad=grad)
        self.arguments.append(Argument(**{**vars(made), **how}))
        if not how:
            self.pool.setdefault((shape, dtype), []).append(name)
        return name

    # --- expressions ----------------------------------------------------------------------------

    def tensor(self, shape: Shape, dtype: str | None = None) -> str:
        """An expression of this shape: what stands in front of a consumer."""
        dtype = dtype or self.dtype
        if dtype in PARTS:
            return complex_tensor(self, shape, dtype)
        known = self.pool.get((shape, dtype), [])
        if known and self.chance(0.35):
            found: str = self.pick(known)
            return found
        if self.left <= 0 or self.chance(0.15):
            if self.chance(0.45) and product(shape):
                return self.view(shape, dtype)
            return self.leaf(shape, dtype)
        if self.chance(0.45):
            return self.view(shape, dtype)
        self.left -= 1
        return self.consumer(shape, dtype)

    def leaf(self, shape: Shape, dtype: str) -> str:
        if dtype in PARTS:
            return made_of_parts(self, shape, dtype)
        known = self.pool.get((shape, dtype), [])
        if known and (len(self.arguments) >= 6 or self.chance(0.3)):
            found: str = self.pick(known)
            return found
        if len(self.arguments) >= 9 and "float" in dtype:  # what is there, in another shape
            whole, kind = self.pick(sorted(self.pool))
            name = self.pick(self.pool[whole, kind])
            if kind == dtype and product(whole):
                mean = name if not whole else f"{name}.mean()"
                return f"weft.broadcast_to({mean}, {shape})"
        return self.argument(shape, dtype)

    def consumer(self, shape: Shape, dtype: str) -> str:
        """An op that gives this shape, of the families of this graph or any other."""
        for _ in range(8):
            family = self.pick(self.families) if self.chance(0.7) else self.pick(sorted(FAMILIES))
            text = self.pick(FAMILIES[family])(self, shape, dtype)
            if text is not None:
                return self.bound(text, shape, dtype)
        return self.bound(f"weft.tanh({self.tensor(shape, dtype)})", shape, dtype)

    def view(self, shape: Shape, dtype: str) -> str:
        for _ in range(6):
            text = self.pick(VIEWS)(self, shape, dtype)
            if text is not None:
                return self.bound(text, shape, dtype) if self.chance(0.4) else text
        return self.leaf(shape, dtype)

    def integers(self, shape: Shape, below: int) -> str:
        """Integers from 0 … below - 1."""
        if self.chance(0.25) and below > 1 and self.fits(shape, below):
            axis = self.rng.randint(0, len(shape))
            whole = (*shape[:axis], below, *shape[axis:])
            return f"weft.argmax({self.tensor(whole)}, axis={axis})"
        if self.chance(0.2) and shape and below == shape[-1]:
            return f"weft.argsort({self.tensor(shape)})"
        dtype = self.pick(["int64", "int64", "int32"])
        return self.argument(shape, dtype, below=max(below, 1))

    def condition(self, shape: Shape) -> str:
        one, two = self.operand(shape), self.operand(shape)
        ops = ["<", ">", "<=", ">=", "==", "!="]
        return self.pick(
            [
                f"({one} {self.pick(ops)} {two})",
                f"({one} > 0)",
                f"({one} {self.pick(ops)} 0.5)",
                f"(({one} > 0) & ({two} < 1))",
                f"(~({one} > {two}))",
            ]
        )

    def operand(self, shape: Shape) -> str:
        """A tensor that broadcasts to this shape; both operands of an op together have it."""
        return self.tensor(shape)

    def smaller(self, shape: Shape, dtype: str | None = None) -> str:
        """A tensor that broadcasts to this shape."""
        if self.chance(0.5):
            return self.tensor(shape, dtype)
        made = tuple(1 if self.chance(0.4) else size for size in shape)
        made = made[self.rng.randint(0, len(made)) :] if self.chance(0.4) else made
        return self.tensor(made, dtype)

    # --- whole graphs ---------------------------------------------------------------------------

    def write(self) -> Case:
        wanted = self.rng.randint(1, 3)
        results = [self.tensor(self.shape(), self.dtype) for _ in range(wanted)]
        if self.chance(0.12):
            shape = self.shape()
            results.append(self.pick(INTEGERS)(self, shape, self.pick(DTYPES)))
        names = [line.split(" = ")[0] for line in self.lines if line.startswith("t")]
        names = [name for name in names if name.isalnum()]
        if names and self.chance(0.3):
            results.append(self.pick(names))
        if names and self.chance(0.2):
            results.append(f"{self.pick(names)} * 2")
        if not self.arguments:
            results.append(self.argument((2,), self.dtype))
        transform = self.pick(GRAPH_TRANSFORMS)
        floats = [one for one in self.arguments if one.is_float and one.grad]
        if "vmap" in transform and any("unique_" in line for line in self.lines):
            transform = "grad"  # results whose size differs from element to element are refused
        if not floats and transform not in ("none", "vmap"):
            transform = "none"
        if transform in ("hessian", "jacobian") and product(floats[0].shape or ()) > 12:
            transform = "grad"
        return Case(
            "graph",
            self.seed,
            (*self.lines, f"return ({', '.join(results)},)"),
            tuple(self.arguments),
            transform=transform,
            calls=(self.seed % 1000, self.seed % 1000 + 1, self.seed % 1000 + 2),
            threads=2 if self.chance(0.3) else 1,
            optimized=self.chance(0.8),
            shared=self.pick([-1, -1, -1, -1, -1, -1, 0, 1, 2]),
        )


#: How often graphs are run as they are, differentiated, and so on.
GRAPH_TRANSFORMS = ["none"] * 12 + ["grad"] * 6 + ["vmap"] * 2 + ["jvp", "hessian"]
GRAPH_TRANSFORMS += ["vmap(grad)", "grad(vmap)"]


def product(shape: Sequence[int]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total


def write(seed: int) -> Case:
    """The graph of a seed."""
    return GraphWriter(seed).write()
