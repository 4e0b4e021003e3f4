"""What a program takes, reads, writes and gives, as plain data.

A signature names places outside of the program: its arguments, by the way to them, and state, such
as `model.layers.0.weight`. It says which places the graph reads, what becomes of each output of the
graph, and how the result is put together. It holds no live objects: those are bound to its places
by whoever has them. `weft.ir.signature_data` writes it down and reads it back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any

from weft.base.dataclass import dataclass
from weft.base.pytree import TreeSpec, tree_unflatten, value_class
from weft.ir.attributes import attr_key
from weft.ir.types import TensorType

__all__ = ["SAME", "Constant", "Given", "Made", "NewLeaf", "OutputRouting", "Place", "Signature"]

#: One step on the way to a place: ("arg", 0), ("kwarg", "y"), ("attr", "scale"), ("item", "x"), or
#: ("key", the way to the object that is the key of a dict).
Step = tuple[str, Any]

#: What a write leaves as it is, and what it takes away.
SAME, NONE = "same", "none"


@dataclass(frozen=True, slots=True)
class Place:
    """Something outside of a program.

    name   as a user would write it, each only once: `batch["x"][0]`, `model.0.weight`
    path   of an argument, or what is found in one: the way to it; empty for state
    type   of what the graph reads there; None where it reads nothing
    """

    name: str
    path: tuple[Step, ...] = ()
    type: TensorType | None = None

    @property
    def is_argument(self) -> bool:
        return bool(self.path)


@dataclass(frozen=True, slots=True)
class Made:
    """A leaf of the result: an output of the graph, as a tensor or as a Python number."""

    output: int
    is_number: bool = False


@dataclass(frozen=True, slots=True)
class Given:
    """A leaf of the result: what is at a place, itself."""

    place: int


@value_class
@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """A leaf of the result: a Python value that every call gives."""

    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constant) and attr_key(self.value) == attr_key(other.value)

    def __hash__(self) -> int:
        return hash(attr_key(self.value))


Leaf = Made | Given | Constant


@dataclass(frozen=True, slots=True)
class Write:
    """A tensor at a place gets a value, a gradient, or both.

    value    the output that is its new value; None: it keeps its value
    history  whether it takes the history of that output over, too
    grad     its new gradient: an output, what is at a place, or NONE; or it stays the SAME
    """

    place: int
    value: int | None = None
    history: bool = False
    grad: int | Given | str = SAME


@dataclass(frozen=True, slots=True)
class NewLeaf:
    """An output that is more than a value: `x.detach().requires_grad_()`, a new Parameter.

    cls     its class
    learns  whether it requires a gradient
    grad    where its gradient is found; None: it has none
    """

    output: int
    cls: type
    learns: bool
    grad: int | Given | None = None


@dataclass(frozen=True, slots=True)
class OutputRouting:
    """Outputs that become the new values of inputs, or their gradients, by their numbers: a call
    puts them there, and gives back the others."""

    values: Mapping[int, int] = field(default_factory=dict)
    gradients: Mapping[int, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.values or self.gradients)

    def is_listed(self, output: int) -> bool:
        """Whether an output goes back to the caller."""
        return output not in self.values and output not in self.gradients


@dataclass(frozen=True, slots=True)
class Signature:
    """The signature of one recorded path of a function.

    places      all that is outside and that the program reads, writes or hands on
    inputs      which of them the graph reads, in the order of its inputs
    outputs     the types of the outputs of the graph
    tracked     which outputs have a history, so that gradients flow through them
    result      the structure of the result
    leaves      what stands at its leaves
    writes      what is written to tensors outside
    new_leaves  the outputs that are leaves of the dynamic graph
    effects     what is done to Python objects, in words: only a live program can do it
    """

    name: str
    places: tuple[Place, ...]
    inputs: tuple[int, ...]
    outputs: tuple[TensorType, ...]
    tracked: tuple[int, ...]
    result: TreeSpec
    leaves: tuple[Leaf, ...]
    writes: tuple[Write, ...] = ()
    new_leaves: tuple[NewLeaf, ...] = ()
    effects: tuple[str, ...] = ()

    def handed_on(self) -> Iterator[int]:
        """The places that the program writes to, or whose objects it hands on."""
        for write in self.writes:
            yield write.place
        for leaf in (*self.leaves, *[write.grad for write in self.writes]):
            if isinstance(leaf, Given):
                yield leaf.place

    def __str__(self) -> str:
        return "\n".join([f"{self.name}:", *[f"  {line}" for line in self._lines()]])

    def _lines(self) -> Iterator[str]:
        written = {write.place: write for write in self.writes}
        for head, wanted in (("takes", True), ("state", False)):
            for i, place in enumerate(self.places):
                if place.is_argument == wanted:
                    kind = "" if place.type is None else f": {place.type}"
                    yield f"{head} {place.name}{kind}{self._written(written.get(i))}"
        shown = tree_unflatten(self.result, [_Text(self._leaf(leaf)) for leaf in self.leaves])
        yield f"gives {shown!r}"
        yield from [f"does {effect}" for effect in self.effects]

    def _leaf(self, leaf: Leaf) -> str:
        if isinstance(leaf, Constant):
            return repr(leaf.value)
        if isinstance(leaf, Given):
            return self.places[leaf.place].name
        return f"{'number ' if leaf.is_number else ''}{self.outputs[leaf.output]}"

    def _written(self, write: Write | None) -> str:
        if write is None:
            return ""
        said = [] if write.value is None else ["value"]
        said += [] if write.grad == SAME else ["gradient"]
        return f" ({' and '.join(said)} written)"


class _Text(str):
    """A word that shows itself without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)
