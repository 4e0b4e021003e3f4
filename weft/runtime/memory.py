"""The memory of a call, and the error if there is not enough."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base.errors import WeftError
from weft.base.frames import through
from weft.core.call_errors import out_of_memory, out_of_memory_for
from weft.ir.graph import Graph
from weft.ir.interpret import located
from weft.ir.types import TensorType

__all__ = ["aligned_memory", "graph_out_of_memory", "stacks_out_of_memory"]


def aligned_memory(size: int) -> tuple[int, Any]:
    """Memory aligned to a cache line: its address, and the object that owns it."""
    memory = np.empty(size + 64, np.uint8)
    return -(-memory.ctypes.data // 64) * 64, memory


def graph_out_of_memory(graph: Graph) -> WeftError:
    """The error if memory runs out: it names the largest tensor in the graph."""
    made = [v for part in graph.walk() for v in part.values() if isinstance(v.type, TensorType)]
    # The last of several with this size: earlier ones may be views, which take no memory.
    value = max(reversed(made), key=lambda value: value.tensor_type.nbytes)
    kind, node = value.tensor_type, value.node
    error = out_of_memory(node.op.name if node else "", kind.shape, kind.nbytes)
    if node is None:
        return error
    through(error, node.location)
    return located(error, node)


def stacks_out_of_memory(graph: Graph) -> WeftError:
    loops = [n for part in graph.walk() for n in part.nodes if n.op.loop]
    error = out_of_memory_for(f"the values that the loops of {graph.name} keep for their backward")
    if not loops:
        return error
    error.about(loops[0].op.name, [])
    error.location = loops[0].location
    return error
