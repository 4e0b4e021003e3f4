"""Where the values of a lowered graph stand: in which frames of loops and sides of branches.

A lowered graph is flat. The context of a value follows from the primitives that lead to it:

    enter[frame]   from a context into the frame of a loop
    switch[of]     into one side of a branch; of a loop: 0 is its body, 1 the way out
    merge[of]      out of the sides of a branch; in a loop it stands at the begin of an iteration
    exit[frame]    out of a loop

All other nodes take inputs of one context, which is theirs; a node without inputs stands outside
of all. So frames and branches are nested by construction, and a value of one iteration or side can
only leave it through the node that is made for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING, NoReturn

from weft.base.dataclass import dataclass
from weft.base.errors import GraphError
from weft.ir.text import value_names

if TYPE_CHECKING:
    from weft.ir.graph import Graph, Node, Value

#: What `Op.flow` may say.
FLOWS = ("switch", "merge", "enter", "exit", "next", "condition")
#: The part of a context that is the frame of a loop itself; sides are numbered from 0.
FRAME = -1
BODY, EXIT = 0, 1

Context = tuple[tuple[str, int], ...]


@dataclass(eq=False, slots=True)
class Construct:
    """One branch or loop of a lowered graph, by its name.

    outside     the context in which it stands
    switches    in order; of a loop, those of carries and of constants
    merges      in order; of a loop, those that `enters` lead to
    predicate   what chooses the side; of a loop, the result of its `loop_cond`
    """

    name: str
    outside: Context
    is_loop: bool
    enters: list[Node] = field(default_factory=list)
    switches: list[Node] = field(default_factory=list)
    merges: list[Node] = field(default_factory=list)
    exits: list[Node] = field(default_factory=list)
    sent: dict[Value, Node] = field(default_factory=dict)  # merge -> its next_iteration
    condition: Node | None = None
    predicate: Value | None = None
    sides: int = 2


class Contexts:
    """The context of each value, and the constructs by name; a broken rule is a GraphError."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.of: dict[Value, Context] = dict.fromkeys(graph.inputs, ())
        self.constructs: dict[str, Construct] = {}
        for node in graph.nodes:
            _RULES.get(node.op.flow, Contexts._plain)(self, node)
        for value in graph.outputs:
            if self.of.get(value, ()):
                self.fail(f"the output {self.name_of(value)} stands {self.where(value)}")
        for made in self.constructs.values():
            if made.is_loop:
                self._check_loop(made)

    # --- the rules ----------------------------------------------------------------------------

    def _plain(self, node: Node) -> None:
        context = self._common(node, node.inputs)
        for value in node.outputs:
            self.of[value] = context

    def _enter(self, node: Node) -> None:
        outside = self._common(node, node.inputs)
        made = self._construct(node, str(node.attrs["frame"]), outside, True)
        made.enters.append(node)
        self.of[node.outputs[0]] = (*outside, (made.name, FRAME))

    def _switch(self, node: Node) -> None:
        here = self._common(node, node.inputs)
        name = str(node.attrs["of"])
        is_loop = bool(here) and here[-1] == (name, FRAME)
        made = self._construct(node, name, here[:-1] if is_loop else here, is_loop)
        predicate = node.inputs[1]
        if made.predicate is None and not is_loop:
            made.predicate, made.sides = predicate, len(node.outputs)
        if made.predicate is not predicate:
            wanted = "the result of its loop_cond" if is_loop else "the same value"
            self.fail(f"the switches of {name} are not all by {wanted}", node)
        if made.sides != len(node.outputs):
            self.fail(f"the switches of {name} have {made.sides} sides", node)
        made.switches.append(node)
        for side, value in enumerate(node.outputs):
            self.of[value] = (*here, (name, side))

    def _merge(self, node: Node) -> None:
        name = str(node.attrs["of"])
        first = node.inputs[0].node
        if first is not None and first.op.flow == "enter" and first.attrs["frame"] == name:
            if len(node.inputs) != 1:
                self.fail("in a loop, a merge takes the value that enters it alone", node)
            context = self._common(node, node.inputs)
            self.constructs[name].merges.append(node)
            self.of[node.outputs[0]] = context
            return
        made = self.constructs.get(name)
        if made is None or made.is_loop:
            self._no_frame(node, name)
        if len(node.inputs) != made.sides:
            self.fail(f"the merge takes a value of each of the {made.sides} sides of {name}", node)
        for side, value in enumerate(node.inputs):
            wanted = (*made.outside, (name, side))
            if self._of(node, value) != wanted:
                self.fail(
                    f"{self.name_of(value)} stands {self.where(value)}, and side {side} of {name} "
                    "is merged here",
                    node,
                )
        made.merges.append(node)
        self.of[node.outputs[0]] = made.outside

    def _exit(self, node: Node) -> None:
        name = str(node.attrs["frame"])
        made = self._loop(node, name)
        wanted = (*made.outside, (name, FRAME), (name, EXIT))
        if self._common(node, node.inputs) != wanted:
            value = node.inputs[0]
            self.fail(f"{self.name_of(value)} stands {self.where(value)}, not at the exit", node)
        made.exits.append(node)
        self.of[node.outputs[0]] = made.outside

    def _next(self, node: Node) -> None:
        merge, value = node.inputs
        name = str(node.attrs["frame"])
        at = merge.node
        self._of(node, merge)
        if at is None or at.op.flow != "merge" or at.attrs["of"] != name:
            self._no_frame(node, name)
        made = self._loop(node, name)
        if at not in made.merges:
            self._no_frame(node, name)
        if merge in made.sent:
            self.fail(f"{self.name_of(merge)} gets two values in the next iteration", node)
        if self._of(node, value) != (*made.outside, (name, FRAME), (name, BODY)):
            self.fail(
                f"{self.name_of(value)} stands {self.where(value)}, not in the body of {name}", node
            )
        made.sent[merge] = node

    def _condition(self, node: Node) -> None:
        name = str(node.attrs["frame"])
        made = self._loop(node, name)
        if made.condition is not None:
            self.fail(f"{name} has two conditions", node)
        if self._common(node, node.inputs) != (*made.outside, (name, FRAME)):
            self.fail(f"the condition of {name} is not computed in its frame", node)
        made.condition, made.predicate = node, node.outputs[0]
        self.of[node.outputs[0]] = (*made.outside, (name, FRAME))

    def _check_loop(self, made: Construct) -> None:
        if made.condition is None:
            self.fail(f"the loop {made.name} has no loop_cond: it would never end")
        if not made.merges:
            self.fail(f"the loop {made.name} carries nothing: it would never end")
        for node in made.merges:
            if node.outputs[0] not in made.sent:
                self.fail(f"no next_iteration gives a value to this merge of {made.name}", node)

    # --- words --------------------------------------------------------------------------------

    def _construct(self, node: Node, name: str, outside: Context, is_loop: bool) -> Construct:
        made = self.constructs.get(name)
        if made is None:
            if any(part == name for part, _ in outside):
                self.fail(f"{name} stands in itself", node)
            made = self.constructs[name] = Construct(name, outside, is_loop)
        if made.is_loop != is_loop:
            self.fail(f"{name} is the name of a branch and of a loop", node)
        if made.outside != outside:
            self.fail(
                f"{name} stands {_place(made.outside)}, and this node {_place(outside)}", node
            )
        return made

    def _loop(self, node: Node, name: str) -> Construct:
        made = self.constructs.get(name)
        if made is None or not made.is_loop:
            self.fail(f"there is no frame {name!r}", node)
        return made

    def _of(self, node: Node, value: Value) -> Context:
        context = self.of.get(value)
        if context is None:
            self.fail(f"the input {value!r} is not a value of the graph", node)
        return context

    def _common(self, node: Node, inputs: Sequence[Value]) -> Context:
        """The context of all inputs of a node."""
        if not inputs:
            return ()
        context = self._of(node, inputs[0])
        for value in inputs[1:]:
            if self._of(node, value) != context:
                one, two = inputs[0], value
                self.fail(
                    f"{self.name_of(one)} stands {self.where(one)}, and {self.name_of(two)} "
                    f"{self.where(two)}",
                    node,
                )
        return context

    def where(self, value: Value) -> str:
        return _place(self.of[value])

    def name_of(self, value: Value) -> str:
        return value_names(self.graph.values()).get(value, repr(value))

    def _no_frame(self, node: Node, name: str) -> NoReturn:
        """A merge or a next_iteration that belongs to no loop."""
        merge = node if node.op.flow == "merge" else node.inputs[0].node
        back = next(
            (n for n in self.graph.nodes if n.op.flow == "next" and n.inputs[0].node is merge), None
        )
        if merge is None or back is None:
            self.fail(f"there is no branch {name!r} to merge", node)
        path = self._path(merge, back)
        self.fail(f"there is a cycle outside of a frame: {path}", node)

    def _path(self, merge: Node, back: Node) -> str:
        """%a -> multiply -> %b -> flow.next_iteration -> %a"""
        names = value_names(self.graph.values())
        came: dict[Node, tuple[Value, Node]] = {}
        waiting = [back]
        while waiting:
            node = waiting.pop()
            for value in node.inputs[1:] if node is back else node.inputs:
                made = value.node
                if made is not None and made not in came:
                    came[made] = value, node
                    waiting.append(made)
        start = names[merge.outputs[0]] if merge.outputs else "%?"
        if merge not in came:
            return f"{start} -> {back.op.name} -> {start}"
        parts, node = list[str](), merge
        while node is not back:
            value, node = came[node]
            parts += [names[value], node.op.name]
        return " -> ".join([*parts, start])

    def fail(self, message: str, node: Node | None = None) -> NoReturn:
        error = GraphError(f"graph @{self.graph.name} is not valid: {message}")
        if node is not None:
            error.op = node.op.name
            if node.location is not None:
                error.location = node.location
        raise error


_RULES = {
    "enter": Contexts._enter,
    "switch": Contexts._switch,
    "merge": Contexts._merge,
    "exit": Contexts._exit,
    "next": Contexts._next,
    "condition": Contexts._condition,
}


def _place(context: Context) -> str:
    """in iteration of while_0, in side 1 of if_2"""
    if not context:
        return "outside of all branches and loops"
    parts = [f"{name}" if side == FRAME else f"side {side} of {name}" for name, side in context]
    return "in " + ", in ".join(parts)


def is_lowered(graph: Graph) -> bool:
    """Whether a graph has primitives of control flow."""
    return any(node.op.flow for node in graph.nodes)
