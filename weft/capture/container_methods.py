"""Methods of containers and arrays: one row each says what it reads, writes and passes on."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from weft.capture.from_source import access
from weft.capture.from_source.dynamic_list import dynamic_list_of
from weft.capture.watch import library, stores
from weft.capture.watch.builtin_calls import comparing
from weft.capture.watch.operators import BINARY, COMPARING
from weft.capture.watch.origin import MISSING
from weft.capture.watch.settled_numbers import settled
from weft.capture.watch.stores import base_of, became, before_write, blind, read_item, whole

if TYPE_CHECKING:
    from weft.capture.hooks import Hooks
    from weft.capture.watch.watch import Known

#: (hooks, what is known of the container, name of the method, arguments)
Outside = Callable[["Hooks", "Known", str, tuple[Any, ...], dict[str, Any]], Any]
#: (hooks, the bound method, arguments)
Inside = Callable[["Hooks", Any, tuple[Any, ...], dict[str, Any]], Any]


class Method(NamedTuple):
    """The behaviour of a method of a container.

    outside   the call on a container from outside: reads become guards, writes become effects
    inside    the call on a container that the run made: only the arguments are read
    writes    whether it changes the container
    """

    outside: Outside
    inside: Inside
    writes: bool = False


def call(
    hooks: Hooks, function: Any, holder: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """A method written in C of a container or an array; NotImplemented for those of `object`."""
    name = function.__name__
    if name in library.OBJECT_METHODS:
        return NotImplemented
    hooks.use(holder)
    dynamic = dynamic_list_of(holder)
    if dynamic is not None:
        appends = name == "append"
        if (appends or name == "pop") and len(args) == appends:
            hooks.flow.save(dynamic)
            return dynamic.push(*args) if args else dynamic.pop()
        hooks.use_items(holder)
    method = _method(holder, name)
    if method.writes:
        hooks.flow.save(holder)
    hooks.use_items(*args)
    if args and isinstance(holder, (dict, set, frozenset)):
        args = (settled(args[0]), *args[1:])  # a key, or others of whose keys nothing is known
    known = hooks.watch.known(holder)
    if known is None:
        return method.inside(hooks, function, args, kwargs)
    return method.outside(hooks, known, name, args, kwargs)


def _method(container: Any, name: str) -> Method:
    if isinstance(container, np.ndarray):
        return _ARRAY.get(name, _OF_ARRAY)
    base = base_of(container)
    family = _DICT if issubclass(base, dict) else _SET if base in (set, frozenset) else _LIST
    return family.get(name, _OTHER)


def _natural(known: Known, name: str) -> Any:
    """The method past those of a subclass."""
    return getattr(base_of(known.obj), name).__get__(known.obj)


# --- on a container that the run made ------------------------------------------------------------


def _read(hooks: Hooks, function: Any, args: Any, kwargs: Any) -> Any:
    """The arguments are read completely."""
    return library.run(hooks, function, args, kwargs, function.__name__)


def _kept(hooks: Hooks, function: Any, args: Any, kwargs: Any) -> Any:
    """The arguments are stored, not read."""
    return function(*args, **kwargs)


def _hashed(hooks: Hooks, function: Any, args: Any, kwargs: Any) -> Any:
    hooks.key(args[0] if args else None)
    return function(*args, **kwargs)


def _through(hooks: Hooks, function: Any, args: Any, kwargs: Any) -> Any:
    return function(*(hooks.iter(value) for value in args), **kwargs)


def _pairs(hooks: Hooks, function: Any, args: Any, kwargs: Any) -> Any:
    return function(*(hooks.pairs(value) for value in args), **kwargs)


def _compared(hooks: Hooks, function: Any, args: Any, kwargs: Any) -> Any:
    hooks.deep((function.__self__, args), function.__name__, COMPARING)
    return function(*args, **kwargs)


def _sorted(hooks: Hooks, function: Any, args: Any, kwargs: Any) -> None:
    holder = function.__self__
    holder[:] = comparing(sorted)(hooks, holder, *args, **kwargs)


# --- on one from outside: all kinds --------------------------------------------------------------


def _everything(hooks: Hooks, known: Known, name: str, args: Any, kwargs: Any) -> Any:
    """Reads the container and everything in it; also methods of subclasses written in C."""
    calls: Any = COMPARING if name in ("index", "count", "__contains__", *COMPARING) else True
    hooks.deep((known.obj, args, kwargs), f"{base_of(known.obj).__name__}.{name}", calls)
    return _natural(known, name)(*args, **kwargs)


def _whole(hooks: Hooks, known: Known, name: str, args: Any, kwargs: Any) -> Any:
    whole(hooks.watch, known)
    args = tuple(hooks.shallow(value) for value in args)
    return _natural(known, name)(*args, **kwargs)


def _length(hooks: Hooks, known: Known, name: str, args: Any, kwargs: Any) -> Any:
    stores.read_length(hooks.watch, known)
    return _natural(known, name)(*args, **kwargs)


def _getitem(hooks: Hooks, known: Known, name: str, args: Any, kwargs: Any) -> Any:
    return access.container_item(hooks, known.obj, known, *args)


def _setitem(hooks: Hooks, known: Known, name: str, args: Any, kwargs: Any) -> Any:
    stores.write_item(hooks.watch, known, *args)


def _delitem(hooks: Hooks, known: Known, name: str, args: Any, kwargs: Any) -> Any:
    stores.delete_item(hooks.watch, known, *args)


def _blind(hooks: Hooks, known: Known, name: str, args: Any, kwargs: Any) -> Any:
    return blind(hooks.watch, known, name, *args)


def _blind_all(hooks: Hooks, known: Known, name: str, args: Any, kwargs: Any) -> Any:
    """Takes an iterable, which is read before the call."""
    values = [list(hooks.iter(value)) for value in args]
    result = blind(hooks.watch, known, _AS_METHOD.get(name, name), *values)
    return known.obj if name.startswith("__i") else result


#: The operators of sets take sets only; their methods take any iterable.
_AS_METHOD = {"__ior__": "update", "__isub__": "difference_update"}


def _changing(hooks: Hooks, known: Known, name: str, args: Any, kwargs: Any) -> Any:
    """Reads all elements and changes them: the result depends on the old contents."""
    whole(hooks.watch, known)
    if name == "remove":
        hooks.deep((known.obj, args), name, COMPARING)
    args = tuple(hooks.shallow(value) for value in args)
    before_write(hooks.watch, known)
    result = _natural(known, name)(*args, **kwargs)
    became(hooks.watch, known, f"{known.origin.text}.{name}(…)")
    return known.obj if name.startswith("__i") else result


# --- lists and deques ----------------------------------------------------------------------------


def _sort(hooks: Hooks, known: Known, name: str, args: Any, kwargs: Any) -> None:
    whole(hooks.watch, known)
    before_write(hooks.watch, known)
    made = comparing(sorted)(hooks, known.obj, *args, **kwargs)
    list.__setitem__(known.obj, slice(None), made)
    became(hooks.watch, known, f"{known.origin.text}.sort(…)")


def _insert(hooks: Hooks, known: Known, name: str, args: Any, kwargs: Any) -> Any:
    if args[0] != 0:
        stores.read_length(hooks.watch, known)
    return blind(hooks.watch, known, name, *args)


def _append(hooks: Hooks, known: Known, name: str, args: Any, kwargs: Any) -> Any:
    if isinstance(known.obj, deque):
        hooks.watch.note(known.obj.maxlen, known.origin.attr("maxlen"))
    return blind(hooks.watch, known, name, *args)


# --- dicts ---------------------------------------------------------------------------------------


def _get(hooks: Hooks, known: Known, name: str, args: Any, kwargs: Any) -> Any:
    number = read_item(hooks.watch, known, args[0])
    if number is not MISSING:
        return number
    return _natural(known, name)(*args, **kwargs)


def _contains(hooks: Hooks, known: Known, name: str, args: Any, kwargs: Any) -> Any:
    stores.read_presence(hooks.watch, known, args[0])
    return _natural(known, name)(*args)


def _keys(hooks: Hooks, known: Known, name: str, args: Any, kwargs: Any) -> Any:
    stores.read_keys(hooks.watch, known)
    return _natural(known, name)(*args)


def _setdefault(hooks: Hooks, known: Known, name: str, args: Any, kwargs: Any) -> Any:
    read_item(hooks.watch, known, args[0], exact=True)
    if not dict.__contains__(known.obj, args[0]):
        stores.write_item(hooks.watch, known, args[0], args[1] if len(args) > 1 else None)
    return dict.__getitem__(known.obj, args[0])


def _pop_key(hooks: Hooks, known: Known, name: str, args: Any, kwargs: Any) -> Any:
    read_item(hooks.watch, known, args[0], exact=True)
    if not dict.__contains__(known.obj, args[0]):
        return _natural(known, name)(*args, **kwargs)  # the default, or its error
    value = dict.__getitem__(known.obj, args[0])
    stores.delete_item(hooks.watch, known, args[0])
    return value


def _update(hooks: Hooks, known: Known, name: str, args: Any, kwargs: Any) -> Any:
    given = dict(*(hooks.pairs(value) for value in args), **kwargs)
    for key, value in given.items():
        stores.write_item(hooks.watch, known, key, value)
    return known.obj if name == "__ior__" else None


# --- arrays --------------------------------------------------------------------------------------


def _show_elements(hooks: Hooks, known: Known, name: str, args: Any, kwargs: Any) -> Any:
    hooks.watch.content(known)
    return library.run(hooks, getattr(known.obj, name), args, kwargs, name)


def _write_elements(hooks: Hooks, known: Known, name: str, args: Any, kwargs: Any) -> Any:
    hooks.deep_all(args, kwargs, name)
    function = getattr(known.obj, name)
    return hooks.write_array(known, lambda: function(*args, **kwargs), f".{name}")


def _write_own_elements(hooks: Hooks, function: Any, args: Any, kwargs: Any) -> Any:
    def write() -> Any:
        return library.run(hooks, function, args, kwargs, function.__name__)

    return hooks.write_view(function.__self__, write)


# --- the tables ----------------------------------------------------------------------------------


def _reads(outside: Outside, *names: str, inside: Inside = _read) -> dict[str, Method]:
    return dict.fromkeys(names, Method(outside, inside))


def _writes(outside: Outside, *names: str, inside: Inside = _read) -> dict[str, Method]:
    return dict.fromkeys(names, Method(outside, inside, writes=True))


_OTHER = Method(_everything, _read)
_LIST: dict[str, Method] = {
    **_reads(_whole, "__iter__", "__reversed__", "copy", "__copy__", "__add__", "__mul__"),
    **_reads(_whole, "__rmul__"),
    **_reads(_length, "__len__"),
    **_reads(_getitem, "__getitem__"),
    **_reads(_everything, "index", "count", inside=_compared),
    **_writes(_append, "append", "appendleft", inside=_kept),
    **_writes(_insert, "insert", inside=_kept),
    **_writes(_blind_all, "extend", "extendleft", "__iadd__", inside=_through),
    **_writes(_blind, "clear"),
    **_writes(_setitem, "__setitem__"),
    **_writes(_delitem, "__delitem__"),
    **_writes(_changing, "pop", "popleft", "reverse", "rotate", "__imul__"),
    **_writes(_changing, "remove", inside=_compared),
    **_writes(_sort, "sort", inside=_sorted),
}
_DICT: dict[str, Method] = {
    **_reads(_whole, "values", "items", "copy", "__copy__", "__reversed__", "__or__", "__ror__"),
    **_reads(_keys, "keys", "__iter__"),
    **_reads(_length, "__len__"),
    **_reads(_getitem, "__getitem__", inside=_hashed),
    **_reads(_contains, "__contains__", inside=_hashed),
    **_reads(_get, "get", inside=_hashed),
    **_writes(_setdefault, "setdefault", inside=_kept),
    **_writes(_update, "update", "__ior__", inside=_pairs),
    **_writes(_blind, "clear"),
    **_writes(_setitem, "__setitem__"),
    **_writes(_delitem, "__delitem__"),
    **_writes(_pop_key, "pop", inside=_hashed),
    **_writes(_changing, "popitem", "move_to_end"),
}
_SET: dict[str, Method] = {
    **_reads(_whole, "__iter__", "copy"),
    **_reads(_length, "__len__"),
    **_reads(_everything, "union", inside=_through),
    **_writes(_blind, "add", inside=_kept),
    **_writes(_blind, "discard", "clear"),
    **_writes(_blind_all, "update", inside=_through),
    **_writes(_blind_all, "__ior__", "difference_update", "__isub__"),
    **_writes(_changing, "remove", inside=_compared),
    **_writes(_changing, "pop", "intersection_update", "symmetric_difference_update"),
    **_writes(_changing, "__iand__", "__ixor__"),
}
#: Methods of lists and deques that store their arguments.
STORING = frozenset({"append", "appendleft", "insert"})
_OF_ARRAY = Method(_show_elements, _read)
_ARRAY: dict[str, Method] = _writes(
    _write_elements,
    *("sort", "fill", "put", "resize", "partition", "itemset", "setfield", "setflags", "byteswap"),
    *("__setitem__", "__setstate__", *(f"__i{name}__" for _, _, name in BINARY.values())),
    inside=_write_own_elements,
)
