"""What the machine code of a graph depends on, said without making it.

The graph as it was captured says it, where all that is done to it on the way is Weft's own: then
code that is found on disk needs no pass, no schedule and no module. Where users have a say in that
(a pass or an op of their own), it is the graph after the passes.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.ir.dispatch import FAMILIES
from weft.ir.graph import Graph
from weft.ir.literal import CONSTANT
from weft.ir.op import Op, Trait

__all__ = ["code_key"]

#: Modules whose functions are the rules of Weft's own cards.
_OWN = ("weft.", "numpy")


def code_key(
    graph: Graph, optimized: Callable[[], Graph] | None = None, passes: bytes | None = None
) -> bytes | None:
    """The key of a graph's code, as `weft.codegen.cache` wants it; None where the graph holds
    Python objects that text cannot tell apart.

    `optimized` gives the graph that the code is made of, where that is not `graph` itself, and
    `passes` says what makes it, where that is Weft's own.
    """
    if optimized is None:
        return _said(b"as it is", graph)
    if passes is not None and not _users_ops(graph):
        return _said(b"after " + passes, graph)
    return _said(b"as it is", optimized())


def _said(how: bytes, graph: Graph) -> bytes | None:
    parts = [graph.text(locations=False, history=False)]
    for part in graph.walk():
        for node in part.nodes:
            if Trait.PYTHON in node.op.traits:
                return None
            if node.op is CONSTANT:
                parts.append(node.attrs["value"].digest)
    return how + b"\n" + "\n".join(parts).encode()


def _users_ops(graph: Graph) -> bool:
    """Whether users say what some op does: a pass may have run it, and kept what came out."""
    ops = {node.op for part in graph.walk() for node in part.nodes}
    replaced = {name for name, _ in FAMILIES["cpu", "dense"].registered}
    return any(op.name in replaced or not _is_own(op) for op in ops)


def _is_own(op: Op) -> bool:
    """Whether a card is Weft's: the source of Weft, which is part of the key, says what it does."""
    rules = op.eval.values() if isinstance(op.eval, dict) else [op.eval]
    written = [rule for rule in (op.infer, *rules) if rule and not isinstance(rule, str)]
    return all(str(getattr(rule, "__module__", "")).startswith(_OWN) for rule in written)
