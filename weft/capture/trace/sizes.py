"""Which sizes of a call are symbolic in its recording.

A first recording has the sizes of its call. What differs from the sizes of earlier recordings is
symbolic in the next one: a name, that later calls give a number to. Axes that had equal sizes in
all calls share a name; that they stay equal is a guard.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from weft.base.asked_sizes import AskedSizes, DataSizes, SizeFact, same_size
from weft.base.dataclass import dataclass
from weft.base.dim_algebra import Dim, constant_term, replaced
from weft.base.dims import as_dim, bind_all, dim, dims_in
from weft.base.errors import DTypeError
from weft.capture.watch.guards import Guard
from weft.capture.watch.origin import Origin, PlaceKey, calculation, input_name, place_key
from weft.capture.watch.size_guards import SizeGuard, SizePlace, of_axis, of_fact, rows_of
from weft.capture.watch.values import TensorFacts
from weft.capture.watch.watch import Watch, here
from weft.core.parts import Parts
from weft.core.tensor import Tensor, type_of
from weft.ir.size_inputs import linear_name
from weft.ir.types import TensorType

Shape = tuple[int, ...]
#: Adds an input to the graph: its type, where it is found, and what it is in this call.
AddInput = Callable[[TensorType, Origin, Tensor], Any]
#: How many sets of sizes are compared with those of a call.
ROWS = 8
#: After so many recordings with symbolic sizes that came to nothing, no more are tried; an axis
#: whose number is asked for as often is fixed.
FAILURES = 3
#: Numbers from here on are no sizes.
LARGEST = 1 << 48


def may_vary(data: Any) -> bool:
    """Whether sizes of an array may be symbolic: not those of parts that are filled up."""
    if data.__class__ is Parts:
        return not data.cuts.padded(data.shape, data.mesh)
    return data.__class__ is np.ndarray


@dataclass
class SizePlan:
    """The symbolic shapes of one recording.

    shapes     of known places
    hints      the numbers of the names in this call
    arguments  whether all axes of tensors in the arguments are symbolic, whatever they were before
    relations  what names stand for, as the code asked
    asked_at   of such a name: what was asked, and where
    asked      the questions of the last recording by this plan
    fixed      places whose numbers the code asks for again and again
    """

    shapes: dict[PlaceKey, Shape] = field(default_factory=dict)
    hints: dict[str, int] = field(default_factory=dict)
    arguments: bool = False
    relations: dict[str, int] = field(default_factory=dict)
    asked_at: dict[str, str] = field(default_factory=dict)
    asked: AskedSizes | None = field(default=None, init=False)
    fixed: frozenset[tuple[PlaceKey, int]] = frozenset()

    def number(self, place: Origin, value: int) -> int | None:
        """The size that a number from outside is; None where it is to be a number."""
        key = place_key(place)
        if (key, 0) in self.fixed:
            return None
        if key not in self.shapes:
            self.shapes[key] = (dim(size_name(place, None, self.hints)), 0)
        name = self.shapes[key][0]
        assert isinstance(name, Dim)
        self.hints[name.names[0]] = value
        size = replaced(name, self.relations)
        return size if isinstance(size, Dim) and replaced(size, self.hints) == value else None

    def shape_of(self, origin: Origin, facts: TensorFacts, in_module: bool) -> Shape | None:
        """The shape of a tensor from outside; None where all of it is as it is in this call."""
        shape = self.shapes.get(place_key(origin))
        if shape is None:
            if not (self.arguments and origin.from_args) or in_module:
                return None
            shape = self._all_of(origin, facts.shape)
        if len(shape) != len(facts.shape):
            return None
        shape = tuple([replaced(size, self.relations) for size in shape])
        return shape if any(True for _ in dims_in(shape)) else None

    def _all_of(self, origin: Origin, actual: Shape) -> Shape:
        """A name for each axis; equal sizes have equal names, but for 0 and 1, which are often
        equal by chance."""
        names: list[int] = []
        for axis, size in enumerate(actual):
            alike = [name for name, hint in self.hints.items() if hint == size and size > 1]
            name = alike[0] if alike else size_name(origin, axis, self.hints)
            self.hints.setdefault(name, size)
            names.append(dim(name))
        shape = self.shapes[place_key(origin)] = tuple(names)
        return shape

    def in_call(
        self, origins: Mapping[PlaceKey, Origin], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> SizePlan:
        """The same plan with the numbers of another call."""
        hints = dict(self.hints)
        for key, shape in self.shapes.items():
            found = shape_at(origins.get(key), args, kwargs)
            if found is not None and len(found) == len(shape):
                for size, number in zip(shape, found, strict=True):
                    if isinstance(size, Dim) and same_size(size, dim(size.names[0])):
                        hints[size.names[0]] = number
        for name, value in self.relations.items():
            told = linear_name(value)
            if told is not None and told not in self.hints and isinstance(value, Dim):
                rest = constant_term(value)
                hints[told] = (hints[name] - rest) // value._terms[0][1]
        return SizePlan(dict(self.shapes), hints, self.arguments, self.relations, fixed=self.fixed)

    def bounds_of(self, name: str) -> tuple[int, int | None]:
        """The sizes that the name may stand for."""
        value = self.relations.get(name)
        if value is None:
            sizes = (s for shape in self.shapes.values() for s in dims_in(shape))
            value = next((size for size in sizes if linear_name(size) == name), None)
        atom = value._terms[0][0][0] if isinstance(value, Dim) and linear_name(value) else None
        return (0, None) if atom is None else (atom.low or 0, atom.high)

    def related(self, asked: AskedSizes) -> SizePlan | None:
        """The plan with what the code has asked of the names; None where that is all in it."""
        found = dict(asked.relations)
        if asked.unsolved:
            found.update((n, v) for n, v in asked.parts.items() if n not in found)
            for name, (low, high) in asked.bounds().items():
                if name not in found and (low, high) != (0, None):
                    found[name] = dim(name, low, high)
        known = {name: replaced(value, found) for name, value in self.relations.items()}
        relations = {**known, **found}
        if _printed(relations) == _printed(self.relations):
            return None
        return SizePlan(
            self.shapes, asked.hints, self.arguments, relations, self.asked_at, self.fixed
        )


def _printed(relations: Mapping[str, int]) -> dict[str, tuple[str, Any]]:
    return {name: (str(v), getattr(v, "bounds", None)) for name, v in relations.items()}


def size_name(origin: Origin, axis: int | None, taken: Mapping[str, int]) -> str:
    name = input_name(origin.text).replace(".", "_")
    if axis is not None:
        name = f"{name}_{axis}"
    while name in taken:
        name = f"{name}_"
    return name


class SizeHistory:
    """The sizes that were seen at each place, one row for each recording."""

    def __init__(self) -> None:
        self.rows: list[dict[PlaceKey, Shape]] = []
        self.asked: Counter[tuple[PlaceKey, int]] = Counter()  # axes whose number was asked for
        self.failures = 0
        self.failure = ""  # why a recording with symbolic sizes came to nothing
        self.origins: dict[PlaceKey, Origin] = {}

    def add(self, seen: Mapping[PlaceKey, tuple[Origin, Shape]]) -> None:
        """The sizes of a recording."""
        row: dict[PlaceKey, Shape] = {}
        for key, (origin, shape) in seen.items():
            self.origins.setdefault(key, origin)
            row[key] = shape
        if row and row not in self.rows:
            self.rows.append(row)
            del self.rows[1:-ROWS]

    def recorded(self, plan: SizePlan) -> None:
        """A recording was kept: which axes of its plan are numbers after all? 0 and 1 have
        recordings of their own, which say nothing of other sizes."""
        for key, shape in plan.shapes.items():
            for axis, size in enumerate(shape):
                now = replaced(size, plan.relations)
                if isinstance(size, Dim) and not isinstance(now, Dim) and now > 1:
                    self.asked[key, axis] += 1

    def failed(self, error: Exception) -> None:
        self.failures += 1
        self.failure = f"{type(error).__name__}: {error}"

    def plan(
        self,
        dynamic: Any,
        names: Sequence[str],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        numbers: bool,
    ) -> SizePlan | None:
        """What is to be symbolic in a recording of this call; None: nothing. `numbers`: there are
        numbers that change from call to call, which may be sizes."""
        plan = self._of_tensors(dynamic, names, args, kwargs)
        if plan is None:
            return self.of_numbers(numbers)
        plan.fixed = self._fixed()
        return plan

    def of_numbers(self, numbers: bool) -> SizePlan | None:
        """A plan in which nothing is symbolic but numbers; None where there are none."""
        return SizePlan(fixed=self._fixed()) if numbers and self.failures < FAILURES else None

    def _fixed(self) -> frozenset[tuple[PlaceKey, int]]:
        return frozenset(place for place, count in self.asked.items() if count >= FAILURES)

    def _of_tensors(
        self, dynamic: Any, names: Sequence[str], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> SizePlan | None:
        if isinstance(dynamic, Mapping):
            return declared(dynamic, names, args, kwargs)
        if dynamic is True:
            return SizePlan(arguments=True)
        return self._changed(args, kwargs) if self.failures < FAILURES else None

    def _changed(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> SizePlan | None:
        """The sizes that were others in an earlier recording."""
        now = dict(self._found(args, kwargs))
        rows = [*self.rows, now]
        plan = SizePlan()
        groups: list[tuple[str, list[int | None]]] = []
        for key, shape in now.items():
            sizes = list(shape)
            for axis in range(len(shape)):
                seen = [_size(row.get(key), len(shape), axis) for row in rows]
                changes = len({size for size in seen if size is not None}) > 1
                if not changes or self.asked[key, axis] >= FAILURES:
                    continue
                name = next((name for name, other in groups if _agree(seen, other)), None)
                if name is None:
                    name = size_name(self.origins[key], axis, plan.hints)
                    groups.append((name, seen))
                    plan.hints[name] = shape[axis]
                sizes[axis] = dim(name)
            if any(True for _ in dims_in(sizes)):
                plan.shapes[key] = tuple(sizes)
        return plan if plan.shapes else None

    def _found(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Iterator[tuple[PlaceKey, Shape]]:
        for key, origin in self.origins.items():
            shape = shape_at(origin, args, kwargs)
            if shape is not None:
                yield key, shape


def shape_at(origin: Origin | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Shape | None:
    """The shape of the tensor at a place; None where there is none."""
    try:
        value = None if origin is None else origin.evaluate(args, kwargs)
    except Exception:
        return None
    if not isinstance(value, Tensor) or not may_vary(value._data):
        return None
    return tuple(value._data.shape)


def _size(shape: Shape | None, ndim: int, axis: int) -> int | None:
    return None if shape is None or len(shape) != ndim else shape[axis]


def _agree(a: Sequence[int | None], b: Sequence[int | None]) -> bool:
    """Whether two axes had equal sizes, wherever both are known: now, and in some other call."""
    both = [(x, y) for x, y in zip(a, b, strict=True) if x is not None and y is not None]
    return len(both) > 1 and all(x == y for x, y in both)


# --- what users say ------------------------------------------------------------------------------


def declared(
    given: Mapping[str, Any], parameters: Sequence[str], args: tuple[Any, ...], kwargs: Any
) -> SizePlan:
    """The plan for shapes that the user gives for arguments: {"x": ("B", "T", 64)}."""
    plan = SizePlan()
    names: dict[str, Dim] = {}
    shapes: list[tuple[Shape, Shape, str]] = []
    for name, wanted in given.items():
        if name in kwargs:
            root: PlaceKey = (("kwarg", ("str", repr(name))),)
            value = kwargs[name]
        elif name in parameters and parameters.index(name) < len(args):
            index = parameters.index(name)
            root, value = (("arg", ("int", repr(index))),), args[index]
        else:
            continue
        for key, pattern, found, text in _leaves(wanted, value, root, name, names):
            plan.shapes[key] = pattern
            shapes.append((pattern, tuple(found.shape), text))
    bind_all(shapes, plan.hints)
    return plan


def _leaves(
    wanted: Any, value: Any, key: PlaceKey, text: str, names: dict[str, Dim]
) -> Iterator[tuple[PlaceKey, Shape, Tensor, str]]:
    if isinstance(wanted, TensorType):
        wanted = wanted.shape
    if isinstance(wanted, Mapping):
        for name, part in wanted.items():
            step = ("item", (type(name).__name__, repr(name)))
            yield from _leaves(part, value[name], (*key, step), f"{text}[{name!r}]", names)
    elif isinstance(wanted, list):
        for i, part in enumerate(wanted):
            step = ("item", ("int", repr(i)))
            yield from _leaves(part, value[i], (*key, step), f"{text}[{i}]", names)
    elif isinstance(wanted, tuple):
        if not isinstance(value, Tensor):
            raise DTypeError(f"dynamic gives a shape for {text}, which is no tensor", op="compile")
        yield key, tuple([_declared_size(size, names) for size in wanted]), value, text
    else:
        raise DTypeError(
            f"dynamic gives {wanted!r} for {text}",
            op="compile",
            hint='a shape as ("B", "T", 64), a weft.spec, or a dict or list of those',
        )


def _declared_size(size: Any, names: dict[str, Dim]) -> int:
    found = as_dim(size, "compile", names)
    for part in dims_in((found,)):
        if len(part.names) == 1:
            names.setdefault(part.names[0], part)
    return found


# --- in a recording ------------------------------------------------------------------------------


class RecordedSizes:
    """The symbolic sizes of one run: where each name is found, and what is guarded of it."""

    def __init__(self, plan: SizePlan, watch: Watch, data: DataSizes | None = None) -> None:
        self.plan = plan
        self.asked = plan.asked = AskedSizes(plan.hints, self._noted, data)
        self._watch = watch
        #: Of each name: an axis that tells it, and the size there.
        self.places: dict[str, SizePlace] = {}
        self._numbers: dict[int, int | None] = {}  # by id of the origin, which is kept alive
        self.trouble = ""  # why the recording cannot be used: a fact about sizes nobody finds

    def shape_of(self, origin: Origin, facts: TensorFacts, in_module: bool) -> Shape | None:
        found = self.plan.shape_of(origin, facts, in_module)
        self.asked.hints.update(self.plan.hints)
        return found

    def number(self, origin: Origin, value: int, add_input: AddInput) -> int | None:
        """The size that a number from outside is; None: it stays a number."""
        if id(origin) not in self._numbers:
            self._numbers[id(origin)] = self._size_of(origin, value, add_input)
        return self._numbers[id(origin)]

    def _size_of(self, origin: Origin, value: int, add_input: AddInput) -> int | None:
        if not 0 <= value < LARGEST:
            return None
        place = calculation(rows_of, (origin,))
        size = self.plan.number(place, value)
        self.asked.hints.update(self.plan.hints)
        if size is not None:
            rows = rows_of(value)
            self._watch.guard("value", calculation(operator.ge, (origin, 0)), True)
            add_input(type_of(rows).like(shape=(size, 0)), place, rows)
            self.guard_axes(place, (size, 0))
        return size

    def guard_axes(self, origin: Origin, shape: Shape) -> None:
        """Guard the symbolic axes of a tensor: the first of a name tells its number."""
        for axis, size in enumerate(shape):
            if not isinstance(size, Dim):
                continue
            tells = self._tells(size)
            place = SizePlace(origin, axis, size)
            if tells:
                self.places[size.names[0]] = place
            self._add(of_axis(place, tells, self.places.get))

    def told(self) -> dict[str, tuple[str, str]]:
        """Of each name, for `weft.explain`: where it is found, and what became of it."""
        found: dict[str, tuple[str, str]] = {}
        for name, place in self.places.items():
            found[name] = place.text, "any size"
        for name, value in self.plan.relations.items():
            why = self.plan.asked_at.get(name, "")
            if not isinstance(value, Dim) or name not in value.names:
                found[name] = "", f"is {value}: {why}"
        asked = self.asked.bounds()
        for name, (where, _) in found.items():
            low, high = self.plan.bounds_of(name)
            more = asked.get(name, (0, None))
            low, high = max(low, more[0]), more[1] if high is None else high
            if where and (low or high is not None):
                text = f"from {low}" + ("" if high is None else f" to {high}")
                found[name] = where, text
        return found

    def _tells(self, size: Dim) -> bool:
        """Whether the number of a name can be computed from this size: it is a * name + b."""
        name = linear_name(size)
        return name is not None and name not in self.places

    def _add(self, made: SizeGuard | None) -> None:
        if made is not None:
            self._watch.add_guard(Guard("sizes", None, made, made.origins, False, here()))

    def _noted(self, fact: SizeFact) -> None:
        if fact.sign == "==":
            for name in fact.names:
                self.plan.asked_at.setdefault(name, f"{fact} is asked at {here()}")
        made = of_fact(fact, self.places.get)
        if made is None:
            self.trouble = f"{fact} is asked of a size that no input tells"
        self._add(made)
