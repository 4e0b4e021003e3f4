"""Functions in functions, recursion, objects: what Python programs are made of."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from programs.table import Call, Program, f64, i64, wild

import weft


def sum_tree(tree, weight):
    """Recursion over nested tuples: the depth is known to Python, the branch is not."""
    if isinstance(tree, tuple):
        left, right = (sum_tree(part, weight) for part in tree)
        joined = left * weight + right
        return weft.tanh(joined) if joined > 0 else joined
    return tree


def expression(tree, x):
    """Evaluate nested tuples of operators."""
    match tree:
        case float() | int():
            return tree
        case "x":
            return x
        case ("+", left, right):
            return expression(left, x) + expression(right, x)
        case ("*", left, right):
            return expression(left, x) * expression(right, x)
        case ("max", left, right):
            a, b = expression(left, x), expression(right, x)
            return a if a > b else b
    raise ValueError(tree)


def fast_power(x, n):
    """Recursion on a Python integer."""
    if n == 0:
        return weft.ones_like(x)
    half = fast_power(x, n // 2)
    return half * half * x if n % 2 else half * half


def merge_sort(x):
    """Recursion by halves; the merge goes by tensor comparisons."""
    n = x.shape[0]
    if n <= 1:
        return x
    left, right = merge_sort(x[: n // 2]), merge_sort(x[n // 2 :])
    merged = weft.zeros_like(x)
    i = j = 0
    for k in range(n):
        if j >= right.shape[0] or (i < left.shape[0] and left[i] <= right[j]):
            merged[k] = left[i]
            i += 1
        else:
            merged[k] = right[j]
            j += 1
    return merged


def fft_by_hand(re, im):
    """Cooley and Tukey, recursively, on real and imaginary parts."""
    n = re.shape[0]
    if n == 1:
        return re, im
    even_re, even_im = fft_by_hand(re[::2], im[::2])
    odd_re, odd_im = fft_by_hand(re[1::2], im[1::2])
    angle = -2 * weft.pi * weft.arange(n // 2, dtype=re.dtype) / n
    c, s = weft.cos(angle), weft.sin(angle)
    t_re, t_im = c * odd_re - s * odd_im, s * odd_re + c * odd_im
    return (
        weft.concat([even_re + t_re, even_re - t_re]),
        weft.concat([even_im + t_im, even_im - t_im]),
    )


def fft_reference(re, im):
    out = np.fft.fft(re + 1j * im)
    return out.real, out.imag


def adaptive_simpson(a, b, tol=1e-3):
    """Recursion whose depth the data decides."""

    def f(x):
        return weft.exp(-x * x) * weft.sin(5 * x)

    def rule(low, high):
        return (high - low) / 6 * (f(low) + 4 * f((low + high) / 2) + f(high))

    def integrate(low, high, whole):
        middle = (low + high) / 2
        left, right = rule(low, middle), rule(middle, high)
        if weft.abs(left + right - whole) < tol:
            return left + right
        return integrate(low, middle, left) + integrate(middle, high, right)

    return integrate(a, b, rule(a, b))


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


class Node(NamedTuple):
    value: weft.Tensor
    children: tuple = ()


def tree_of_nodes(scale, shape=((), ((), ()))):
    """A tree built by one function and folded by another."""

    def build(shape, depth):
        return Node(scale / (depth + 1), tuple(build(part, depth + 1) for part in shape))

    def fold(node):
        best = node.value
        for child in node.children:
            got = fold(child)
            best = got + best if got * 2 > best else best - got
        return best

    return fold(build(shape, 0))


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


TREE = ((f64(0.5), f64(-1.0)), (f64(2.0), (f64(0.1), f64(-0.3))))
FORMULA = ("+", ("*", "x", "x"), ("max", ("*", 3.0, "x"), 1.5))

PROGRAMS = [
    Program("tree recursion", sum_tree, [(TREE, f64(0.7)), (TREE, f64(-0.7)), (f64(1.0), f64(1.0))],
            second_order=True),
    Program("expression trees", expression,
            [(FORMULA, f64(2.0)), (FORMULA, f64(0.1)), (("*", "x", 2.0), f64(3.0)), (("?",), f64(1.0))],
            raises={3: ValueError}, second_order=True),
    Program("fast power", fast_power, [(wild(2), 0), (wild(2), 5), (wild(2), 8)], second_order=True,
            reference=lambda x, n: x**n),
    Program("merge sort", merge_sort, [(f64([3.0, 1.0, 2.0]),), (f64([1.0]),), (f64([1.0, 2.0, 0.0, 5.0]),)],
            reference=np.sort),
    Program("fft by hand", fft_by_hand, [(wild(4), wild(4, seed=1)), (wild(1), wild(1))],
            second_order=True, reference=fft_reference),
    Program("adaptive simpson", adaptive_simpson, [(f64(0.0), f64(0.3)), (f64(-1.0), f64(2.0))],
            supports=frozenset({"trace"}), why="the depth of the recursion depends on the data"),
    Program("nonlocal", closure_counter, [(f64(3.0),), (f64(0.05),)]),
    Program("late binding", late_binding, [(f64([1.0]),), (f64([-1.0]),)]),
    Program("functions with defaults", make_adders, [(f64([3.0]),), (f64([-3.0]),)]),
    Program("defaults and keywords", defaults_and_keywords,
            [(wild(2),), (wild(2), 3.0, 1.0, f64(2.0)), Call(wild(2) + 2, flip=True, power=3),
             Call(wild(2), 1.5, times_two=2.0, plus=f64(1.0))], second_order=True),
    Program("star arguments", star_arguments,
            [(wild(2), wild(2, seed=1)), Call(wild(2), -3 + wild(2), start=f64(1.0)), (wild(2),)]),
    Program("object state", object_state, [(f64([1.0, 0.5, 3.0]),), (f64([-1.0]),)]),
    Program("dataclass as state", dataclass_state,
            [(f64(0.5), f64(0.7)), (f64(0.5), f64(0.01)), (f64(0.23), f64(-2.0))], second_order=True, near=1e-14,
            why="the gradients of an argument that is also a result are added in another order"),
    Program("dataclass attributes", dataclass_attributes,
            [(f64(0.5), f64(0.7)), (f64(0.2), f64(-2.0))]),
    Program("tree of nodes", tree_of_nodes, [(f64(2.0),), (f64(-1.0), ((), (), ((),))), (f64(3.0), ())]),
    Program("higher-order functions", higher_order, [(f64([1.5, 0.2]),), (f64([0.1, 0.2]),)]),
    Program("no_grad inside", no_grad_inside, [(f64([3.0, 4.0]),), (f64([0.1, 0.2]),), (f64([0.9, 0.01]),)],
            smooth=False, why="what is computed without a tape is a constant"),
    Program("stop_gradient inside", stop_gradient_inside, [(f64([1.0, 2.0]),), (f64([0.1]),)],
            smooth=False, why="no gradient passes through"),
    Program("inner gradient", inner_gradient, [(f64([1.0, 2.0]),), (f64([-1.0, 0.2]),)],
            smooth=False, why="the slope is a constant"),
    Program("argument written", argument_written,
            [(f64([1.0, 2.0]), i64(1)), (f64([1.0, -2.0]), i64(1)), (f64([0.0, -2.0]), 0)],
            gradients=False),
    Program("global table", global_table, [(wild(2) + 1, "tanh"), (wild(2) - 2, "tanh"),
                                           (wild(2) + 1, "square")]),
    Program("unpacking", unpacking, [(wild(3, 2),), (wild(3, 2, seed=1),), (wild(1, 2),)]),
    Program("deleted name", deleted_name, [(f64([1.0]),), (f64([-1.0]),)]),
    Program("dict of results", string_building, [(f64([3.0]),), (f64([-3.0]),)]),
]
