"""Calls that are not followed: builtins, the standard library, NumPy and Weft itself.

Their arguments are guarded completely, unless the function is known to read less. If a function
depends on more than its arguments, the recording cannot be used again.
"""

from __future__ import annotations

import functools
import io
import math
import operator
import re
import struct
import types
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.base.asked_sizes import numbers_of
from weft.base.world import here
from weft.capture.watch import attributes, operators, stores
from weft.capture.watch.effects import is_namedtuple
from weft.capture.watch.follow import (
    DISTRIBUTED,
    PURE_WEFT,
    RECORDING,
    TRANSFORMS,
    why_impure,
)
from weft.capture.watch.origin import MISSING, static_lookup
from weft.capture.watch.printing import is_logging, show
from weft.capture.watch.settled_numbers import keeping, settled, settled_call, sized
from weft.capture.watch.unseen_changes import bases_of, contents
from weft.capture.watch.values import CONTAINERS, is_plain, mapped
from weft.core.counted import CountedDict
from weft.core.number import is_of_numpy
from weft.core.tensor import Tensor
from weft.ops import in_place
from weft.ops.generator import Generator
from weft.record.control.nested import in_nested_graph

if TYPE_CHECKING:
    from weft.capture.hooks import Hooks
    from weft.capture.watch.watch import Known

BUILTIN_CALLABLES = frozenset(
    {
        types.BuiltinFunctionType,
        types.MethodWrapperType,
        types.MethodDescriptorType,
        types.WrapperDescriptorType,
        types.ClassMethodDescriptorType,
        np.ufunc,
        type(np.sum),  # functions of NumPy that dispatch on their arguments
        operator.itemgetter,
        operator.attrgetter,
    }
)
#: Functions that compute with symbolic sizes as they are; others get their numbers.
_OF_SIZES = (math.prod, operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod)
#: Objects whose methods only compute.
PURE_HOLDERS = (re.Pattern, re.Match, struct.Struct, np.dtype, np.ufunc, types.GenericAlias)
#: Others that never change, and views of what is watched.
_UNCHANGING: tuple[Any, ...] = (range, slice, np.generic, np.ndarray, types.MappingProxyType, super)
_UNCHANGING += (types.FunctionType, types.MethodType, property, type, types.ModuleType)
_UNCHANGING += (BaseException, type({}.keys()), type({}.values()), type({}.items()))
_UNCHANGING_MODULES = frozenset({"datetime", "decimal", "fractions", "uuid"})


# --- builtins and their methods ------------------------------------------------------------------


def call_builtin(hooks: Hooks, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if type(function) is operator.attrgetter:
        return _attributes_of(hooks, function, *args)
    unbound = isinstance(function, (types.MethodDescriptorType, types.WrapperDescriptorType))
    if unbound and args and isinstance(args[0], function.__objclass__):  # list.append(x, 1)
        return hooks.call(function.__get__(args[0]), *args[1:], **kwargs)
    holder = getattr(function, "__self__", None)
    if holder is None or isinstance(holder, types.ModuleType):
        return call_library(hooks, function, args, kwargs)
    return _call_method(hooks, function, holder, args, kwargs)


def _attributes_of(hooks: Hooks, getter: Any, obj: Any) -> Any:
    """operator.attrgetter(...)(obj): the attributes are read here."""
    found = []
    for path in getter.__reduce__()[1]:
        value = obj
        for name in path.split("."):
            value = hooks.attr(value, name)
        found.append(value)
    return found[0] if len(found) == 1 else tuple(found)


def _call_method(
    hooks: Hooks, function: Any, holder: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """A method written in C, of an object that is not a container."""
    name = function.__name__
    special = OBJECT_METHODS.get(name)
    if special is not None and getattr(function, "__objclass__", object) is object:
        return special(hooks, holder, *args)
    if isinstance(holder, type):
        return call_library(hooks, function, args, kwargs)  # dict.fromkeys, object.__new__
    if in_nested_graph() and _may_change(holder):
        hooks.watch.refuse(f"{type(holder).__name__}.{name} is called, which may change its object")
    known = hooks.watch.known(holder)
    if known is not None and not is_plain(holder) and not isinstance(holder, PURE_HOLDERS):
        hooks.watch.refuse(
            f"{known.origin.text}.{name} of a {type(holder).__name__} is called, "
            "which may depend on more than is watched"
        )
    return run(hooks, function, args, kwargs, name)


def _may_change(holder: Any) -> bool:
    """Whether a method of an object that is no container may change it."""
    kind = type(holder)
    return not (
        is_plain(holder)
        or isinstance(holder, (*PURE_HOLDERS, *_UNCHANGING, *CONTAINERS, Tensor))
        or kind.__module__ in _UNCHANGING_MODULES
    )


def call_library(hooks: Hooks, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A function of the standard library or of NumPy."""
    if is_logging(function, args):
        return show(hooks, function, args, kwargs)
    for cell in getattr(function, "__closure__", None) or ():
        hooks.deep(cell.cell_contents, function.__qualname__)  # functions that it wraps
    reason = why_impure(function)
    if reason:
        hooks.watch.refuse(reason)
    name = getattr(function, "__qualname__", None) or getattr(function, "__name__", "a builtin")
    return run(hooks, function, args, kwargs, str(name))


def run(
    hooks: Hooks, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], name: str
) -> Any:
    """Call with guards on all arguments, and check whether the call changed any of them."""
    if not any(function is known for known in _OF_SIZES):
        args, kwargs = numbers_of(args), numbers_of(kwargs)
    if all(map(is_plain, args)) and not kwargs:
        return function(*args)
    args, kwargs = settled_call(args, kwargs)
    seen = [*hooks.deep_all(args, kwargs, name)]
    seen += _arrays_behind(hooks, (*args, *kwargs.values()))
    before = [contents(known.obj) for known in seen]
    result = function(*args, **kwargs)
    for known, old in zip(seen, before, strict=True):
        if not _is_same(contents(known.obj), old):
            reason = f"{name} changes {known.origin.text}"
            hooks.watch.unseen.add(hooks.watch, known, old, reason)
    return result


def _is_same(now: Any, before: Any) -> bool:
    if isinstance(now, np.ndarray):
        return bool(now.dtype == object or now.tobytes() == before.tobytes())
    if isinstance(now, dict):
        return _is_same(list(now), list(before)) and _is_same(
            list(now.values()), list(before.values())
        )
    mine, theirs = list(now), list(before)
    return len(mine) == len(theirs) and all(map(operator.is_, mine, theirs))


def _arrays_behind(hooks: Hooks, values: Iterable[Any]) -> list[Known]:
    """The arrays from outside that arguments are views of."""
    found: dict[int, Known] = {}
    for value in values:
        for part in value if isinstance(value, (tuple, list)) else (value,):
            if isinstance(part, np.ndarray):
                found.update((id(known.obj), known) for known in bases_of(hooks.watch, part))
    return list(found.values())


def call_object(hooks: Hooks, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An object with a `__call__` written in C, or none at all."""
    kind = type(function)
    if callable(function) and kind not in (operator.itemgetter, operator.attrgetter):
        named = getattr(function, "__qualname__", None) is not None
        reason = why_impure(function) if named else ""
        hooks.watch.refuse(reason or f"a {kind.__name__} is called, and what it reads is not known")
    args, kwargs = settled_call(args, kwargs)
    hooks.deep_all(args, kwargs, kind.__name__)
    return function(*args, **kwargs)


def call_class(hooks: Hooks, cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call of a class that code without hooks instantiates."""
    if cls is Generator and (args or (kwargs.get("seed"),))[0] is None:
        hooks.watch.refuse("a random seed is read from the operating system")
    if str(cls.__module__).startswith("weft."):
        return call_weft(hooks, cls, args, kwargs)
    if issubclass(cls, INERT_CLASSES):
        if issubclass(cls, (dict, set, frozenset)):
            hooks.keys_of_all(args)
        hooks.deep_all(args, kwargs, cls.__name__, calls=False)
        return cls(*args, **kwargs)
    if id(cls) not in hooks.watch.inside_classes and _is_of_library(cls):
        reason = why_impure(cls)
        if reason:
            hooks.watch.refuse(reason)
    return run(hooks, cls, args, kwargs, cls.__name__)


#: Classes that store their arguments and do not call them.
INERT_CLASSES = (
    *(io.StringIO, io.BytesIO),
    *(BaseException, tuple, dict, list, set, frozenset, deque, types.SimpleNamespace),
    *(types.MappingProxyType, property, staticmethod, classmethod),
)


def _is_of_library(cls: type) -> bool:
    return attributes.is_of_library(cls) or not cls.__flags__ & (1 << 9)


# --- Weft ----------------------------------------------------------------------------------------

#: Functions that hand Python numbers on as operands, beside those whose parameters say so: see
#: `takes_numbers`.
_OF_VALUES = frozenset(
    {
        *("full", "full_like", "new_full", "fill_", "tensor", "asarray", "number_in", "print"),
        *("apply", "paired", "cast", "_setitem", "__setitem__", "__getitem__", "bernoulli"),
    }
)

#: Those whose results have the dtypes of NumPy's scalars.
_BY_CLASS = frozenset({"full", "full_like", "new_full", "fill_", "tensor", "asarray"})

#: Functions whose ints are sizes, which may be symbolic.
_TAKE_SIZES = frozenset(
    {
        *("zeros", "ones", "empty", "full", "rand", "randn", "arange", "eye", "new_zeros"),
        *("reshape", "view", "broadcast_to", "expand", "narrow", "tile"),
    }
)


@functools.cache
def takes_numbers(function: Any) -> bool:
    """Whether Python numbers are operands of a function or method: its numbers are of the type
    `Operand`. All others take numbers as they are, to know sizes and options."""
    if not str(function.__module__).startswith(_OPS):
        return False
    name = function.__name__
    kinds = [str(kind) for kind in function.__annotations__.values()]
    if name in _OF_VALUES or any("Operand" in kind for kind in kinds):
        return not any(_SIZES.search(kind) for kind in kinds) or name in _OF_VALUES
    if function.__module__ == in_place.__name__:  # takes what the method takes that it is made of
        of_method = getattr(Tensor, name.removesuffix("_"), None)
        return of_method is not None and takes_numbers(of_method)
    return False


def _is_transform(function: Any) -> bool:
    """Whether a function hands its arguments on to one of the user's: grad(f), or jvp itself."""
    if "remake" in getattr(function, "__dict__", ()):
        return True
    of_transforms = str(function.__module__).startswith(TRANSFORMS)
    return of_transforms and function.__name__ in ("vjp", "jvp", "linearize", "hvp")


_SIZES = re.compile(r"\bint\b")
_OPS = ("weft.ops.", "weft.core.")
_IMPURE_WEFT = frozenset(
    {
        *("Generator.seed", "set_default_dtype", "register_dtype", "RemovableHandle.remove"),
        *("register_device", "register_kernel", "unregister_device", "save", "load"),
    }
)
#: These write to the tensor that they are called on, and the hooks do not see it.
_MARKS = frozenset({"_register_hook", "_retain_grad", "_register_post_accumulate_grad_hook"})


def call_weft(hooks: Hooks, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call of a function of Weft that is not followed."""
    hooks.use_items(*args, *kwargs.values())
    if hooks.watch.numbers and function.__name__ in _TAKE_SIZES:
        values = function.__name__ == "full"  # of the others, all numbers are sizes
        args = (*map(sized, args[:1]), *args[1:]) if values else tuple(map(sized, args))
    if hooks.watch.numbers and function.__name__ == "bernoulli":  # of a number, and sizes
        args = (*args[:1], *map(sized, args[1:]))
    changes = bool(hooks.watch.changing.places)
    if hooks.watch.numbers and function.__name__ in _BY_CLASS:
        args, kwargs = settled_call(args, kwargs, _without_scalars)
    if (hooks.watch.numbers or changes) and (_is_transform(function) or takes_numbers(function)):
        if changes:
            args, kwargs = settled_call(args, kwargs, lambda value: _tree(hooks, value))
    elif hooks.watch.numbers:
        # Inside of a loop or branch, nobody can be asked.
        args, kwargs = settled_call(args, kwargs, keeping if hooks.flow.depth else settled)
    args, kwargs = settled_call(args, kwargs, lambda value: _callbacks(hooks, value))
    parts = str(function.__module__).split(".")
    if len(parts) > 1 and parts[1] == DISTRIBUTED:
        place = hooks.watch.pin(here, "").attr("place", "the rank and the mesh")
        hooks.watch.note(here.place, place)
    is_pure = len(parts) < 2 or parts[1] in PURE_WEFT or function.__module__ in RECORDING
    if not is_pure and not is_namedtuple(function):
        hooks.watch.refuse(f"{function.__module__}.{function.__qualname__} is not watched")
    if function.__qualname__ in _IMPURE_WEFT:
        hooks.watch.refuse(f"{function.__qualname__} depends on or changes more than its arguments")
    marked = hooks.watch.known(args[0]) if function.__qualname__ in _MARKS else None
    if marked is not None:
        hooks.watch.refuse(f"a hook is registered on {marked.origin.text}")
    name = function.__qualname__
    args, kwargs = settled_call(args, kwargs, lambda value: _argument(hooks, value, name))
    return function(*args, **kwargs)


def _without_scalars(value: Any) -> Any:
    """A value with NumPy's own scalars for the numbers that stand for some."""
    if type(value) in (list, tuple):
        return mapped(value, _without_scalars)
    return settled(value) if is_of_numpy(value) else value


def _tree(hooks: Hooks, value: Any) -> Any:
    """A tree of values with the numbers in it that change from call to call, if there are any."""
    kind = type(value)
    if kind is dict:
        pairs = {key: _tree(hooks, hooks.item(value, key)) for key in hooks.iter(value)}
        return value if all(pairs[key] is value[key] for key in pairs) else pairs
    if kind is list or kind is tuple:
        parts = [_tree(hooks, part) for part in hooks.iter(value)]
        return value if all(map(operator.is_, parts, value)) else kind(parts)
    return value


def _argument(hooks: Hooks, value: Any, user: str) -> Any:
    if isinstance(value, np.ndarray):
        return array_for_weft(hooks, value)
    if not isinstance(value, Tensor):
        hooks.deep(value, user)
    return value


def _callbacks(hooks: Hooks, value: Any) -> Any:
    """An argument that Weft may call, followed: a function, or the branches of a `switch`."""
    if type(value) in (list, tuple) and value and all(map(callable, value)):
        return [hooks.callback(part) for part in value]
    return hooks.callback(value)


def number_from_outside(hooks: Hooks, holder: Any, key: str) -> Any:
    """A float in a dict from outside becomes a graph input: only its type is guarded."""
    watch = hooks.watch
    known = watch.known(holder)
    if known is None or watch.tensors is None or type(holder) not in (dict, CountedDict):
        return hooks.item(holder, key)
    if stores.held(known) is not holder or type(holder.get(key)) not in (float, np.float64):
        return hooks.item(holder, key)  # written by the run itself, or something else
    origin = stores.element_origin(known, key)
    watch.guard("class", origin, type(holder[key]), holder=known)
    return watch.tensors.number(origin, holder[key])


def array_for_weft(hooks: Hooks, array: Any) -> Any:
    """An array that Weft computes with. One from outside becomes an input of the graph, so that its
    elements need no guard; unless the run has written to it: then they are what they are now."""
    watch = hooks.watch
    known = watch.known(array)
    if known is None:
        return array
    if stores.is_written(known) or watch.unseen.has(array):
        watch.content(known)
        return array.copy()
    if watch.tensors is None:
        watch.content(known)
    return array


# --- methods of object ---------------------------------------------------------------------------


def _object_getattribute(hooks: Hooks, holder: Any, name: str) -> Any:
    cls = type(holder)
    own = stores.instance_dict(holder)
    if (
        (own is None or name not in own)
        and static_lookup(cls, name) is MISSING
        and operators.special(cls, "__getattr__") is not None
    ):
        return object.__getattribute__(holder, name)  # for its error: __getattr__ comes later
    return attributes.load_as_object(hooks, holder, name)


#: Methods of `object`, which classes of the user's call by super().
OBJECT_METHODS: dict[str, Callable[..., Any]] = {
    "__getattribute__": _object_getattribute,
    "__setattr__": attributes.store_as_object,
    "__delattr__": attributes.delete_as_object,
}
