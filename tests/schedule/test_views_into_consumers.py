"""Views into consumers: every card, every kind of view of every operand, alone, fused, in loops.

The table is in `views_table.py`. Many variants go into one program, so that a compile serves them
all; each program is called twice, with other numbers. Eager is the oracle.

CI runs a part of the product in which each card, each mode and each kind of view has its turn.
`WEFT_TEST_TURN=1`, 2, … run other parts; `WEFT_TEST_ALL=1` runs all of it, for half an hour.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
from views_table import ELSEWHERE, VIEWS, Array, Call, View, harvest, is_consumer, whole

import weft
from weft.base.dtypes import as_dtype, float_info
from weft.base.errors import WeftError
from weft.compile import run_passes
from weft.ir.op import OPS, Trait
from weft.passes.pipeline import optimize
from weft.runtime.native import NativeProgram

ALL = bool(os.environ.get("WEFT_TEST_ALL"))
TURN = int(os.environ.get("WEFT_TEST_TURN", "0"))


@dataclass(frozen=True, eq=False)
class Variant:
    """A call with some of its operands as views."""

    call: Call
    views: tuple[View | None, ...]

    def __str__(self) -> str:
        said = [
            f"{view.name if view else 'plain'} {x.dtype}{list(x.shape)}"
            for view, x in zip(self.views, self.call.operands, strict=True)
        ]
        return f"{self.call.name}({', '.join(said)})"

    def bases(self, change: Callable[[Array], Array]) -> list[Array]:
        return [
            change(x) if view is None else view.base(change(x))
            for view, x in zip(self.views, self.call.operands, strict=True)
        ]

    def operands(self, bases: Iterable[Any]) -> list[Any]:
        return [
            base if view is None else view.view(base, x.shape)
            for view, base, x in zip(self.views, bases, self.call.operands, strict=True)
        ]

    def results(self, operands: Iterable[Any]) -> list[Any]:
        out = self.call.function(*operands)
        return [y for y in (out if isinstance(out, (tuple, list)) else [out]) if _is_tensor(y)]


def _is_tensor(value: Any) -> bool:
    return isinstance(value, weft.Tensor)


def same_numbers(x: Array) -> Array:
    return x


def other_numbers(x: Array) -> Array:
    """Numbers for another call: still sorted, in range, positive definite, if they were."""
    if x.dtype.kind == "b":
        return ~x
    with np.errstate(all="ignore"):
        return x // 2 if x.dtype.kind in "iu" else (x * x.dtype.type(0.75)).astype(x.dtype)


def variants(call: Call) -> list[Variant]:
    """Each kind of view of each operand, the others plain; then of all operands that fit."""
    found = []
    for view in VIEWS:
        fits = [view.fits(x.shape) and x.size > 0 for x in call.operands]
        for i, one in enumerate(fits):
            if one:
                found.append(
                    Variant(call, tuple(view if j == i else None for j in range(len(fits))))
                )
        if sum(fits) > 1:
            found.append(Variant(call, tuple(view if fit else None for fit in fits)))
    return found


# --- modes: what is around the call ------------------------------------------------------------


class Program:
    """Variants in one function of their bases. A base that several of them use is one input."""

    def __init__(self, chosen: list[Variant], mode: str) -> None:
        self.variants = chosen
        self.run = getattr(self, mode)
        self.places: list[list[int]] = []
        known: dict[Any, int] = {}
        for variant in chosen:
            keys = [(id(variant.call), i, view) for i, view in enumerate(variant.views)]
            self.places.append([known.setdefault(key, len(known)) for key in keys])
        self.count = len(known)

    def inputs(self, change: Callable[[Array], Array]) -> list[Any]:
        made: list[Any] = [None] * self.count
        for variant, places in zip(self.variants, self.places, strict=True):
            for place, base in zip(places, variant.bases(change), strict=True):
                if made[place] is None:
                    made[place] = weft.asarray(base)
        return made

    def each(self, bases: list[Any]) -> Iterable[tuple[Variant, list[Any]]]:
        for variant, places in zip(self.variants, self.places, strict=True):
            yield variant, [bases[place] for place in places]

    def alone(self, bases: list[Any], zero: Any) -> list[list[Any]]:
        return [v.results(v.operands(own)) for v, own in self.each(bases)]

    def produced(self, bases: list[Any], zero: Any) -> list[list[Any]]:
        """Views of what a loop computes."""
        return self.alone([still(base, zero) for base in bases], zero)

    def mapped(self, bases: list[Any], zero: Any) -> list[list[Any]]:
        """Elementwise work between the view and the call, and after the call."""
        found = []
        for variant, own in self.each(bases):
            operands = [still(x, zero) for x in variant.operands(own)]
            found.append([still(y, zero) for y in variant.results(operands)])
        return found

    def frames(self, bases: list[Any], zero: Any) -> list[list[Any]]:
        """In a loop over stacked bases: each view is one of a slice."""
        stacked = [weft.stack([base, base]) for base in bases]
        _, ys = weft.scan(lambda c, xs: (c, self.alone(xs, zero)), zero, stacked)
        return list(ys)

    def carried(self, bases: list[Any], zero: Any) -> list[list[Any]]:
        """In a loop that carries the bases, and computes them anew."""

        def body(carry: list[Any], _x: Any) -> Any:
            return [still(x, zero) for x in carry], self.alone(carry, zero)

        _, ys = weft.scan(body, bases, None, 2)
        return list(ys)

    def repeated(self, bases: list[Any], zero: Any) -> list[list[Any]]:
        """In a `while` that carries the results, too."""
        start = [[weft.zeros_like(y) for y in ys] for ys in self.alone(bases, zero)]

        def body(carry: Any) -> Any:
            count, some, _ys = carry
            return count + 1, [still(x, zero) for x in some], self.alone(some, zero)

        init = (zero, bases, start)
        ys: list[list[Any]] = weft.while_loop(lambda carry: carry[0] < 2, body, init)[2]
        return ys

    def gradient(self, bases: list[Any], zero: Any) -> list[list[Any]]:
        """The gradients with respect to the bases of each variant."""
        return self._gradients(bases, lambda variant, own: variant.results(variant.operands(own)))

    def loop_gradient(self, bases: list[Any], zero: Any) -> list[list[Any]]:
        """Those of a loop over stacked bases."""

        def results(variant: Variant, own: list[Any]) -> list[Any]:
            def body(count: Any, xs: list[Any]) -> Any:
                return count, variant.results(variant.operands(xs))

            ys: list[Any] = weft.scan(body, zero, [weft.stack([x, x]) for x in own])[1]
            return ys

        return self._gradients(bases, results)

    def _gradients(
        self, bases: list[Any], results: Callable[[Variant, list[Any]], list[Any]]
    ) -> list[list[Any]]:
        found = []
        for variant, own in self.each(bases):
            learn = [i for i, x in enumerate(own) if x.dtype.kind == "float"]
            loss = partial(weighted, partial(results, variant), own, learn)
            found.append(list(weft.grad(loss)([own[i] for i in learn])))
        return found


def weighted(results: Callable[[list[Any]], list[Any]], own: Any, learn: Any, some: Any) -> Any:
    """A number made of all results, in which each element counts differently."""
    given = list(own)
    for i, x in zip(learn, some, strict=True):
        given[i] = x
    parts = [
        (y * weft.reshape(weft.arange(1, y.size + 1, dtype=y.dtype), y.shape)).sum()
        for y in results(given)
        if y.dtype.kind == "float"
    ]
    return functools.reduce(lambda a, b: a + b, parts)


GRADIENTS = ["gradient", "loop_gradient"]
MODES = ["alone", "produced", "mapped", "frames", "carried", "repeated", *GRADIENTS]


def still(x: Any, zero: Any) -> Any:
    """x again, by a computation that nobody can take away."""
    if x.dtype.kind == "bool":
        return weft.logical_or(x, zero > 0)
    return x + zero.astype(x.dtype)


# --- running -----------------------------------------------------------------------------------


def is_noise(variant: Variant) -> bool:
    """A batch of equal rows has a variance of 0: its norm is rounding, divided by sqrt(eps)."""
    first = variant.views[0]
    return variant.call.name == "nn_BatchNorm1d" and first is not None and first.name == "broadcast"


def runs(variant: Variant, mode: str) -> bool:
    """Whether eager can do it: a broadcast matrix has no inverse, an integer no gradient."""
    if is_noise(variant):
        return False
    for change in (same_numbers, other_numbers):
        program = Program([variant], mode)
        try:
            results = program.run(program.inputs(change), weft.asarray(0.0))
        except (WeftError, TypeError, np.linalg.LinAlgError):
            return False
        if not any(results):
            return False
    return True


def check(chosen: list[Variant], mode: str) -> None:
    program = Program(chosen, mode)
    zero = weft.asarray(0.0)
    first = program.inputs(same_numbers)
    graph = weft.make_graph(lambda bases, zero: program.run(bases, zero), first, zero)
    native = NativeProgram(optimize(graph, run_passes()))
    for change in (same_numbers, other_numbers):
        inputs = program.inputs(change)
        want = program.run(inputs, zero)
        got = iter(native([*inputs, zero]))
        for variant, results in zip(chosen, want, strict=True):
            for wanted in results:
                name = f"{mode} {variant} {change.__name__}"
                size = variant.call.size
                near(next(got), wanted, name, size, size if mode in GRADIENTS else 0.0)


def near(got: Any, want: Any, name: str, size: int, scale: float) -> None:
    """`scale` is the size of what was added up, which may cancel out."""
    assert got.type == want.type, name
    a, b = got.numpy(), want.numpy()
    if a.tobytes() == b.tobytes():
        return
    if a.dtype.kind in "biu":
        np.testing.assert_array_equal(a, b, err_msg=name)
        return
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    eps = float_info(as_dtype(a.dtype)).eps
    a, b = a.astype(wide), b.astype(wide)
    bound = max(16, size) * eps
    largest = np.abs(b[np.isfinite(b)]).max(initial=scale)
    np.testing.assert_allclose(a, b, rtol=bound, atol=bound * largest, err_msg=name)


# --- what is run -------------------------------------------------------------------------------

#: A program of more variants takes longer to compile than two of half of them.
AT_ONCE = 60


@functools.cache
def calls() -> dict[str, list[Call]]:
    return harvest()


def chosen_calls(name: str, number: int) -> list[Call]:
    """Of a card: all forms that say something, or the one whose turn it is."""
    by_dtype: dict[str, list[Call]] = {}
    for call in calls()[name]:
        if all(x.size for x in call.operands):
            by_dtype.setdefault(call.operands[0].dtype.name, []).append(call)
    largest = [max(same, key=lambda call: call.size) for same in by_dtype.values()]
    first = [call for same in by_dtype.values() for call in same[:2]]
    found = list(dict.fromkeys([*largest, *first]))
    if ALL or len(found) < 2:
        return found
    return [largest[0], found[1 + (number + TURN) % (len(found) - 1)]]


def in_turn(found: list[Any], number: int, every: int) -> list[Any]:
    """All of them, or each so many-th, beginning with another one each time."""
    return found if ALL else found[(number + TURN) % every :: every]


def run_all(found: list[Call], modes: list[str], every: int, number: int) -> int:
    """Check the variants of calls in some modes; how many there were."""
    count = 0
    for turn, mode in enumerate(modes):
        some = [
            variant
            for call in found
            for variant in in_turn(variants(call), number + turn, every)
            if runs(variant, mode)
        ]
        count += len(some)
        for start in range(0, len(some), AT_ONCE):
            check(some[start : start + AT_ONCE], mode)
    return count


CONSUMERS = sorted(name for name, op in OPS.items() if is_consumer(op) and name not in ELSEWHERE)


@pytest.mark.parametrize("name", CONSUMERS)
def test_views_into_a_card(name: str) -> None:
    """Cards that are not elementwise have emitters of their own: each of them in each mode."""
    number = CONSUMERS.index(name)
    found = chosen_calls(name, number)
    if Trait.ELEMENTWISE in OPS[name].traits:
        modes = MODES if has_gradient(found[0]) else MODES[: -len(GRADIENTS)]
        assert run_all(found, in_turn(modes, number, len(modes)), 3, number)
    else:
        assert run_all(found, MODES, 8, number)


def has_gradient(call: Call) -> bool:
    return any(runs(variant, "gradient") for variant in variants(call)[:1])


#: In CI each third of the rows has its turn.
WHOLE = in_turn(list(whole()), 0, 3)


@pytest.mark.parametrize("number", range(len(WHOLE)), ids=[call.name for call in WHOLE])
def test_views_into_a_function(number: int) -> None:
    """A layer has many weights: in CI eight variants have their turn."""
    call = WHOLE[number]
    every = len(variants(call)) // 8 + 1
    run_all([call], in_turn(MODES, number, len(MODES)), every, number)
