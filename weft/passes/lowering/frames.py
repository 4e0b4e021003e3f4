"""Structured control flow to the primitives that the dataflow executor runs: `weft.ops.flow`.

    if, switch    each operand through a `flow.switch`, each result through a `flow.merge`
    while, scan   a frame: operands enter it, carries are merged with what the last iteration sends,
                  a `loop_cond` opens the body or the exit

A scan counts its iterations, takes rows by the count and pushes its ys on stacks that are gathered
after the loop. `weft.passes.lowering.lift` is the inverse.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.base.dims import dims_in
from weft.ir.concrete import names_of_inputs
from weft.ir.contexts import is_lowered
from weft.ir.graph import Graph, Node, Value, copied
from weft.ir.sizes import bare_names, size_names
from weft.ir.types import TOKEN, StackType, TensorType, Type
from weft.ops.control import IF, SCAN, SWITCH, WHILE
from weft.ops.flow import (
    FLOW_BEFORE,
    FLOW_GATHER,
    FLOW_MERGE,
    FLOW_NUMBER,
    FLOW_ROW,
    FLOW_SIGNAL,
    FLOW_START,
    FLOW_SWITCH,
)
from weft.ops.stacks import STACK_POP
from weft.passes.contract import Notes, Pass
from weft.passes.lowering.regions import Loop, Region, element_of

__all__ = ["LowerControlFlow"]


class LowerControlFlow(Pass):
    """Branches and loops become switch, merge, enter, exit and next_iteration in frames."""

    name = "lower_control_flow"
    nested = False

    def rewrite(self, graph: Graph, notes: Notes) -> Graph:
        done = is_lowered(graph) or any(node.op is FLOW_START for node in graph.nodes)
        return graph if done or not _needs_lowering(graph) else Lowering(graph, notes).run()


def _needs_lowering(graph: Graph) -> bool:
    """Whether there is control flow, or a node whose attributes have sizes that depend on data."""
    early = names_of_inputs(graph)
    return any(
        node.op in _LOWERED
        or any(name not in early for size in dims_in(node.attrs) for name in size.names)
        for node in graph.nodes
    )


class Lowering:
    def __init__(self, graph: Graph, notes: Notes) -> None:
        self.old = graph
        self.notes = notes
        self.new = Graph(graph.name)
        self.new.history, self.new.interface = graph.history, graph.interface
        self.new.set_inputs([v.type for v in graph.inputs], [v.name for v in graph.inputs])
        self.early = names_of_inputs(graph)  # sizes that are known when a run begins
        self.taken = {v.name for part in graph.walk() for v in part.values() if v.name}
        self.count = 0
        self.at: Node | None = None  # the old node whose line new nodes get

    def run(self) -> Graph:
        outside = Region(None, lambda value: value, "")
        for old, new in zip(self.old.inputs, self.new.inputs, strict=True):
            outside.define(old, new)
        self.new.outputs = tuple(self.nodes(self.old, outside))
        return self.new

    def nodes(self, graph: Graph, region: Region) -> list[Value]:
        """The nodes of a graph, whose inputs are known, in a region; returns its outputs."""
        for node in graph.nodes:
            before, self.at = self.at, node
            lower = _LOWERED.get(node.op)
            if lower is None:
                self.plain(node, region)
            else:
                self.notes.add(f"{node.op.name} lowered")
                given = [region.known[value] for value in node.inputs]
                for old, new in zip(node.outputs, lower(self, node, given, region), strict=True):
                    self.name(old, new, region)
                    region.define(old, new)
            self.at = before
        return [region.known[value] for value in graph.outputs]

    def plain(self, node: Node, region: Region) -> None:
        inputs = [region.known[value] for value in node.inputs]
        new = copied(node, inputs, [nested.clone() for nested in node.graphs])
        made = self.started(new, region)
        for old, value in zip(node.outputs, made, strict=True):
            self.name(old, value, region)
            region.define(old, value)

    def started(self, node: Node, region: Region) -> Sequence[Value]:
        """Put a node in a region; the results. Where its inputs do not say when it runs, or what
        its sizes are, it becomes a `flow.start` that has such inputs."""
        tellers = self.tellers(node, region)
        if region.around is None or node.inputs:
            if not tellers:
                self.new.nodes.append(node)
                return node.outputs
        elif not tellers:
            tellers = [self.signal(region)]
        inner = Graph(node.op.name)
        inner.set_inputs([value.type for value in (*node.inputs, *tellers)])
        call = copied(node, inner.inputs[: len(node.inputs)], node.graphs)
        inner.nodes.append(call)
        inner.outputs = call.outputs
        types = [value.type for value in node.outputs]
        outer = Node(FLOW_START, (*node.inputs, *tellers), {}, types, (inner,), node.location)
        self.new.nodes.append(outer)
        return outer.outputs

    def tellers(self, node: Node, region: Region) -> list[Value]:
        """Values that tell the sizes in the attributes of a node, if the inputs do not."""
        wanted = {name for size in dims_in(node.attrs) for name in size.names} - self.early
        found: dict[Value, None] = {}
        waiting = sorted(wanted)
        while waiting:
            name = waiting.pop()
            value = region.teller(name)
            if value is not None and value not in found:
                found[value] = None
                if name not in bare_names(value):  # one equation in several names
                    others = size_names([value]) - wanted - self.early
                    wanted |= others
                    waiting += sorted(others)
        return list(found)

    def signal(self, region: Region) -> Value:
        """A value that is there when control comes to a region."""
        if region.signal is None:
            if region.around is None:
                region.signal = self.add(FLOW_SIGNAL, device=_device(self.old))
            else:
                region.signal = region.passed(self.signal(region.around))
        return region.signal

    # --- branches -----------------------------------------------------------------------------

    def branch(self, node: Node, given: list[Value], region: Region) -> list[Value]:
        name = self.fresh(node)
        predicate, operands = given[0], given[1:]
        count = len(node.graphs)

        def switch(value: Value, types: Sequence[Type] = (), control: bool = False) -> Node:
            attrs: dict[str, Any] = {"of": name}
            if count != 2:
                attrs["sides"] = count
            if control:
                attrs["control"] = True
            types = types or [value.type] * count
            return self.typed(FLOW_SWITCH, [value, predicate], types, **attrs)

        switches = [
            switch(value, [nested.inputs[i].type for nested in node.graphs])
            for i, value in enumerate(operands)
        ] or [switch(predicate, control=True)]
        # What all sides take of the region around them, besides operands; each passes once.
        controls: dict[Value, Node] = {} if operands else {predicate: switches[0]}
        results = []
        for side, nested in enumerate(node.graphs):

            def passed(value: Value, side: int = side) -> Value:
                if value not in controls:
                    controls[value] = switch(value, control=True)
                return controls[value].outputs[side]

            inside = Region(region, passed, f"{name}.{_side_name(node, side)}.")
            for i, value in enumerate(nested.inputs):
                self.name(value, switches[i].outputs[side], inside)
                inside.define(value, switches[i].outputs[side])
            if not operands:
                inside.signal = switches[0].outputs[side]
            results.append(self.nodes(nested, inside))
        merged = zip(*results, strict=True)
        return [
            self.typed(FLOW_MERGE, values, [result.type], of=name).out
            for values, result in zip(merged, node.outputs, strict=True)
        ]

    # --- loops --------------------------------------------------------------------------------

    def while_loop(self, node: Node, given: list[Value], region: Region) -> list[Value]:
        condition, body = node.graphs
        loop = Loop(self, node, region)
        consts = int(node.attrs["consts"])
        pushed = body.outputs[len(given) - consts :]
        kinds = [value.type for value in condition.inputs]
        told = list(zip(given, kinds, strict=True))
        fixed = [loop.fixed(value, "const", kind) for value, kind in told[:consts]]
        carried = [loop.carried(value, "carry", kind) for value, kind in told[consts:]]
        count = loop.counter() if node.attrs["counted"] else None
        stacks = [loop.carried(loop.empty(value.type), "push") for value in pushed]
        if not loop.merges:  # it takes only constants: control itself goes round
            loop.carried(self.signal(region), "control")
        for value, new in zip(condition.inputs, (*fixed, *carried), strict=True):
            self.name(value, new, loop.frame)
            loop.frame.define(value, new)
        (predicate,) = self.nodes(condition, loop.frame)
        loop.open(predicate)
        for value, new in zip(body.inputs, (*fixed, *carried), strict=True):
            loop.take(value, new)
        results = self.nodes(body, loop.body)
        for merge, value in zip(carried, results, strict=False):
            loop.send(merge, value)
        if count is not None:
            loop.step(count)
        for merge, value in zip(stacks, results[len(carried) :], strict=True):
            loop.push(merge, value)
        for merge in loop.merges:
            if merge not in loop.sent:
                loop.send(merge, loop.inside(merge))
        made = [loop.exit(*pair) for pair in zip(carried, node.outputs, strict=False)]
        if count is not None:
            device = node.outputs[len(carried)].tensor_type.device
            made.append(self.add(FLOW_NUMBER, loop.exit(count, count), device=device))
        last = node.outputs[len(node.outputs) - len(stacks) :]
        return [*made, *[loop.exit(*pair) for pair in zip(stacks, last, strict=True)]]

    def scan(self, node: Node, given: list[Value], region: Region) -> list[Value]:
        (body,) = node.graphs
        loop = Loop(self, node, region)
        consts, carries = int(node.attrs["consts"]), int(node.attrs["carries"])
        reverse = node.attrs["reverse"]
        fixed = [loop.fixed(value, "const") for value in given[:consts]]
        carried = [loop.carried(value, "carry") for value in given[consts : consts + carries]]
        slices = body.inputs[consts + carries :]
        xs = [
            loop.carried(value, "pop", StackType(element_of(row.type)))
            if isinstance(value.type, StackType)
            else loop.fixed(value, "row")
            for value, row in zip(given[consts + carries :], slices, strict=True)
        ]
        count = loop.counter()
        ys = body.outputs[carries:]
        stacks = [loop.carried(loop.empty(value.type), "push") for value in ys]
        attrs = {"length": node.attrs["length"], "reverse": reverse}
        before = Node(FLOW_BEFORE, [count], attrs, _types(FLOW_BEFORE, [count], attrs), (),
                      node.location)  # fmt: skip
        loop.open(*self.started(before, loop.frame))
        for value, new in zip(body.inputs, (*fixed, *carried), strict=False):
            loop.take(value, new)
        for value, x in zip(slices, xs, strict=True):
            if isinstance(x.type, StackType):
                pop = self.node(STACK_POP, loop.inside(x))
                loop.send(x, pop.outputs[0])
                row = pop.outputs[1]
            else:
                row = self.add(FLOW_ROW, loop.inside(x), loop.inside(count), reverse=reverse)
            self.name(value, row, loop.body)
            loop.body.define(value, row)
        results = self.nodes(body, loop.body)
        for merge, value in zip(carried, results, strict=False):
            loop.send(merge, value)
        loop.step(count)
        for merge, value in zip(stacks, results[carries:], strict=True):
            loop.push(merge, value)
        made = [loop.exit(*pair) for pair in zip(carried, node.outputs, strict=False)]
        for merge, result in zip(stacks, node.outputs[carries:], strict=True):
            stack = loop.exit(merge, result if isinstance(result.type, StackType) else merge)
            if isinstance(result.type, TensorType):
                kind = result.type
                attrs = {"shape": kind.shape, "dtype": kind.dtype, "device": kind.device}
                attrs["reverse"] = reverse
                types = _types(FLOW_GATHER, [stack], attrs)
                (stack,) = self.started(
                    Node(FLOW_GATHER, [stack], attrs, types, (), node.location), region
                )
            made.append(stack)
        return made

    # --- new nodes ----------------------------------------------------------------------------

    def node(self, op: Any, *inputs: Value, **attrs: Any) -> Node:
        location = self.at.location if self.at is not None else None
        return self.new.add(op, *inputs, location=location, **attrs)

    def typed(self, op: Any, inputs: Sequence[Value], types: Sequence[Type], **attrs: Any) -> Node:
        """A node whose results have these types, which may have other names of sizes."""
        location = self.at.location if self.at is not None else None
        made = Node(op, inputs, attrs, types, (), location)
        self.new.nodes.append(made)
        return made

    def add(self, op: Any, *inputs: Value, **attrs: Any) -> Value:
        return self.node(op, *inputs, **attrs).out

    def name(self, old: Value, new: Value, region: Region) -> None:
        if old.name and not new.name:
            new.name = f"{region.names}{old.name}"

    def fresh(self, node: Node) -> str:
        """A name for a branch or loop: no value of the old graph has one that begins with it."""
        while True:
            name = f"{node.op.name}_{self.count}"
            self.count += 1
            if not any(taken.startswith(f"{name}.") for taken in self.taken):
                return name


def _types(op: Any, inputs: Sequence[Value], attrs: dict[str, Any]) -> list[Type]:
    return [op.infer(*[value.type for value in inputs], **attrs)]


def _side_name(node: Node, side: int) -> str:
    names = node.op.graph_names
    return names[side] if names else str(side)


def _device(graph: Graph) -> Any:
    """Where the numbers that only control needs lie: with the other tensors."""
    for part in graph.walk():
        for value in part.values():
            if value.type != TOKEN:
                kind = value.type.innermost if isinstance(value.type, StackType) else value.type
                assert isinstance(kind, TensorType)
                return kind.device
    raise AssertionError("control flow without a tensor")


_Lower = Callable[[Lowering, Node, list[Value], Region], list[Value]]
_LOWERED: dict[Any, _Lower] = {
    IF: Lowering.branch,
    SWITCH: Lowering.branch,
    WHILE: Lowering.while_loop,
    SCAN: Lowering.scan,
}
