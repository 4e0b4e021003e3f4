"""The kernel of each op, from the notes of a scheduled graph (`weft.codegen`)."""

from __future__ import annotations

from weft.ir.graph import Graph, Node

__all__ = ["kernels_of"]


def kernels_of(graph: Graph) -> dict[Node, str]:
    """The kernel of each node, including nested graphs; the first node of a kernel has the note."""
    found: dict[Node, str] = {}
    for part in graph.walk():
        kernel = ""
        for node in part.nodes:
            note = part.notes.get(node)
            if note is not None:
                kernel = note if note.startswith("kernel ") else ""
            found[node] = "" if node.graphs else kernel
    return found
