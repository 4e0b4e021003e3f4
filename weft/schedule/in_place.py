"""Which results may overwrite an input, such as updated parameters and moments.

A result may take the buffer of an input if the kernel that writes it is the last to read the input,
and reads each element only where it writes it. Nothing may fail after the first such write, so that
a run that raises has changed nothing. For the same reason a run is not interrupted after it: steps
that take long must come before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from weft.ir.graph import Graph, Value
from weft.schedule.grouping import Grouping
from weft.schedule.groups import IN_REGISTERS, Group, Leaf
from weft.schedule.nodes import tensor_type
from weft.schedule.views import View, dense

__all__ = ["in_place"]

#: How long a run may take after its first write to an input, in ns, without the updates themselves:
#: Ctrl-C waits as long.
PATIENCE = 200_000_000.0


def in_place(
    graph: Graph,
    grouping: Grouping,
    may_fail: Callable[[Group], bool],
    times: Mapping[Group, float],
) -> list[tuple[int, int]]:
    """Pairs of an output and an input that may share a buffer. A caller uses each output and each
    input once at most.

    `times`: about how many nanoseconds each group takes one thread.
    """
    pairs = _possible(graph, grouping, may_fail)
    homes = {value: group for group in grouping.groups for value in group.outputs}
    writers = {homes[grouping.results[i]] for i, _ in pairs}
    left, first = 0.0, len(grouping.groups)
    for group in reversed(grouping.groups):
        if group not in writers or group.kind != "loop":
            left += times.get(group, 0.0)
        if left > PATIENCE:
            break
        first = group.position
    return [(i, j) for i, j in pairs if homes[grouping.results[i]].position >= first]


def _possible(
    graph: Graph, grouping: Grouping, may_fail: Callable[[Group], bool]
) -> list[tuple[int, int]]:
    safe_from = 0  # no group fails from this position on
    last_read: dict[Value, int] = {}
    for group in grouping.groups:
        if may_fail(group):
            safe_from = group.position + 1
        for operands in group.operands.values():
            for operand in operands:
                if isinstance(operand, Leaf):
                    last_read[operand.root] = group.position
    homes = {value: group for group in grouping.groups for value in group.outputs}
    given_back = set(grouping.results)
    numbers = {value: i for i, value in enumerate(graph.inputs) if value not in given_back}
    first = {value: i for i, value in reversed(list(enumerate(grouping.results)))}
    pairs: list[tuple[int, int]] = []
    for place, value in enumerate(grouping.results):
        home = homes.get(value)
        if home is None or home.position < safe_from or first[value] != place:
            continue
        for given in _read_by(home):
            if given not in numbers or given.type != value.type:
                continue
            if last_read[given] == home.position and _reads_where_it_writes(home, given, value):
                pairs.append((place, numbers[given]))
    return pairs


def _read_by(group: Group) -> list[Value]:
    found = [op.root for ops in group.operands.values() for op in ops if isinstance(op, Leaf)]
    return list(dict.fromkeys(found))


def _reads_where_it_writes(group: Group, given: Value, value: Value) -> bool:
    if group.kind not in ("loop", *IN_REGISTERS) or group.reduces or value in group.after:
        return False
    whole: View = dense(tensor_type(given).shape)
    for node, operands in group.operands.items():
        for operand in operands:
            if not isinstance(operand, Leaf) or operand.root is not given:
                continue
            if group.kind in IN_REGISTERS and (
                node is group.nodes[0] or node not in group.places  # of its prologue
            ):
                return False
            # The same axes and a dense view: each element is read where it is written.
            if operand.view != whole or group.places[node] != group.maps[value]:
                return False
    return True
