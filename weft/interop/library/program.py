"""What goes into a library: a graph, what a call gives it and gets, and its state."""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.base.dim_algebra import Dim, replaced
from weft.base.dims import has_dims
from weft.base.errors import CaptureError, GraphError
from weft.capture.trace.captured import Captured
from weft.capture.trace.segments import Ending
from weft.capture.watch.effects import Effect
from weft.compile import run_passes
from weft.core.tensor import Tensor
from weft.interop.library.sizes import check_facts, numbers_of_sizes, whole_sizes
from weft.interop.programs.program import Program
from weft.ir.concrete import concrete, sized_type
from weft.ir.graph import Graph, Value, extract
from weft.ir.signature import SAME, Constant, Given, Made, Place, Signature
from weft.ir.types import TensorType
from weft.passes.pipeline import optimize

__all__ = ["ARGUMENT", "RESULT", "STATE", "LibraryProgram", "RunSize", "Slot"]
__all__ += ["c_name", "program_of"]

#: Where a value of a call lies: in an argument, a result, or in the state of the instance.
ARGUMENT, RESULT, STATE = "argument", "result", "state"
#: A place of a call: one of these, and the number among its kind.
Where = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Slot:
    """A tensor that a library takes, gives or keeps.

    name    as the user's program calls it
    word    the same as a C identifier, unique among its kind
    value   of state: what an instance begins with
    written whether a call changes it
    """

    name: str
    word: str
    type: TensorType
    value: np.ndarray[Any, Any] | None = None
    written: bool = False


@dataclass(frozen=True, slots=True)
class RunSize:
    """A named size that each call chooses: `least` to `most`. `word` is its name in C."""

    name: str
    least: int
    most: int
    word: str


@dataclass(frozen=True, slots=True)
class LibraryProgram:
    """A program as a library sees it: all its values have places, and sizes that are fixed but
    for one.

    reads      for each input of the graph: where it lies
    gives      for each output of the graph: where it goes, perhaps to several places
    run_size   the size that calls choose, if there is one
    """

    name: str
    graph: Graph
    arguments: tuple[Slot, ...]
    results: tuple[Slot, ...]
    state: tuple[Slot, ...]
    reads: tuple[Where, ...]
    gives: tuple[tuple[Where, ...], ...]
    run_size: RunSize | None = None

    def largest(self, size: int) -> int:
        """A size, where calls choose the largest one."""
        return replaced(size, {self.run_size.name: self.run_size.most}) if self.run_size else size

    @property
    def trains(self) -> bool:
        """Whether a call changes the state."""
        return any(slot.written for slot in self.state)


def program_of(
    function: Captured[..., Any] | Program,
    sizes: Mapping[str, int] | None = None,
    max_sizes: Mapping[str, int] | None = None,
    path: int = -1,
) -> LibraryProgram:
    """The program that a compiled function has recorded: `path` says which, by default the last.
    Of an exported program, itself."""
    sizes, max_sizes = whole_sizes("sizes", sizes), whole_sizes("max_sizes", max_sizes)
    if isinstance(function, Program):
        return program_of_export(function, sizes, max_sizes)
    if not isinstance(function, Captured):
        raise CaptureError(
            f"a library is made of a compiled function, not of {function!r:.60}",
            op="build_library",
            hint="weft.export(f, weft.spec(...)), or weft.compile(f) once it has been called",
        )
    found = list(function._ends())
    if not found:
        raise CaptureError(
            f"{function._name()} has not been called: its types are not known yet",
            op="build_library",
            hint="call it once with arguments of the kind that it is for",
        )
    segments = found[path]
    if len(segments) > 1:
        question = segments[0].question
        at = f" at {question.location}" if question is not None and question.location else ""
        raise CaptureError(
            f"{function._name()} asks a tensor for its value{at}: Python decides what comes next, "
            "and a library has no Python",
            op="build_library",
            hint="weft.compile makes `if` and `while` on tensors part of the graph",
        )
    ending = segments[0].ending
    assert ending is not None
    signature = ending.signature
    effects = [effect.description for effect in ending.effects if not _keeps(effect, ending)]
    if effects:
        raise CaptureError(
            f"{function._name()} changes Python objects: {'; '.join(effects)}",
            op="build_library",
            hint="keep numbers that change in tensors",
        )
    guards = [guard.expected for guard in segments[0].guards if guard.kind == "sizes"]
    check_facts([guard.fact for guard in guards if guard.fact], sizes, max_sizes)
    values = {
        number: _array(origin.evaluate((), {}))
        for number, (place, origin) in enumerate(zip(signature.places, ending.origins, strict=True))
        if not place.is_argument and _is_state(signature, number)
    }
    return of_signature(signature, function.paths()[path], values, sizes, max_sizes)


def _keeps(effect: Effect, ending: Ending) -> bool:
    """Whether an effect stores a tensor where it was: `self.count += 1` writes to the tensor, and
    stores it again."""
    if effect.target is None or len(effect.raw) != 2:
        return False
    found = ending.places.get(id(effect.raw[1]))
    if not isinstance(found, Given):
        return False
    origin = ending.origins[found.place]
    return origin.parent is effect.target and origin.key == effect.raw[0]


def _is_state(signature: Signature, number: int) -> bool:
    return number in signature.inputs or any(
        write.place == number and write.value is not None for write in signature.writes
    )


def _array(found: Any) -> np.ndarray[Any, Any]:
    return np.array(found.detach().numpy() if isinstance(found, Tensor) else found)


def program_of_export(
    program: Program, sizes: Mapping[str, int] | None, max_sizes: Mapping[str, int] | None
) -> LibraryProgram:
    """The same for an exported program, with its state as it is now."""
    routine, signature = program.routine, program.routine.signature
    writes = {write.place: write for write in signature.writes}
    values: dict[int, np.ndarray[Any, Any]] = {}
    grads: dict[int, int] = {}
    for number in range(len(program.inputs), len(signature.places)):
        of = routine.grads.get(number)
        place = signature.places[number]
        if of is None:
            values[number] = _array(program.state[place.name])
            continue
        assert place.type is not None
        grad = program.state[signature.places[of].name].grad
        shape, dtype = place.type.shape, place.type.dtype.numpy
        values[number] = np.zeros(shape, dtype) if grad is None else _array(grad)
        made = writes[of].grad if of in writes else SAME
        if isinstance(made, int):
            grads[number] = made
    check_facts(routine.facts, sizes, max_sizes)
    return of_signature(signature, routine.graph, values, sizes, max_sizes, grads)


def of_signature(
    signature: Signature,
    graph: Graph,
    values: Mapping[int, np.ndarray[Any, Any]],
    sizes: Mapping[str, int] | None = None,
    max_sizes: Mapping[str, int] | None = None,
    grads: Mapping[int, int] | None = None,
) -> LibraryProgram:
    """The program of a graph with its signature.

    values   the state, by place
    grads    outputs that are new values of places that hold gradients
    """
    written = {write.place: write.value for write in signature.writes if write.value is not None}
    written |= grads or {}
    read = dict(zip(signature.inputs, graph.inputs, strict=True))
    #: Gradients that only stay behind in `.grad` are not computed.
    outputs = {value: graph.outputs[output] for value, output in written.items()}
    leaves = [
        (name, _result(signature, graph, leaf, outputs, read))
        for name, leaf in zip(signature.result.names("result"), signature.leaves, strict=True)
        if not isinstance(leaf, Constant)
    ]
    wanted = list(dict.fromkeys([*outputs.values(), *[value for _, value in leaves]]))
    at = {value: number for number, value in enumerate(wanted)}
    types = {place: value.tensor_type for place, value in {**outputs, **read}.items()}
    graph = extract(graph.name, graph.inputs, graph.nodes, wanted)
    numbers = numbers_of_sizes(graph, sizes, max_sizes)
    sized = {place: sized_type(kind, numbers) for place, kind in types.items()}
    types = {place: kind for place, kind in sized.items() if isinstance(kind, TensorType)}
    graph = optimize(concrete(graph, numbers) if numbers else graph, run_passes())
    words = dict.fromkeys((ARGUMENT, RESULT), _Words()) | {STATE: _Words()}
    slots: dict[str, list[Slot]] = {ARGUMENT: [], RESULT: [], STATE: []}
    where: dict[int, Where] = {}
    for number in sorted(range(len(signature.places)), key=lambda i: _order(signature.places[i])):
        found = signature.places[number]
        if number in types:
            kind = ARGUMENT if found.is_argument else STATE
            value = None
            if kind == STATE:
                value = np.ascontiguousarray(values[number], types[number].dtype.numpy)
                value = value.reshape(types[number].shape)
            where[number] = kind, len(slots[kind])
            word = words[kind].of(found.name)
            slots[kind].append(Slot(found.name, word, types[number], value, number in written))
    gives: list[list[Where]] = [[] for _ in wanted]
    for name, made in leaves:
        gives[at[made]].append((RESULT, len(slots[RESULT])))
        kind_of = graph.outputs[at[made]].tensor_type
        slots[RESULT].append(Slot(name, words[RESULT].of(name), kind_of, written=True))
    for place, made in outputs.items():
        gives[at[made]].append(where[place])
    return LibraryProgram(
        signature.name,
        graph,
        tuple(slots[ARGUMENT]),
        tuple(slots[RESULT]),
        tuple(slots[STATE]),
        tuple(where[number] for number in signature.inputs),
        tuple(map(tuple, gives)),
        _run_size(numbers, slots[STATE], words[ARGUMENT]),
    )


def _run_size(numbers: Mapping[str, int], state: Sequence[Slot], words: _Words) -> RunSize | None:
    for name, size in numbers.items():
        if not isinstance(size, Dim):
            continue
        least, most = size.bounds
        assert least is not None
        assert most is not None
        for slot in state:
            if has_dims(slot.type.shape):
                raise GraphError(
                    f"{slot.name} of the state is {slot.type}: its size cannot change from call to "
                    "call",
                    op="build_library",
                    hint=f"give {name} a number: sizes={{{name!r}: …}}",
                )
        return RunSize(name, least, most, words.of(name))
    return None


def _result(
    signature: Signature,
    graph: Graph,
    leaf: Made | Given,
    outputs: Mapping[int, Value],
    read: Mapping[int, Value],
) -> Value:
    """The value of a leaf of the result; of what lies outside, the value after the call."""
    if isinstance(leaf, Made):
        return graph.outputs[leaf.output]
    found = outputs.get(leaf.place) or read.get(leaf.place)
    if found is None:
        raise GraphError(
            f"{signature.name} returns {signature.places[leaf.place].name} itself, and does not "
            "read it",
            op="build_library",
            hint="the caller has it; return something else, or nothing",
        )
    return found


def _order(place: Place) -> list[tuple[str, int, str]]:
    """A key that sorts places as the function has its parameters: first those by position."""
    return [
        (kind, key, "") if isinstance(key, int) else (kind, 0, str(key)) for kind, key in place.path
    ]


# --- names ----------------------------------------------------------------------------------------

#: Words that C, C++ or the generated functions use.
_TAKEN = frozenset(
    re.findall(
        r"\w+",
        "auto break case char const continue default do double else enum extern float for goto "
        "if inline int long register restrict return short signed sizeof static struct switch "
        "typedef union unsigned void volatile while bool class delete explicit export false "
        "friend mutable namespace new operator private protected public template this throw "
        "true try typename using virtual and or not xor self bytes path name data made "
        # Those of JavaScript, and the names in generated code.
        "function let var in of await yield null arguments eval with debugger instanceof typeof "
        "super extends implements interface package import undefined constructor module "
        "state given arrays array pairs shape dtype written np ctypes value view i check error "
        "NULL EOF int8_t size_t",
    )
)


def c_name(text: str, default: str = "x") -> str:
    """A C identifier for a name: `batch["x"][0]` becomes batch_x_0."""
    word = re.sub(r"[^A-Za-z0-9_]+", "_", text).strip("_") or default
    word = f"_{word}" if word[0].isdigit() else word
    return f"{word}_" if word in _TAKEN or keyword.iskeyword(word) else word


class _Words:
    """Identifiers that differ, also in capitals, and from the names of their counts."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def of(self, text: str) -> str:
        word = found = c_name(text)
        count = 1
        while {found.upper(), f"{found}_COUNT".upper()} & self._taken:
            count += 1
            found = f"{word}_{count}"
        self._taken |= {found.upper(), f"{found}_COUNT".upper()}
        return found
