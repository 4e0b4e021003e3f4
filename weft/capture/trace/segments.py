"""The tree of recorded paths of a captured function.

    root ── graph nodes ── question: is %3 true?
                             ├─ True  ── graph nodes ── result
                             └─ False ── graph nodes ── question …

A path leads from the root to an ending. If Python asked for a value, each answer continues
differently; the segments before the question are shared. Each segment has the guards on Python
values that were read in it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from weft.autodiff.node import FreedError
from weft.autodiff.split import BackwardSplit
from weft.base.dataclass import dataclass
from weft.base.dtypes import dtype_of_numpy
from weft.base.errors import GradientError
from weft.base.source import SourceLocation
from weft.capture.trace.sizes import SizePlan
from weft.capture.watch.guard_code import Enter, Wanted, compile_entry
from weft.capture.watch.origin import Origin
from weft.core.tensor import Tensor, wrap
from weft.ir.graph import Graph, Node, Value, extract
from weft.ir.signature import Given, Signature
from weft.ir.size_inputs import Tellers, with_tellers


@dataclass(frozen=True, slots=True)
class Question:
    """A question of Python: a value, its kind (bool, float, …), and where in the user's code."""

    value: Value
    kind: str
    location: SourceLocation | None

    def answer(self, tensor: Tensor) -> Any:
        """The answer of the tensor."""
        array = tensor.numpy()
        if self.kind == "numpy":
            return array
        if self.kind == "shape":
            return array.shape
        number = array.item()
        return number if self.kind == "item" else PYTHON[self.kind](number)


PYTHON: dict[str, Callable[[Any], Any]] = {
    "bool": bool,
    "int": int,
    "float": float,
    "complex": complex,
}


def answer_key(answer: Any) -> Any:
    """A key of an answer; equal keys take the same path. NaN equals itself, -0.0 is not 0.0."""
    if isinstance(answer, np.ndarray):
        return (answer.dtype.str, answer.shape, answer.tobytes())
    if isinstance(answer, float):
        return ("float", struct.pack("d", answer))
    if isinstance(answer, complex):
        return ("complex", struct.pack("dd", answer.real, answer.imag))
    return (type(answer).__name__, answer)


@dataclass(slots=True)
class Ending:
    """The end of a path: its signature, live objects of that, and the backward.

    signature         what it reads, writes and returns
    origins           for each place of the signature, how to fetch it
    made              for each output of the signature, its value
    effects           writes to Python objects
    places            by id of a tensor in effects: the output, or the place outside
    keep              those tensors, kept alive so that their ids stay valid
    backward          the nodes that compute gradients, or None if no result has a history
    backward_at       the number of the first node of a backward pass inside of the path
    split             what is recomputed for such a pass, if there is a memory budget
    learns            places of tensors that begin to require a gradient
    """

    signature: Signature
    origins: list[Origin]
    made: list[Value]
    effects: list[Any]
    places: dict[int, int | Given]
    keep: list[Tensor]
    backward: PathBackward | None
    backward_at: int | None = None
    split: BackwardSplit | None = None
    learns: Sequence[int] = ()

    @property
    def writes(self) -> bool:
        """Whether the path writes to something outside: to tensors, or to Python objects."""
        return bool(self.signature.writes or self.effects or self.learns)

    def outside(self) -> Iterator[Origin]:
        """Origins of tensors and other objects that the path writes to or passes on."""
        for place in (*self.signature.handed_on(), *self.learns):
            yield self.origins[place]
        for found in self.places.values():
            if isinstance(found, Given):
                yield self.origins[found.place]


#: For each result, the results whose backward frees its history.
Conflicts = tuple[frozenset[int], ...]


@dataclass(slots=True)
class PathBackward:
    """The backward part of a path.

    sources     the inputs that want gradients
    freed       the results, by their number among the tracked ones, whose histories no backward can
                go through, with its error: the function has called backward itself
    cotangents  one value per tracked result, without those
    gradients   one value per source, or None if it gets no gradient
    there       one condition per source, under which it gets a gradient; None: always
    conflicts   for each result, those whose backward frees parts of its history
    """

    nodes: list[Node]  # with recomputed nodes of the forward part
    sources: list[Value]
    cotangents: list[Value]
    gradients: list[Value | None]
    there: list[Value | None]
    freed: dict[int, GradientError] = field(default_factory=dict)
    conflicts: Conflicts = ()
    split: BackwardSplit | None = None  # what is saved for it, and what is recomputed
    history: Any = None  # the `PathHistory`, once it is made

    @property
    def all_freed(self) -> bool:
        """Whether no result has a history that a backward can go through."""
        return not self.cotangents

    @property
    def only_freed(self) -> bool:
        """Whether a backward inside has freed all of them."""
        return self.all_freed and all(isinstance(e, FreedError) for e in self.freed.values())


def _closed(_args: tuple[Any, ...], _kwargs: dict[str, Any]) -> Any:
    raise AssertionError("a segment is opened when its path is put into the tree")


def input_reader() -> Callable[[Any], Tensor]:
    """A function that makes an input of the graph from a tensor, an array or a number.

    A number such as a learning rate seldom changes: then its tensor is reused.
    """
    last: tuple[Any, Any] = (None, None)

    def read(given: Any) -> Tensor:
        nonlocal last
        if isinstance(given, Tensor):
            return given
        seen = last
        if seen[0] is given and given.__class__ is float:
            found: Tensor = seen[1]
            return found
        found = array_tensor(given)
        last = (given, found) if given.__class__ is float else last
        return found

    return read


def array_tensor(given: np.ndarray[Any, Any] | float) -> Tensor:
    """A tensor with a copy of an array that others may write to."""
    array = np.asarray(given)
    dtype = dtype_of_numpy(array.dtype)
    return wrap(array.astype(dtype.numpy, copy=True))


@dataclass(eq=False, slots=True)
class Segment:
    """A part of a path without questions.

    guards    what must hold for Python values so that the segment is taken
    inputs    values that are fetched from outside at its start, with their origins
    enter     checks the guards and fetches; see `compile_entry`
    """

    guards: list[Any]
    inputs: list[tuple[Value, Origin]]
    nodes: list[Node]
    question: Question | None = None
    answer: Any = None  # to the question, in the run that was recorded
    children: dict[Any, list[Segment]] = field(default_factory=dict)
    answers: dict[Any, Any] = field(default_factory=dict)  # key -> the answer itself
    ending: Ending | None = None
    exports: dict[Value, None] = field(default_factory=dict)  # values that are used after it
    ready: Any = None  # the executable
    enter: Enter = field(default=_closed, repr=False)
    fetched: list[Origin] = field(default_factory=list)
    recording: int = 0  # the number of the recording that made it
    fast_path: Any = None  # the rest of a call, if the path is only this segment
    writes: bool = False  # whether the fast path writes to something outside
    tellers: Tellers = field(default_factory=dict)  # of the path up to here
    sizes: SizePlan | None = None  # of a first segment: which sizes are symbolic

    def open(self) -> None:
        """Compile the function that checks the guards and fetches values from outside."""
        known = {id(g.origin) for g in self.guards if g.kind == "tensor"}
        wanted: dict[int, Wanted] = {}
        for _, origin in self.inputs:
            wanted[id(origin)] = (origin, None if id(origin) in known else input_reader())
        for origin in self.ending.outside() if self.ending is not None else ():
            wanted.setdefault(id(origin), (origin, None))
        places = list(wanted.values())
        self.enter, order = compile_entry(self.guards, places)
        self.fetched = [places[i][0] for i in order]

    def places(self) -> dict[int, int]:
        """By id of an origin: the position of its value in the list that `enter` returns."""
        return {id(origin): i for i, origin in enumerate(self.fetched)}

    def check(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
        """-1 if all guards hold, else the number of one that fails."""
        found = self.enter(args, kwargs)
        return -1 if found.__class__ is list else int(found)

    def made(self) -> Iterator[Value]:
        """The values that this segment defines: its inputs and the outputs of its nodes."""
        for value, _ in self.inputs:
            yield value
        for node in self.nodes:
            yield from node.outputs

    def graph(self, name: str) -> tuple[Graph, list[Value], list[Value]]:
        """The segment as a graph, and the values that its inputs and outputs stand for."""
        mine = set(self.made()) - {value for value, _ in self.inputs}
        used: dict[Value, None] = {}
        for node in self.nodes:
            for value in node.inputs:
                if value not in mine:
                    used[value] = None
        wanted = [value for value in self.exports if value in mine]
        inputs = with_tellers(list(used), self.nodes, self.tellers)
        return extract(name, inputs, self.nodes, wanted), inputs, wanted


def acts(graph: Graph) -> bool:
    """Whether a graph has effects."""
    return any(node.op.effect for part in graph.walk() for node in part.nodes)
