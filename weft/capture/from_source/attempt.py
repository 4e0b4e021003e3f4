"""Attempts: parts of a recorded run that can be undone completely."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from weft.base.dataclass import dataclass
from weft.capture.from_source.journal import Journal
from weft.capture.from_source.tokens import tokens
from weft.core.tensor import Tensor
from weft.record.control.nested import graph_recorder

if TYPE_CHECKING:
    from weft.capture.hooks import Hooks

#: Variables that generated functions share: name, cell, and the hooks for which it is from outside.
State = Sequence[tuple[str, Any, Any]]


@dataclass(frozen=True)
class LoopVariables:
    """The variables of a loop: `head` names those that the next iteration reads, `after` those that
    are read after the loop."""

    state: State = ()
    head: Sequence[str] = ()
    after: Sequence[str] = ()

    @property
    def live(self) -> tuple[str, ...]:
        return (*self.head, *self.after)

    def plus(self, name: str, cell: Any) -> LoopVariables:
        """With one more, which the loop itself uses."""
        return LoopVariables([*self.state, (name, cell, None)], [*self.head, name], self.after)


class Attempt:
    """A context whose recording, writes and guards can be undone afterwards.

    unrolls   whether unrolling the loop is an alternative if the attempt fails
    """

    def __init__(self, hooks: Hooks, state: State, unrolls: bool = False) -> None:
        self.hooks = hooks
        self.state = state
        here = graph_recorder()
        assert here is not None
        self.here = here
        self.mark = len(here.graph.nodes)
        self.token = tokens.get(here)
        self.journal = Journal(hooks.watch)
        self.tensors: dict[int, tuple[Tensor, Any, Any, Any]] = {}
        self.grads_set = set(here.grads_set)
        self.freed: list[tuple[Any, dict[str, Any]]] = []  # history nodes and their slots before
        self._write = here.write
        self.unrolls = here.unrolls or unrolls, here.unrolls
        self.log = len(hooks.flow.aliases.log)
        self.guards = hooks.watch.guard_count

    def __enter__(self) -> Attempt:
        self.hooks.flow.open(self.journal)
        for name, cell, outside in self.state:
            self.hooks.flow.save_variable(cell, name, outside)
        write = self._write

        def noted(target: Tensor) -> None:
            if id(target) not in self.tensors:
                grad = getattr(target, "_grad", None)
                self.tensors[id(target)] = (target, target._data, target._node, grad)
            write(target)

        outer = self._freeing = self.here.freeing

        def freeing(node: Any) -> None:
            if outer is not None:
                outer(node)
            self.freed.append((node, _slots_of(node)))

        self.here.write = noted  # type: ignore[method-assign]
        self.here.freeing = freeing
        self.here.unrolls = self.unrolls[0]
        return self

    def __exit__(self, *_exc: object) -> None:
        self.here.write = self._write  # type: ignore[method-assign]
        self.here.freeing = self._freeing
        self.here.unrolls = self.unrolls[1]
        self.hooks.flow.close()

    def undo(self) -> None:
        self.journal.undo()
        del self.hooks.flow.aliases.log[self.log :]
        for tensor, data, node, grad in self.tensors.values():
            tensor._data, tensor._node = data, node
            if getattr(tensor, "_grad", None) is not grad:
                tensor._grad = grad
        for held_by, slots in reversed(self.freed):
            for name, value in slots.items():
                setattr(held_by, name, value)
        here = self.here
        here.grads_set = set(self.grads_set)
        if self.token is None:
            tokens.pop(here, None)
        else:
            tokens[here] = self.token
        if getattr(here, "_start", 0) > self.mark:  # Python asked a question in the attempt
            return
        self.hooks.watch.forget_numbers(self.guards)
        gone = set(here.graph.nodes[self.mark :])
        del here.graph.nodes[self.mark :]
        here._stopped = {k: v for k, v in here._stopped.items() if v.node not in gone}
        here._sized = {k: v for k, v in here._sized.items() if v not in gone}
        here.memo = {}


def _slots_of(node: Any) -> dict[str, Any]:
    """The slots of a history node, which a backward pass may free."""
    names = [name for cls in type(node).__mro__ for name in getattr(cls, "__slots__", ())]
    return {k: getattr(node, k) for k in names if k != "__weakref__" and hasattr(node, k)}
