"""Functions in functions, recursion, objects: what Python programs are made of."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

import weft
from programs.table import Call, Program, f64, i64, wild


def closure_counter(x):
    """nonlocal: an inner function counts its calls, under a condition on a tensor."""
    calls = 0
    total = weft.zeros_like(x)

    def visit(value):
        nonlocal calls, total
        calls += 1
        if value > 0:
            total = total + value

    while x > 0.1:
        visit(x)
        visit(-x)
        x = x / 2
    return total, calls


def late_binding(x):
    """Closures read their names when they are called."""
    scale = 2.0

    def scaled(v):
        return v * scale

    first = scaled(x)
    scale = 3.0 if x.sum() > 0 else -1.0
    return first + scaled(x)


def make_adders(x):
    """A list of functions with defaults bound in a loop."""
    adders = [lambda v, k=k: v + k for k in range(3)]
    for add in adders:
        x = add(x) * (0.5 if x.mean() > 1 else 2.0)
    return x


def defaults_and_keywords(x, scale=2.0, *shifts, power=1, flip=False, **named):
    for shift in shifts:
        x = x + shift
    if flip and x.sum() > 0:
        x = -x
    for key in sorted(named):
        x = x * named[key] if key.startswith("times") else x + named[key]
    return (x * scale) ** power


def star_arguments(*parts, **options):
    def combine(first, *others, start=0.0):
        total = start + first
        for other in others:
            total = total + other if other.sum() > 0 else total - other
        return total

    return combine(*parts, **options)


class Accumulator:
    """A plain class whose method changes its attributes."""

    def __init__(self, start):
        self.total = start
        self.count = 0

    def add(self, value):
        if value > self.total:
            self.total = self.total + value
            self.count += 1
        return self


def object_state(x):
    accumulator = Accumulator(weft.zeros((), dtype=x.dtype))
    for value in x:
        accumulator.add(value)
    return accumulator.total, accumulator.count


@dataclass
class Particle:
    position: weft.Tensor
    velocity: weft.Tensor
    bounces: int = 0

    def moved(self, dt):
        return replace(self, position=self.position + dt * self.velocity)


def dataclass_state(position, velocity):
    particle = Particle(position, velocity)
    for _ in range(10):
        particle = particle.moved(0.2)
        if particle.position > 1 or particle.position < 0:
            particle = Particle(particle.position, -particle.velocity, particle.bounces + 1)
    return particle


def dataclass_attributes(position, velocity):
    """The same, with attributes written in place."""
    particle = Particle(position, velocity)
    while particle.bounces < 2:
        particle.position = particle.position + 0.2 * particle.velocity
        if not (0 <= particle.position <= 1):
            particle.velocity = -particle.velocity
            particle.position = weft.clip(particle.position, 0.0, 1.0)
            particle.bounces += 1
    return particle.position, particle.velocity


def higher_order(x):
    """map, functools.partial and reduce over tensors."""

    def step(rate, v):
        return v - rate * v if v.max() > 1 else v

    for change in map(lambda rate: functools.partial(step, rate), (0.5, 0.1)):  # noqa: C417
        x = change(x)
    return functools.reduce(lambda a, b: a * 0.5 + b, [x, x * 2, x * x])


def no_grad_inside(x):
    """A scale found without a tape, used with one."""
    scale = weft.ones((), dtype=x.dtype)
    with weft.no_grad():
        while (x * scale).sum() > 1:
            scale = scale / 2
    y = x * scale
    if y.max() > 0.5:
        with weft.no_grad():
            offset = y * 2
        y = y + offset
    return y


def stop_gradient_inside(x):
    y = x * x
    for _ in range(3):
        y = y + x * weft.stop_gradient(y) if y.sum() < 5 else y + x.detach()
    return y


def inner_gradient(x):
    """A derivative by the tape, in the middle of a function."""
    at = x.detach().requires_grad_()
    y = weft.sin(at) * at if at.sum() > 0 else at**3
    (slope,) = weft.autograd.grad(y.sum(), [at])
    return slope * x


def argument_written(x, i):
    """The caller's tensor is written to."""
    if x[i] > 0:
        x[i] = 0.0
    else:
        x += 1
    x[0] = x[0] * 2
    return x.sum()


def global_table(x, name):
    """A module's own table and functions."""
    return ACTIVATIONS[name](x) if x.sum() > SETTINGS["threshold"] else x


ACTIVATIONS = {"tanh": weft.tanh, "square": lambda v: v * v}
SETTINGS = {"threshold": 0.0}


def unpacking(points):
    """Stars, nested targets and swaps."""
    (a, b), *others = [(row[0], row[1]) for row in points]
    for c, d in others:
        a, b = (b, a + c) if c > d else (a * d, b)
    return a, b


def deleted_name(x):
    scratch = x * 2
    if scratch.sum() > 0:
        x = x + scratch
    del scratch
    return x


def string_building(x):
    """Python strings made from Python values, beside tensors."""
    names = [f"layer{i}" for i in range(3)]
    out = {}
    for name in names:
        x = x * 0.5 if x.max() > 1 else x + 1
        out[name] = x
    return out


PROGRAMS = [
    Program("nonlocal", closure_counter, [(f64(3.0),), (f64(0.05),)]),
    Program("late binding", late_binding, [(f64([1.0]),), (f64([-1.0]),)]),
    Program("functions with defaults", make_adders, [(f64([3.0]),), (f64([-3.0]),)]),
    Program(
        "defaults and keywords",
        defaults_and_keywords,
        [
            (wild(2),),
            (wild(2), 3.0, 1.0, f64(2.0)),
            Call(wild(2) + 2, flip=True, power=3),
            Call(wild(2), 1.5, times_two=2.0, plus=f64(1.0)),
        ],
        second_order=True,
    ),
    Program(
        "star arguments",
        star_arguments,
        [(wild(2), wild(2, seed=1)), Call(wild(2), -3 + wild(2), start=f64(1.0)), (wild(2),)],
    ),
    Program("object state", object_state, [(f64([1.0, 0.5, 3.0]),), (f64([-1.0]),)]),
    Program(
        "dataclass as state",
        dataclass_state,
        [(f64(0.5), f64(0.7)), (f64(0.5), f64(0.01)), (f64(0.23), f64(-2.0))],
        second_order=True,
        near=1e-14,
        why="the gradients of an argument that is also a result are added in another order",
    ),
    Program(
        "dataclass attributes", dataclass_attributes, [(f64(0.5), f64(0.7)), (f64(0.2), f64(-2.0))]
    ),
    Program("higher-order functions", higher_order, [(f64([1.5, 0.2]),), (f64([0.1, 0.2]),)]),
    Program(
        "no_grad inside",
        no_grad_inside,
        [(f64([3.0, 4.0]),), (f64([0.1, 0.2]),), (f64([0.9, 0.01]),)],
        smooth=False,
        why="what is computed without a tape is a constant",
    ),
    Program(
        "stop_gradient inside",
        stop_gradient_inside,
        [(f64([1.0, 2.0]),), (f64([0.1]),)],
        smooth=False,
        why="no gradient passes through",
    ),
    Program(
        "inner gradient",
        inner_gradient,
        [(f64([1.0, 2.0]),), (f64([-1.0, 0.2]),)],
        smooth=False,
        why="the slope is a constant",
    ),
    Program(
        "argument written",
        argument_written,
        [(f64([1.0, 2.0]), i64(1)), (f64([1.0, -2.0]), i64(1)), (f64([0.0, -2.0]), 0)],
        gradients=False,
    ),
    Program(
        "global table",
        global_table,
        [(wild(2) + 1, "tanh"), (wild(2) - 2, "tanh"), (wild(2) + 1, "square")],
    ),
    Program("unpacking", unpacking, [(wild(3, 2),), (wild(3, 2, seed=1),), (wild(1, 2),)]),
    Program("deleted name", deleted_name, [(f64([1.0]),), (f64([-1.0]),)]),
    Program("dict of results", string_building, [(f64([3.0]),), (f64([-3.0]),)]),
]
