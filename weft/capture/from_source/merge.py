"""Merges the values that a place has on several paths: tensors or numbers that differ become values
of the graph.

The paths are the sides of an `if`, or the ways into an iteration of a loop."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from weft.base.device import as_device
from weft.base.errors import CaptureError
from weft.base.promotion import promote_weak
from weft.base.pytree import TreeSpec, tree_unflatten
from weft.capture.from_source.held import Maybe, Split, flag_of, one_level
from weft.capture.from_source.journal import Elements
from weft.capture.watch.origin import MISSING
from weft.capture.watch.refusals import OneSided
from weft.capture.watch.values import is_plain, same_value
from weft.core.counted import CountedState
from weft.core.number import HELD_AS, Number, as_held, joint_kind, kind_of, number
from weft.core.tensor import Tensor, class_among, labelled
from weft.ir.types import StackType, TensorType, Type
from weft.ops.stacks import zero_of
from weft.record.control.agree import kind_of_tensor, line_of

#: What the code sees for each merged value, in order.
Results = Sequence[Any]
Build = Callable[[Results], Any]


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


class Merged(NamedTuple):
    """A value of the graph for values that differ from path to path.

    values      the value on each path; MISSING becomes zeros
    is_number   whether it is a Python number
    """

    title: str
    values: tuple[Any, ...]
    kind: Type
    is_number: bool = False

    def seen(self, result: Tensor) -> Any:
        """What the code sees for the tensor of the graph."""
        return number(result) if self.is_number else labelled(result, class_among(self.values))


class Merge:
    """Merges values of several paths, and collects the values that the graph must decide.

    merged   those values, in order: a build is given one result for each
    shape    how values were merged; equal if builds need the same results
    """

    def __init__(
        self, functions: Sequence[Callable[..., Any]], words: Sequence[str], op: str
    ) -> None:
        self.functions = functions
        self.words = words
        self.op = op
        self.merged: list[Merged] = []
        self.shape: list[Any] = []
        self._known: dict[tuple[int, ...], Build] = {}
        self._kept: list[Any] = []

    def value(
        self, title: str, values: Sequence[Any], reached: Sequence[int] | None = None
    ) -> Build:
        """A function that builds the merged value from the results of the node.

        reached   the paths that lead here with a value; what others hold does not count
        """
        reached = range(len(values)) if reached is None else reached
        if len(reached) == len(values) and all(value is values[0] for value in values):
            return self._constant(values[0])
        if any(is_plain(values[i]) for i in reached):
            return self._value(title, values, reached)
        key = (*reached, *map(id, values))
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = _once(self._value(title, values, reached))
            self._kept += values
        return found

    def _value(self, title: str, values: Sequence[Any], reached: Sequence[int]) -> Build:
        given = [values[i] for i in reached]
        if any(isinstance(value, Maybe) or value is MISSING for value in given):
            return self._maybe(title, values, reached)
        kinds = [kind for kind in map(kind_of, given) if kind is not None]
        if len(kinds) == len(given):
            if not any(isinstance(v, Number) for v in given) and _all_equal(same_value, given):
                return self._constant(given[0])
            dtype = HELD_AS[functools.reduce(joint_kind, kinds)]
            return self.result(title, values, TensorType(dtype, (), as_device(None)), True)
        if any(isinstance(value, Tensor) for value in given):
            return self.result(title, values, self._tensor_kind(title, values, reached))
        if len(given) == 1 and isinstance(given[0], Split):
            return self._split(title, values, reached, given[0])
        trees = [tree for tree in map(one_level, given) if tree is not None]
        if len(trees) == len(given) and all(structure == trees[0][1] for _, structure in trees):
            return self._tree(title, values, reached, trees[0][1])
        if _all_equal(same_python, given):
            return self._constant(given[0])
        raise self.differ(title, values, reached)

    def _constant(self, value: Any) -> Build:
        self.shape.append("constant")
        return lambda results: value

    def _tree(
        self, title: str, values: Sequence[Any], reached: Sequence[int], structure: TreeSpec
    ) -> Build:
        self.shape.append(structure)
        rows: list[Any] = [[MISSING] * len(structure.paths())] * len(values)
        for i in reached:
            rows[i] = one_level(values[i])[0]  # type: ignore[index]
        builds = [
            self.value(f"{title}{path}", column, reached)
            for path, *column in zip(structure.paths(), *rows, strict=True)
        ]
        return lambda results: tree_unflatten(structure, [build(results) for build in builds])

    def _split(
        self, title: str, values: Sequence[Any], reached: Sequence[int], split: Split
    ) -> Build:
        sides = [
            self.value(title, [parts if v is split else v for v in values], reached)
            for parts in split.sides
        ]
        return lambda results: Split(
            split.condition, [build(results) for build in sides], split.message
        )

    def _maybe(self, title: str, values: Sequence[Any], reached: Sequence[int]) -> Build:
        """Merge values of a name that has none on some paths."""
        inner, flags, whys = list(values), list(values), []
        for i in reached:
            flags[i] = flag_of(values[i])
            if values[i] is MISSING:
                whys.append(f"{self.words[i]}{line_of(None, self.functions[i])}")
            elif isinstance(values[i], Maybe):
                whys.append(values[i].why)
                inner[i] = values[i].value
        why, there = whys[0], [i for i in reached if inner[i] is not MISSING]
        build = self.value(title, inner, there) if there else self._constant(MISSING)
        if not there or any(flags[i] is None for i in reached):
            self.shape.append("unknown")
            return lambda results: Maybe(build(results), why)
        flag = self.value(f"whether {title} has a value", flags, reached)
        return lambda results: Maybe(build(results), why, flag(results))

    def result(
        self, title: str, values: Sequence[Any], kind: Type, is_number: bool = False
    ) -> Build:
        index = len(self.merged)
        self.merged.append(Merged(title, tuple(values), kind, is_number))
        self.shape.append((kind, is_number))
        return lambda results: results[index]

    def _tensor_kind(self, title: str, values: Sequence[Any], reached: Sequence[int]) -> Type:
        given = [values[i] for i in reached]
        strong = [v for v in given if isinstance(v, Tensor) and not isinstance(v, Number)]
        kind = kind_of_tensor(strong[0]) if strong else None
        if not all(_fits(value, kind) for value in given):
            raise self.differ(title, values, reached)
        assert kind is not None
        return kind

    def differ(self, title: str, values: Sequence[Any], reached: Sequence[int]) -> CaptureError:
        """The error for values that no graph can merge."""
        given = [values[i] for i in reached]
        tensors = all(isinstance(value, Tensor) for value in given)
        one, two = (
            f"{shown(values[i])} {self.words[i]}{line_of(values[i], self.functions[i])}"
            for i in reached
        )
        return (CaptureError if tensors else OneSided)(
            f"{title} is {one}, and {two}; in a graph it must have one type",
            op=self.op,
            hint=_hint(given),
        )


def _all_equal(same: Callable[[Any, Any], bool], values: Sequence[Any]) -> bool:
    return all(same(values[0], value) for value in values[1:])


def _fits(value: Any, kind: Type | None) -> bool:
    """Whether a value can be a tensor of this type; a Python number may become one."""
    weak = kind_of(value)
    if weak is None:
        return isinstance(value, Tensor) and kind_of_tensor(value) == kind
    scalar = isinstance(kind, TensorType) and not kind.shape
    return scalar and promote_weak(kind.dtype, weak) is kind.dtype  # type: ignore[union-attr]


def _hint(given: Sequence[Any]) -> str:
    tensors = [isinstance(value, Tensor) for value in given]
    if all(tensors):
        return "make both sides give the same dtype and shape: x.astype(...), x.expand(...)"
    if any(tensors):
        return "make both sides give a tensor of the same dtype and shape"
    return "decide by a Python value, or keep what differs in tensors or numbers"


def _once(build: Build) -> Build:
    """Build an object only once from the same results, even if several names hold it."""
    made: list[Any] = []

    def built(results: Results) -> Any:
        if not made or made[0] is not results:
            made[:] = [results, build(results)]
        return made[1]

    return built
