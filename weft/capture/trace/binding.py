"""Binds the places and outputs of a signature to live objects: origins and tensors of the run.

A signature (`weft.ir.signature`) is plain data with names. A call also needs to find the objects of
this process that these names stand for.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType, MethodType
from typing import Any

from weft.capture.watch.origin import ARG, CALC, CELL, KWARG, PIN, STEP_KINDS, Origin
from weft.core.tensor import Tensor
from weft.ir.graph import Value
from weft.ir.signature import Given, Place, Step
from weft.ir.types import TensorType


class Binding:
    """Numbers origins and tensors in the order of their first use.

    value_of   the value of a tensor that the run made
    origin_of  the origin of an object from outside; None for one that the run made
    """

    def __init__(
        self, value_of: Callable[[Tensor], Value], origin_of: Callable[[Any], Origin | None]
    ) -> None:
        self._value_of = value_of
        self._origin_of = origin_of
        self.origins: list[Origin] = []
        self.made: list[Value] = []
        self.kept: list[Tensor] = []  # whose values those are
        self._numbers: dict[int, int] = {}  # by ids of origins and tensors, which are kept alive

    def output(self, tensor: Tensor) -> int:
        """The number of a tensor that the run made; equal objects have one number."""
        if id(tensor) not in self._numbers:
            self._numbers[id(tensor)] = len(self.made)
            self.made.append(self._value_of(tensor))
            self.kept.append(tensor)
        return self._numbers[id(tensor)]

    def given(self, obj: Any) -> Given | None:
        """An object from outside; None for one that the run made."""
        origin = self._origin_of(obj)
        return None if origin is None else Given(self.place(origin))

    def place(self, origin: Origin) -> int:
        """The number of an origin's place."""
        found = self._numbers.setdefault(id(origin), len(self.origins))
        if found == len(self.origins):
            self.origins.append(origin)
        return found

    def places(
        self,
        types: Mapping[int, TensorType],
        parameters: Sequence[str],
        preferred: Mapping[int, Origin],
    ) -> tuple[Place, ...]:
        """The signature.

        types       types of values that are read, by place
        parameters  names of positional arguments
        preferred   other origins to name places by, by ids of origins
        """
        names = _Names(parameters, preferred)
        seen: dict[str, int] = {}
        made: list[Place] = []
        for i, origin in enumerate(self.origins):
            name = names.of(origin)
            seen[name] = count = seen.get(name, 0) + 1
            path = path_of(origin) if origin.from_args else ()
            made.append(Place(name if count == 1 else f"{name} ({count})", path, types.get(i)))
        return tuple(made)


class _Names:
    """How a user would write the places of a call."""

    def __init__(self, parameters: Sequence[str], preferred: Mapping[int, Origin]) -> None:
        self.parameters = parameters
        self.preferred = preferred
        self.known: dict[int, str] = {}

    def of(self, origin: Origin) -> str:
        found = self.known.get(id(origin))
        if found is None:
            found = self.known[id(origin)] = self._made(self.preferred.get(id(origin), origin))
        return found

    def _made(self, origin: Origin) -> str:
        parent, key = origin.parent, origin.key
        if origin.kind == ARG:
            return self.parameters[key] if key < len(self.parameters) else origin.text
        if origin.kind == KWARG:
            return str(key)
        if origin.kind == CALC:  # (n + 1)
            return origin.text[1:-1] if origin.text.startswith("(") else origin.text
        if origin.kind in (PIN, CELL) or parent is None or origin.step is None:
            return origin.text.removeprefix("global ")
        step = f"[{self.of(key)}]" if isinstance(key, Origin) else origin.step
        return self.of(parent) + step


def path_of(origin: Origin) -> tuple[Step, ...]:
    """The path from an argument to a value in it."""
    steps: list[Step] = []
    at: Origin | None = origin
    while at is not None:
        kind, key = STEP_KINDS[at.kind], at.key
        if at.kind == CELL:
            key = "cell_contents"
        if isinstance(key, Origin):
            kind, key = ("key", path_of(key)) if key.from_args else ("item", key.text)
        steps.append((kind, key))
        at = at.parent
    return tuple(reversed(steps))


def parameter_names(function: Any, count: int) -> list[str]:
    """The names of the first `count` positional arguments of a function."""
    if not isinstance(function, (FunctionType, MethodType)):
        function = getattr(function, "forward", function)  # of a module
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a builtin
        return []
    names: list[str] = []
    for parameter in parameters:
        if parameter.kind is parameter.VAR_POSITIONAL:
            names += [f"{parameter.name}[{i}]" for i in range(count - len(names))]
        elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            names.append(parameter.name)
    return names[:count]
