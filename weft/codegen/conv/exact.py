"""Recompute sums that came out NaN, term by term, with real terms only.

Panels hold zeros where there is no element, and 0 · inf is NaN. For a convolution that is right, as
its padding is zeros. But a transposed convolution has no such terms, and neither has the gradient
of a weight where vectors run from one row into the next. So their NaN results are recomputed by
slow code that rarely runs; it stops as soon as a sum is truly NaN.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from weft.base.dims import has_dims
from weft.codegen.conv.element import Element
from weft.codegen.conv.geometry import Axis
from weft.codegen.conv.loops import nest, table
from weft.codegen.conv.plan import Problem
from weft.codegen.conv.weight_plan import WeightProblem
from weft.codegen.index import Ptr, Size, divide
from weft.codegen.scalar.vec import vector_type
from weft.codegen.text import Function, Module

__all__ = ["exact_result", "exact_weight", "recompute_nans", "size_arguments"]

#: Not optimized: it rarely runs, and must compile quickly.
_COLD = "nounwind noinline optnone cold"
_SUMS = [("ptr", "sums"), ("i64", "count")]


def exact_result(module: Module, name: str, problem: Problem, element: Element) -> str:
    """The function that recomputes neighbouring results. It takes the source of their image and
    group, the weights of their channel, the position of the first one along each axis, the address
    of the sums, and their number."""
    axes = problem.axes
    places = [f"p{number}" for number in range(len(axes))]
    params = [("ptr", "source"), ("ptr", "weight"), *(("i64", place) for place in places)]
    params += _size_params(axes)
    f = module.function(f"{name}.exact", "void", [*params, *_SUMS], _COLD)
    axes = _known(f, axes)
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


def _size_params(axes: Sequence[Axis]) -> list[tuple[str, str]]:
    """A parameter for each size of the run."""
    found = []
    for number, axis in enumerate(axes):
        found += [("i64", f"size{number}")] if has_dims((axis.size,)) else []
        found += [("i64", f"result{number}")] if has_dims((axis.result,)) else []
    return found


def size_arguments(f: Function, axes: Sequence[Axis]) -> str:
    """The sizes of the run, as arguments of a function that recomputes sums."""
    sizes = [size for axis in axes for size in (axis.size, axis.result) if has_dims((size,))]
    return "".join(f", i64 {f.size(size)}" for size in sizes)


def _known(f: Function, axes: Sequence[Axis]) -> tuple[Axis, ...]:
    """The axes with these parameters as their sizes."""
    found = []
    for number, axis in enumerate(axes):
        size: Any = f.index(f"%size{number}") if has_dims((axis.size,)) else axis.size
        result: Any = f.index(f"%result{number}") if has_dims((axis.result,)) else axis.result
        found.append(replace(axis, size=size, result=result))
    return tuple(found)


class _Total:
    """A sum in progress; once it is NaN, it stays NaN."""

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
    """Recompute one of the sums, if it is NaN."""
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
    """Loop over all taps that read an element for a result: the offsets in the source and in the
    kernel."""
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
    """The function that recomputes one element of a weight's gradient. It takes the first image of
    its channel and of its output, the tap along each axis, the number of images if only the run
    knows it, the address of the sum, and 1. The padding is zeros."""
    axes = problem.axes
    params = [("ptr", "source"), ("ptr", "given"), *(("i64", f"k{i}") for i in range(len(axes)))]
    varies = has_dims((problem.batch,))
    if varies:
        params.append(("i64", "batch"))
    params += _size_params(axes)
    f = module.function(f"{name}.exact", "void", [*params, *_SUMS], _COLD)
    axes = _known(f, axes)
    image = math.prod(axis.size for axis in axes)
    volume = math.prod(axis.result for axis in axes)
    source_ptr, given_ptr = (f.ptr(name, element.memory) for name in ("%source", "%given"))
    x = f.var(element.kind)
    batch: Size = f.index("%batch") if varies else problem.batch
    counts = [batch, *(axis.result for axis in axes)]
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


def recompute_nans(
    f: Function, element: Element, value: str, lanes: int, count: Size, call: str
) -> str:
    """A vector of sums (a scalar if `lanes` is 1) whose NaNs among the first `count` are
    recomputed: `call` is the function with its arguments for the first lane."""
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
