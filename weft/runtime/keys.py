"""Cache keys of machine code, without generating it.

The key is the text of the captured graph, if only Weft's own passes and ops process it: a process
that finds the code in the cache runs no pass and no schedule. If users have registered passes or
ops of their own, the key is the text of the graph after the passes.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.ir.concrete import bounds_of
from weft.ir.dispatch import FAMILIES
from weft.ir.graph import Graph
from weft.ir.literal import CONSTANT
from weft.ir.op import Op, Trait

__all__ = ["code_key"]

#: Modules with the rules of Weft's own cards.
_OWN = ("weft.", "numpy")


def code_key(
    graph: Graph, optimized: Callable[[], Graph] | None = None, passes: bytes | None = None
) -> bytes | None:
    """The key of a graph's code for `weft.codegen.cache`; None if the graph holds Python objects,
    which text cannot identify.

    `optimized` returns the graph that is compiled, if that is not `graph` itself. `passes` names
    the passes that produce it, if all of them are Weft's own.
    """
    if optimized is None:
        return _said(b"as it is", graph)
    if passes is not None and not _users_ops(graph):
        return _said(b"after " + passes, graph)
    return _said(b"as it is", optimized())


def _said(how: bytes, graph: Graph) -> bytes | None:
    parts = [graph.text(locations=False, history=False), *_replaced(graph)]
    bounds = bounds_of(graph)
    if bounds:
        parts.append(str(sorted(bounds.items())))
    for part in graph.walk():
        for node in part.nodes:
            if Trait.PYTHON in node.op.traits:
                return None
            if node.op is CONSTANT:
                parts.append(node.attrs["value"].digest)
    return how + b"\n" + "\n".join(parts).encode()


def _replaced(graph: Graph) -> list[str]:
    """The ops whose kernels users have replaced: machine code calls these."""
    names = {node.op.name for part in graph.walk() for node in part.nodes}
    registered = FAMILIES["cpu", "dense"].registered
    return sorted(f"{name} of {dtype}" for name, dtype in registered if name in names)


def _users_ops(graph: Graph) -> bool:
    """Whether some op is defined by users: a pass may have evaluated it to a constant."""
    ops = {node.op for part in graph.walk() for node in part.nodes}
    replaced = {name for name, _ in FAMILIES["cpu", "dense"].registered}
    return any(op.name in replaced or not _is_own(op) for op in ops)


def _is_own(op: Op) -> bool:
    """Whether a card is Weft's own: then the digest of Weft's source, in the key, covers it."""
    rules = op.eval.values() if isinstance(op.eval, dict) else [op.eval]
    written = [rule for rule in (op.infer, *rules) if rule and not isinstance(rule, str)]
    return all(str(getattr(rule, "__module__", "")).startswith(_OWN) for rule in written)
