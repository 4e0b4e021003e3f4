"""Builtin functions that are known one by one: what each looks at, and what it calls."""

from __future__ import annotations

import functools
import itertools
import operator
import types
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from weft.capture.watch import attributes, operators
from weft.capture.watch.operators import COMPARING
from weft.capture.watch.printing import formatted, text_of
from weft.capture.watch.values import is_plain
from weft.core.tensor import Tensor

if TYPE_CHECKING:
    from weft.capture.hooks import Hooks

Handler = Callable[["Hooks", tuple[Any, ...], dict[str, Any]], Any]


def _getattr(hooks: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if len(args) != 3:
        return hooks.attr(*args)
    try:
        return hooks.attr(args[0], args[1])
    except AttributeError:
        return args[2]


def _hasattr(hooks: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    try:
        hooks.attr(*args)
    except AttributeError:
        return False
    return True


def _setattr(hooks: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    obj, name, value = args
    attributes.store(hooks, obj, name, value)


def _delattr(hooks: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    attributes.delete(hooks, *args)


def _iter(hooks: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if len(args) == 2:
        return iter(lambda: hooks.call(args[0]), args[1])
    return iter(hooks.iter(*args))


def _next(hooks: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    iterator = args[0]
    cls = type(iterator)
    known = hooks.watch.known(iterator)
    method = operators.special(cls, "__next__")
    if method is not None:
        attributes.class_attribute(hooks.watch, cls, "__next__", method)
        try:
            return hooks.call(method, iterator)
        except StopIteration:
            if len(args) > 1:
                return args[1]
            raise
    if known is not None:
        hooks.watch.refuse(f"the iterator {known.origin.text} from outside is advanced")
    return next(*args)


def _shallow(function: Any) -> Handler:
    """A function that goes through its iterables and hands the elements on."""

    def handle(hooks: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        values = [hooks.iter(value) if _is_iterable(value) else value for value in args]
        return function(*values, **kwargs)

    return handle


def _with_callback(function: Any, place: int = 0, name: str = "") -> Handler:
    """The same, with a function among the arguments that is to be followed."""

    def handle(hooks: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        values = list(args)
        for i, value in enumerate(args):
            if i == place:
                values[i] = value if value is None else _callable(hooks, value)
            elif function is not functools.reduce or i == 1:
                values[i] = hooks.iter(value)
        named = {k: _callable(hooks, v) if k == name and v else v for k, v in kwargs.items()}
        return function(*values, **named)

    return handle


def _is_iterable(value: Any) -> bool:
    """Whether a value is gone through: modules that hold others are callable, too."""
    return not callable(value) or hasattr(type(value), "__iter__")


def _callable(hooks: Hooks, function: Any) -> Any:
    if isinstance(function, (types.FunctionType, types.MethodType)):
        return hooks.callback(function)
    return functools.partial(hooks.call, function)


def _comparing(function: Any) -> Handler:
    """sorted, min, max: the elements are compared, or what `key` makes of them."""

    def handle(hooks: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not args:
            return function(*args, **kwargs)
        values = list(hooks.iter(args[0])) if len(args) == 1 else list(args)
        given = kwargs.get("key")
        key = None if given is None else _callable(hooks, given)
        if key is not None or any(map(_has_order, values)):
            kwargs = {**kwargs, "key": lambda v: _Compared(hooks, v if key is None else key(v))}
        else:
            hooks.deep(values, function.__name__, COMPARING)
        return function(values, **kwargs)

    return handle


def _has_order(value: Any) -> bool:
    return any(operators.special(type(value), name) is not None for name in ("__lt__", "__gt__"))


class _Compared:
    """A value whose comparisons are watched, for code that compares by itself."""

    __slots__ = ("hooks", "value")

    def __init__(self, hooks: Hooks, value: Any) -> None:
        self.hooks = hooks
        self.value = value

    def __lt__(self, other: _Compared) -> Any:
        return self.hooks.test(self.hooks.compare("<", self.value, other.value))

    def __gt__(self, other: _Compared) -> Any:
        return self.hooks.test(self.hooks.compare(">", self.value, other.value))


def _sum(hooks: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    start = args[1] if len(args) > 1 else kwargs.get("start", 0)
    values = list(hooks.iter(args[0]))
    if not any(map(_adds, (start, *values))):
        hooks.deep(values, "sum", ("__add__", "__radd__"))
        return sum(values, start)  # which adds floats more exactly than a loop does
    for value in values:
        start = operators.binary(hooks, "+", start, value)
    return start


def _adds(value: Any) -> bool:
    cls = type(value)
    return any(operators.special(cls, name) is not None for name in ("__add__", "__radd__"))


def _filter(hooks: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    function = hooks.test if args[0] is None else _callable(hooks, args[0])
    return filter(lambda value: hooks.test(function(value)), hooks.iter(args[1]))


def _flattened(hooks: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return itertools.chain.from_iterable(hooks.iter(part) for part in hooks.iter(args[0]))


def _reversed(hooks: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    value = args[0]
    cls = type(value)
    method = operators.special(cls, "__reversed__")
    if method is not None:
        attributes.class_attribute(hooks.watch, cls, "__reversed__", method)
        return hooks.iter(hooks.call(method, value))
    if operators.special(cls, "__getitem__") is not None:
        size = operators.length(hooks, value)
        return (hooks.item(value, i) for i in range(size - 1, -1, -1))
    return reversed(hooks.iter(value))


def attributes_of(hooks: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """operator.attrgetter(...)(obj): the attributes are read here."""
    getter, obj = args
    found = []
    for path in getter.__reduce__()[1]:
        value = obj
        for name in path.split("."):
            value = hooks.attr(value, name)
        found.append(value)
    return found[0] if len(found) == 1 else tuple(found)


def _quantifier(wanted: bool) -> Handler:
    def handle(hooks: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        return any(hooks.test(v) is wanted for v in hooks.iter(args[0])) is wanted

    return handle


def _len(hooks: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    return operators.length(hooks, *args)


def _bool(hooks: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    return hooks.test(*args) if len(args) == 1 else bool(*args)


def _str(hooks: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    if len(args) != 1 or kwargs:
        return str(*args, **kwargs)
    return text_of(hooks, args[0], "__str__", str)


def _repr(hooks: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    return text_of(hooks, args[0], "__repr__", repr)


def _format(hooks: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    return formatted(hooks, args[0], args[1] if len(args) > 1 else "")


def _by_method(function: Any, *names: str) -> Handler:
    """abs, int, float, hash…: a user's method where there is one."""

    def handle(hooks: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        value = args[0] if args else None
        for name in names:
            method = operators.special(type(value), name)
            if method is not None:
                attributes.class_attribute(hooks.watch, type(value), name, method)
                made = hooks.call(method, value, *args[1:])
                # The builtin checks what comes back; abs and its like take anything.
                return made if function in (abs, round) else function(made)
        hooks.deep_all(args, kwargs, function.__name__)
        return function(*args, **kwargs)

    return handle


def _hash(hooks: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    value = args[0]
    method = operators.special(type(value), "__hash__")
    if method is not None:
        attributes.class_attribute(hooks.watch, type(value), "__hash__", method)
        return hash(hooks.call(method, value))
    if not is_plain(value):
        _identity_seen(hooks, value, "hash")
    return hash(value)


def _id(hooks: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    _identity_seen(hooks, args[0], "id")
    return id(args[0])


def _identity_seen(hooks: Hooks, value: Any, name: str) -> None:
    if hooks.watch.origin_of(value) is not None:
        hooks.watch.identity(value)
    elif not isinstance(value, Tensor) and type(value) is not tuple:
        hooks.watch.refuse(f"{name}() of a {type(value).__name__} that the run made is asked for")


def _type(hooks: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if len(args) == 1:
        return type(args[0])
    made = type(*args, **kwargs)
    hooks.watch.inside_classes[id(made)] = made
    return made


def _isinstance(hooks: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    wanted = args[1]
    if isinstance(wanted, tuple):
        hooks.shallow(wanted)
    check = operators.special(type(wanted), "__instancecheck__")
    if check is not None:
        return hooks.test(hooks.call(check, wanted, args[0]))
    return isinstance(*args)


def _vars(hooks: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return hooks.attr(args[0], "__dict__")


def _dir(hooks: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    hooks.watch.refuse("dir() is asked")
    return dir(*args)


def _plain_call(function: Any) -> Handler:
    return lambda hooks, args, kwargs: function(*args, **kwargs)


HANDLERS: dict[Any, Handler] = {
    getattr: _getattr,
    hasattr: _hasattr,
    setattr: _setattr,
    delattr: _delattr,
    iter: _iter,
    next: _next,
    len: _len,
    bool: _bool,
    str: _str,
    repr: _repr,
    ascii: _by_method(ascii, "__repr__"),
    format: _format,
    hash: _hash,
    id: _id,
    type: _type,
    isinstance: _isinstance,
    vars: _vars,
    dir: _dir,
    sum: _sum,
    any: _quantifier(True),
    all: _quantifier(False),
    int: _by_method(int, "__int__", "__index__", "__trunc__"),
    float: _by_method(float, "__float__", "__index__"),
    complex: _by_method(complex, "__complex__", "__float__"),
    abs: _by_method(abs, "__abs__"),
    round: _by_method(round, "__round__"),
    operator.index: _by_method(operator.index, "__index__"),
    **{f: _comparing(f) for f in (sorted, min, max)},
    **{f: _shallow(f) for f in (list, tuple, zip, enumerate, itertools.chain)},
    **{f: _shallow(f) for f in (itertools.product, itertools.zip_longest, itertools.islice)},
    **{f: _shallow(f) for f in (itertools.cycle, itertools.pairwise, itertools.combinations)},
    **{f: _shallow(f) for f in (itertools.permutations, deque)},
    itertools.chain.from_iterable: _flattened,
    reversed: _reversed,
    filter: _filter,
    **{f: _with_callback(f) for f in (map, functools.reduce, itertools.starmap)},
    **{f: _with_callback(f) for f in (itertools.takewhile, itertools.dropwhile)},
    **{f: _with_callback(f) for f in (itertools.filterfalse, functools.cmp_to_key)},
    itertools.accumulate: _with_callback(itertools.accumulate, 1, "func"),
    itertools.groupby: _with_callback(itertools.groupby, 1, "key"),
    **{f: _plain_call(f) for f in (callable, issubclass, object, super, property)},
    **{f: _plain_call(f) for f in (staticmethod, classmethod, functools.partial)},
    **{f: _plain_call(f) for f in (functools.wraps, functools.update_wrapper)},
    **{f: _plain_call(f) for f in (functools.lru_cache, functools.cache, itertools.repeat)},
    **{f: _plain_call(f) for f in (operator.itemgetter, operator.attrgetter, itertools.count)},
}


# --- contexts ------------------------------------------------------------------------------------


class FollowedContext:
    """A context manager of a user's class, entered and left by followed calls."""

    def __init__(self, hooks: Hooks, manager: Any) -> None:
        self.hooks = hooks
        self.manager = manager
        cls = type(manager)
        if not hasattr(cls, "__enter__") or not hasattr(cls, "__exit__"):
            raise TypeError(
                f"'{cls.__name__}' object does not support the context manager protocol"
            )

    def __enter__(self) -> Any:
        return self._call("__enter__")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> Any:
        return self.hooks.test(self._call("__exit__", kind, error, trace))

    def _call(self, name: str, *args: Any) -> Any:
        cls = type(self.manager)
        found = getattr(cls, name)
        attributes.class_attribute(self.hooks.watch, cls, name, found)
        return self.hooks.call(found, self.manager, *args)
