"""What the thread that records sees of a tensor, while all other threads see the tensor itself.

A recording runs a function on the user's own objects. A tensor that it writes to, or whose sizes
are symbolic, holds a value of the graph for that long, which only the recording thread can use.
Such a tensor is made private to the thread: it gets a class in which its data, its history and its
gradient are looked up by thread. Other tensors, and other times, pay nothing for that.

>>> import threading
>>> from weft.core.private_state import make_private, make_shared
>>> x = weft.ones(2)
>>> make_private(x)
True
>>> x._data = weft.zeros(3)._data
>>> seen = []
>>> thread = threading.Thread(target=lambda: seen.append(x.shape))
>>> thread.start(); thread.join()
>>> x.shape, seen, x.__class__ is weft.Tensor
((3,), [(2,)], True)
>>> make_shared(x)
>>> x.shape, type(x) is weft.Tensor
((2,), True)
"""

from __future__ import annotations

import threading
from typing import Any

from weft.base.locks import process_lock
from weft.core.tensor import Tensor

__all__ = ["class_of", "make_private", "make_shared", "public_class"]

_UNSET: Any = object()
_FIELDS = ("_data", "_node", "_grad")
#: The slots of tensors, which hold what all threads share.
_SHARED: dict[str, Any] = {name: Tensor.__dict__[name] for name in _FIELDS}
_set_class = object.__dict__["__class__"].__set__


class _Thread(threading.local):
    """The fields of tensors that are private to this thread, by id."""

    def __init__(self) -> None:
        self.fields: dict[int, dict[str, Any]] = {}


_mine = _Thread()
_lock = process_lock()
#: Tensors that are private to some thread, and to how many; by id.
_private: dict[int, tuple[Tensor, int]] = {}
#: The class of private tensors for each class, and the other way round.
_classes: dict[type, type] = {}
_public: dict[type, type] = {}


def _field(name: str) -> property:
    """A field of a private tensor: this thread's, or the one that is shared."""
    shared = _SHARED[name]

    def get(tensor: Tensor) -> Any:
        fields = _mine.fields.get(id(tensor))
        if fields is None:
            return shared.__get__(tensor)
        found = fields[name]
        if found is _UNSET:
            raise AttributeError(name)
        return found

    def put(tensor: Tensor, value: Any) -> None:
        fields = _mine.fields.get(id(tensor))
        if fields is None:
            shared.__set__(tensor, value)
        else:
            fields[name] = value

    def delete(tensor: Tensor) -> None:
        fields = _mine.fields.get(id(tensor))
        if fields is None:
            shared.__delete__(tensor)
        else:
            fields[name] = _UNSET

    return property(get, put, delete)


class _Private:
    """Comes before the class of a tensor, in the class that it has while it is private."""

    __slots__ = ()

    def __init_subclass__(cls) -> None:
        """The user's own hook for subclasses is not called: nobody has written this one."""

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return _public[type(self)]

    _data = _field("_data")
    _node = _field("_node")
    _grad = _field("_grad")


def class_of(value: Any) -> type:
    """The class of an object, as if no tensor were private."""
    return public_class(type(value))


def public_class(cls: type) -> type:
    """The class that a tensor of this class has while it is not private."""
    return _public.get(cls, cls)


def make_private(tensor: Tensor) -> bool:
    """Let this thread change a tensor for itself alone, from now on.

    Returns False if it could before, or if its class cannot have such a subclass.
    """
    key = id(tensor)
    if key in _mine.fields:
        return False
    with _lock:
        held, count = _private.get(key, (tensor, 0))
        try:
            if not count:
                _set_class(tensor, _private_class(type(tensor)))
        except TypeError:
            return False
        _private[key] = held, count + 1
        _mine.fields[key] = {name: getattr(tensor, name, _UNSET) for name in _FIELDS}
    return True


def make_shared(tensor: Tensor) -> None:
    """Forget what this thread changed: it sees again what other threads see."""
    key = id(tensor)
    del _mine.fields[key]
    with _lock:
        count = _private.pop(key)[1] - 1
        if count:
            _private[key] = tensor, count
        else:
            _set_class(tensor, _public[type(tensor)])


def _private_class(cls: type) -> type:
    found = _classes.get(cls)
    if found is None:
        namespace = {"__slots__": (), "__module__": cls.__module__, "__doc__": cls.__doc__}
        found = _classes[cls] = type(cls)(cls.__name__, (_Private, cls), namespace)
        found.__qualname__ = cls.__qualname__
        _public[found] = cls
    return found
