"""Names in captured code: globals, variables of enclosing functions, undefined variables."""

from __future__ import annotations

import builtins
import importlib.util
import sys
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from weft.capture.from_source import conditions
from weft.capture.from_source.held import Maybe, undefined
from weft.capture.from_source.journal import Globals
from weft.capture.watch import attributes, stores
from weft.capture.watch.origin import MISSING
from weft.capture.watch.values import is_of_weft, is_plain
from weft.core.tensor import Tensor
from weft.ops.effects import CHECK, Raised
from weft.record.effects import effect

if TYPE_CHECKING:
    from weft.capture.hooks import Hooks


def load_global(hooks: Hooks, name: str) -> Any:
    names = hooks.globals
    if name in names:
        return hooks.watch_global(names, "global ", name, names[name])
    watch = hooks.watch
    known = watch.namespace(names, "global ")
    if known.store is not None and known.store.written:  # deleted by this run, perhaps
        stores.read_item(watch, known, name)
    found = names.get("__builtins__", builtins)
    table = found if isinstance(found, dict) else vars(found)
    if name not in table:
        stores.read_item(watch, known, name)
        raise NameError(f"name {name!r} is not defined", name=name)
    return table[name]


def watch_global(hooks: Hooks, names: dict[str, Any], prefix: str, name: str, value: Any) -> Any:
    watch = hooks.watch
    # Weft's own functions, classes and constants do not change under its own code.
    if hooks.own and (
        isinstance(value, (types.FunctionType, type, types.ModuleType))
        or is_plain(value)
        or (is_of_weft(value) and not isinstance(value, Tensor))
    ):
        return value
    number = stores.read_item(watch, watch.namespace(names, prefix), name)
    return value if number is MISSING else number


def store_global(hooks: Hooks, name: str, value: Any) -> Any:
    hooks.flow.save_entry(Globals(hooks.globals, hooks))
    stores.write_item(hooks.watch, hooks.watch.namespace(hooks.globals, "global "), name, value)
    return value


def delete_global(hooks: Hooks, name: str) -> None:
    hooks.flow.save_entry(Globals(hooks.globals, hooks))
    known = hooks.watch.namespace(hooks.globals, "global ")
    if name not in hooks.globals:
        stores.read_item(hooks.watch, known, name)
        raise NameError(f"name {name!r} is not defined", name=name)
    stores.delete_item(hooks.watch, known, name)


def load_free(hooks: Hooks, name: str, value: Any) -> Any:
    """Read a variable of a function that encloses the followed one."""
    cell, origin = hooks.variables[name]
    if (id(cell), name) not in hooks.watch.written:
        return hooks.watch.read(value, origin)
    return value


def store_free(hooks: Hooks, name: str, value: Any) -> Any:
    """Write a variable of an enclosing function."""
    cell, origin = hooks.variables[name]
    hooks.flow.save_variable(cell, name, hooks)
    watch = hooks.watch
    try:
        old = cell.cell_contents
    except ValueError:
        old = MISSING
    watch.undo(lambda: fill_cell(cell, old))
    watch.written.add((id(cell), name))
    assert origin.parent is not None
    watch.effect(f"{name} = …", fill_cell, origin.parent, value)
    return value


def imported(hooks: Hooks, value: Any, module: str, name: str) -> Any:
    """`from module import name` in a function."""
    package = hooks.globals.get("__package__") or hooks.globals.get("__name__", "")
    found = sys.modules.get(importlib.util.resolve_name(module, package))
    if found is None or isinstance(value, types.ModuleType):
        return value
    return attributes.load(hooks, found, name)


def store_cell(hooks: Hooks, value: Any, cell: Callable[[], Any]) -> Any:
    """Write a variable of an enclosing converted function."""
    closure = cell.__closure__ or ()
    for name, held in zip(cell.__code__.co_freevars, closure, strict=True):
        hooks.flow.save_variable(held, name)
    return value


def value(hooks: Hooks, value: Any, _name: str = "") -> Any:
    """Read a name that certainly has a value."""
    if value.__class__ is Maybe:
        if value.value is MISSING:
            raise undefined("a name", value.why)
        return value.value
    return value


def load_local(hooks: Hooks, read: Callable[[], Any], name: str) -> Any:
    """Read a variable of the function itself, which may have no value."""
    try:
        return read()
    except NameError:
        message = f"cannot access local variable {name!r} where it is not associated with a value"
        raise UnboundLocalError(message) from None


def defined(hooks: Hooks, value: Any, name: str) -> Any:
    """Read a name that has no value on some paths."""
    if value.__class__ is not Maybe:
        return value
    if value.flag is None or not hooks.asks(value.flag):
        raise undefined(f"the variable {name!r}", value.why)
    error = Raised(UnboundLocalError(f"the variable {name!r} has no value {value.why}"))
    effect(CHECK, [conditions.predicate(value.flag)], {"message": error})
    return value.value


def cells_of(hooks: Hooks, cells: Callable[[], Any] | None) -> list[tuple[str, Any, Any]]:
    """The variables that generated functions share: name, cell, and hooks if it is from outside."""
    if cells is None:
        return []
    found = []
    for name, cell in zip(cells.__code__.co_freevars, cells.__closure__ or (), strict=True):
        known = hooks.variables.get(name)
        found.append((name, cell, hooks if known is not None and known[0] is cell else None))
    return found


def fill_cell(cell: types.CellType, value: Any) -> None:
    if value is MISSING:
        del cell.cell_contents
    else:
        cell.cell_contents = value
