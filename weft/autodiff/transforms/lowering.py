"""Control flow inside of `jvp` and `vmap` where a graph is recorded: the node is one level below.

Nobody knows there which way a condition goes, so the node is recorded on the level below the
transform. Its functions run on the level of the transform as always, inside of the nested
recording; what they give is taken to the level below, and back.

What a node on the level below cannot hold is `Unlowered`: a history that began on the level itself,
as in jvp(grad(f)), and some writes to tensors from outside. Then the whole function is run by its
graph (`Level.run`), or Python is asked which way it goes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from weft.autodiff.node import Barrier, Node
from weft.autodiff.transforms.history import Primal
from weft.autodiff.transforms.levels import (
    Level,
    SavedTensor,
    SavedTensors,
    Unlowered,
    all_elements,
    left,
)
from weft.autodiff.transforms.tangents import is_float
from weft.core.bind import recorder, recording
from weft.core.grad_mode import mode
from weft.core.symbolic import SymbolicArray
from weft.core.tensor import StateTensor, Tensor, wrap

__all__: list[str] = []


class LowerOrAsk:
    """Tries to record control flow on the level below; catches `Unlowered` of this level.

    If that is raised and Python can be asked instead, the code after the block runs. Otherwise the
    exception goes on to the code that runs the function.
    """

    def __init__(self, level: Level) -> None:
        self.level = level

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, _: Any) -> bool:
        if not isinstance(error, Unlowered) or error.level is not self.level:
            return False
        return not self.level.lowered and self.level.asks()


class Cut(Barrier):
    """Where a history on the level would pass through a node on the level below."""

    __slots__ = ()

    message = "a backward inside of jvp or vmap passes through control flow of a recorded graph"
    hint = "differentiate outside: grad(jvp(f)), grad(vmap(f))"


class LoweredNode:
    """One node of control flow in a function of a level."""

    def __init__(self, level: Level) -> None:
        self.level = level
        self.enabled = mode.enabled
        self.outside: dict[Node, None] = {}  # from outside, in histories of the level

    def look(self, leaves: Sequence[Any]) -> None:
        """Note where histories of the level come from; none may begin on it."""
        stack = [x._node for x in leaves if isinstance(x, Tensor)] if self.enabled else []
        seen = set[Node]()
        while stack:
            node = stack.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            if node.number < self.level.start:
                self.outside[node] = None
            elif isinstance(node, Primal) or not node.edges:
                raise Unlowered(self.level)
            else:
                stack.extend(node.edges)

    @contextlib.contextmanager
    def below(self) -> Iterator[None]:
        """Record on the level below."""
        self.level.lower_states()
        with left(self.level), _gradients(self.enabled and self.level.linked):
            yield

    @contextlib.contextmanager
    def above(self, journal: SavedTensors) -> Iterator[None]:
        """Run a function of the level in a nested recording.

        What it wrote to tensors from outside of that is in the journal, and taken back.
        """
        here = recorder()
        self.level.lowered += 1
        try:
            with recording(self.level), _gradients(self.enabled), self.level.journal(journal):
                yield
        finally:
            self.level.lowered -= 1
        self.level.lower_states()
        for key, held in list(journal.entries.items()):
            if isinstance(held.tensor, StateTensor) or _made_in(here, held):
                del journal.entries[key]

    def marked(self, leaf: Any) -> Any:
        """A result of the node, which knows that histories from outside lead through it."""
        if self.enabled and self.outside and isinstance(leaf, Tensor) and is_float(leaf):
            leaf._node = Cut(leaf.shape, self.outside)
        return leaf


@contextlib.contextmanager
def _gradients(on: bool) -> Iterator[None]:
    before, mode.enabled = mode.enabled, on
    try:
        yield
    finally:
        mode.enabled = before


def _made_in(here: Any, held: SavedTensor) -> bool:
    """Whether a tensor that was written to was made inside of a nested recording."""
    data = all_elements(wrap(held.data))._data
    return data.__class__ is SymbolicArray and data.recorder is here
