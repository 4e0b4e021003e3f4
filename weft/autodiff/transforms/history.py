"""Where a transform's histories begin and end.

The arguments that a transform differentiates get a node of their own, `Primal`, which is what a
gradient is asked for; behind it is the argument's own history, so that results can be
differentiated again. What leads nowhere but to such nodes has no history for those outside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from weft.autodiff.node import Node, count
from weft.autodiff.transforms.levels import LevelArray
from weft.base.shapes import Shape
from weft.core.bind import bind
from weft.core.grad_mode import enable_grad
from weft.core.tensor import Tensor, wrap
from weft.ops.cards import IDENTITY
from weft.ops.identity import detached

__all__: list[str] = []


class Primal(Node):
    """Stands for one argument of one call of a transform.

    ended    the call is over: nobody can ask for a gradient by it any more, except the call itself
    hidden   the function that is called is not to know of it: `jacobian`, before it has decided
             between forward and reverse mode
    """

    __slots__ = ("ended", "hidden")

    def __init__(self, shape: Shape, behind: Node | None) -> None:
        self.shape = shape
        self.edges = () if behind is None else (behind,)
        self.number = next(count)
        self.extra = None
        self.ended = False
        self.hidden = False

    def apply(
        self, g: Any, create: bool, keep: bool, wanted: tuple[bool, ...] | None
    ) -> Sequence[Any]:
        return (g,) * len(self.edges)


class Unseen(Primal):
    """The history of an argument of `vmap` or `jvp`, in a graph that is recorded of the function.

    It lies outside of that function: there is one, and a backward pass inside ends here.
    """

    __slots__ = ()

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape, None)


def is_unseen(node: Node | None) -> bool:
    """Whether a history leads to nothing but such nodes."""
    return node is not None and _leads_only_to(node, lambda end: isinstance(end, Unseen))


def is_hidden(node: Node) -> bool:
    """Whether a history leads to nothing but arguments that are hidden."""
    return _leads_only_to(node, lambda end: isinstance(end, Primal) and end.hidden)


def outer_histories(tensor: Tensor) -> list[Node]:
    """The histories that a tensor inside of `vmap` or `jvp` has outside of that function."""
    data = tensor._data
    found: list[Node] = []
    while isinstance(data, LevelArray):
        node = data.tensor._node
        if node is not None and not is_hidden(node):
            found.append(node)
        data = data.tensor._data
    return found


def _leads_only_to(node: Node, wanted: Callable[[Node], bool]) -> bool:
    """Whether all ends of a history are of a kind."""
    seen: set[Node] = set()
    stack = [node]
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            stack.extend([edge for edge in node.edges if edge is not None])
            if not node.edges and not wanted(node):
                return False
    return True


def primal(tensor: Tensor, linked: bool) -> Tensor:
    """A tensor of its own for an argument, with a node of its own; `linked` to its history."""
    with enable_grad():
        made = bind(IDENTITY, tensor) if linked else detached(tensor)
    behind = made._node
    made = wrap(made._data, tensor)
    made._node = Primal(made.shape, behind)
    return made


def twin(tensor: Tensor, like: Tensor | None = None) -> Tensor:
    """Another tensor of the same value and history; with `like`, of the class of its results."""
    made = wrap(tensor._data, tensor if like is None else like)
    made._node = tensor._node
    return made


def seed(like: Tensor) -> Tensor:
    """A tensor with a node of its own and no history behind it."""
    made = wrap(like._data, like)
    made._node = Primal(made.shape, None)
    return made


class Outside:
    """Tells which histories lead to more than some nodes: to a leaf, or to what is behind them.

    The arguments of inner calls that have ended are dead ends.
    """

    def __init__(self, own: Iterable[Node]) -> None:
        self._own = set(own)
        self._inside: set[Node] = set()  # known to lead to nothing but those

    def reached_by(self, node: Node | None) -> bool:
        seen: set[Node] = set()
        stack = [] if node is None else [node]
        while stack:
            node = stack.pop()
            if node in seen or node in self._inside:
                continue
            seen.add(node)
            if node.edges:
                stack.extend([edge for edge in node.edges if edge is not None])
            elif node not in self._own and not (isinstance(node, Primal) and node.ended):
                return True
        self._inside |= seen
        return False

    def released(self, tensor: Tensor) -> Tensor:
        """The tensor for those outside: without a history that leads to nothing of theirs."""
        if tensor._node is None or self.reached_by(tensor._node):
            return tensor
        return wrap(tensor._data, tensor)
