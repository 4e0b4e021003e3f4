"""print, logging and warnings in recorded graphs: they show their values each time that the graph
comes there, in order.

Each returns NotImplemented where the graph cannot do it. `weft.capture.watch.printing` then does it
as an effect of the whole call, or at once.
"""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Any

from weft.base.dim_algebra import Dim
from weft.base.pytree import tree_leaves
from weft.capture.watch.printing import (
    as_it_is,
    is_logger,
    settled_text,
    shows_tensors,
    warner,
)
from weft.capture.watch.read_back import caught_file, has_own_handler
from weft.capture.watch.settled_numbers import settled_call
from weft.capture.watch.texts import TextParts, as_string
from weft.capture.watch.values import is_plain
from weft.core.tensor import Tensor
from weft.ops.effects import SHOW, Shown
from weft.record.control.nested import graph_recorder, size_number
from weft.record.effects import effect, templated

if TYPE_CHECKING:
    from weft.capture.hooks import Hooks


def print_(hooks: Hooks, *args: Any, **kwargs: Any) -> Any:
    if caught_file(hooks, kwargs.get("file")) is not None:
        return NotImplemented
    return _shown(hooks, builtins.print, args, dict(kwargs))


def log(hooks: Hooks, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A function or method of `logging`."""
    if has_own_handler(function, args):
        return NotImplemented
    return _shown(hooks, function, args, settled_call((), kwargs, as_string)[1])


def warn(hooks: Hooks, message: Any, *args: Any, **kwargs: Any) -> Any:
    """warnings.warn"""
    if hooks.watch.outputs.catches_warnings():
        return NotImplemented
    return _shown(hooks, warner(message, *args, **kwargs), (settled_text(message),), {})


def _shown(hooks: Hooks, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a function that shows its arguments each time that the graph comes here."""
    if not hooks.watch.active:
        return NotImplemented
    tensors: list[Tensor] = []
    build = templated(tuple([_kept(hooks, value) for value in args]), tensors)
    if graph_recorder() is None and not tensors and not hooks.flow.depth:
        return NotImplemented  # inside of a transform: it knows nothing of its elements
    effect(SHOW, tensors, {"show": Shown(function, build, kwargs)})
    return None


def _kept(hooks: Hooks, value: Any) -> Any:
    if isinstance(value, Dim):
        return size_number(value)
    if shows_tensors(value):
        return as_it_is(value)
    if isinstance(value, TextParts) or is_plain(value) or is_logger(value):
        return value
    if type(value) in (list, tuple, dict) and all(map(is_plain, tree_leaves(value))):
        hooks.deep(value, "print")
        return value  # as it is now: for %r, and for names in a format
    return hooks.call(str, value)
