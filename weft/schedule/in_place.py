"""Which results may overwrite an input, such as updated parameters and moments.

A result may take the buffer of an input if the kernel that writes it is the last to read the input,
and reads each element only where it writes it. Nothing may fail after the first such write, so that
a run that raises has changed nothing. For the same reason a run is not interrupted after it: steps
that take long must come before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from weft.ir.graph import Graph, Value
from weft.schedule.axes import Map
from weft.schedule.grouping import Grouping
from weft.schedule.groups import IN_REGISTERS, Group, Leaf
from weft.schedule.nodes import tensor_type
from weft.schedule.views import dense

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
    read: dict[Group, dict[Value, Map]] = {}
    pairs: list[tuple[int, int]] = []
    for place, value in enumerate(grouping.results):
        home = homes.get(value)
        if home is None or home.position < safe_from or first[value] != place:
            continue
        if home not in read:
            places = _read_where_written(home)
            read[home] = {given: at for given, at in places.items() if given in numbers}
        if value in home.after:
            continue
        for given, at in read[home].items():
            last = last_read[given] == home.position
            if last and given.type == value.type and at == home.maps.get(value):
                pairs.append((place, numbers[given]))
    return pairs


def _read_where_written(group: Group) -> dict[Value, Map]:
    """The values of which a group reads each element once, at the point of its loops that this
    element belongs to, with the axes of that point: a result along these axes may replace them."""
    if group.kind not in ("loop", *IN_REGISTERS) or group.reduces:
        return {}
    found: dict[Value, Map | None] = {}
    for node, operands in group.operands.items():
        # The first node of a product and its prologues read elements in another order.
        loops = group.kind == "loop" or (node is not group.nodes[0] and node in group.places)
        place = group.places[node] if loops else None
        for operand in operands:
            if isinstance(operand, Leaf):
                root = operand.root
                here = place if operand.view == dense(tensor_type(root).shape) else None
                found[root] = here if found.get(root, here) == here else None
    return {root: place for root, place in found.items() if place is not None}
