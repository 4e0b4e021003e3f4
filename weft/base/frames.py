"""Tracebacks through the user's own lines, for errors in a graph.

While a graph runs, no line of the user's function runs. An error in one of its ops still gets a
traceback through these lines: the captured function, the functions it called, and the line of the
op.
"""

from __future__ import annotations

from types import TracebackType

from weft.base.source import SourceLocation

__all__ = ["through", "without_parts"]


class _Marker(Exception):
    """An exception that is raised only to create a frame."""


def through(error: BaseException, location: SourceLocation | None) -> None:
    """Put the lines that led to a location at the start of the traceback of a caught error.

    The code that runs a node calls this; the code that runs a graph around that node does not.
    """
    if location is None:
        return
    lines = [location]
    while lines[-1].caller is not None:
        lines.append(lines[-1].caller)
    if location.forward is not None:  # for a backward step, the forward line is the innermost
        lines.insert(0, location.forward)
    trace = error.__traceback__
    end = trace.tb_next if trace is not None else None  # without the frame that caught it
    for line in lines:
        end = _entry(line, end)
    error.__traceback__ = end


def without_parts(error: BaseException) -> None:
    """Let the traceback of an error in rewritten code name each function once.

    The bodies of branches and loops are functions of their own there: the line of the statement
    around them is left out, with all that stands between.
    """
    entries = []
    entry = error.__traceback__
    while entry is not None:
        entries.append(entry)
        entry = entry.tb_next
    kept: list[TracebackType] = []
    for entry in entries:
        name = entry.tb_frame.f_code.co_qualname
        owner, found, _ = name.rpartition(".<locals>.__weft_")
        if found:  # the nearest of the statement around it, and of what stands for the part itself
            at = len(kept)
            while at and kept[at - 1].tb_frame.f_code.co_qualname not in (owner, name):
                at -= 1
            if at:
                del kept[at - 1 :]
        kept.append(entry)
    end: TracebackType | None = None
    for entry in reversed(kept):
        end = TracebackType(end, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    error.__traceback__ = end


def _without_columns(units: int) -> bytes:
    """An entry of a table of positions: a number of code units on one line, columns unknown.
    With columns, a traceback would underline a part of the user's line that it knows nothing of."""
    return bytes([0x80 | 13 << 3 | (units - 1), 0])


def _entry(line: SourceLocation, after: TracebackType | None) -> TracebackType:
    """A traceback entry for one line."""
    code = compile("raise marker", line.file, "exec")
    units = len(code.co_code) // 2
    code = code.replace(
        co_name=line.function,
        co_qualname=line.function,
        co_firstlineno=line.line,
        co_linetable=b"".join(_without_columns(min(8, units - i)) for i in range(0, units, 8)),
    )
    try:
        exec(code, {"marker": _Marker(), "__name__": line.function})
    except _Marker as marker:
        made = marker.__traceback__
        assert made is not None
        frame = made.tb_next
        assert frame is not None
        return TracebackType(after, frame.tb_frame, frame.tb_lasti, line.line)
    raise AssertionError("it raises")
