"""Effects: writes of a run to objects from outside, kept so that they can be repeated and undone.

A value that was written is kept as a template. At each replay, containers that the run made are
built again, tensors come from the graph, and objects from outside are fetched by their origins.
"""

from __future__ import annotations

import dataclasses
import functools
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from weft.base.dataclass import dataclass
from weft.base.dim_algebra import Dim
from weft.capture.watch.origin import MISSING, Origin
from weft.capture.watch.texts import LeafNow, TextParts, as_leaf
from weft.capture.watch.values import is_plain
from weft.core.counted import CountedDict, CountedList, CountedState
from weft.core.number import CLASSES, Number
from weft.core.tensor import Tensor
from weft.record.control.nested import size_number

TensorOf = Callable[[Tensor], Tensor]
OriginOf = Callable[[Any], Origin | None]


class Unstorable(Exception):
    """A later call cannot create the value again; the message says why."""


@dataclass(slots=True)
class Now:
    """One replay: the arguments of the call, and the tensors of the graph."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    tensor_of: TensorOf
    made: dict[int, Any] = field(default_factory=dict)  # containers shared between effects
    places: dict[int, Any] = field(default_factory=dict)  # origins already looked up

    def find(self, origin: Origin) -> Any:
        if id(origin) not in self.places:
            self.places[id(origin)] = origin.evaluate(self.args, self.kwargs)
        return self.places[id(origin)]


# --- templates -----------------------------------------------------------------------------------

Template = Callable[[Now], Any]


def template_of(value: Any, origin_of: OriginOf, path: tuple[int, ...] = ()) -> Template:
    """A function that rebuilds the value. Raises `Unstorable` if a later call cannot."""
    if is_plain(value) or value is MISSING:
        return lambda now: value
    if value.__class__ is Dim:
        value = size_number(value)
    if isinstance(value, Tensor):
        return lambda now: now.tensor_of(value)
    if isinstance(value, LeafNow):
        return lambda now: as_leaf(now.tensor_of(value.tensor))
    origin = origin_of(value)
    if origin is not None:
        return lambda now: now.find(origin)
    if id(value) in path:
        raise Unstorable("a container that contains itself")
    path = (*path, id(value))
    kind = type(value)
    if kind in _BUILDERS or is_namedtuple(kind):
        parts = dict.items(value) if isinstance(value, dict) else value
        return _built(value, kind, [template_of(part, origin_of, path) for part in parts])
    if is_record(value) and origin_of(kind) is not None:
        parts = [template_of(part, origin_of, path) for part in vars(value).items()]
        return _built(value, kind, parts)
    if isinstance(value, np.ndarray) and value.dtype != object:
        kept = value.copy()
        return lambda now: kept.copy()
    if isinstance(value, TextParts):
        return _text_template(value, origin_of)
    if isinstance(value, types.MethodType):  # bound again to the same object
        holder = template_of(value.__self__, origin_of, path)
        function = template_of(value.__func__, origin_of, path)
        return lambda now: types.MethodType(function(now), holder(now))
    if kind is functools.partial:
        parts = [template_of(p, origin_of, path) for p in (value.func, value.args, value.keywords)]
        return lambda now: _partial(*(part(now) for part in parts))
    if kind is types.FunctionType and _needs_nothing(value):
        return lambda now: _copied(value)
    if isinstance(value, type) or callable(value):
        raise Unstorable(f"{getattr(value, '__qualname__', kind.__name__)}, made during the run")
    raise Unstorable(f"an object of class {kind.__name__}, made during the run")


def _text_template(text: TextParts, origin_of: OriginOf) -> Template:
    made = [
        part if isinstance(part, str) else (part, template_of(part.value, origin_of))
        for part in text.parts
    ]

    def build(now: Now) -> str:
        texts = [part if isinstance(part, str) else part[0].text(part[1](now)) for part in made]
        return "".join(texts)

    return build


def _needs_nothing(function: types.FunctionType) -> bool:
    """Whether a function that the run made uses nothing but its arguments."""
    defaults = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
    return not function.__closure__ and not function.__dict__ and all(map(is_plain, defaults))


def _copied(function: types.FunctionType) -> types.FunctionType:
    made = types.FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__
    )
    made.__kwdefaults__, made.__qualname__ = function.__kwdefaults__, function.__qualname__
    return made


def _partial(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return functools.partial(function, *args, **kwargs)


def is_namedtuple(kind: Any) -> bool:
    """Whether it is a class of named tuples."""
    if not isinstance(kind, type) or not issubclass(kind, tuple):
        return False
    return hasattr(kind, "_fields") and hasattr(kind, "_make")


def is_record(value: Any) -> bool:
    """Whether an object is nothing but its attributes: of a dataclass, without slots."""
    kind = type(value)
    if not dataclasses.is_dataclass(kind) or kind.__new__ is not object.__new__:
        return False
    return not isinstance(value, type) and all(
        "__slots__" not in vars(base) and "__del__" not in vars(base) for base in kind.__mro__[:-1]
    )


def _record(kind: Any, attributes: list[Any]) -> Any:
    made = object.__new__(kind)
    made.__dict__.update(attributes)
    return made


_BUILDERS: dict[type, Callable[[Any, list[Any]], Any]] = {
    list: lambda value, parts: parts,
    tuple: lambda value, parts: tuple(parts),
    dict: lambda value, parts: dict(parts),
    set: lambda value, parts: set(parts),
    frozenset: lambda value, parts: frozenset(parts),
    deque: lambda value, parts: deque(parts, value.maxlen),
    OrderedDict: lambda value, parts: OrderedDict(parts),
    defaultdict: lambda value, parts: defaultdict(value.default_factory, parts),
    CountedList: lambda value, parts: CountedList(parts),
    CountedDict: lambda value, parts: CountedDict(parts),
    CountedState: lambda value, parts: CountedState(value.default_factory, parts),
}


def _built(value: Any, kind: Any, parts: list[Template]) -> Template:
    def build(now: Now) -> Any:
        made = now.made.get(id(value))
        if made is None:
            contents = [part(now) for part in parts]
            builder = _BUILDERS.get(kind)
            if builder is not None:
                made = builder(value, contents)
            else:
                made = kind._make(contents) if is_namedtuple(kind) else _record(kind, contents)
            now.made[id(value)] = made
        return made

    # The id of the original stands for it as long as it lives.
    build.value = value  # type: ignore[attr-defined]
    return build


# --- effects -------------------------------------------------------------------------------------

Action = Callable[..., Any]


@dataclass(eq=False)
class Effect:
    """One write, or one call that prints something.

    action      the write: `action(target, *values)`
    target      the origin of the object that is written; None for calls
    raw         the values; they become templates at the end of the run, since containers among them
                may still be filled
    """

    description: str
    location: str
    action: Action
    target: Origin | None
    raw: tuple[Any, ...]
    templates: list[Template] | None = None

    def tensors(self) -> list[Tensor]:
        """The tensors in the values, for which a replay calls `tensor_of`."""
        return tensors_in([self], (), {})

    def finish(self, origin_of: OriginOf) -> None:
        """Make templates of the values. Raises `Unstorable` if a replay cannot rebuild one."""
        if self.templates is None:
            self.templates = [template_of(value, origin_of) for value in self.raw]

    def prepare(self, now: Now) -> Callable[[], None]:
        """Look up everything that the effect needs, before any effect of the call runs."""
        assert self.templates is not None
        values = [template(now) for template in self.templates]
        if self.target is None:
            return lambda: self.action(*values)
        target = now.find(self.target)
        return lambda: self.action(target, *values)


def tensors_in(
    effects: Sequence[Effect], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[Tensor]:
    """The tensors for which a replay of these effects calls `tensor_of`."""
    found: dict[int, Tensor] = {}

    def collect(tensor: Tensor) -> Any:
        found[id(tensor)] = tensor
        # Texts are made here, too, which would ask a number for its value.
        return CLASSES[tensor.kind]() if tensor.__class__ is Number else tensor

    now = Now(args, kwargs, collect)
    for effect in effects:
        for template in effect.templates or ():
            template(now)
    return list(found.values())


def replay(
    effects: Sequence[Effect],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    tensor_of: TensorOf,
) -> None:
    """Repeat all effects of a run, in order. Origins are looked up before the first write."""
    now = Now(args, kwargs, tensor_of)
    for action in [effect.prepare(now) for effect in effects]:
        action()
