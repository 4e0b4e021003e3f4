"""Finds writes that are lost, in rewritten code: `x[0][1] = 5`, `x.T[0] = 1`.

The target is an item, an attribute or a result. An item or attribute of a tensor, and the result of
a tensor method or a function of Weft, is a new tensor that nothing else holds.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from weft.base.lost_writes import warn_lost_write
from weft.base.source import is_own
from weft.core.tensor import Tensor

if TYPE_CHECKING:
    from weft.capture.hooks import Hooks

#: A tensor that another holds.
_HELD = "grad"


def load_item(hooks: Hooks, write: str, obj: Any, key: Any) -> Any:
    """obj[key], which is about to be written to; `write` is the text of that."""
    found = hooks.item(obj, key)
    if isinstance(obj, Tensor):
        warn_lost_write(write)
    return found


def load_attribute(hooks: Hooks, write: str, obj: Any, name: str) -> Any:
    """obj.name, which is about to be written to."""
    found = hooks.attr(obj, name)
    new = isinstance(obj, Tensor) and isinstance(found, Tensor) and name in _new_properties()
    if new and not found._writes_through:
        warn_lost_write(write)
    return found


def call(hooks: Hooks, write: str, function: Any, /, *args: Any, **kwargs: Any) -> Any:
    """function(...), whose result is about to be written to."""
    found = hooks.call(function, *args, **kwargs)
    if isinstance(found, Tensor) and _is_of_weft(function):
        given = (getattr(function, "__self__", None), *args, *kwargs.values())
        if all(found is not x for x in given) and not found._writes_through:
            warn_lost_write(write)
    return found


def _new_properties() -> set[str]:
    """Properties of Tensor that make a new tensor."""
    return {name for name, value in vars(Tensor).items() if isinstance(value, property)} - {_HELD}


def _is_of_weft(function: Any) -> bool:
    """Whether it is a method of tensors or a function of Weft, not of a module or optimizer."""
    holder = getattr(function, "__self__", None)
    if holder is not None and not isinstance(holder, (Tensor, types.ModuleType)):
        return False
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return code is not None and is_own(code.co_filename)
