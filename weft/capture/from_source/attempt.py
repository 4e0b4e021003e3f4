"""Attempts: parts of a recorded run that can be undone completely."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from weft.base.dataclass import dataclass
from weft.capture.from_source.journal import Journal
from weft.record.control.nested import graph_recorder
from weft.record.rollback import Rollback

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


class Attempt(Rollback):
    """A context whose recording, writes and guards can be undone afterwards.

    unrolls   whether unrolling the loop is an alternative if the attempt fails
    """

    def __init__(self, hooks: Hooks, state: State, unrolls: bool = False) -> None:
        here = graph_recorder()
        assert here is not None
        super().__init__(here)
        self.hooks = hooks
        self.state = state
        self.journal = Journal(hooks.watch)
        self.unrolls = here.unrolls or unrolls, here.unrolls
        self.log = len(hooks.flow.aliases.log)
        self.guards = hooks.watch.guard_count

    def __enter__(self) -> Attempt:
        self.hooks.flow.open(self.journal)
        for name, cell, outside in self.state:
            self.hooks.flow.save_variable(cell, name, outside)
        super().__enter__()
        self.here.unrolls = self.unrolls[0]
        return self

    def __exit__(self, *_exc: object) -> None:
        super().__exit__()
        self.here.unrolls = self.unrolls[1]
        self.hooks.flow.close()

    def undo(self) -> bool:
        self.journal.undo()
        del self.hooks.flow.aliases.log[self.log :]
        removed = super().undo()
        if removed:
            self.hooks.watch.forget_numbers(self.guards)
        return removed
