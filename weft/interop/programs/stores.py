"""Writes to attributes and items that hold tensors: in a program they are writes to its state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, NoReturn

from weft.base.source import SourceLocation
from weft.capture.names import fill_cell
from weft.capture.trace.result_leaves import is_plain
from weft.capture.watch.attributes import set_naturally
from weft.capture.watch.effects import Effect
from weft.capture.watch.origin import MISSING, Origin
from weft.capture.watch.stores import set_item
from weft.core.tensor import Tensor
from weft.interop.programs.record import refuse
from weft.ir.attributes import attr_key


class Store(NamedTuple):
    """A place that gets another tensor: its name, the tensor there now, and the new one."""

    name: str
    effect: Effect
    old: Tensor
    new: Tensor

    def is_at(self, origin: Origin) -> bool:
        """Whether the place is that of an origin."""
        if self.effect.action is fill_cell:
            return origin.parent is self.effect.target
        return origin.parent is self.effect.target and origin.key == self.effect.raw[0]


def stores(effects: list[Effect], find: Callable[[Origin], Any]) -> Iterator[Store]:
    """The places that get another tensor.

    `find` evaluates an origin. Anything else that is done to Python objects is refused.
    """
    last: dict[Any, tuple[str, Any, Any]] = {}
    for effect in effects:
        old = _old(effect, find)
        if old is None:
            _refuse(effect)
        key, name, held = old
        last[key] = name, held, (effect, effect.raw[-1])
    for name, held, (effect, new) in last.values():
        if new is held or (is_plain(new) and is_plain(held) and attr_key(new) == attr_key(held)):
            continue
        if not (isinstance(new, Tensor) and isinstance(held, Tensor)):
            _refuse(effect)
        yield Store(name, effect, held, new)


def _old(effect: Effect, find: Callable[[Origin], Any]) -> tuple[Any, str, Any] | None:
    """What tells the place, its name, and what it holds now."""
    if effect.target is None:
        return None
    target = find(effect.target)
    name = effect.description.removesuffix(" = …").removeprefix("global ")
    if effect.action is set_naturally:
        key, value = effect.raw
        if value is MISSING:
            return None
        return ("attr", id(target), key), name, getattr(target, key, MISSING)
    if effect.action is set_item:
        key = effect.raw[0]
        try:
            return ("item", id(target), key), name, target[key]
        except (KeyError, IndexError, TypeError):
            return None
    if effect.action is fill_cell:
        try:
            return ("cell", id(target)), name, target.cell_contents
        except ValueError:
            return None
    return None


def _refuse(effect: Effect) -> NoReturn:
    file, _, line = effect.location.rpartition(":")
    refuse(
        f"the function does {effect.description.removeprefix('global ')}, which only this process "
        "can do",
        "keep what changes in tensors: register_buffer in a module, or return it",
        SourceLocation(file, int(line), "") if line.isdecimal() else None,
    )
