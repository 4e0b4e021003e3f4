"""A step's graph as a chain of units: what one stage of a pipeline may begin or end with.

A cut is possible where all that the rest of the forward needs is one value. Parts between such
places that belong to the same module of a list (`blocks.3`) are one unit. A node of the backward
belongs to the unit of the call that it differentiates. Units with equal graphs have the same kind,
so that each kind is costed once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from weft.base.dims import has_dims
from weft.base.errors import DistributedError
from weft.distributed.planning.outline import Outline
from weft.ir.attributes import attrs_key
from weft.ir.graph import Graph, Node, Value
from weft.ir.op import Trait, card
from weft.ir.types import TensorType
from weft.ops.cards import EMBEDDING

__all__ = ["Unit", "module_key", "root", "units_of"]


@dataclass(eq=False)
class Unit:
    """A part of the chain.

    name        the module that it is, or its first line
    forward, backward   its nodes, which run for each micro-batch
    once        nodes that depend on parameters alone: they run once per step
    updates     nodes of the optimizer
    parameters  inputs of the graph that its forward reads and that are no data
    learns      the parameters' gradients that its backward makes, each with its parameter if known
    states      what the optimizer keeps, besides parameters
    takes, gives   what comes from the unit before, and goes to the next; None at the ends
    kind        the same number for units that are alike
    """

    name: str
    forward: list[Node] = field(default_factory=list)
    backward: list[Node] = field(default_factory=list)
    once: list[Node] = field(default_factory=list)
    updates: list[Node] = field(default_factory=list)
    parameters: list[Value] = field(default_factory=list)
    learns: dict[Value, Value | None] = field(default_factory=dict)
    states: list[Value] = field(default_factory=list)
    takes: Value | None = None
    gives: Value | None = None
    kind: int = 0


def root(value: Value) -> Value:
    """The value whose elements, in the same order, an alias has."""
    while value.node is not None and value.node.op.alias:
        value = value.node.inputs[0]
    return value


def _sized(value: Value) -> bool:
    return isinstance(value.type, TensorType) and has_dims(value.type.shape)


class _Phases:
    """Which nodes are forward, backward, update; and which run only once per step."""

    def __init__(self, graph: Graph) -> None:
        self.streamed: set[Value] = {value for value in graph.inputs if _sized(value)}
        self.learned: set[Value] = set()  # depend on data and on parameters
        self.of: dict[Node, str] = {}
        fed = {v for v in graph.inputs if not _sized(v) and v.type.__class__ is TensorType}
        of_weights: set[Value] = {v for v in fed if v.tensor_type.dtype.kind in FLOATING}
        for node in graph.nodes:
            if node.op.nested:
                error = DistributedError(
                    f"the step has control flow ({node.op.name}), whose cost depends on values",
                    op="plan",
                    hint="loops over layers are written in Python",
                )
                error.location = node.location
                raise error
            role = node.location.role if node.location is not None else ""
            streams = any(v in self.streamed for v in node.inputs) or any(map(_sized, node.outputs))
            after = any(v.node is not None and self.of[v.node] in LATE for v in node.inputs)
            if role == "update" or (role != "backward" and after):
                phase = "update"
            elif not streams:
                phase = "once"
            else:
                phase = role or "forward"
            self.of[node] = phase
            if streams:
                self.streamed.update(node.outputs)
            if any(v in of_weights for v in node.inputs):
                of_weights.update(node.outputs)
                if streams:
                    self.learned.update(node.outputs)


LATE = ("backward", "update")
FLOATING = ("float", "complex")


def units_of(outline: Outline) -> list[Unit]:
    """The chain of a step."""
    graph = outline.graph
    phases = _Phases(graph)
    forward = [node for node in graph.nodes if phases.of[node] == "forward"]
    if not forward:
        raise DistributedError("nothing in the step depends on its arguments", op="plan")
    units = _chain(graph, forward, phases)
    at = {node: i for i, unit in enumerate(units) for node in unit.forward}
    _give_backward(graph, units, at, phases)
    for unit in units:
        _give_once(unit, phases)
    _give_updates(graph, units, at, phases)
    _number_kinds(units)
    return units


# --- the chain -----------------------------------------------------------------------------------


def _chain(graph: Graph, forward: list[Node], phases: _Phases) -> list[Unit]:
    last = {value: i for i, node in enumerate(forward) for value in node.inputs}
    parts: list[tuple[list[Node], Value | None]] = []
    current: list[Node] = []
    alive: set[Value] = set()
    ends: dict[int, list[Value]] = {}
    for i, node in enumerate(forward):
        current.append(node)
        for value in node.outputs:
            if value in phases.learned and last.get(value, -1) > i:
                alive.add(value)
                ends.setdefault(last[value], []).append(value)
        alive.difference_update(ends.pop(i, ()))
        if len(alive) == 1 and i + 1 < len(forward):
            (only,) = alive
            if only.tensor_type.dtype.kind in FLOATING and _sized(only):
                parts.append((current, only))
                current = []
    parts.append((current, None))
    joined = _with_heavy(parts, phases)
    units: list[Unit] = []
    for key, nodes, gives in joined:
        if units and units[-1].name == key and _numbered(key):
            units[-1].forward += nodes
            units[-1].gives = gives
        else:
            units.append(Unit(key, nodes, gives=gives))
    for one, two in pairwise(units):
        two.takes = one.gives
    _name_apart(units)
    return units


def _with_heavy(
    parts: list[tuple[list[Node], Value | None]], phases: _Phases
) -> list[tuple[str, list[Node], Value | None]]:
    """Parts without a product or a table go to a neighbour: to the one before if they are of the
    same module, or if the next one is of a list, whose members are to stay alike; else to the
    next."""
    joined: list[tuple[str, list[Node], Value | None]] = []
    waiting: list[tuple[list[Node], Value | None]] = []

    def to_last(part: tuple[list[Node], Value | None]) -> None:
        key, nodes, _ = joined[-1]
        joined[-1] = key, nodes + part[0], part[1]

    for nodes, gives in parts:
        heavy = [node for node in nodes if _is_heavy(node, phases)]
        if not heavy:
            if joined and not waiting and module_key(nodes[0]) == joined[-1][0]:
                to_last((nodes, gives))
            else:
                waiting.append((nodes, gives))
            continue
        key = module_key(heavy[0])
        if joined and _numbered(key) and not _numbered(joined[-1][0]):
            for part in waiting:
                to_last(part)
            waiting = []
        before = [node for part, _ in waiting for node in part]
        joined.append((key, before + nodes, gives))
        waiting = []
    if not joined:
        joined.append((module_key(waiting[0][0][0]), [], None))
    for part in waiting:
        to_last(part)
    return joined


def _is_heavy(node: Node, phases: _Phases) -> bool:
    if Trait.PRODUCT in node.op.traits:
        return True
    return not node.op.view and any(
        v not in phases.streamed
        and isinstance(v.type, TensorType)
        and v.type.ndim > 1
        and v.type.dtype.kind in FLOATING
        and node.op is EMBEDDING
        for v in node.inputs
    )


def module_key(node: Node) -> str:
    """The module of a node, up to its number in a list: GPT.blocks.3."""
    path = node.location.module if node.location is not None else ""
    names = path.split(".")
    for i, name in enumerate(names):
        if name.isdigit():
            return ".".join(names[: i + 1])
    return path


def _numbered(key: str) -> bool:
    return key.rpartition(".")[2].isdigit()


def _name_apart(units: list[Unit]) -> None:
    """Names that are all different, with lines where there are no modules."""
    taken: dict[str, int] = {}
    for unit in units:
        where = unit.forward[0].location
        name = unit.name or (where.short if where is not None else "step")
        count = taken[name] = taken.get(name, 0) + 1
        unit.name = name if count == 1 else f"{name} ({count})"


# --- backward, update, what runs once ------------------------------------------------------------


def _give_backward(graph: Graph, units: list[Unit], at: dict[Node, int], phases: _Phases) -> None:
    """Each node belongs to the unit of the call that it differentiates: by its line, where that
    tells units apart, else by what it reads of the forward, else by the cotangents that it
    reads."""
    places: dict[Any, set[int]] = {}
    users: dict[Value, set[int]] = {}
    for node, i in at.items():
        if node.location is not None:
            places.setdefault((node.location, node.op.name), set()).add(i)
        for value in node.inputs:
            for source in _sources(value, phases):
                users.setdefault(source, set()).add(i)
    borders = {unit.gives for unit in units}
    for node in graph.nodes:
        if phases.of[node] != "backward":
            continue
        where = node.location
        found: set[int] = set()
        if where is not None and where.forward is not None:
            found = places.get((where.forward, where.of), set())
        if len(found) != 1:
            found = set()
            for value in node.inputs:
                maker = value.node
                if value not in phases.streamed:
                    for source in _sources(value, phases):
                        known = users.get(source, set())
                        found |= known if len(known) == 1 else set()
                elif maker is not None and phases.of[maker] == "forward":
                    own = where is not None and card(where.of) is maker.op
                    reads_on = value in borders and not own  # it differentiates the next unit
                    found.add(at[maker] + reads_on)
        if not found:
            found = {
                at[v.node]
                for v in node.inputs
                if v.node is not None and phases.of[v.node] == "backward"
            }
        at[node] = min(found, default=len(units) - 1)
        units[at[node]].backward.append(node)


def _sources(value: Value, phases: _Phases) -> list[Value]:
    """The parameters that a value which does not depend on data is made of."""
    found: list[Value] = []
    waiting, seen = [value], {value}
    while waiting:
        value = waiting.pop()
        if value in phases.streamed or not _is_floating(value):
            continue
        if value.node is None:
            found.append(value)
        elif phases.of[value.node] == "once":
            waiting += [x for x in value.node.inputs if x not in seen]
            seen.update(value.node.inputs)
    return found


def _is_floating(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.dtype.kind in FLOATING


def _give_once(unit: Unit, phases: _Phases) -> None:
    """The parameters of a unit, and what is made of them alone, such as copies in a narrow
    dtype."""
    known: dict[Value, bool] = {}  # whether a value depends on parameters

    def look(value: Value) -> bool:
        if value in phases.streamed or not _is_floating(value):  # such as random states
            return False
        if value in known:
            return known[value]
        if value.node is None:
            known[value] = True
            unit.parameters.append(value)
            return True
        if phases.of[value.node] != "once":
            return False
        found = [look(x) for x in value.node.inputs]
        known.update(dict.fromkeys(value.node.outputs, any(found)))
        if any(found):
            unit.once.append(value.node)
        return any(found)

    for node in (*unit.forward, *unit.backward):
        for value in node.inputs:
            look(value)


def _give_updates(graph: Graph, units: list[Unit], at: dict[Node, int], phases: _Phases) -> None:
    weights = {value for unit in units for value in unit.parameters}
    learns: dict[Value, tuple[int, Value | None]] = {}
    states: set[Value] = set()
    for node in graph.nodes:
        if phases.of[node] != "update":
            continue
        bases = [root(value) for value in node.inputs]
        for base in bases:
            maker = base.node
            if maker in at and phases.of[maker] == "backward" and base not in learns:
                alike = (x for x in bases if x in weights and x.type == base.type)
                learns[base] = at[maker], next(alike, None)
        homes = {at[v.node] for v in node.inputs if v.node in at}
        if not homes:
            continue
        at[node] = home = min(homes)
        if node.op.alias or not node.outputs:
            continue
        units[home].updates.append(node)
        shape = node.outputs[0].tensor_type.shape
        for base in bases:
            known = base in weights or base in learns or base in states or base.node in at
            if not known and base.tensor_type.ndim and base.tensor_type.shape == shape:
                states.add(base)
                units[home].states.append(base)
    graded = graph.interface.graded if graph.interface is not None else ()
    first = len(graph.outputs) - sum(leaf is not None for _, leaf in graded)
    for value in graph.outputs[first:] if graded else ():  # gradients that no optimizer takes
        base = root(value)
        maker = base.node
        if maker in at and phases.of[maker] == "backward" and base not in learns:
            learns[base] = at[maker], None
    for base, (home, weight) in learns.items():
        units[home].learns[base] = weight


# --- which are alike -----------------------------------------------------------------------------


def _number_kinds(units: list[Unit]) -> None:
    kinds: dict[Any, int] = {}
    for unit in units:
        names: dict[Value, int] = {}
        text: list[Any] = []
        own = set(unit.parameters)
        border = {unit.takes: "takes"}
        for node in (*unit.once, *unit.forward, *unit.backward):
            ins = []
            for value in node.inputs:
                if value not in names:
                    what = "weight" if value in own else border.get(value, "outside")
                    names[value] = len(names)
                    ins.append((names[value], what, str(value.type)))
                else:
                    ins.append((names[value], "", ""))
            for value in node.outputs:
                names[value] = len(names)
            outs = tuple(str(value.type) for value in node.outputs)
            text.append((node.op.name, attrs_key(node.attrs), tuple(ins), outs))
        ends = [names.get(v, -1) for v in (unit.gives, *unit.learns) if v is not None]
        states = sum(1 for _ in unit.states)
        unit.kind = kinds.setdefault((tuple(text), tuple(ends), states), len(kinds))
