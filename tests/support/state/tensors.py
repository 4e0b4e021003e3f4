"""Tensors written in place, random state, and modules."""

from __future__ import annotations

from typing import Any

import weft
from state.table import World, row, vectors
from weft import nn

f64 = weft.float64


@row()
def closure_in_place(w: World):
    w.total = weft.zeros(2, dtype=f64)
    total = w.total

    def f(x):
        nonlocal total
        total += x
        total[0] = -total[1]
        return total * 2

    return f


@row()
def argument_in_place(w: World):
    def f(x):
        x *= 2
        x[1] = x[0]
        w.kept = x
        return x + 1

    return f


@row(lambda: [(x, x) for (x,) in vectors(1, 2)()] + [(x, x * 2) for (x,) in vectors(3, 4)()])
def arguments_that_are_one_tensor(_w: World):
    def f(a, b):
        a += 1
        return a * b

    return f


@row()
def written_twice_and_read_between(w: World):
    w.h = weft.zeros(2, dtype=f64)

    def f(x):
        w.h += x
        before = w.h * 1
        w.h[...] = before[::-1]
        w.h -= 0.5
        return before, w.h.sum()

    return f


@row()
def new_tensors_with_a_history(w: World):
    """A graph that grows over the calls; who is outside may go backward through it."""
    w.weight = weft.tensor([0.5, 2.0], dtype=f64, requires_grad=True)
    w.loss = weft.zeros((), dtype=f64)

    def f(x):
        w.loss = w.loss + (w.weight * x).tanh().sum()
        return w.loss.detach()

    def read():
        return weft.autograd.grad(w.loss, w.weight, retain_graph=True)

    w.read = read
    return f


@row()
def new_leaves(w: World):
    """A parameter that is made inside learns outside."""

    def f(x):
        w.leaf = (x * 2).detach().requires_grad_()
        w.plain = x.detach()
        return w.leaf * 3

    def read():
        return weft.autograd.grad((w.leaf**2).sum(), w.leaf)

    w.read = read
    return f


@row()
def new_parameters(w: World):
    def f(x):
        w.p = nn.Parameter(x * 2)
        w.frozen = nn.Parameter(x + 1, requires_grad=False)
        (w.p * x).sum().backward()
        return x

    return f


@row()
def buffers(w: World):
    w.norm = nn.BatchNorm1d(2).to(f64)

    class Running(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", weft.zeros(2, dtype=f64))
            self.seen = 0

        def forward(self, x: Any) -> Any:
            self.mean = 0.9 * self.mean + 0.1 * x
            self.seen += 1
            return x - self.mean

    w.running = Running()

    def f(x):
        rows = weft.stack([x, x * 2, -x])
        return w.norm(rows), w.running(x), w.running.seen

    return f


@row()
def parameters_under_no_grad(w: World):
    w.layer = nn.Linear(2, 2).to(f64)
    with weft.no_grad():
        for p in w.layer.parameters():
            p[...] = weft.ones_like(p)

    def f(x):
        with weft.no_grad():
            for p in w.layer.parameters():
                p *= 0.5
                p += x.sum()
            w.layer.weight[0] = x
        return w.layer(x).detach()

    return f


# --- random numbers -------------------------------------------------------------------------------


@row()
def default_generator(w: World):
    weft.manual_seed(3)

    def f(x):
        w.noise = weft.rand(2, dtype=f64)
        return x + weft.randn(2, dtype=f64)

    w.read = weft.get_rng_state
    return f


@row()
def generator_on_an_object(w: World):
    w.generator = weft.Generator(1)

    def f(x):
        return x + weft.rand(2, dtype=f64, generator=w.generator)

    return f


def _with_generators() -> list[tuple[Any, ...]]:
    one, two = weft.Generator(1), weft.Generator(2)
    return [(x, g) for (x,), g in zip(vectors(1, 2, 3, 4)(), (one, two, one, two), strict=True)]


@row(_with_generators)
def generator_as_an_argument(_w: World):
    def f(x, generator):
        a = weft.rand(2, dtype=f64, generator=generator)
        return x + a * weft.randn(2, dtype=f64, generator=generator)

    return f


@row()
def generator_made_inside(w: World):
    def f(x):
        own = weft.Generator(5)
        w.first = weft.rand(2, dtype=f64, generator=own)
        return x + weft.rand(2, dtype=f64, generator=own)

    return f


@row(
    lambda: [(x, (y * 2 for y in (x, x + 1, x + 2))) for (x,) in vectors(1, 2)()],
    kept=False,
    modes=("trace",),
    why="a generator of Python's is consumed: there is no second time",
)
def python_generator_as_an_argument(w: World):
    def f(x, parts):
        w.first = next(parts)
        return x + sum(parts)

    return f


ROWS = [
    closure_in_place,
    argument_in_place,
    arguments_that_are_one_tensor,
    written_twice_and_read_between,
    new_tensors_with_a_history,
    new_leaves,
    new_parameters,
    buffers,
    parameters_under_no_grad,
    default_generator,
    generator_on_an_object,
    generator_as_an_argument,
    generator_made_inside,
    python_generator_as_an_argument,
]
