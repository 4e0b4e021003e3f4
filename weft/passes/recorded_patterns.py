"""Patterns of `weft.rewrite`: functions that are recorded for the types they meet.

A Python function looks at shapes and dtypes while it runs, so there is no one graph of it. It is
recorded twice. First for small tensors of all ranks and dtypes of the graph: that shows which ops
it is made of, in which wiring (its skeletons), and so where it may occur. Then for the very types
that were found there: that graph has the right attributes, and is what is compared.
"""

from __future__ import annotations

import inspect
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from weft.base.errors import DTypeError, GraphError, IndexError, ShapeError
from weft.ir.graph import Graph
from weft.ir.match import is_constant
from weft.ir.types import TensorType
from weft.record.make_graph import make_graph

#: How often a pattern is recorded, at most, to see which ops it is made of.
MOST_TRIALS = 400
#: The size of all axes in these trials: with one size, most shapes fit.
TRIAL_SIZE = 2

Types = tuple[TensorType, ...]


class Pattern:
    """A function, recorded once for each set of types."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.names = parameters(function)
        self.skeletons: dict[Any, Graph] = {}  # recordings that differ in more than attributes
        self._recorded: dict[Types, Graph | None] = {}
        self._failed: Exception | None = None

    def prepare(self, graph: Graph, example: Sequence[TensorType] | None) -> None:
        """Find out which ops the pattern is made of."""
        if example is not None:
            if len(example) != len(self.names):
                raise GraphError(
                    f"{len(example)} examples for the parameters {', '.join(self.names)}",
                    op="rewrite",
                )
            self.record(tuple(example), strict=True)
            return
        for trials in (_small_types(graph, len(self.names)), _types(graph, len(self.names))):
            tried = list(itertools.islice(trials, MOST_TRIALS))
            for types in tried:
                self.record(types)
            if self.skeletons:
                return
        # A pattern that refuses all types of the graph does not occur in it. But where it failed in
        # another way, or not all types were tried, silence could hide a mistake.
        if self._failed is not None or len(tried) == MOST_TRIALS:
            raise GraphError(
                "the pattern could not be recorded for the types of the graph"
                + (f": {getattr(self._failed, 'message', self._failed)}" if self._failed else ""),
                op="rewrite",
                hint="give an example: weft.rewrite(…, example=(weft.spec((2, 3)), …))",
            ) from self._failed

    def record(self, types: Types, *, strict: bool = False) -> Graph | None:
        """The pattern for these types; None where it does not take them."""
        if types in self._recorded:
            return self._recorded[types]
        found: Graph | None = None
        try:
            found = record(self.function, types, "pattern")
        except (ShapeError, DTypeError, IndexError):
            if strict:
                raise
        except GraphError:
            raise
        except Exception as error:
            if strict:
                raise
            self._failed = error
        if found is not None:
            _check_pattern(found, self.names)
            self.skeletons.setdefault(_skeleton(found), found)
        self._recorded[types] = found
        return found


# --- trials --------------------------------------------------------------------------------------


def _small_types(graph: Graph, count: int) -> Iterator[Types]:
    """Types to record a pattern for: small ones, of the dtypes and ranks that the graph has."""
    kinds = Counter(
        (value.type.dtype, value.type.ndim, value.type.device, value.type.layout)
        for part in graph.walk()
        for value in part.values()
        if isinstance(value.type, TensorType)
    )
    common = [
        TensorType(dtype, (TRIAL_SIZE,) * ndim, device, layout)
        for (dtype, ndim, device, layout), _ in kinds.most_common()
    ]
    groups: dict[Any, list[TensorType]] = {}
    for type in common:  # what is computed together mostly has one dtype, and always one device
        groups.setdefault((type.dtype, type.device, type.layout), []).append(type)
    for type in common:
        groups.setdefault((type.device, type.layout), []).append(type)
    for group in groups.values():
        yield from itertools.product(group, repeat=count)


def _types(graph: Graph, count: int) -> Iterator[Types]:
    """The graph's own types, for a pattern that only works for certain sizes."""
    types = dict.fromkeys(
        value.type
        for part in graph.walk()
        for value in part.values()
        if isinstance(value.type, TensorType)
    )
    return itertools.product(types, repeat=count)


def _skeleton(graph: Graph) -> Any:
    """What two recordings must have in common to be found in the same places."""
    place = {value: i for i, value in enumerate(graph.values())}
    calls = [
        (node.op, tuple([place[value] for value in node.inputs]), len(node.graphs))
        for node in graph.nodes
    ]
    return tuple(calls), tuple([place[value] for value in graph.outputs])


# --- what is asked of patterns -------------------------------------------------------------------


def parameters(pattern: Callable[..., Any]) -> list[str]:
    """The names of the parameters that have to be given."""
    found = inspect.signature(pattern).parameters.values()
    if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in found):
        raise GraphError(
            "the pattern takes any number of arguments",
            op="rewrite",
            hint="name its tensors: lambda x, w, b: …",
        )
    names = [p.name for p in found if p.default is p.empty and p.kind is not p.KEYWORD_ONLY]
    if not names:
        raise GraphError("the pattern has no parameters", op="rewrite")
    return names


def record(function: Callable[..., Any], types: Types, what: str) -> Graph:
    """The graph of a function of tensors, without calls whose results nobody uses."""
    graph = make_graph(function, *types)
    if len(graph.inputs) != len(types) or graph.interface.written:
        raise GraphError(
            f"the {what} reads or writes a tensor from outside",
            op="rewrite",
            hint="make it a parameter; numbers in it may be Python's own, or weft.asarray([…])",
        )
    used = set(graph.outputs)
    for node in reversed(graph.nodes):
        if not used.isdisjoint(node.outputs):
            used.update(node.inputs)
    graph.nodes = [node for node in graph.nodes if not used.isdisjoint(node.outputs)]
    return graph


def _check_pattern(graph: Graph, names: list[str]) -> None:
    used = {value for node in graph.nodes for value in node.inputs}
    for name, value in zip(names, graph.inputs, strict=True):
        if value not in used:
            raise GraphError(
                f"the parameter {name} is not used in the pattern, so nothing says what it is",
                op="rewrite",
            )
    if not graph.outputs or any(v.node is None or is_constant(v.node) for v in graph.outputs):
        raise GraphError(
            "the pattern returns something that it does not compute from its parameters",
            op="rewrite",
        )
