"""Why a node is in its kernel, in words.

`Grouping.why` keeps for each node a key of `REASONS` and the group that it did not join, if any.
"""

from __future__ import annotations

from weft.ir.graph import Node, Value
from weft.schedule.groups import Group

__all__ = ["BEGINS", "COPIED", "INLINED", "JOINED", "REMATERIALIZED", "Why", "said"]

Why = tuple[str, Group | None]

JOINED: Why = ("joined", None)
BEGINS: Why = ("begins", None)
INLINED: Why = ("inlined", None)
COPIED: Why = ("copied", None)
REMATERIALIZED: Why = ("rematerialized", None)

REASONS = {
    "joined": "the same loops compute it",
    "beside": "the loops before it go over the same elements",
    "begins": "all that it reads is in memory",
    "inlined": "cheap, and depends only on inputs: computed wherever it is used",
    "follows": "it pools the result of the convolution for an image while that is in the cache",
    "packed": "computed while the product that uses it packs its operand, and never written",
    "unpacked": "written to memory: the product that uses it reads it more than once",
    "rematerialized": "computed again, which costs less than to write it and read it again",
    "copied": "the kernel that uses it needs contiguous elements",
    "product": "a product has a kernel of its own, which elementwise ops on its result may join",
    "attention": "attention is one kernel, which elementwise ops on its result may join",
    "attention_grad": "the backward of attention has kernels of its own",
    "kernel": "it has a kernel of its own",
    "control": "control flow: its graphs have kernels of their own",
    "stack": "it works on a stack of the run, in place",
    "call": "there is no machine code for it: Python is called",
    # Why it did not join the group that computes what it reads:
    "no loops": "that has code of its own, which no other op can join",
    "full": "that has as many ops as a kernel may have",
    "empty": "that computes nothing",
    "total": "it needs a total, which exists only after those loops",
    "view": "those loops cannot follow the view between them",
    "shape": "it goes over other elements",
    "buffers": "that would read more buffers than a kernel may",
    "twice": "what it reads exists along other axes, or is written only later",
    "copy": "what it reads must be copied to a dense layout first",
    "axes": "those loops cannot reduce these axes",
    "registers": "its elements come in tiles, which are not reduced there",
}


def said(node: Node, group: Group, why: Why | None, prefix: str = "") -> str:
    """Why a node is in a group; `prefix`: what the numbers of this graph's steps begin with."""
    key, other = why or (("joined", None) if group.nodes[0] is not node else (group.kind, None))
    if key == "joined" and not any(isinstance(op, Value) for op in group.operands.get(node, ())):
        key = "beside"
    text = REASONS.get(key, key)
    if other is None:
        return text
    return f"not in kernel {prefix}{other.position} ({other.nodes[0].op.name}): {text}"
