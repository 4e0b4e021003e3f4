"""Makes a program from a recorded run: its places, its state and its signature."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.base.dim_algebra import replaced
from weft.base.pytree import tree_flatten
from weft.capture.watch.origin import ATTR, MAYBE, Origin
from weft.core.tensor import Tensor, type_of
from weft.interop.programs.arguments import Argument, Arguments
from weft.interop.programs.examples import Examples, bound
from weft.interop.programs.plain_trees import plain_spec
from weft.interop.programs.program import Program, own_tensor
from weft.interop.programs.record import Recorded, as_state, refuse
from weft.interop.programs.run import Routine
from weft.interop.programs.stores import Store, stores
from weft.ir.graph import Graph, Value, extract
from weft.ir.signature import (
    NONE,
    SAME,
    Constant,
    Given,
    Leaf,
    Made,
    NewLeaf,
    Place,
    Signature,
    Write,
)
from weft.ir.types import TensorType
from weft.passes.stop_gradient import DropStopGradient

__all__ = ["Builder"]


class Builder:
    """Makes the parts of a program from a recorded run.

    Its places are the inputs, in the order of the arguments, then the state.
    """

    def __init__(self, function: Any, examples: Examples, run: Recorded) -> None:
        self.function, self.examples, self.run = function, examples, run
        self.signature = run.ending.signature
        self.name = self.signature.name
        self.values: dict[int, Value] = {}  # by place: what the graph reads there
        self.state: dict[str, Tensor] = {}
        self.places: list[Place] = []
        self.grads: dict[int, int] = {}
        self._numbers: dict[int, int] = {}  # of the recorded places: their numbers here
        self._by_object: dict[int, int] = {}  # of objects in the state
        self._origins = {id(o): i for i, o in enumerate(run.ending.origins)}

    def program(self) -> Program:
        arguments = self._arguments()
        for number, (name, kind) in enumerate(zip(arguments.names, arguments.types, strict=True)):
            self.places.append(Place(name, (("arg", number),), kind))
        read = {
            place: value
            for (value, _), place in zip(self.run.inputs, self.signature.inputs, strict=True)
        }
        waiting = [i for i in range(len(self.signature.places)) if not self._is_grad(i)]
        for i in [*waiting, *[i for i in range(len(self.signature.places)) if self._is_grad(i)]]:
            self._place(i, read.get(i))
        return self._finished(arguments)

    # --- arguments ----------------------------------------------------------------------------

    def _arguments(self) -> Arguments:
        examples = self.examples
        rename = self.run.recorder.sizes.plan.relations if self.run.recorder.sizes else {}
        types = tuple(
            [
                kind.like(shape=tuple([replaced(size, rename) for size in kind.shape]))
                for kind in examples.types
            ]
        )
        found: list[Argument] = []
        names = [""] * len(types)
        for name, kind, value in bound(self.function, examples.args, examples.kwargs):
            leaves, spec = tree_flatten(value)
            tree = plain_spec(spec)
            made: list[int | Constant] = []
            for leaf, port in zip(leaves, tree.names(name), strict=True):
                number = examples.number.get(id(leaf))
                made.append(Constant(leaf) if number is None else number)
                if number is not None:
                    names[number] = port
            found.append(Argument(name, kind, tree, tuple(made)))
        return Arguments(self.name, tuple(found), tuple(names), types)

    # --- places -------------------------------------------------------------------------------

    def _is_grad(self, i: int) -> bool:
        """Whether a place holds the gradient of a tensor at another place."""
        origin = self.run.ending.origins[i]
        return (
            origin.kind in (ATTR, MAYBE)
            and origin.key in ("grad", "_grad")
            and origin.parent is not None
            and isinstance(self._evaluated(origin.parent), Tensor)
        )

    def _evaluated(self, origin: Origin) -> Any:
        return origin.evaluate(self.examples.args, self.examples.kwargs)

    def _place(self, i: int, value: Value | None) -> int:
        """The number here of a place of the recording."""
        if i in self._numbers:
            return self._numbers[i]
        obj, name = self.run.objects[i], self.signature.places[i].name
        number = self.examples.number.get(id(obj))
        if number is None:
            number = self._new_state(obj, name, self.run.ending.origins[i])
        if value is not None:
            self.values[number] = value
        self._numbers[i] = number
        return number

    def _new_state(self, obj: Any, name: str, origin: Origin | None = None) -> int:
        tensor = as_state(obj, name)
        of = None
        if origin is not None and origin.parent is not None and origin.key in ("grad", "_grad"):
            of = self._by_object.get(id(self._evaluated(origin.parent)))
        number = self._by_object.get(id(obj)) if isinstance(obj, Tensor) else None
        if number is not None:
            return number
        number = len(self.places)
        if of is not None:
            self.grads[number] = of
            self.places.append(Place(f"{self.places[of].name}.grad", (), type_of(tensor)))
            return number
        name = self._free(_state_name(name))
        self.places.append(Place(name, (), type_of(tensor)))
        self.state[name] = tensor
        if isinstance(obj, Tensor):
            self._by_object[id(obj)] = number
        return number

    def _free(self, name: str) -> str:
        names = {place.name for place in self.places}
        count, found = 1, name
        while found in names:
            count += 1
            found = f"{name} ({count})"
        return found

    # --- the end ------------------------------------------------------------------------------

    def _finished(self, arguments: Arguments) -> Program:
        ending, signature = self.run.ending, self.signature
        made = list(ending.made)
        stored = list(stores(ending.effects, self._evaluated))
        written: dict[int, str] = {}
        for store in stored:
            number = self._by_object.get(id(store.old))
            if number is None:
                number = self._new_state(store.old, store.name)
            self._check_stored(store, number)
            written[number] = store.name
        writes = [self._write(write) for write in signature.writes]
        both = written.keys() & {write.place for write in writes if write.value is not None}
        if both:
            refuse(f"the function writes to {written[min(both)]}, and stores another tensor there")
        for store, number in zip(stored, written, strict=True):
            value = self._stored_value(store.new)
            self._check_type(store.name, type_of(store.old), value)
            writes.append(Write(number, len(made)))
            made.append(value)
        leaves: list[Leaf] = []
        for leaf in signature.leaves:
            if isinstance(leaf, Given):
                number = self._numbers[leaf.place]
                if number in written:  # what it held before is returned
                    leaves.append(Made(len(made)))
                    made.append(self._value(number))
                else:
                    leaves.append(Given(number))
            else:
                leaves.append(leaf)
        for write in writes:
            if write.value is not None:
                place = self.places[write.place]
                assert place.type is not None
                self._check_type(place.name, place.type, made[write.value])
            self._check_grad(write)
        values = self._inputs()
        graph = extract(self.name, values, self.run.nodes, made)
        freed: frozenset[int] = frozenset()
        if ending.backward is not None:
            freed = frozenset(signature.tracked[i] for i in ending.backward.freed)
        if freed and freed >= set(signature.tracked):  # nobody differentiates it
            graph = DropStopGradient().run(graph)
        _name_inputs(graph, self.places)
        ended = Signature(
            self.name,
            tuple(self.places),
            tuple(range(len(self.places))),
            tuple([value.tensor_type for value in graph.outputs]),
            signature.tracked,
            plain_spec(signature.result),
            tuple(leaves),
            tuple(writes),
            tuple([self._leaf(leaf) for leaf in signature.new_leaves]),
        )
        facts = self.run.recorder.sizes.asked.facts if self.run.recorder.sizes else ()
        routine = Routine(graph, ended, dict(self.grads), freed, self._learning(), tuple(facts))
        if freed or routine.writes_gradients:
            self._check_histories(writes)
        return Program(routine, arguments, {name: own_tensor(x) for name, x in self.state.items()})

    def _check_histories(self, writes: Sequence[Write]) -> None:
        """A backward inside reaches what an earlier call has computed only in a live function."""
        for write in writes:
            if write.history:
                refuse(
                    f"the function calls backward, and keeps the history of "
                    f"{self.places[write.place].name} for the next call",
                    "detach it: x.detach()",
                )

    def _learning(self) -> frozenset[int]:
        """The places whose tensors require gradients."""
        given = [*self.examples.tensors, *[None] * len(self.places)]
        found: set[int] = set()
        for number, place in enumerate(self.places):
            tensor = given[number] if place.is_argument else self.state.get(place.name)
            if tensor is not None and tensor.requires_grad:
                found.add(number)
        return frozenset(found)

    def _inputs(self) -> list[Value]:
        """A value for each place: those that are not read are inputs of the graph, too."""
        return [self._value(i) for i in range(len(self.places))]

    def _value(self, number: int) -> Value:
        found = self.values.get(number)
        if found is None:
            kind = self.places[number].type
            assert kind is not None
            found = self.values[number] = Value(kind)
        return found

    def _stored_value(self, new: Tensor) -> Value:
        """The value of the graph for a tensor that is stored to a place outside."""
        where = self.run.ending.places.get(id(new))
        if isinstance(where, int):
            return self.run.ending.made[where]
        assert where is not None
        return self._value(self._numbers[where.place])

    def _check_stored(self, store: Store, number: int) -> None:
        """A tensor that the state holds under one name must have no other."""
        name, old = store.name, store.old
        origins = self.run.ending.origins
        found = [origins[i] for i, n in self._numbers.items() if n == number]
        others = [origin.text for origin in found if not store.is_at(origin)]
        others += [
            guard.text
            for guard in self.run.recorder.segments[0].guards
            if guard.kind == "same" and any(self._evaluated(o) is old for o in guard.others)
        ]
        if others:
            refuse(
                f"the function stores another tensor to {name}; "
                f"{others[0].removeprefix('global ')} is the same one now, and would not be any "
                "more",
                "write to the tensor in place: x.copy_(value)",
            )
        if old.requires_grad:
            refuse(
                f"the function stores another tensor to {name}, which requires a gradient",
                "write to the tensor in place, under weft.no_grad(): x.copy_(value)",
            )

    def _check_type(self, name: str, kind: TensorType, value: Value) -> None:
        if value.type != kind:
            refuse(
                f"{name} is {kind}, and the function makes it {value.type}: the next call would "
                "find another type there",
                "keep the shape and the dtype of state",
                value.node.location if value.node else None,
            )

    def _write(self, write: Write) -> Write:
        grad = write.grad
        if isinstance(grad, Given):
            grad = Given(self._numbers[grad.place])
        return Write(self._numbers[write.place], write.value, write.history, grad)

    def _check_grad(self, write: Write) -> None:
        """A gradient that is missing now, and is there in the next call, makes another program."""
        if write.grad == SAME:
            return
        name = self.places[write.place].name
        had = write.place in self.grads.values()
        if write.grad == NONE:
            if had:
                refuse(
                    f"the function reads the gradient of {name} and removes it: the next call "
                    "would find none",
                    "call zero_grad() before weft.export, or set it to zeros",
                )
            return
        if had or write.place < len(self.examples.types):
            return
        target = next(i for i, n in self._numbers.items() if n == write.place)
        origin = self.run.ending.origins[target]
        for guard in self.run.recorder.segments[0].guards:
            at = guard.origin
            if at is None or at.parent is not origin or at.key not in ("grad", "_grad"):
                continue
            refuse(
                f"the function adds to the gradient of {name}, which has none now, and has one in "
                "the next call",
                "call zero_grad() at the beginning of the function; or, to add up gradients from "
                "call to call, give the parameters gradients of zeros before weft.export",
            )

    def _leaf(self, leaf: NewLeaf) -> NewLeaf:
        grad = leaf.grad
        if isinstance(grad, Given):
            grad = Given(self._numbers[grad.place])
        return NewLeaf(leaf.output, Tensor, leaf.learns, grad)


def _state_name(name: str) -> str:
    """self.0.weight -> 0.weight"""
    if name == "default generator._state":
        return "random"
    return name.removeprefix("self.").removesuffix("._state")


def _name_inputs(graph: Graph, places: Sequence[Place]) -> None:
    taken: set[str] = set()
    for value, place in zip(graph.inputs, places, strict=True):
        name = "".join(c if c.isalnum() or c == "_" else " " for c in place.name)
        made = base = ".".join(name.split()) or "x"
        count = 1
        while made in taken:
            count += 1
            made = f"{base}_{count}"
        taken.add(made)
        value.name = made if not made[0].isdigit() else f"x{made}"
