"""The program of one rank: all ranks run the same graph on what each of them has.

A graph whose types say their layouts (`propagate`) becomes one with the types of parts. A `layout`
call becomes the collectives that it stands for; other calls run on parts as they are, with the
attributes that hold sizes changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from weft.autodiff.node import weft_namespace
from weft.base.device import CPU
from weft.base.dtypes import uint8
from weft.base.errors import InternalError
from weft.base.source import SourceLocation
from weft.base.world import Axes, group_size
from weft.core.grad_mode import no_grad
from weft.ir.graph import Graph, Node, Value, copied
from weft.ir.infer import infer_types
from weft.ir.literal import CONSTANT, constant_attrs
from weft.ir.op import Op
from weft.ir.types import TensorType, Type
from weft.ir.ways import SUM, Span, Way, local_attrs, ways_of
from weft.ops.cards import ASTYPE, RESHAPE
from weft.ops.collective import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_REDUCE_EXTREME,
    ALL_TO_ALL,
    OWN_PART,
    REDUCE_SCATTER,
)
from weft.ops.layout import LAYOUT
from weft.passes.layouts.convert import steps
from weft.passes.layouts.states import States, of_cuts
from weft.passes.stop_gradient import DropStopGradient
from weft.record.make_graph import make_graph

__all__ = ["Inserted", "Report", "split"]


@dataclass(frozen=True, slots=True)
class Inserted:
    """One collective that splitting inserted.

    name     of its card
    over     the mesh axes along which ranks take part
    value    what it changes: its type with its layout
    to       the layout that it gives, as a type
    nbytes   that each rank sends, about
    why      the call that needs it
    location  where that is in the source
    """

    name: str
    over: tuple[str, ...]
    value: str
    to: str
    nbytes: int
    why: str
    location: SourceLocation | None = None

    def __str__(self) -> str:
        return (
            f"{self.name} over {', '.join(self.over)}: {self.value} -> {self.to}, "
            f"{self.nbytes} bytes, {self.why}"
            + (f" at {self.location.file}:{self.location.line}" if self.location else "")
        )


@dataclass
class Report:
    """What splitting inserted, in the order of the program; calls in loops are listed once."""

    inserted: list[Inserted] = field(default_factory=list)

    @property
    def nbytes(self) -> int:
        return sum(each.nbytes for each in self.inserted)

    def __str__(self) -> str:
        messages = sum(bool(each.nbytes) for each in self.inserted)
        plural = "" if messages == 1 else "s"
        lines = [f"{messages} message{plural}, {self.nbytes} bytes sent by each rank"]
        return "\n".join([*lines, *[f"  {each}" for each in self.inserted]])


def split(graph: Graph, mesh: Axes, report: Report | None = None) -> Graph:
    """The graph of one rank, from one whose types say their layouts."""
    return _Split(mesh, report or Report()).graph(graph)


#: What each rank of n sends, as a share of the whole.
_SENT = {
    ALL_REDUCE: lambda n: 2 * (n - 1) / n,
    ALL_GATHER: lambda n: (n - 1) / n,
    REDUCE_SCATTER: lambda n: (n - 1) / n,
    ALL_TO_ALL: lambda n: (n - 1) / n,
}


class _Split:
    def __init__(self, mesh: Axes, report: Report) -> None:
        self.mesh = mesh
        self.report = report

    def graph(self, old: Graph) -> Graph:
        new = Graph(old.name)
        new.history = old.history
        new.set_inputs(
            [self.local(value.type) for value in old.inputs], [value.name for value in old.inputs]
        )
        known = dict(zip(old.inputs, new.inputs, strict=True))
        users = old.users()
        for node in old.nodes:
            if node.op is LAYOUT:
                known[node.out] = self._changed(new, node, known[node.inputs[0]], users[node.out])
            else:
                self._call(new, node, known)
        new.outputs = tuple([known[value] for value in old.outputs])
        return new

    def local(self, kind: Type) -> Type:
        """The type of a part."""
        if not isinstance(kind, TensorType) or kind.cuts is None:
            return kind
        return kind.cut(None).like(shape=kind.cuts.local(kind.shape, self.mesh))

    def states(self, value: Value) -> States:
        kind = value.type
        return of_cuts(kind.cuts if isinstance(kind, TensorType) else None, self.mesh)

    def _changed(self, new: Graph, node: Node, value: Value, users: Sequence[Node]) -> Value:
        """The value in the other layout."""
        source, made = node.inputs[0].tensor_type, node.out.tensor_type
        why = f"for {users[0].op.name}" if users else "for the result"
        before, after = self.states(node.inputs[0]), self.states(node.out)

        def add(op: Op, *given: Value, **attrs: Any) -> Value:
            return new.add(op, *given, location=node.location, **attrs).out

        for step in steps(before, after, source.ndim, self.mesh):
            kind = value.tensor_type
            nbytes = kind.nbytes if isinstance(kind.size, int) else 0
            value, _ = step.run(add, value, kind.shape, source.shape)
            n = group_size(self.mesh, step.attrs["over"])
            whole = nbytes * (n if step.op is ALL_GATHER else 1)
            sent = _SENT[step.op](n) if step.op in _SENT else 0
            self.report.inserted.append(
                Inserted(
                    step.op.name,
                    step.attrs["over"],
                    str(source),
                    str(made),
                    int(whole * sent),
                    why,
                    node.location,
                )
            )
        return value

    def _call(self, new: Graph, node: Node, known: dict[Value, Value]) -> None:
        inputs = [
            self._without_copies(new, node, i, known[value]) for i, value in enumerate(node.inputs)
        ]
        outputs = [self.local(value.type) for value in node.outputs]
        combine = self._combined(node)
        names, way = self._by_rule(node)
        if way is not None:
            known.update(
                zip(node.outputs, self._run_rule(new, node, inputs, names, way), strict=True)
            )
            return
        whole = [value.type for value in (*node.inputs, *node.outputs)]
        given = [value.type for value in inputs]
        attrs = local_attrs(node.op, node.attrs, whole, given, outputs)
        graphs = [self.graph(graph) for graph in node.graphs]
        types = infer_types(node.op, inputs, attrs, graphs)
        if not node.op.data_shape and list(types) != outputs:
            raise InternalError(
                f"{node.op.name} on parts gives {', '.join(map(str, types))}, "
                f"not {', '.join(map(str, outputs))}"
            )
        made = Node(node.op, inputs, attrs, outputs, graphs, node.location)
        new.nodes.append(made)
        for old, value in zip(node.outputs, made.outputs, strict=True):
            value.name = old.name
            known[old] = value
        for over, kind in combine:
            known[node.outputs[0]] = self._extreme(new, node, known[node.outputs[0]], over, kind)

    def _by_rule(self, node: Node) -> tuple[list[str], Way | None]:
        """The way of a call whose parts run another rule than its card, and along which mesh
        axes."""
        rules = [way for way in ways_of(node) if way.rule is not None] if node.op.ways else []
        names: list[str] = []
        found: Way | None = None
        if rules:
            columns = list(zip(*map(self.states, node.inputs), strict=True))
            made = list(zip(*map(self.states, node.outputs), strict=True))
            for k, (name, _) in enumerate(self.mesh):
                for way in rules:
                    if way.inputs == columns[k] and way.outputs == made[k]:
                        names.append(name)
                        found = way
        return names, found

    def _without_copies(self, new: Graph, node: Node, number: int, value: Value) -> Value:
        """An operand of a sum over an axis whose last parts are filled up: with zeros there."""
        old = node.inputs[number]
        if not isinstance(old.type, TensorType) or old.type.cuts is None or node.graphs:
            return value
        shape, where = old.tensor_type.shape, node.location
        made = self.states(node.outputs[0])
        floats = value.tensor_type.dtype.kind in ("float", "complex")
        for axis in old.type.cuts.padded(shape, self.mesh):
            (name,) = old.type.cuts.axes[axis]
            if made[[each for each, _ in self.mesh].index(name)] != SUM or not floats:
                continue
            size = value.tensor_type.shape[axis]
            first = self._first(new, (name,), size, where)

            def zeroed(
                first: Any, x: Any, size: int = size, axis: int = axis, real: int = shape[axis]
            ) -> Any:
                xp = weft_namespace()
                here = xp.arange(size) + first < real
                here = xp.reshape(here, (-1,) + (1,) * (x.ndim - 1 - axis))
                return xp.where(here, x, xp.zeros_like(x))

            (value,) = self._recorded(new, zeroed, (first, value), where)
        return value

    def _first(
        self, new: Graph, names: Sequence[str], size: int, where: SourceLocation | None
    ) -> Value:
        """The number of the first element of the part of this rank, of parts of one size."""
        ranks = group_size(self.mesh, tuple(names))
        attrs = constant_attrs(np.arange(ranks) * size, CPU)
        starts = new.add(CONSTANT, location=where, **attrs).out
        over: dict[str, Any] = {"mesh": self.mesh, "over": tuple(names)}
        mine = new.add(OWN_PART, starts, location=where, axis=0, **over).out
        return new.add(RESHAPE, mine, location=where, shape=()).out

    def _recorded(
        self,
        new: Graph,
        function: Callable[..., Any],
        values: Sequence[Value],
        where: SourceLocation | None,
    ) -> list[Value]:
        """What a function gives, as calls in the graph."""
        graph = make_graph(function, *[value.tensor_type for value in values])
        graph = DropStopGradient().run(graph)
        known = dict(zip(graph.inputs, values, strict=True))
        for each in graph.nodes:
            made = copied(each, [known[value] for value in each.inputs], each.graphs)
            made.location = where
            known.update(zip(each.outputs, made.outputs, strict=True))
            new.nodes.append(made)
        return [known[value] for value in graph.outputs]

    def _run_rule(
        self, new: Graph, node: Node, inputs: list[Value], names: list[str], way: Way
    ) -> list[Value]:
        """The call on the part of this rank, by the rule of a way."""
        ranks = group_size(self.mesh, tuple(names))
        size, where = way.parts // ranks, node.location
        first = self._first(new, names, size, where)

        def run(first: Any, *operands: Any) -> Any:
            assert way.rule is not None
            span = Span(first, size, way.parts, self.mesh, tuple(names))
            with no_grad():
                return way.rule(weft_namespace(), span, *operands, **node.attrs)

        return self._recorded(new, run, (first, *inputs), where)

    def _combined(self, node: Node) -> list[tuple[str, str]]:
        """The mesh axes along which results have to be combined, and how."""
        found = []
        if len(node.outputs) == 1 and not node.graphs:
            cut = [self.states(value) for value in node.inputs]
            out = self.states(node.out)
            for k, (name, _) in enumerate(self.mesh):
                states = tuple(int(a) if isinstance(a := s[k], int) else a for s in cut)
                if out[k] is None and any(isinstance(s, int) for s in states):
                    found += [
                        (name, way.combine)
                        for way in ways_of(node)
                        if way.combine and way.inputs == states
                    ]
        return found

    def _extreme(self, new: Graph, node: Node, value: Value, over: str, kind: str) -> Value:
        where = node.location
        dtype = value.tensor_type.dtype
        attrs: dict[str, Any] = {"mesh": self.mesh, "over": (over,), "kind": kind}
        if dtype.kind == "bool":
            number = new.add(ASTYPE, value, location=where, dtype=uint8).out
            found = new.add(ALL_REDUCE_EXTREME, number, location=where, **attrs).out
            result = new.add(ASTYPE, found, location=where, dtype=dtype).out
        else:
            result = new.add(ALL_REDUCE_EXTREME, value, location=where, **attrs).out
        n = dict(self.mesh)[over]
        kinds = str(node.inputs[0].type), str(node.out.type)
        sent = int(value.tensor_type.nbytes * 2 * (n - 1) / n)
        why = f"for {node.op.name}"
        self.report.inserted.append(
            Inserted(ALL_REDUCE_EXTREME.name, (over,), *kinds, sent, why, where)
        )
        return result
