"""Collectives become a start and a finish, with work between them that does not need the result.

A start stands where its operands are there. From there on the program goes on in its order; where a
node waits for a message, later ones that do not take its place, as much of them as the message
takes to arrive. So sums of gradients travel while the backward goes on, parameters of the next
layer are gathered while this one is computed, and what one layer sums over ranks is on its way
while its own gradients are computed. Messages are finished in the order in which they were started,
which is the same on all ranks: they have one graph.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator

from weft.ir.graph import Builder, Graph, Node, Value
from weft.ir.literal import CONSTANT
from weft.ir.types import TensorType
from weft.ops.cards import FIRST_TOKEN
from weft.ops.messages import FINISH, START, has_halves
from weft.passes.contract import Notes, Pass

__all__ = ["Messages"]

#: Seconds of a message and of each of its bytes, on a link that is not fast; and those of each byte
#: and operation of work. Waiting too late costs little, waiting too early costs the whole message.
LATENCY, LINK = 5e-5, 1e-9
MEMORY, FLOP = 1e-10, 2e-11
#: Bytes on their way above which no later message is started ahead of its turn.
AHEAD = 1 << 22


class Messages(Pass):
    """Lets collectives travel while the program computes what does not need them."""

    name = "messages"

    def rewrite(self, graph: Graph, notes: Notes) -> Graph:
        if not any(node.op.collective and has_halves(node) for node in graph.nodes):
            return graph
        order = _whole_again(list(_Order(graph).run()))
        if not any(half for _, half in order):
            return graph
        builder = Builder(graph)
        token = builder.add(FIRST_TOKEN)
        for node, half in order:
            if not half:
                builder.copy(node)
                continue
            attrs = {name: x for name, x in node.attrs.items() if name not in ("mesh", "over")}
            made = builder.graph.add(
                START if half == "start" else FINISH,
                *builder.inputs_of(node),
                token,
                location=node.location,
                mesh=node.attrs["mesh"],
                over=node.attrs["over"],
                card=node.op.name,
                options=tuple(attrs.items()),
            )
            token = made.outputs[-1]
            if half == "finish":
                made.outputs[0].name = node.out.name
                builder.forward(node.outputs, made.outputs[:1])
                notes.add("messages that travel meanwhile")
        return builder.finish()


#: A node, and which half of it: "" for what is no message.
Placed = tuple[Node, str]


class _Order:
    """The nodes in a new order. All ranks find the same one."""

    def __init__(self, graph: Graph) -> None:
        self.nodes = graph.nodes
        self._place = {node: number for number, node in enumerate(graph.nodes)}
        self._missing = [0] * len(graph.nodes)
        self._users: dict[Node, list[int]] = {}
        for number, node in enumerate(graph.nodes):
            makers = {value.node for value in node.inputs if value.node in self._place}
            self._missing[number] = len(makers)
            for maker in makers:
                assert maker is not None
                self._users.setdefault(maker, []).append(number)
        self._given = {n for n, count in enumerate(self._missing) if not count}
        self._ready = [self._key(number) for number in self._given]
        self._done = [False] * len(graph.nodes)
        self._first = 0  # the first node that is not done
        self._barriers = deque(n for n, node in enumerate(graph.nodes) if _is_barrier(node))
        self._blocks = set(self._barriers)
        #: Messages on their way, with the seconds of work that have passed since.
        self._pending: deque[list[float]] = deque()

    def run(self) -> Iterator[Placed]:
        heapq.heapify(self._ready)
        while self._first < len(self.nodes):
            number = self._next()
            if number is None:
                yield self._finished()
                continue
            node = self.nodes[number]
            if has_halves(node):
                self._pending.append([number, _seconds(node), _nbytes(node)])
                self._pass(number)
                yield node, "start"
                continue
            seconds = _work(node)
            for message in self._pending:
                message[1] -= seconds
            self._end(number)
            self._pass(number)
            yield node, ""
        while self._pending:
            yield self._finished()

    def _next(self) -> int | None:
        """The node that comes next; None where a message has to be finished before."""
        barrier = self._barriers[0] if self._barriers else len(self.nodes)
        skipped: list[tuple[bool, int]] = []
        found: int | None = None
        while self._ready and found is None:
            key = heapq.heappop(self._ready)
            if self._may_run(key[1], barrier):
                found = key[1]
            else:
                skipped.append(key)
                if not has_halves(self.nodes[key[1]]) and key[1] not in self._blocks:
                    break
        for key in skipped:
            heapq.heappush(self._ready, key)
        return found

    def _key(self, number: int) -> tuple[bool, int]:
        """Messages of what was computed start at once; all else goes by its place."""
        return number in self._given or not has_halves(self.nodes[number]), number

    def _may_run(self, number: int, barrier: int) -> bool:
        node = self.nodes[number]
        if number in self._blocks:
            return number == self._first and not self._pending
        if has_halves(node) and number > barrier:
            return False
        if number == self._first or not self._pending or not self._key(number)[0]:
            return True
        if has_halves(node):  # ahead of its turn
            flying = sum(message[2] for message in self._pending)
            return len(self._pending) < 2 or flying + _nbytes(node) <= AHEAD
        return self._pending[0][1] > 0

    def _finished(self) -> Placed:
        number = int(self._pending.popleft()[0])
        self._end(number)
        return self.nodes[number], "finish"

    def _end(self, number: int) -> None:
        """Its results are there."""
        for user in self._users.get(self.nodes[number], ()):
            self._missing[user] -= 1
            if not self._missing[user]:
                heapq.heappush(self._ready, self._key(user))

    def _pass(self, number: int) -> None:
        """It has its place."""
        self._done[number] = True
        if self._barriers and self._barriers[0] == number:
            self._barriers.popleft()
        while self._first < len(self.nodes) and self._done[self._first]:
            self._first += 1


def _whole_again(order: list[Placed]) -> list[Placed]:
    """The same order, where messages stay whole that nothing is computed beside."""
    found: list[Placed] = []
    first, works = 0, False  # where the messages on their way began, and whether there was work
    flying = 0
    for node, half in order:
        if half == "start":
            if not flying:
                first, works = len(found), False
            flying += 1
        elif half:
            flying -= 1
        elif flying and _work(node) > 0:
            works = True
        found.append((node, half))
        if half == "finish" and not flying and not works:
            found[first:] = [(n, "") for n, h in found[first:] if h != "start"]
    return found


def _is_barrier(node: Node) -> bool:
    """Whether it makes other calls of groups, which no message may be on its way across."""
    if node.op.collective:
        return "over" in node.attrs and not has_halves(node)
    parts = [part for graph in node.graphs for part in graph.walk()]
    return any(inner.op.collective for part in parts for inner in part.nodes)


def _nbytes(node: Node) -> int:
    sizes = [v.tensor_type.nbytes for v in (*node.inputs, node.out)]
    return sum(size for size in sizes if isinstance(size, int))


def _seconds(node: Node) -> float:
    return LATENCY + LINK * _nbytes(node) / 2


def _work(node: Node) -> float:
    """About how long a call takes; of control flow, whatever comes before it."""
    if node.graphs:
        return 1.0
    kinds: list[Value] = [*node.inputs, *node.outputs]
    if node.op is CONSTANT or node.op.view or not all(_is_static(v.type) for v in kinds):
        return 0.0
    types = [value.tensor_type for value in kinds]
    count = len(node.inputs)
    cost = node.op.estimate(tuple(types[:count]), tuple(types[count:]), **node.attrs)
    return max(MEMORY * cost.bytes, FLOP * cost.flops)


def _is_static(kind: object) -> bool:
    return isinstance(kind, TensorType) and all(size.__class__ is int for size in kind.shape)
