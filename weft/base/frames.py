"""Tracebacks that end in the user's own lines, for what goes wrong in a graph.

When a graph runs, no line of the user's function does. An error of one of its ops still gets a
traceback that goes through these lines, as if it did: the function that was captured, what it
called, and the line of the op.
"""

from __future__ import annotations

from types import TracebackType

from weft.base.source import SourceLocation

__all__ = ["through"]


class _Marker(Exception):
    """Is raised to get a frame."""


def through(error: BaseException, location: SourceLocation | None) -> None:
    """For an error that was just caught: its traceback begins with the lines that led to a
    location, and it. Who runs a node asks for that, and nobody who runs a graph around it."""
    if location is None:
        return
    lines = [location]
    while lines[-1].caller is not None:
        lines.append(lines[-1].caller)
    if location.forward is not None:  # of a backward step: what it differentiates is the innermost
        lines.insert(0, location.forward)
    trace = error.__traceback__
    end = trace.tb_next if trace is not None else None  # without the frame that caught it
    for line in lines:
        end = _entry(line, end)
    error.__traceback__ = end


def _entry(line: SourceLocation, after: TracebackType | None) -> TracebackType:
    """A line of a traceback, in a frame of its own."""
    code = compile("raise marker", line.file, "exec")
    code = code.replace(co_name=line.function, co_qualname=line.function, co_firstlineno=line.line)
    try:
        exec(code, {"marker": _Marker(), "__name__": line.function})
    except _Marker as marker:
        made = marker.__traceback__
        assert made is not None
        frame = made.tb_next
        assert frame is not None
        return TracebackType(after, frame.tb_frame, frame.tb_lasti, line.line)
    raise AssertionError("it raises")
