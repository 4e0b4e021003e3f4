"""Helpers of the search for attention: users of values, patterns of nodes."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from weft.base.dtypes import NARROW_FLOATS, float32
from weft.ir.graph import Graph, Node, Value
from weft.ir.literal import CONSTANT
from weft.ir.op import Op
from weft.ops.cards import ASTYPE, FULL, MULTIPLY, PERMUTE_DIMS
from weft.passes.facts import made_by
from weft.passes.lowering.attention.cards import Axes

__all__ = [
    "Forward",
    "Uses",
    "is_number",
    "is_rounding",
    "is_turned",
    "number_of",
    "swapped",
    "uncast",
]


@dataclass(frozen=True)
class Forward:
    """
    end       the last product, weights · v
    q, k_turned, v   of shapes (…, queries, features), (…, features, keys), (…, keys, values)
    mask      True where a query may look, or numbers to add; None too where it is `causal`
    masked_by what the graph masks scores with, or None
    nowhere   of each query, whether it may look nowhere and gets 0; or None
    scaling   what multiplies scores by a number, or divides them by one; or None
    weights   what `end` multiplies: softmax's result, or that with zeros
    inner     the nodes that are done by the kernel, beside `end`
    axes      the order in which its result is best written
    """

    end: Node
    softmax: Node
    q: Value
    k_turned: Value
    v: Value
    mask: Value | None
    masked_by: Value | None
    causal: bool
    nowhere: Value | None
    scaling: Node | None
    weights: Value
    inner: tuple[Node, ...]
    axes: Axes

    @property
    def blank(self) -> bool:
        return self.nowhere is not None

    @property
    def scale(self) -> float:
        number = None if self.scaling is None else number_of(self.scaling)
        if self.scaling is None or number is None:
            return 1.0
        return number if self.scaling.op is MULTIPLY else 1.0 / number


class Uses:
    """The users of the values of a graph."""

    def __init__(self, graph: Graph) -> None:
        self._users = graph.users()
        self._given = set(graph.outputs)
        self.place = {node: i for i, node in enumerate(graph.nodes)}

    def of(self, value: Value) -> list[Node]:
        return self._users[value]

    def find(
        self, value: Value, op: Op, fits: Callable[[Node], bool] = lambda node: True
    ) -> Node | None:
        """The first user that is a call of `op` and meets the condition."""
        return next((node for node in self._users[value] if node.op is op and fits(node)), None)

    def reach(
        self, value: Value, op: Op, inner: list[Node], fits: Callable[[Node, Value], bool]
    ) -> Node | None:
        """As `find`, of what a value is cast to if not of itself: the cast goes to `inner`."""
        found = self.find(value, op, lambda node: fits(node, value))
        cast = self.find(value, ASTYPE, is_rounding) if found is None else None
        if cast is None:
            return found
        made = cast.outputs[0]
        found = self.find(made, op, lambda node: fits(node, made))
        if found is not None:
            inner.append(cast)
        return found

    def only_by(self, node: Node, members: Collection[Node]) -> bool:
        """Whether nothing else uses the results of a node."""
        return not any(
            value in self._given or any(user not in members for user in self._users[value])
            for value in node.outputs
        )

    def order(self, value: Value, turned: bool = False) -> Axes:
        """The order of axes in which a value is wanted if its only user permutes it, columns last;
        of a value that is `turned`, the order of the one that it is turned from."""
        natural = tuple(range(value.tensor_type.ndim))
        users = self._users[value]
        if len(users) != 1 or users[0].op is not PERMUTE_DIMS or value in self._given:
            return natural
        axes = tuple(users[0].attrs["axes"])
        if turned:
            axes = tuple(swapped(value)[i] for i in axes)
        return axes if axes[-1] == natural[-1] else natural


def is_rounding(node: Node) -> bool:
    """Whether a node casts a narrow float to float32, or back: the kernels compute in float32
    throughout, and need neither."""
    if node.op is not ASTYPE:
        return False
    one, other = (value.tensor_type.dtype for value in (node.inputs[0], node.outputs[0]))
    return (one in NARROW_FLOATS and other is float32) or (
        one is float32 and other in NARROW_FLOATS
    )


def uncast(value: Value, inner: list[Node]) -> Value:
    """What a value was before it was cast, if it was: the cast goes to `inner`."""
    cast = value.node
    if cast is None or not is_rounding(cast):
        return value
    inner.append(cast)
    return cast.inputs[0]


def is_number(value: Value, number: float) -> bool:
    node = value.node
    if node is None or value.tensor_type.size != 1:
        return False
    if node.op is FULL:
        return bool(node.attrs["value"] == number)
    return node.op is CONSTANT and bool((node.attrs["value"].array == number).all())


def number_of(node: Node) -> float | None:
    """The number that is the right operand of a call."""
    made = made_by(node.inputs[1], CONSTANT)
    if made is None or node.inputs[1].tensor_type.ndim:
        return None
    return float(made.attrs["value"].array) or None


def swapped(value: Value) -> Axes:
    """The axes of a value, the last two exchanged."""
    ndim = value.tensor_type.ndim
    return (*range(ndim - 2), ndim - 1, ndim - 2)


def is_turned(one: Value, other: Value) -> bool:
    """Whether a value is another with its last two axes exchanged."""
    (root, axes), (same, others) = _seen(one), _seen(other)
    return root is same and axes == tuple(others[i] for i in swapped(other))


def _seen(value: Value) -> tuple[Value, Axes]:
    """What a value is a permutation of, and which."""
    axes: Axes = tuple(range(value.tensor_type.ndim))
    node = made_by(value, PERMUTE_DIMS)
    while node is not None:
        axes = tuple(node.attrs["axes"][i] for i in axes)
        value = node.inputs[0]
        node = made_by(value, PERMUTE_DIMS)
    return value, axes
