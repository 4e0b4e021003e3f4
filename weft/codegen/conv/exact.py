"""Sums that came out NaN, once more: term by term, with no others than there are.

Panels have zeros where there is no element, and 0 · inf is NaN. In a convolution that is right, as
its padding is zeros. But a transposed convolution has no term there, and neither has the gradient
of a weight where lanes run on from one row to the next. So a result of these that is NaN is summed
again, by code that is slow and seldom run; it ends where the sum is NaN for good.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from weft.codegen.conv.element import Element
from weft.codegen.conv.geometry import Axis
from weft.codegen.conv.loops import nest, table
from weft.codegen.conv.plan import Problem
from weft.codegen.conv.weight_plan import WeightProblem
from weft.codegen.index import Ptr, Size, divide
from weft.codegen.scalar.vec import vector_type
from weft.codegen.text import Function, Module

__all__ = ["exact_result", "exact_weight", "summed_again"]

#: Not optimized: it is seldom run, and to compile it shall take no time.
_COLD = "nounwind noinline optnone cold"
_SUMS = [("ptr", "sums"), ("i64", "count")]


def exact_result(module: Module, name: str, problem: Problem, element: Element) -> str:
    """The function of results side by side, given the source of their image and group, the weights
    of their channel, the place of the first along each axis, where the sums lie, and how many."""
    axes = problem.axes
    places = [f"p{number}" for number in range(len(axes))]
    params = [("ptr", "source"), ("ptr", "weight"), *(("i64", place) for place in places)]
    f = module.function(f"{name}.exact", "void", [*params, *_SUMS], _COLD)
    image = math.prod(axis.size for axis in axes)
    with f.loop(0, f.index("%count")) as lane:
        here: list[Size] = [f.index(f"%{place}") for place in places]
        here[-1] = here[-1] + lane
        with _sum(f, element, lane) as total, f.loop(0, problem.sources) as r:
            flat, number = r * image, r * problem.weights[2]
            with _taps(f, axes, here) as (inner, tap):
                x = element.load(f, f.ptr("%source", element.memory) + (flat + inner), 1)
                w = element.get(f, f.ptr("%weight", element.kind) + (number + tap), 1)
                total.add(x, w)
    f.do("ret void")
    return f.name


class _Total:
    """A sum that is being made; where it is NaN, it stays so."""

    def __init__(self, f: Function, element: Element, room: Ptr, done: str) -> None:
        self.f, self.element, self.room, self.done = f, element, room, done

    def add(self, x: str, y: str) -> None:
        f, kind = self.f, self.element.kind
        value = f(f"fadd {kind} {self.room.load()}, {f(f'fmul {kind} {x}, {y}')}")
        self.room.store(value)
        on = f.fresh("on")
        f.branch(f(f"fcmp uno {kind} {value}, {value}"), self.done, on)
        f.block(on)


@contextmanager
def _sum(f: Function, element: Element, lane: Size) -> Iterator[_Total]:
    """One of the sums, from 0 on, where it is NaN now."""
    place = f.ptr("%sums", element.kind) + lane
    room = f.var(element.kind)
    old = element.get(f, place, 1)
    with f.when(f(f"fcmp uno {element.kind} {old}, {old}")):
        room.store("0.0")
        done = f.fresh("done")
        yield _Total(f, element, room, done)
        f.jump(done)
        f.block(done)
        element.put(f, place, room.load(), 1)


@contextmanager
def _taps(f: Function, axes: Sequence[Axis], places: Sequence[Size]) -> Iterator[tuple[Size, Size]]:
    """All taps that read an element for a result: the places of the element, and in the kernel."""
    if not axes:
        yield 0, 0
        return
    axis, *inner = axes
    m, which = divide(places[0], axis.spread)
    flat = [tap for taps in axis.classes for tap in taps]
    ends = [0]
    for taps in axis.classes:
        ends.append(ends[-1] + len(taps))
    start, stop = (table(f, part, which) for part in (ends[:-1], ends[1:]))
    with f.loop(start, stop) as t:
        here = m * axis.step + table(f, [base for _, base in flat] or [0], t)
        k = table(f, [k for k, _ in flat] or [0], t)
        there = f(f"icmp ult i64 {here}, {axis.size}")
        with f.when(there), _taps(f, inner, places[1:]) as (rest, tap):
            size = math.prod(other.size for other in inner)
            count = math.prod(other.kernel for other in inner)
            yield here * size + rest, k * count + tap


def exact_weight(module: Module, name: str, problem: WeightProblem, element: Element) -> str:
    """The function of one element of a weight's gradient, given the first image of its channel and
    of its output, the tap along each axis, where the sum lies, and 1. The padding is zeros."""
    axes = problem.axes
    params = [("ptr", "source"), ("ptr", "given"), *(("i64", f"k{i}") for i in range(len(axes)))]
    f = module.function(f"{name}.exact", "void", [*params, *_SUMS], _COLD)
    image, volume = problem.image, problem.volume
    source_ptr, given_ptr = (f.ptr(name, element.memory) for name in ("%source", "%given"))
    x = f.var(element.kind)
    counts = [problem.batch, *(axis.result for axis in axes)]
    with _sum(f, element, 0) as total, nest(f, counts) as (n, *places):
        source = n * (problem.groups * problem.channels * image)
        given = n * (problem.groups * problem.outputs * volume)
        inner: Size = 0
        outer: Size = 0
        inside = "true"
        for number, (axis, place) in enumerate(zip(axes, places, strict=True)):
            bases = [base for _, base in axis.classes[0]]
            here = place * axis.step + table(f, bases, f.index(f"%k{number}"))
            there = f(f"icmp ult i64 {here}, {axis.size}")
            inside = f(f"and i1 {inside}, {there}")
            inner = inner * axis.size + here
            outer = outer * axis.result + place
        x.store("0.0")
        with f.when(inside):
            x.store(element.load(f, source_ptr + (source + inner), 1))
        g = element.load(f, given_ptr + (given + outer), 1)
        total.add(x.load(), g)
    f.do("ret void")
    return f.name


def summed_again(
    f: Function, element: Element, value: str, lanes: int, count: Size, call: str
) -> str:
    """A vector of sums (or one, where `lanes` is 1), with those of its first `count` that are NaN
    summed again: `call` is the function and its arguments, those of the first lane."""
    kind = vector_type(element.kind, lanes)
    bad = f(f"fcmp uno {kind} {value}, {value}")
    if lanes > 1:
        name = f.module.declare("i1", f"llvm.vector.reduce.or.v{lanes}i1", f"<{lanes} x i1>")
        bad = f(f"call i1 @{name}(<{lanes} x i1> {bad})")
    room = f.var(element.kind, count=lanes, align=64)
    before, cold, on = f.at, f.fresh("again"), f.fresh("on")
    f.branch(bad, cold, on)
    f.block(cold)
    element.put(f, room, value, lanes)
    f.do(f"call void {call}, ptr {room}, i64 {count if lanes > 1 else 1})")
    changed = element.get(f, room, lanes)
    f.jump(on)
    f.block(on)
    return f(f"phi {kind} [ {value}, %{before} ], [ {changed}, %{cold} ]")
