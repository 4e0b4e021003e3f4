"""Texts with numbers that Python does not know yet, or that are others in each call.

`f"step {n}: {loss.item():.3f}"` is kept in parts, and each call makes the text: when it is printed,
stored or returned. So it needs no guard on the numbers. Where Python needs the text itself, to
compare it or to look into it, it is made in the run, which asks for its numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

from weft.capture.watch.origin import Origin, calculation
from weft.capture.watch.values import leaves
from weft.core.number import Number, is_outside, python_number
from weft.core.tensor import Tensor
from weft.record.effects import Later, Rebuilt

_CONVERSIONS: dict[int, Callable[[Any], Any]] = {
    -1: lambda value: value,
    ord("s"): str,
    ord("r"): repr,
    ord("a"): ascii,
}


def as_leaf(tensor: Tensor) -> Tensor:
    return tensor.detach().requires_grad_()


class LeafNow(Later):
    """A leaf with the value that it has now: it is shown as a leaf, `requires_grad=True`."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    def rebuilt(self, rebuild: Callable[[Any], Rebuilt]) -> Rebuilt:
        make, key = rebuild(self.tensor)
        return lambda values: as_leaf(make(values)), (LeafNow, key)

    def __repr__(self) -> str:
        return repr(as_leaf(self.tensor))

    def __format__(self, spec: str) -> str:
        return format(as_leaf(self.tensor), spec)


class TextPart(Later):
    """One `{value!conversion:spec}` of an f-string."""

    def __init__(self, value: Any, conversion: Any, spec: str) -> None:
        self.value = value
        self.conversion = conversion
        self.spec = spec

    def text(self, *now: Any) -> str:
        return self.made(now[0] if now else _replaced(self.value, python_number))

    def made(self, value: Any) -> str:
        return format(_CONVERSIONS[self.conversion](value), self.spec)

    def rebuilt(self, rebuild: Callable[[Any], Rebuilt]) -> Rebuilt:
        make, key = rebuild(self.value)
        return lambda values: self.text(make(values)), (TextPart, self.conversion, self.spec, key)


class TextCall(TextPart):
    """What a function that only writes gives for a tuple of values: `"%d" % n`."""

    def __init__(self, function: Callable[..., str], *values: Any) -> None:
        super().__init__(values, function, "")

    def made(self, value: Any) -> str:
        return cast("str", self.conversion(*value))


class TextParts(Later):
    """A text: strings, and values with how to write them. It behaves as the string that it is."""

    def __init__(self, parts: Sequence[Any]) -> None:
        self._made: str | None = None  # in this run, which has asked for its numbers
        self.parts: list[Any] = []
        for part in parts:
            self.parts += part.parts if part.__class__ is TextParts else [part]

    def __str__(self) -> str:
        if self._made is None:
            texts = [part if isinstance(part, str) else part.text() for part in self.parts]
            self._made = "".join(texts)
        return self._made

    def rebuilt(self, rebuild: Callable[[Any], Rebuilt]) -> Rebuilt:
        make, keys = rebuild(self.parts)
        return lambda values: "".join(make(values)), (TextParts, keys)

    def __repr__(self) -> str:
        return repr(str(self))

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)

    def __add__(self, other: Any) -> Any:
        known = isinstance(other, (str, TextParts))
        return TextParts([self, other]) if known else NotImplemented

    def __radd__(self, other: Any) -> Any:
        return TextParts([other, self]) if isinstance(other, str) else NotImplemented

    @property
    def is_known(self) -> bool:
        """Whether each call knows the text before the graph is run, and it may be another one."""
        found = list(self.numbers())
        return bool(found) and all(map(is_outside, found))

    def numbers(self) -> Iterator[Tensor]:
        """The numbers and tensors in it."""
        for part in self.parts:
            if isinstance(part, TextPart):
                yield from _tensors(part.value)

    def in_this_call(self) -> str:
        """The text as it is in this call, if that is known; without a guard on its numbers."""
        return self._with(lambda number: number.outside.value)  # type: ignore[union-attr]

    def _with(self, replace: Callable[[Number], Any]) -> str:
        texts = [
            part if isinstance(part, str) else part.made(_replaced(part.value, replace))
            for part in self.parts
        ]
        return "".join(texts)

    @property
    def origin(self) -> Origin:
        """Where a call finds a text that is known: it makes it of its numbers."""
        found: list[Any] = list(self.numbers())

        def text(*values: Any) -> str:
            by_number = dict(zip(map(id, found), values, strict=True))
            return self._with(lambda number: by_number[id(number)])

        return calculation(text, tuple([number.outside.origin for number in found]))


def _of_string(name: str) -> Callable[..., Any]:
    method = getattr(str, name)
    return lambda self, *args: method(str(self), *[as_string(x) for x in args])


for _name in ("eq", "lt", "gt", "hash", "len", "iter", "contains", "getitem", "mul", "rmul", "mod"):
    setattr(TextParts, f"__{_name}__", _of_string(f"__{_name}__"))


def as_string(value: Any) -> Any:
    """What a function is given that shows no texts later: a text is a string."""
    return str(value) if value.__class__ is TextParts else value


def plain_keys(mapping: dict[Any, Any]) -> None:
    """Give a dict of the run strings as keys, where library code has put in texts."""
    if any(key.__class__ is TextParts for key in mapping):
        items = [(str(k) if k.__class__ is TextParts else k, v) for k, v in mapping.items()]
        mapping.clear()
        mapping.update(items)


def _replaced(value: Any, replace: Callable[[Number], Any]) -> Any:
    """A tree of values with Python's numbers for those of the graph, and texts that are made."""
    if value.__class__ is Number:
        return replace(value)
    if value.__class__ is TextParts:
        return value._with(replace)
    if type(value) in (list, tuple):
        return type(value)([_replaced(part, replace) for part in value])
    if type(value) is dict:
        return {key: _replaced(part, replace) for key, part in value.items()}
    return value


def _tensors(value: Any) -> Iterator[Tensor]:
    for leaf in leaves(value):
        if isinstance(leaf, Tensor):
            yield leaf
        elif isinstance(leaf, LeafNow):
            yield leaf.tensor
        elif leaf.__class__ is TextParts:
            yield from leaf.numbers()


def may_wait(values: Any) -> bool:
    """Whether a text of these values can be made later: there are numbers in them that Python does
    not know, and nothing else than plain values beside them."""
    found = list(leaves(values))
    numbers = [value for value in found if value.__class__ in (Number, TextParts)]
    plain = all(type(value) in _PLAIN for value in found if value.__class__ not in _LATER)
    return bool(numbers) and plain


_PLAIN = frozenset({type(None), bool, int, float, complex, str, bytes})
_LATER = (Number, TextParts)


def written(function: Callable[..., str], *values: Any) -> Any:
    """The text that a function writes of values, later if need be; NotImplemented if it can be
    made now."""
    return TextParts([TextCall(function, *values)]) if may_wait(values) else NotImplemented


def filled(form: str, values: tuple[Any, ...], named: dict[str, Any]) -> str:
    """form.format(*values, **named)"""
    return form.format(*values, **named)


def join(separator: str, parts: list[Any]) -> str:
    return separator.join(parts)
