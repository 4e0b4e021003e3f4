"""What generated programs and those who run them agree on: to run one takes no generators."""

from __future__ import annotations

__all__ = ["ELEMENT", "FAILED", "ONLY", "OUT_OF_MEMORY", "PAYLOAD", "RAISED", "RUN"]
__all__ += ["SMALL_CONSTANT", "SUM", "TIMING", "ZEROS", "NotNative"]

#: What `%run` points to, pointers all: the function that calls cards in Python, the pool of
#: threads, the function that uses it, the array of constants, the function that polls for signals;
#: and of this run alone: the memory that stacks lie in (`weft.codegen.control.heap`), and whether
#: it shall end (`weft.codegen.stop`).
RUN = ("callback", "pool", "parallel", "constants", "poll", "free", "end", "chunk", "stop")
#: Constants of at most so many bytes are part of the code; others are given to each run.
SMALL_CONSTANT = 4096
#: What a run gives back where it was interrupted, or a call into Python raised; and where there is
#: no memory for a stack.
RAISED = -7
OUT_OF_MEMORY = -9
#: Cells of stacks: their kinds, and where the value begins (`weft.codegen.control.stacks`).
ELEMENT, ZEROS, SUM, ONLY = range(4)
PAYLOAD = 64
FAILED = 1
#: What programs export that note when their kernels ran (`weft.codegen.timing`).
TIMING = ("events", "event_count", "site_totals")


class NotNative(Exception):
    """A graph has something that generated code cannot do yet."""
