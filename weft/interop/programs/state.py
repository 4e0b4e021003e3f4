"""The state of a program: a mapping of names to tensors, whose names and types stay."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, NoReturn

from weft.base.errors import DTypeError, RangeError
from weft.base.pytree import register_pytree
from weft.core.counted import CountedDict
from weft.core.tensor import Tensor, type_of
from weft.ir.types import TensorType

__all__ = ["ProgramState"]


class ProgramState(CountedDict):
    """Tensors by name. What a call could not read, or a file could not hold, is an error where it
    is assigned. Copies are plain dicts."""

    __slots__ = ("_program", "_types")

    def __init__(
        self, program: str, types: Mapping[str, TensorType], tensors: Mapping[str, Tensor]
    ) -> None:
        super().__init__(tensors)
        self._program, self._types = program, dict(types)

    def __setitem__(self, name: Any, value: Any) -> None:
        kind = self._types.get(name)
        if kind is None:
            near = get_close_matches(str(name), self._types, 3) or [*self._types][:5]
            raise RangeError(
                f"{self._program} has no state {name!r:.60}",
                op="Program.state",
                hint=f"its names are those in program.state, such as {', '.join(map(repr, near))}"
                if near
                else "it has no state at all",
            )
        if not isinstance(value, Tensor):
            raise DTypeError(
                f"state[{name!r}] is {value!r:.60}, where a tensor {kind} is expected",
                op="Program.state",
                hint=f"weft.asarray(value, dtype=weft.{kind.dtype.name})",
            )
        if type_of(value) != kind:
            raise DTypeError(
                f"state[{name!r}] is {type_of(value)}, where {kind} is expected",
                op="Program.state",
                hint="export the function again for state of another type",
            )
        super().__setitem__(name, value)

    def _keep(self, *_: Any, **__: Any) -> NoReturn:
        raise RangeError(
            f"the state of {self._program} keeps all its names",
            op="Program.state",
            hint="assign a tensor of zeros, or take a copy of the dict: dict(program.state)",
        )

    __delitem__ = pop = popitem = clear = _keep

    def __reduce_ex__(self, _protocol: Any) -> Any:
        return dict, (dict(self),)


register_pytree(
    ProgramState,
    lambda tree: (tree.values(), tuple(tree)),
    lambda keys, parts: dict(zip(keys, parts, strict=True)),
)
