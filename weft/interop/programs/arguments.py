"""The arguments of a program: their names and trees, and checks with errors that name them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from inspect import Parameter
from keyword import iskeyword
from typing import Any

import numpy as np

from weft.base.asked_sizes import SizeFact
from weft.base.dims import bind_all, has_dims
from weft.base.dtypes import PYTHON_KINDS
from weft.base.errors import DeviceError, DTypeError, GradientError, RangeError, ShapeError
from weft.base.pytree import LEAF, TreeSpec
from weft.core.tensor import Tensor
from weft.interop.programs.example_sizes import example_sizes, replaced_shape
from weft.interop.programs.plain_trees import OtherTree, leaves_of
from weft.interop.programs.run import Routine
from weft.ir.attributes import attr_key
from weft.ir.signature import Constant
from weft.ir.types import TensorType
from weft.ops.creation import asarray

__all__ = ["Argument", "Arguments"]

_RANK = {"bool": 0, "int": 1, "uint": 1, "float": 2, "complex": 3}
KINDS = {
    "positional": Parameter.POSITIONAL_ONLY,
    "any": Parameter.POSITIONAL_OR_KEYWORD,
    "rest": Parameter.VAR_POSITIONAL,
    "keyword": Parameter.KEYWORD_ONLY,
    "others": Parameter.VAR_KEYWORD,
}


@dataclass(frozen=True)
class Argument:
    """One parameter of a program.

    kind    how it is given: a key of `KINDS`
    tree    the structure of the argument, of plain containers
    leaves  for each of its leaves: the number of an input, or the value it must have
    """

    name: str
    kind: str
    tree: TreeSpec
    leaves: tuple[int | Constant, ...]

    @cached_property
    def optional(self) -> bool:
        return not any(isinstance(leaf, int) for leaf in self.leaves)


@dataclass(frozen=True)
class Arguments:
    """All parameters of a program, and the inputs in them: names and types."""

    function: str
    parameters: tuple[Argument, ...]
    names: tuple[str, ...]
    types: tuple[TensorType, ...]

    @cached_property
    def _plain(self) -> int:
        """The number of arguments, if each is one tensor that may be given by position; else -1."""
        plain = all(p.tree == LEAF and p.kind in ("positional", "any") for p in self.parameters)
        inputs = [leaf for p in self.parameters for leaf in p.leaves]
        return len(inputs) if plain and inputs == list(range(len(self.types))) else -1

    @cached_property
    def signature(self) -> inspect.Signature:
        made = []
        following = True  # whether those that follow may be left out, too
        for p in reversed(self.parameters):
            default: Any = Parameter.empty
            if p.optional and (p.kind == "keyword" or (following and p.kind == "any")):
                default = p
            elif p.kind in ("positional", "any"):
                following = False
            made.append(Parameter(p.name, KINDS[p.kind], default=default))
        return inspect.Signature(made[::-1])

    @cached_property
    def flat_signature(self) -> inspect.Signature:
        """One parameter for each input, for the names in guards and reports."""
        names: dict[str, None] = {}
        for name in self.names:
            plain = made = "_".join("".join(c if c.isalnum() else " " for c in name).split()) or "x"
            count = 1
            while made in names or not made.isidentifier() or iskeyword(made):
                count += 1
                made = f"x_{plain}" if count == 2 else f"x_{plain}_{count}"
            names[made] = None
        return inspect.Signature([Parameter(n, Parameter.POSITIONAL_OR_KEYWORD) for n in names])

    @cached_property
    def dynamic(self) -> dict[str, TensorType]:
        """The inputs with symbolic sizes, by their names in the flat signature."""
        pairs = zip(self.flat_signature.parameters, self.types, strict=True)
        return {name: kind for name, kind in pairs if has_dims(kind.shape)}

    def inputs(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Tensor]:
        """The tensors in the arguments of a call, in order; their types are not checked yet."""
        if not kwargs and len(args) == self._plain and all(type(x) is Tensor for x in args):
            return list(args)
        try:
            bound = self.signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise DTypeError(
                f"{error}", op=self.function, hint=f"call it as {self.function}{self.shown()}"
            ) from None
        found: list[Any] = [None] * len(self.types)
        for p in self.parameters:
            if p.name in bound:
                self._take(p, bound[p.name], found)
        return found

    def shown(self) -> str:
        """The parameters, as a call is written."""
        return f"({', '.join(p.name for p in self.parameters)})"

    def _take(self, p: Argument, value: Any, found: list[Any]) -> None:
        try:
            leaves = leaves_of(value, p.tree, p.name)
        except OtherTree as error:
            raise DTypeError(f"{error}", op=self.function) from None
        for leaf, given, path in zip(p.leaves, leaves, p.tree.paths(), strict=True):
            if isinstance(leaf, int):
                found[leaf] = self._tensor(leaf, given)
            elif not _is_same(leaf.value, given):
                raise DTypeError(
                    f"{p.name}{path} is {given!r:.60}, and the program was exported for "
                    f"{leaf.value!r:.60}",
                    op=self.function,
                    hint="export the function with the other value, too; or with a tensor, "
                    "weft.spec(()), in its place",
                )

    def _tensor(self, number: int, given: Any) -> Tensor:
        if isinstance(given, Tensor):
            return given
        kind = self.types[number]
        if isinstance(given, (np.ndarray, np.generic)):
            return asarray(given)
        held = PYTHON_KINDS.get(type(given))
        if held is not None and kind.shape == () and _RANK[held] <= _RANK[kind.dtype.kind]:
            return asarray(given, dtype=kind.dtype)
        raise DTypeError(
            f"{self.names[number]} is {given!r:.60}, where a tensor {kind} is expected",
            op=self.function,
        )

    def check(self, inputs: Sequence[Tensor], routine: Routine) -> dict[str, int]:
        """Raise an error if a tensor does not fit; returns the sizes that names stand for.

        While a function is recorded with symbolic sizes, what the routine needs of them becomes a
        guard.
        """
        if len(inputs) != len(self.types):
            raise DTypeError(
                f"{len(inputs)} tensors, where {len(self.types)} are expected", op=self.function
            )
        for name, kind, x in zip(self.names, self.types, inputs, strict=True):
            self._check_kind(name, kind, x)
        sizes: dict[str, int] = {}
        shapes = [
            (kind.shape, tuple(x.shape), name)
            for name, kind, x in zip(self.names, self.types, inputs, strict=True)
        ]
        try:
            bind_all(shapes, sizes)
        except ShapeError as error:
            raise ShapeError(error.message, op=self.function, hint=error.hint) from None
        for fact in routine.facts:
            self._check_fact(fact, sizes)
        return sizes

    def _check_kind(self, name: str, kind: TensorType, x: Tensor) -> None:
        if x.dtype is not kind.dtype:
            raise DTypeError(
                f"{name} is {x.type}, where {kind} is expected",
                op=self.function,
                hint=f"give {name}.astype(weft.{kind.dtype.name})",
            )
        if x.device != kind.device:
            raise DeviceError(
                f"{name} is on {x.device}, and the program on {kind.device}", op=self.function
            )

    def check_state(self, given: Sequence[Tensor], routine: Routine) -> None:
        """Raise if a tensor of the state does not fit. Where the function writes gradients, as
        backward() does, no others than before may require them. `given`: the inputs, then the
        state."""
        signature = routine.signature
        of = dict(zip(routine.tensors, given, strict=True))
        for number in range(len(self.names), len(signature.places)):
            place, source = signature.places[number], routine.grads.get(number)
            x = of[number] if source is None else of[source].grad
            if not isinstance(x, Tensor) or x.type != place.type:
                said = x.type if isinstance(x, Tensor) else repr(x)[:60]
                raise DTypeError(
                    f"state[{place.name!r}] is {said}, where {place.type} is expected",
                    op=self.function,
                )
        self._check_distinct(of, routine)
        if not routine.writes_gradients:
            return
        for number, x in zip(routine.tensors, given, strict=True):
            learns = number in routine.learns
            if x.requires_grad is not learns:
                raise GradientError(
                    f"{signature.places[number].name} "
                    f"{'does not require' if learns else 'requires'} a gradient, and "
                    f"{'did' if learns else 'did not'} when the program was exported, which holds "
                    "a backward pass",
                    op=self.function,
                    hint=f"set requires_grad to {learns}, or export the function again",
                )

    def _check_distinct(self, of: Mapping[int, Tensor], routine: Routine) -> None:
        """Raise if one tensor is at two places, and the program writes to it."""
        places = routine.signature.places
        for write in routine.signature.writes:
            target = of.get(write.place)
            for other, x in of.items():
                if target is not None and x is target and other != write.place:
                    one, two = sorted((write.place, other))
                    raise RangeError(
                        f"{places[one].name} and {places[two].name} are the same tensor, and the "
                        "program writes to it",
                        op=self.function,
                        hint="give a copy: x.clone()",
                    )

    def _check_fact(self, fact: SizeFact, sizes: Mapping[str, int]) -> None:
        if fact.holds(sizes):
            return
        now = ", ".join(f"{name} is {sizes[name]}" for name in fact.names if name in sizes)
        raise ShapeError(
            f"the program is right only for sizes with {fact}; here {now}",
            op=self.function,
            hint="its function decided something by that: export it for such sizes, too",
        )

    def examples(self, facts: Sequence[SizeFact]) -> list[TensorType]:
        """Types with numbers in the place of names, for a first call."""
        sizes = example_sizes(self.types, facts)
        return [kind.like(shape=replaced_shape(kind.shape, sizes)) for kind in self.types]


def _is_same(expected: Any, given: Any) -> bool:
    return type(expected) is type(given) and attr_key(expected) == attr_key(given)
