"""Which elements of a `vmap` take part, where control flow goes different ways for them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from weft.autodiff.transforms.levels import LevelArray, left
from weft.autodiff.transforms.vmap import MapLevel, MappedArray
from weft.base import dtypes
from weft.core.bind import bind, recorder, recording
from weft.core.grad_mode import mode
from weft.core.tensor import Tensor
from weft.ops.cards import ARGMAX, ASTYPE, WHERE
from weft.ops.identity import detached
from weft.ops.reduce import any as any_of

__all__: list[str] = []


class MaskedRegion:
    """The elements that take part in a branch, or in an iteration of a loop.

    All elements compute it. Those that take no part do so with the values of the first one that
    does: so nothing fails for them, and nothing is infinite, that neither fails nor is infinite for
    an element that does take part. No gradient passes from what they compute to what they are.

    active   which elements take part; at least one does
    outer    the region that this one is in
    """

    def __init__(self, level: MapLevel, active: Tensor) -> None:
        self.level = level
        self.outer = level.region
        self.active = active
        #: By the array and its history, and by who records: what it is in here.
        self._known: dict[tuple[int, int, int], tuple[Any, Any, Any, Tensor]] = {}

    def entered(self, x: Tensor) -> Tensor:
        """A tensor as it is in here. Called with the level off, as a recorder is in a call."""
        data = x._data
        if data.__class__ is not MappedArray or data.level is not self.level:
            return x
        historic = x._node is not None and mode.enabled
        if data.region is self or not (data.mapped or historic):
            return x
        here = recorder()
        key = (id(data), id(x._node), id(here))
        found = self._known.get(key)
        if found is None:
            made = self._chosen(x if self.outer is None else self.outer.entered(x))
            found = self._known[key] = (data, x._node, here, made)
        return found[-1]

    def _chosen(self, x: Tensor) -> Tensor:
        level = self.level
        level.region = self.outer
        try:
            active = self.active if self.outer is None else self.outer.entered(self.active)
            whole = detached(level.below(x))
            if level.mapped(x):
                flags = bind(ASTYPE, level.below(active), dtype=dtypes.uint8)
                first = bind(ARGMAX, flags, axis=0, keepdims=False)
                whole = whole[first]
            with recording(level):
                made: Tensor = bind(WHERE, active, x, level.element(whole, False))
        finally:
            level.region = self
        made._data.region = self
        return made


@contextlib.contextmanager
def taking_part(active: Tensor) -> Iterator[None]:
    """Run a branch or an iteration for the elements for which a `bool[]` tensor holds.

    At least one has to. Of each `vmap` in which it differs from element to element, those take part
    of which an element of an inner one does.
    """
    with contextlib.ExitStack() as regions:
        for level, part in reversed(_by_level(active)):
            regions.enter_context(_within(level, part))
        yield


@contextlib.contextmanager
def _within(level: MapLevel, active: Tensor) -> Iterator[None]:
    before = level.region
    level.region = MaskedRegion(level, active)
    try:
        yield
    finally:
        level.region = before


def _by_level(active: Tensor) -> list[tuple[MapLevel, Tensor]]:
    """The levels on which it is mapped, the innermost first, and what it is on them."""
    found: list[tuple[MapLevel, Tensor]] = []
    while isinstance(active._data, LevelArray):
        data = active._data
        if isinstance(data, MappedArray) and data.mapped:
            level = data.level
            assert isinstance(level, MapLevel)
            found.append((level, active))
            with left(level):
                active = any_of(data.tensor)
        else:
            active = data.tensor
    return found
