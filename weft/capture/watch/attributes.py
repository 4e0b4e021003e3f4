"""Attribute look-up as in Python: each step that was taken becomes a guard.

The steps are the instance dict, slots, class attributes (so that a method may be patched later),
and properties, other descriptors and `__getattr__`, which are followed like any call.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.capture.watch import stores
from weft.capture.watch.follow import LIBRARY, Wrapper, policy
from weft.capture.watch.origin import MISSING, static_lookup
from weft.capture.watch.stores import instance_dict
from weft.core.counted import CONTAINERS as COUNTED
from weft.core.private_state import class_of, public_class
from weft.core.tensor import Tensor

if TYPE_CHECKING:
    from weft.capture.hooks import Hooks
    from weft.capture.watch.watch import Known, Watch

#: Attributes of arrays that their type guard covers.
ARRAY_FACTS = frozenset({"shape", "dtype", "ndim", "size", "itemsize", "nbytes", "__class__"})
_HEAP = 1 << 9  # Py_TPFLAGS_HEAPTYPE: a class that Python code may change
_IMMUTABLE = 1 << 8


def is_python_function(value: Any) -> bool:
    return isinstance(value, types.FunctionType)


def load(hooks: Hooks, obj: Any, name: str) -> Any:
    """obj.name"""
    watch = hooks.watch
    cls = type(obj)
    if isinstance(obj, Tensor):
        return _load_of_tensor(watch, obj, name)
    if cls in _BUILTIN:
        return getattr(obj, name)
    if cls in COUNTED:  # the method of the builtin class, which is watched
        return getattr(super(cls, obj), name)
    if isinstance(obj, types.ModuleType):
        return _load_of_module(hooks, obj, name)
    if isinstance(obj, type):
        return _load_of_class(hooks, obj, name)
    if cls is super:
        return _load_of_super(hooks, obj, name)
    if isinstance(obj, np.ndarray):
        return _load_of_array(watch, obj, name)
    finder = static_lookup(cls, "__getattribute__")
    if is_python_function(finder):
        class_attribute(watch, cls, "__getattribute__", finder)
        try:
            return hooks.call(finder, obj, name)
        except AttributeError:
            fallback = static_lookup(cls, "__getattr__")
            if not is_python_function(fallback):
                raise
            class_attribute(watch, cls, "__getattr__", fallback)
            return hooks.call(fallback, obj, name)
    return load_as_object(hooks, obj, name)


_BUILTIN = frozenset(
    {
        *(type(None), bool, int, float, complex, str, bytes, bytearray, range, slice),
        *(list, tuple, dict, set, frozenset),
    }
)


def load_as_object(hooks: Hooks, obj: Any, name: str) -> Any:
    """What `object.__getattribute__` does, then `__getattr__` if that finds nothing."""
    watch = hooks.watch
    cls = type(obj)
    known = watch.known(obj)
    found = static_lookup(cls, name)
    if found is not MISSING and is_data_descriptor(found):
        return _load_data_descriptor(hooks, obj, cls, name, found, known)
    own = instance_dict(obj)
    if own is not None:
        if known is not None:
            attributes = watch.attributes(known)
            assert attributes is not None
            number = stores.read_item(watch, attributes, name)
            if number is not MISSING:
                return number
        if name in own:
            return own[name]
    if found is not MISSING:
        return _load_from_class(hooks, obj, name, found, cls)
    class_lacks(watch, cls, name)
    fallback = static_lookup(cls, "__getattr__")
    if is_python_function(fallback):
        class_attribute(watch, cls, "__getattr__", fallback)
        return hooks.call(fallback, obj, name)
    return getattr(obj, name)  # for its error, or a `__getattr__` written in C


def is_data_descriptor(value: Any) -> bool:
    cls = type(value)
    return hasattr(cls, "__set__") or hasattr(cls, "__delete__")


def _load_data_descriptor(
    hooks: Hooks, obj: Any, cls: type, name: str, found: Any, known: Known | None
) -> Any:
    watch = hooks.watch
    if isinstance(found, property) or is_python_function(static_lookup(type(found), "__get__")):
        return _load_from_class(hooks, obj, name, found, cls)
    if name == "__dict__" and known is not None:
        attributes = watch.attributes(known)
        return attributes.obj if attributes is not None else getattr(obj, name)
    if type(found).__name__ == "_tuplegetter" and isinstance(obj, tuple):
        if known is not None:
            place = cls._fields.index(name)  # type: ignore[attr-defined]
            number = stores.read_item(watch, known, place)
            if number is not MISSING:
                return number
        return getattr(obj, name)
    if known is not None and name != "__class__" and (id(obj), name) not in watch.written:
        place = known.origin.attr(name)
        try:
            value = getattr(obj, name)
        except AttributeError:
            watch.guard("missing", known.origin.maybe(name), None)
            raise
        return watch.read(value, place)
    return getattr(obj, name)


def _load_from_class(
    hooks: Hooks, obj: Any, name: str, found: Any, cls: type, bound: tuple[Any, Any] | None = None
) -> Any:
    """An attribute that stands in a class, by the rules of descriptors.

    bound   the instance that it is read of, or None for the class itself, and the class; where that
            is not an object and its class
    """
    number = class_attribute(hooks.watch, cls, name, found)
    if number is not MISSING:
        return number
    instance, owner = bound or (obj, cls)
    if isinstance(found, functools.cached_property):
        if instance is not obj:
            return getattr(obj, name)
        value = hooks.call(found.func, obj)
        store(hooks, obj, name, value)
        return value
    if is_python_function(found) or isinstance(found, Wrapper):
        return found if instance is None else types.MethodType(found, instance)
    if isinstance(found, staticmethod):
        return found.__func__
    if isinstance(found, classmethod):
        return types.MethodType(found.__func__, owner)
    getter = static_lookup(type(found), "__get__")
    if isinstance(found, property) and instance is not None and found.fget is not None:
        return hooks.call(found.fget, instance)
    if is_python_function(getter):
        return hooks.call(getter, found, instance, owner)
    return getattr(obj, name)


# --- classes, modules, super, arrays, tensors ----------------------------------------------------


def is_changeable(watch: Watch, cls: type) -> bool:
    """Whether attributes of a class may change: it is in Python, and not made by the run."""
    flags = cls.__flags__
    if not flags & _HEAP or flags & _IMMUTABLE or id(cls) in watch.inside_classes:
        return False
    return not is_of_library(cls)


_library: dict[str, bool] = {}


def is_of_library(cls: type) -> bool:
    name = cls.__module__
    found = _library.get(name)
    if found is None:
        top = str(name).partition(".")[0]
        module = sys.modules.get(name)
        file = getattr(module, "__file__", None)
        found = top == "builtins" or (file is not None and policy(file) == LIBRARY)
        _library[name] = found
    return found


def class_attribute(watch: Watch, cls: type, name: str, found: Any) -> Any:
    """A class attribute was used: guard it, on the class or on the base that it stands in.

    Gives the number that stands for it in each call, if it is one that changes; else MISSING.
    """
    cls = public_class(cls)
    holder = next((base for base in cls.__mro__ if name in base.__dict__), cls)
    if (id(holder), name) in watch.written:
        for base in cls.__mro__[: cls.__mro__.index(holder)]:
            if is_changeable(watch, base):
                place = watch.know_again(base).origin.attr("__dict__").has(name)
                watch.note(False, place)
        return MISSING
    if not is_changeable(watch, cls):
        if not is_changeable(watch, holder):
            return MISSING
        cls = holder
    known = watch.know_again(cls)
    if isinstance(found, (types.FunctionType, property)):
        place = known.origin.attr(name)  # a class holds these without descriptors
        watch.guard("identity", place, found)
        watch.know_again(found)
        return MISSING
    if hasattr(type(found), "__get__"):
        watch.guard("identity", known.origin.class_attr(name), found)
        return MISSING
    number = watch.read(found, known.origin.attr(name))
    return MISSING if number is found else number


def class_lacks(watch: Watch, cls: type, name: str) -> None:
    cls = public_class(cls)
    if is_changeable(watch, cls):
        watch.guard("missing", watch.know_again(cls).origin.class_attr(name), None)


def _load_of_class(hooks: Hooks, obj: type, name: str) -> Any:
    watch = hooks.watch
    meta = type(obj)
    found = static_lookup(obj, name)
    of_meta = static_lookup(meta, name)
    if of_meta is not MISSING and is_data_descriptor(of_meta):
        if isinstance(of_meta, property):
            return _load_from_class(hooks, obj, name, of_meta, meta)
        return getattr(obj, name)
    if found is not MISSING:
        return _load_from_class(hooks, obj, name, found, obj, (None, obj))
    class_lacks(watch, obj, name)
    if of_meta is not MISSING:
        return _load_from_class(hooks, obj, name, of_meta, meta)
    fallback = static_lookup(meta, "__getattr__")
    if is_python_function(fallback) and is_changeable(watch, meta):
        return hooks.call(fallback, obj, name)
    value = getattr(obj, name)
    return watch.note(value, watch.know_again(obj).origin.attr(name))


def _load_of_module(hooks: Hooks, obj: types.ModuleType, name: str) -> Any:
    own = vars(obj)
    if name in own:
        return hooks.watch_global(own, f"{obj.__name__}.", name, own[name])
    value = getattr(obj, name)  # from a module's `__getattr__`, or its error
    known = hooks.watch.know_again(obj)
    return hooks.watch.note(value, known.origin.attr(name))


def _load_of_super(hooks: Hooks, obj: Any, name: str) -> Any:
    receiver, owner = obj.__self__, obj.__self_class__
    order = () if receiver is None else owner.__mro__
    for base in order[order.index(obj.__thisclass__) + 1 :] if order else ():
        if name in base.__dict__:
            bound = (None if receiver is owner else receiver, owner)
            return _load_from_class(hooks, obj, name, base.__dict__[name], base, bound)
    return getattr(obj, name)


def _load_of_array(watch: Watch, obj: Any, name: str) -> Any:
    known = watch.known(obj)
    if known is not None and name not in ARRAY_FACTS:
        attribute = getattr(obj, name)
        if not callable(attribute):  # .T, .real, .flat: they show the elements
            watch.content(known)
        return attribute
    return getattr(obj, name)


def _load_of_tensor(watch: Watch, obj: Tensor, name: str) -> Any:
    own = None if class_of(obj) is Tensor else instance_dict(obj)
    if own is not None and static_lookup(type(obj), name) is MISSING:
        known = watch.known(obj)
        attributes = None if known is None else watch.attributes(known)
        if attributes is not None:  # weight.decay = False: attributes of the user's own
            stores.read_item(watch, attributes, name)
    return getattr(obj, name)


# --- writing -------------------------------------------------------------------------------------


def store(hooks: Hooks, obj: Any, name: str, value: Any) -> None:
    """obj.name = value"""
    _change(hooks, store_as_object, "__setattr__", obj, name, value)


def delete(hooks: Hooks, obj: Any, name: str) -> None:
    """del obj.name"""
    _change(hooks, delete_as_object, "__delattr__", obj, name)


def _change(
    hooks: Hooks, as_object: Callable[..., None], method: str, obj: Any, name: str, *value: Any
) -> None:
    function = static_lookup(type(obj), method)
    if is_python_function(function) and not _is_own(function):
        class_attribute(hooks.watch, type(obj), method, function)
        hooks.call(function, obj, name, *value)
    else:
        as_object(hooks, obj, name, *value)


def _is_own(function: Any) -> bool:
    return str(function.__module__) in ("weft.nn.members", "weft.nn.parameter", "weft.core.counted")


def store_as_object(hooks: Hooks, obj: Any, name: str, *value: Any) -> None:
    """What `object.__setattr__` does; without a value, what `object.__delattr__` does."""
    cls = type(obj)
    found = static_lookup(cls, name)
    change: Any = static_lookup(type(found), "__set__" if value else "__delete__")
    if isinstance(found, property) and not isinstance(obj, Tensor):
        change = found.fset if value else found.fdel
        if change is not None:
            class_attribute(hooks.watch, cls, name, found)
            hooks.call(change, obj, *value)
            return
    elif is_python_function(change):
        class_attribute(hooks.watch, cls, name, found)
        hooks.call(change, found, obj, *value)
        return
    _write(hooks.watch, obj, name, found, value[0] if value else MISSING)


delete_as_object = store_as_object


def set_naturally(obj: Any, name: str, value: Any) -> None:
    """Set or delete without the user's `__setattr__`, which was already followed."""
    finder = type(obj).__setattr__
    plain = is_python_function(finder) and not _is_own(finder)
    if value is MISSING:
        (object.__delattr__ if plain else delattr)(obj, name)
    else:
        (object.__setattr__ if plain else setattr)(obj, name, value)


def _write(watch: Watch, obj: Any, name: str, found: Any, value: Any) -> None:
    watch.save(obj)
    known = watch.known(obj)
    if known is None and watch.is_outside_object(obj):
        known = watch.know_again(obj)
    if known is None:
        set_naturally(obj, name, value)
        return
    if isinstance(obj, (Tensor, np.ndarray)) and found is not MISSING:
        if isinstance(obj, np.ndarray):
            watch.refuse(f"{known.origin.text}.{name} is set")
        set_naturally(obj, name, value)  # .grad and .requires_grad: the recorder watches them
        return
    own = instance_dict(obj)
    in_dict = own is not None and not (found is not MISSING and is_data_descriptor(found))
    if in_dict:
        attributes = watch.attributes(known)
        assert attributes is not None
        if own is not None and own.get(name) is value and _read_from(watch, value, known, name):
            return  # `self.count += 1` on a tensor: the attribute holds what it held
        kept = stores.before_write(watch, attributes)
        keep_members(watch, obj)
        if value is MISSING:
            stores.read_presence(watch, attributes, name)
        set_naturally(obj, name, value)
        kept.written.add(name)
    else:
        _keep_attribute(watch, obj, name)
        set_naturally(obj, name, value)
        watch.written.add((id(obj), name))
    if value is MISSING:
        text = f"del {known.origin.text}.{name}"
        watch.effect(text, set_naturally, known.origin, name, MISSING)
    else:
        text = f"{known.origin.text}.{name} = …"
        watch.effect(text, set_naturally, known.origin, name, value)


def _read_from(watch: Watch, value: Any, known: Known, name: str) -> bool:
    """Whether a tensor came from this attribute of the object: also in a later call."""
    origin = watch.origin_of(value) if isinstance(value, Tensor) else None
    if origin is None or origin.key != name:
        return False
    attributes = watch.attributes(known)
    return origin.parent is known.origin or (
        attributes is not None and origin.parent is attributes.origin
    )


def keep_members(watch: Watch, obj: Any) -> None:
    """Save what a module records about its attributes: setting one may change it."""
    own = instance_dict(obj)
    if own is None or "_member_kinds" not in own or "_transient_buffers" not in own:
        return
    for container in (own["_member_kinds"], own["_transient_buffers"]):
        watch.undo(functools.partial(stores.put_back, container, container.copy()))


def _keep_attribute(watch: Watch, obj: Any, name: str) -> None:
    holder = obj.__dict__ if isinstance(obj, type) else None
    old = getattr(obj, name, MISSING) if holder is None else holder.get(name, MISSING)

    def put_back() -> None:
        if old is not MISSING:
            set_naturally(obj, name, old)
        elif (name in obj.__dict__) if holder is not None else hasattr(obj, name):
            set_naturally(obj, name, MISSING)

    watch.undo(put_back)
