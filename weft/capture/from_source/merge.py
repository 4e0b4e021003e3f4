"""Merges values of two branches: tensors or numbers that differ become results of the node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.base.dataclass import dataclass
from weft.base.device import as_device
from weft.base.errors import CaptureError
from weft.base.promotion import promote_weak
from weft.base.pytree import tree_unflatten
from weft.capture.from_source.held import Maybe, Split, flag_of, one_level
from weft.capture.from_source.journal import Elements
from weft.capture.watch.origin import MISSING
from weft.capture.watch.refusals import OneSided
from weft.capture.watch.values import is_plain, same_value
from weft.core.counted import CountedState
from weft.core.number import HELD_AS, Number, as_held, joint_kind, kind_of, number
from weft.core.symbolic import SymbolicArray
from weft.core.tensor import Tensor, class_among, labelled, type_of
from weft.ir.types import StackType, TensorType, Type, undivided
from weft.ops.stacks import zero_of
from weft.record.control.agree import line_of

Results = Sequence[Tensor]
Build = Callable[[Results], Any]


def kind_of_tensor(tensor: Tensor) -> Type:
    """The type of a tensor, or of the stack or token that it represents."""
    data = tensor._data
    if data.__class__ is SymbolicArray:
        return undivided(data.value.type)
    return undivided(type_of(tensor))


def kind_of_container(obj: Any) -> str:
    """How errors call an object with items."""
    return (
        "the state of an optimizer" if isinstance(obj, CountedState) else f"a {type(obj).__name__}"
    )


def typed_as(value: Any, kind: Type) -> Tensor:
    """A leaf as a tensor of this type; MISSING becomes zeros."""
    if value is MISSING:
        assert isinstance(kind, (TensorType, StackType))
        return zero_of(kind)
    if isinstance(value, Number) or not isinstance(value, Tensor):
        assert isinstance(kind, TensorType)
        return as_held(value, kind.dtype, kind.device)
    return value


def same_python(a: Any, b: Any) -> bool:
    """Whether a program cannot tell two Python values apart."""
    if a is b:
        return True
    if is_plain(a) and is_plain(b):
        return same_value(a, b)
    if isinstance(a, Elements) and isinstance(b, Elements):
        return a == b
    if type(a) is type(b) and isinstance(a, (frozenset, np.dtype)):
        return bool(a == b)
    return False


def shown(value: Any) -> str:
    if isinstance(value, Number):
        return f"a Python {value.kind}"
    if isinstance(value, Tensor):
        return str(kind_of_tensor(value))
    if value is None:
        return "None"
    if isinstance(value, Elements):
        return f"{value!r:.40}"
    name = type(value).__name__
    article = "an" if name[:1].lower() in "aeiou" else "a"
    return f"the {name} {value!r:.40}" if is_plain(value) else f"{article} {name}"


@dataclass
class MergedPair:
    """A result of the node: its value on each side."""

    values: tuple[Any, Any]
    kind: Type


class Merge:
    """Merges pairs of values, and collects the results that the node needs."""

    def __init__(
        self, functions: Sequence[Callable[..., Any]], words: Sequence[str], op: str
    ) -> None:
        self.functions = functions
        self.words = words
        self.op = op
        self.pairs: list[MergedPair] = []
        self._known: dict[tuple[int, int], Build] = {}
        self._filled: dict[tuple[int, int], Build] = {}
        self._kept: list[Any] = []

    def value(self, title: str, a: Any, b: Any) -> Build:
        """A function that builds the merged value from the results of the node."""
        if a is b:
            return lambda results: a
        key = (id(a), id(b))
        found = None if is_plain(a) or is_plain(b) else self._known.get(key)
        if found is None:
            found = self._known[key] = _once(self._value(title, a, b))
            self._kept += [a, b]
        return found

    def _value(self, title: str, a: Any, b: Any) -> Build:
        if isinstance(a, Maybe) or isinstance(b, Maybe) or a is MISSING or b is MISSING:
            return self._maybe(title, a, b)
        ka, kb = kind_of(a), kind_of(b)
        if ka is not None and kb is not None:
            if not isinstance(a, Number) and not isinstance(b, Number) and same_value(a, b):
                return lambda results: a
            dtype = HELD_AS[joint_kind(ka, kb)]
            made = self.result(a, b, TensorType(dtype, (), as_device(None)))
            return lambda results: number(made(results))
        if isinstance(a, Tensor) or isinstance(b, Tensor):
            return self.result(a, b, self._tensor_kind(title, a, b))
        parts, others = one_level(a), one_level(b)
        if parts is not None and others is not None and parts[1] == others[1]:
            structure = parts[1]
            paths = structure.paths()
            builds = [
                self.value(f"{title}{path}" if path else title, x, y)
                for path, x, y in zip(paths, parts[0], others[0], strict=True)
            ]
            return lambda results: tree_unflatten(structure, [build(results) for build in builds])
        if same_python(a, b):
            return lambda results: a
        raise self.differ(title, a, b)

    def _maybe(self, title: str, a: Any, b: Any) -> Build:
        values, whys, flags = [], [], []
        for i, value in enumerate((a, b)):
            flags.append(flag_of(value))
            if value is MISSING:
                whys.append(f"{self.words[i]}{line_of(None, self.functions[i])}")
            elif isinstance(value, Maybe):
                whys.append(value.why)
                value = value.value
            values.append(value)
        why = whys[0]
        if values[0] is MISSING and values[1] is MISSING:
            return lambda results: Maybe(MISSING, why)
        if values[0] is MISSING or values[1] is MISSING:
            side = 0 if values[1] is MISSING else 1
            build = self.filled(values[side], side)
        else:
            build = self.value(title, *values)
        if None in flags:
            return lambda results: Maybe(build(results), why)
        flag = self.value(title, *flags)
        return lambda results: Maybe(build(results), why, flag(results))

    def filled(self, value: Any, side: int) -> Build:
        """Merge a value that only one side has; the other gives zeros for its tensors."""
        key = (id(value), side)
        found = None if is_plain(value) else self._filled.get(key)
        if found is None:
            found = self._filled[key] = _once(self._fill(value, side))
            self._kept.append(value)
        return found

    def _fill(self, value: Any, side: int) -> Build:
        if isinstance(value, Maybe):
            inner, flag = self.filled(value.value, side), self.filled(value.flag, side)
            return lambda results: Maybe(inner(results), value.why, flag(results))
        if isinstance(value, Split):
            sides = [self.filled(parts, side) for parts in value.sides]
            return lambda results: Split(
                value.condition, [build(results) for build in sides], value.message
            )
        if isinstance(value, Tensor):
            pair = (value, MISSING) if side == 0 else (MISSING, value)
            made = self.result(pair[0], pair[1], kind_of_tensor(value))
            return made if not isinstance(value, Number) else lambda results: number(made(results))
        parts = one_level(value)
        if parts is None:
            return lambda results: value
        builds = [self.filled(part, side) for part in parts[0]]
        structure = parts[1]
        return lambda results: tree_unflatten(structure, [build(results) for build in builds])

    def result(self, a: Any, b: Any, kind: Type) -> Build:
        index = len(self.pairs)
        self.pairs.append(MergedPair((a, b), kind))
        cls = class_among((a, b))
        return lambda results: labelled(results[index], cls)

    def _tensor_kind(self, title: str, a: Any, b: Any) -> Type:
        strong = [v for v in (a, b) if isinstance(v, Tensor) and not isinstance(v, Number)]
        if not strong:  # a number of the graph, and what is no number
            raise self.differ(title, a, b)
        kind = kind_of_tensor(strong[0])
        for value in (a, b):
            weak = kind_of(value)
            if weak is not None:
                fits = (
                    isinstance(kind, TensorType)
                    and not kind.shape
                    and promote_weak(kind.dtype, weak) is kind.dtype
                )
            else:
                fits = isinstance(value, Tensor) and kind_of_tensor(value) == kind
            if not fits:
                raise self.differ(title, a, b)
        return kind

    def differ(self, title: str, a: Any, b: Any) -> CaptureError:
        kind = CaptureError if isinstance(a, Tensor) and isinstance(b, Tensor) else OneSided
        one, two = (
            f"{shown(v)} {self.words[i]}{line_of(v, self.functions[i])}"
            for i, v in enumerate((a, b))
        )
        return kind(
            f"{title} is {one}, and {two}; in a graph it must have one type",
            op=self.op,
            hint=_hint(a, b),
        )


def _hint(a: Any, b: Any) -> str:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return "make both sides give the same dtype and shape: x.astype(...), x.expand(...)"
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        return "make both sides give a tensor of the same dtype and shape"
    return "decide by a Python value, or keep what differs in tensors or numbers"


def _once(build: Build) -> Build:
    """Build the object only once, even if several names hold it."""
    made: list[Any] = []

    def built(results: Results) -> Any:
        if not made:
            made.append(build(results))
        return made[0]

    return built
