"""A call for all elements of a `vmap` at once, of a function that is known for all of them.

For compiled functions inside of `vmap`: what they are for all elements is compiled, too, and one
call of that does the work. It is one step on the level of the `vmap`, as in vmap(grad(f)): elements
have nothing to do with each other, so the gradient for each of them is that of the whole call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from weft.autodiff.call import link
from weft.autodiff.node import Barrier
from weft.autodiff.transforms.history import twin
from weft.autodiff.transforms.levels import left
from weft.autodiff.transforms.reverse import pullback
from weft.autodiff.transforms.tangents import is_float
from weft.autodiff.transforms.vmap import MapLevel
from weft.core.grad_mode import mode, set_grad_enabled
from weft.core.tensor import Tensor, wrap
from weft.ops.creation import zeros
from weft.ops.generator import Draws

__all__: list[str] = []

#: Of all elements: from inputs to results, which all have the axis of the elements first.
Whole = Callable[[Sequence[Tensor]], list[Tensor]]


class _Captured(Barrier):
    """Where a history on the level would reach tensors that the function uses by itself."""

    __slots__ = ()

    message = (
        "a backward inside of vmap reaches a tensor that a compiled function uses and does not take"
    )
    hint = "hand it to the function as an argument, or go backward outside of vmap"


def call_whole(
    level: MapLevel, whole: Whole, inputs: Sequence[Tensor], spread: Sequence[bool]
) -> list[Tensor]:
    """The results on the level; `spread` says which inputs have the axis of the elements."""
    with left(level):
        inputs = [level.entered(x) for x in inputs]
    given = [twin(x) for x in inputs]
    moving = [i for i, x in enumerate(given) if has_history(level, x)]
    level.lower_states()
    call = _Call(level, whole, given, spread, moving)
    return call.results(call.run)


def spreads(level: MapLevel, x: Tensor) -> bool:
    """Whether an input needs the axis of the elements: it differs, or its gradient may."""
    return level.mapped(x) or has_history(level, x)


def has_history(level: MapLevel, x: Tensor) -> bool:
    """Whether an input has a history on the level."""
    return mode.enabled and is_float(x) and level.has(x) and x._node is not None


class _Call:
    """One such call.

    moving   the numbers of the inputs that have a history on the level
    """

    def __init__(
        self,
        level: MapLevel,
        whole: Whole,
        inputs: Sequence[Tensor],
        spread: Sequence[bool],
        moving: Sequence[int],
    ) -> None:
        self.level = level
        self.whole = whole
        self.inputs = inputs
        self.spread = spread
        self.moving = moving
        self.draws = Draws() if moving else None
        self.pull: Callable[[list[Tensor | None]], Sequence[Tensor]] | None = None

    def results(self, run: Whole) -> list[Tensor]:
        """What `run` gives for all elements, on the level."""
        level = self.level
        enabled = mode.enabled
        with left(level), set_grad_enabled(enabled and level.linked):
            below = [
                level.whole(x) if on else level.below(x)
                for x, on in zip(self.inputs, self.spread, strict=True)
            ]
            made = [level.element(y, True) for y in run(below)]
        if self.draws is not None:
            self.draws.end()
        if enabled:
            self._link(made)
        return made

    def run(self, below: Sequence[Tensor]) -> list[Tensor]:
        """The call itself; what its backward needs is kept."""
        if not self.moving:
            return self.whole(below)
        found, self.pull, others = self._differentiated(below, self.whole)
        made = iter(found)
        return [next(made) if y is None else y for y in others]

    def _differentiated(self, below: Sequence[Tensor], whole: Whole) -> Any:
        """Floating results, what pulls their cotangents back, and the others in their places."""

        def of_moving(*some: Tensor) -> tuple[list[Tensor], list[Tensor | None]]:
            taken = list(below)
            for i, x in zip(self.moving, some, strict=True):
                taken[i] = x
            results = whole(taken)
            others = [None if is_float(y) else y for y in results]
            return [y for y in results if is_float(y)], others

        return pullback(of_moving, *[below[i] for i in self.moving])

    def _link(self, results: Sequence[Tensor]) -> None:
        level = self.level
        outs = [y for y in results if is_float(y)]
        if not outs:
            return
        behind = [level.below(y)._node for y in outs]
        captured = wrap(outs[0]._data)
        captured._node = _Captured((), [node for node in behind if node is not None])
        sources = [*[self.inputs[i] for i in self.moving], captured]
        if self.moving or captured._node.edges:
            all_at_once = [frozenset(range(len(outs)))] * len(outs)
            ways = self._backward, self._backward
            link("Compiled", sources, outs, *ways, conflicts=all_at_once)

    def _backward(self, cotangents: Sequence[Tensor | None]) -> list[Tensor | None]:
        found: list[Tensor] = []
        there = [g for g in cotangents if g is not None]
        if self.moving:
            given = [*self.inputs, *map(twin, there)]
            moving = [i for i, x in enumerate(given) if has_history(self.level, x)]
            spread = [*self.spread, *[True] * len(there)]
            absent = [i for i, g in enumerate(cotangents) if g is None]
            call = _Call(self.level, partial(self._pulled, absent), given, spread, moving)
            found = call.results(call.run if self.pull is None else partial(self._kept, absent))
        return [*found, zeros((), dtype=there[0].dtype, device=there[0].device)]

    def _kept(self, absent: Sequence[int], given: Sequence[Tensor]) -> list[Tensor]:
        """What `_pulled` gives, of what the call kept."""
        assert self.pull is not None
        return list(self.pull(_with_absent(given[len(self.inputs) :], absent)))

    def _pulled(self, absent: Sequence[int], given: Sequence[Tensor]) -> list[Tensor]:
        """From inputs and the cotangents of results to those of inputs, computed once more."""
        count = len(self.inputs)
        assert self.draws is not None
        with self.draws.again():
            pull = self._differentiated(given[:count], self.whole)[1]
        return list(pull(_with_absent(given[count:], absent)))


def _with_absent(there: Sequence[Tensor], absent: Sequence[int]) -> list[Tensor | None]:
    """All cotangents, with None for those that are absent."""
    left = iter(there)
    count = len(there) + len(absent)
    return [None if i in absent else next(left) for i in range(count)]
