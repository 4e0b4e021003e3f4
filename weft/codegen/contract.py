"""What generated programs and their callers agree on. Importing it loads no code generator."""

from __future__ import annotations

import enum

__all__ = ["CHECKS", "ELEMENT", "EMPTY", "ONLY", "PAYLOAD", "RUN", "SECOND", "SHARED", "SIZES"]
__all__ += ["SMALL_CONSTANT", "SUM", "TIMING", "UNDONE", "ZEROS"]
__all__ += ["NotNative", "Status"]


@enum.unique
class Status(enum.IntEnum):
    """Return values of kernels, runs and calls. Each number has one meaning, wherever it comes
    from.

    DONE           success
    FAILED         a node fails as its card would: calling the card raises the error
    INTERRUPTED    a signal handler raised (Ctrl-C)
    RAISED         a call into Python raised
    LAYOUT         an input is not dense in C order
    OUT_OF_MEMORY  no memory for a stack
    NO_ROOM        no memory for a result, or for the temporaries of a kernel
    TAKEN          another call is using the program's memory
    SIZES          a size that depends on data is one that the code does not serve: the call is
                   interpreted
    INPUTS         the call did not get a list of as many tensors as the graph has inputs
    CHECKED        in check mode: a kernel made an invalid access, or left a result unwritten
    """

    DONE = 0
    FAILED = 1
    INTERRUPTED = -2
    RAISED = -7
    LAYOUT = -8
    OUT_OF_MEMORY = -9
    NO_ROOM = -10
    TAKEN = -11
    INPUTS = -12
    SIZES = -13
    CHECKED = -20


#: What `%run` points to, pointers all: the function that calls cards in Python, the pool of
#: threads, the function that uses it, the array of constants, the function that polls for signals,
#: what is called in place of cards (an address for each call, or null: its first word is a function
#: that gets it and the arguments); and of this run alone: the memory that stacks lie in
#: (`weft.codegen.control.heap`), and whether it shall end (`weft.codegen.cancel`).
RUN = (
    *("callback", "pool", "parallel", "constants", "poll", "direct"),
    *("free", "end", "chunk", "stop"),
)
#: How many of them are the same for all runs of a program.
SHARED = RUN.index("free")
#: Where a run has the table of its sizes (`weft.codegen.sizes`), if the program has some. What the
#: program gets from outside has it after the words that all runs share.
SIZES = len(RUN)
#: Numbers of calls into Python: the second call of a card that tells a size, which writes its
#: results; from `EMPTY` on, steps in which a tensor is empty; from `UNDONE` on, what was called in
#: place of a card has failed.
SECOND, EMPTY, UNDONE = 1 << 32, 1 << 33, 1 << 34
#: Constants of at most this many bytes are part of the code; others are passed to each run.
SMALL_CONSTANT = 4096
#: Cells of stacks: their kinds, and where the value begins (`weft.codegen.control.stacks`).
ELEMENT, ZEROS, SUM, ONLY = range(4)
PAYLOAD = 64
#: What programs export that record when their kernels ran (`weft.codegen.timing`).
TIMING = ("events", "event_count", "site_totals")
#: What programs in check mode export (`weft.codegen.checks.calls`).
CHECKS = ("check_fault", "check_call")


class NotNative(Exception):
    """A graph has something that generated code cannot do yet."""
