"""`Session`: runs a declared graph. The part that the fetches need is compiled and cached."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from weft.base.dims import bind_dims
from weft.base.errors import DTypeError, GraphError, WeftError
from weft.base.pytree import tree_flatten, tree_unflatten
from weft.compile import GraphProgram
from weft.core.bind import written as announce_write
from weft.core.symbolic import SymbolicArray
from weft.core.tensor import Tensor
from weft.ir.graph import Graph, Value, extract
from weft.ops.creation import asarray
from weft.record.declared import recorder_of

__all__ = ["Session"]


class Session:
    """Runs the part of a declared graph that the fetches need."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._recorder = recorder_of(graph)
        self._programs: dict[tuple[Value, ...], tuple[GraphProgram, list[Value], list[Tensor]]] = {}
        self._size = -1

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_exc: object) -> None:
        return None

    def run(self, fetches: Any, feed: Mapping[Any, Any] | None = None) -> Any:
        """The values of `fetches` (a tensor of the graph, or a tree of them) for these feeds.

        `feed` maps placeholders, or their names, to their values in this run.
        """
        leaves, structure = tree_flatten(fetches)
        wanted = tuple([self._value(leaf) for leaf in leaves])
        program, inputs, states = self._program(wanted)
        fed = self._feeds(feed or {}, inputs)
        captured = self._captured()
        given = [fed[value] if value in fed else captured[value] for value in inputs]
        outputs = program.run(given)
        for state, value in zip(states, outputs[len(wanted) :], strict=True):
            announce_write(state)
            state._data = value._data
        return tree_unflatten(structure, outputs[: len(wanted)])

    def _value(self, fetch: Any) -> Value:
        if isinstance(fetch, Tensor) and isinstance(fetch._data, SymbolicArray):
            if fetch._data.recorder is self._recorder:
                return fetch._data.value
            raise GraphError("a fetched tensor belongs to another graph", op="Session.run")
        if isinstance(fetch, str):
            return self._named(fetch)
        raise DTypeError(
            f"a fetch is a tensor of the graph, not {fetch!r:.60}",
            op="Session.run",
            hint="fetch what was computed inside of `with graph:`",
        )

    def _named(self, name: str) -> Value:
        feeds = self._recorder.feeds
        if name not in feeds:
            close = difflib.get_close_matches(name, feeds, n=1)
            raise GraphError(
                f"graph @{self.graph.name} has no placeholder named {name!r}",
                op="Session.run",
                hint=f"did you mean {close[0]!r}?" if close else f"it has {', '.join(feeds)}",
            )
        return feeds[name]

    def _program(self, wanted: tuple[Value, ...]) -> tuple[GraphProgram, list[Value], list[Tensor]]:
        """The program for the part of the graph that these values need; built once."""
        if self._size != len(self.graph.nodes):  # the graph has grown
            self._programs.clear()
            self._size = len(self.graph.nodes)
        found = self._programs.get(wanted)
        if found is None:
            part, inputs = needed(self.graph, wanted)
            # Random numbers also advance the state of their generator, for the next run.
            drawn = [entry for entry in self._recorder.states() if entry[1] in inputs]
            if drawn:
                part, inputs = needed(self.graph, (*wanted, *[after for *_, after in drawn]))
            states = [state for state, *_ in drawn]
            found = self._programs[wanted] = (GraphProgram(part), inputs, states)
        return found

    def _captured(self) -> dict[Value, Tensor]:
        return {value: tensor for tensor, value in self._recorder.lifted()}

    def _feeds(self, feed: Mapping[Any, Any], inputs: list[Value]) -> dict[Value, Tensor]:
        fed: dict[Value, Tensor] = {}
        for key, given in feed.items():
            value = self._named(key) if isinstance(key, str) else self._value(key)
            if value.node is not None:
                raise GraphError(
                    f"{value.node.op.name} is computed by the graph and cannot be fed",
                    op="Session.run",
                    hint="feed placeholders",
                )
            if value in fed:
                raise GraphError(f"%{value.name} is fed twice", op="Session.run")
            fed[value] = _fed(value, given)
        feeds = set(self._recorder.feeds.values())
        missing = [value.name for value in inputs if value in feeds and value not in fed]
        if missing:
            raise GraphError(
                f"the fetches need {', '.join(missing)}, which no feed gives",
                op="Session.run",
                hint=f"say run(..., {{{missing[0]!r}: ...}})",
            )
        sizes: dict[str, int] = {}
        for value, tensor in fed.items():
            try:
                bind_dims(value.tensor_type.shape, tensor.shape, sizes)
            except WeftError as error:
                raise GraphError(
                    f"placeholder {value.name} is {value.type}, fed with {tensor.type}: "
                    f"{error.message}",
                    op="Session.run",
                ) from None
        return fed


def _fed(value: Value, given: Any) -> Tensor:
    """The fed value as a tensor of the placeholder's type."""
    kind = value.tensor_type
    tensor = given if isinstance(given, Tensor) else asarray(given, device=kind.device)
    order = {"bool": 0, "int": 1, "uint": 1, "float": 2, "complex": 3}
    fits = not isinstance(given, Tensor) and order[tensor.dtype.kind] <= order[kind.dtype.kind]
    if tensor.dtype is not kind.dtype and fits:
        tensor = tensor.astype(kind.dtype)
    if tensor.dtype is not kind.dtype or tensor.ndim != kind.ndim or tensor.device != kind.device:
        raise GraphError(
            f"placeholder {value.name} is {kind}, fed with {tensor.type}",
            op="Session.run",
            hint="feed the dtype and the number of axes that were declared",
        )
    return tensor


def needed(graph: Graph, wanted: tuple[Value, ...]) -> tuple[Graph, list[Value]]:
    """The part of a graph that some of its values need, and the inputs of that part."""
    live: set[Value] = set(wanted)
    kept = []
    for node in reversed(graph.nodes):
        if any(value in live for value in node.outputs):
            kept.append(node)
            live.update(node.inputs)
    inputs = [value for value in graph.inputs if value in live]
    return extract(graph.name, inputs, kept[::-1], wanted), inputs
