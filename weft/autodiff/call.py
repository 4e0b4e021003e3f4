"""A whole recorded call as one node of the dynamic graph."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeVar

from weft.autodiff.node import FREED, Node, as_array, count, data_of, freed, part_of
from weft.autodiff.transforms.levels import LevelArray
from weft.base.errors import GradientError
from weft.core.grad_mode import enable_grad, no_grad
from weft.core.symbolic import SymbolicArray
from weft.core.tensor import Tensor, wrap
from weft.ir.types import TensorType
from weft.ops.creation import zeros

#: cotangents of the results -> gradients of the inputs, one per edge, None where there is none
Backward = Callable[[Sequence[Any]], Sequence[Tensor | None]]
#: Arrays without numbers.
NUMBERLESS = (LevelArray, SymbolicArray)


class CallNode(Node):
    """The history of the results of a recorded call.

    backward        computes the gradients from the values that the forward run saved
    differentiable  the same by ops on the tape: for gradients of gradients, and for cotangents
                    that have no numbers: those of a `vmap` or `jvp`, and of a recording
    conflicts       for each result, those whose backward frees its history; absent cotangents are
                    None. Without `conflicts` there is only one backward, and they are zeros
    spent           the results whose histories a backward has freed
    """

    __slots__ = ("backward", "conflicts", "differentiable", "label", "spent", "types")

    #: What is wrong with a history that never was one to go through.
    why: ClassVar[GradientError | None] = None

    backward: Backward
    differentiable: Backward
    label: str
    conflicts: Sequence[frozenset[int]] | None
    spent: frozenset[int]
    types: tuple[TensorType, ...]

    @property
    def outputs(self) -> int:  # type: ignore[override]
        return len(self.types)

    def name(self) -> str:
        return f"{self.label}Backward"

    def frees(self) -> bool:
        return True

    def apply(
        self, g: Any, create: bool, keep: bool, wanted: tuple[bool, ...] | None
    ) -> Sequence[Any]:
        if self.is_freed():
            why = self.why
            if why is not None:
                raise type(why)(why.message, op=why.op, hint=why.hint)
            raise freed(self.name())
        given = g if isinstance(g, tuple) else (g,)
        is_last = self._goes_back(given, keep) and not keep
        by_ops = create or any(isinstance(data_of(part), NUMBERLESS) for part in given)
        fill = self.conflicts is None
        with enable_grad() if create else no_grad():
            tensors = [_tensor(x, kind, fill) for x, kind in zip(given, self.types, strict=True)]
            grads = self.run(tensors, by_ops, is_last)
        if is_last:
            self.free()
        return [part if create else data_of(part) for part in grads]

    def is_freed(self) -> bool:
        return self.backward is FREED

    def free(self) -> None:
        self.backward = self.differentiable = FREED

    def run(
        self, cotangents: Sequence[Tensor | None], by_ops: bool, last: bool
    ) -> Sequence[Tensor | None]:
        """The gradients of the inputs; `last`: nothing that is saved is needed any more."""
        return (self.differentiable if by_ops else self.backward)(cotangents)

    def _goes_back(self, given: Sequence[Any], keep: bool) -> bool:
        """Note the results of a backward that frees histories; whether all are freed then."""
        if self.conflicts is None:
            return True
        now = {i for i, part in enumerate(given) if part is not None}
        if any(self.conflicts[i] & self.spent for i in now):
            raise freed(self.name())
        if not keep:
            self.spent |= now
        return all(others & self.spent for others in self.conflicts)


def _tensor(part: Any, kind: TensorType, fill: bool) -> Tensor | None:
    if part is None:
        return None if not fill else zeros(kind.shape, dtype=kind.dtype, device=kind.device)
    return part if isinstance(part, Tensor) else wrap(as_array(part))


N = TypeVar("N", bound=CallNode)


class FreedNode(CallNode):
    """The same for a call that ran a backward itself, which freed the history.

    Its edges are only for inspection, and computed on demand.
    """

    __slots__ = ("sources",)

    sources: Sequence[Tensor]

    @property
    def edges(self) -> tuple[Any, ...]:  # type: ignore[override]
        return tuple([x._node for x in self.sources])


@functools.lru_cache(maxsize=1024)
def freed_node(
    label: str, kinds: tuple[TensorType, ...], why: GradientError | None = None
) -> Callable[[Sequence[Tensor], Sequence[Tensor]], None]:
    """A function `give(sources, results)` that gives results of these types the history of such a
    call, through which no gradient can pass; `why`: the error, if it is another one."""
    # Each call makes a node, so what all calls share belongs to the class.
    common = {
        "backward": staticmethod(FREED),
        "differentiable": staticmethod(FREED),
        "label": label,
        "why": why,
        "types": kinds,
        "shape": kinds[0].shape if len(kinds) == 1 else (),
    }
    single = len(kinds) == 1
    made = type("FreedNode", (FreedNode,), {"__slots__": (), **common})

    def give(sources: Sequence[Tensor], results: Sequence[Tensor]) -> None:
        node: FreedNode = made()
        node.sources = sources
        node.extra = None
        node.number = next(count)
        if single:
            results[0]._node = node
        else:
            attach(node, results)

    return give


def link(
    label: str,
    inputs: Sequence[Tensor],
    results: Sequence[Tensor],
    backward: Backward,
    differentiable: Backward,
    conflicts: Sequence[frozenset[int]] | None = None,
    kind: type[N] = CallNode,  # type: ignore[assignment]
) -> N:
    """Give results the history of one call; see CallNode."""
    node = kind()
    node.edges = tuple([x._node for x in inputs])
    node.backward = backward
    node.differentiable = differentiable
    node.label = label
    node.conflicts = conflicts
    node.spent = frozenset()
    node.types = tuple([result.type for result in results])
    node.extra = None
    node.shape = results[0].shape if len(results) == 1 else ()
    node.number = next(count)
    attach(node, results)
    return node


def attach(node: CallNode, results: Sequence[Tensor]) -> None:
    """Make a node the history of its results."""
    if len(results) == 1:
        results[0]._node = node
    else:
        for index, result in enumerate(results):
            result._node = part_of(node, index, result.shape)
