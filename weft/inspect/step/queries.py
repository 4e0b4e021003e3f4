"""The queries of a stepper about the current place."""

from __future__ import annotations

from typing import Any

from weft.base.errors import RangeError
from weft.inspect.step.place import Place
from weft.ir.graph import Graph, Node

__all__ = ["Queries"]


class Queries:
    """`s["x"]`, `s.names()`, `s.where()` and so on, for the current place."""

    place: Place | None

    def _here(self) -> Place:
        if self.place is None:
            raise RangeError("no run is stopped", op="step", hint="s.start(*args)")
        return self.place

    def __getitem__(self, name: str) -> Any:
        return self._here().named(name)

    def __setitem__(self, name: str, value: Any) -> None:
        self._here().assign(name, value)

    def names(self) -> list[str]:
        """The variables that are visible at the current place."""
        return list(self._here().variables())

    def gradient(self, name: str) -> Any:
        """The gradient of a variable, once the backward has computed it."""
        return self._here().gradient(name)

    def eval(self, expression: str) -> Any:
        """The value of a Python expression of the current variables."""
        return self._here().evaluate(expression)

    @property
    def node(self) -> Node | None:
        """The node that runs next, or that just ran; None at the end."""
        return self._here().node

    @property
    def op(self) -> str:
        """The name of its op."""
        node = self.node
        return "" if node is None else node.op.name

    @property
    def location(self) -> Any:
        """The user's line of the node."""
        return self._here().location

    @property
    def iteration(self) -> int | None:
        """The iteration of the innermost loop, from 0."""
        return self._here().iteration

    @property
    def inputs(self) -> list[Any]:
        """The operands of the node."""
        return self._here().inputs()

    @property
    def outputs(self) -> list[Any]:
        """The results of the node, if it just ran."""
        return self._here().outputs()

    def graph(self) -> Graph:
        """The innermost graph that is running."""
        return self._here().frames[-1].program.graph

    def where(self) -> str:
        """The stack of the user's functions, the loops and the op, as text."""
        return self._here().where()

    def listing(self, around: int = 5) -> str:
        """The surrounding nodes, with an arrow at the current one."""
        return self._here().graph_text(around)

    def __repr__(self) -> str:
        return f"<stepper: {self.place.title() if self.place else 'nothing is running'}>"
