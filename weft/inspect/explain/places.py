"""Source lines as data: what a report says of where something is in the user's code."""

from __future__ import annotations

import linecache
from typing import Any

from weft.base.source import PACKAGE, SourceLocation
from weft.codegen.listing import short_name

__all__ = ["forward_of", "is_users", "line_key", "of_location", "of_text", "place", "short"]


def place(file: str, line: int, function: str = "") -> dict[str, Any]:
    """A line, with its text."""
    text = linecache.getline(file, line).strip()
    return {"file": file, "line": line, "function": function, "text": text}


def of_location(location: SourceLocation | None) -> dict[str, Any] | None:
    """What a node says of its place; of a backward step also the forward line."""
    if location is None:
        return None
    found = place(location.file, location.line, location.function)
    if location.module:
        found["module"] = location.module
    if location.role:
        found["role"] = location.role
    if location.of:
        found["of"] = location.of
    if location.forward is not None:
        found["forward"] = of_location(location.forward)
    return found


def of_text(where: str) -> dict[str, Any] | None:
    """file:line, as guards and effects keep it."""
    file, _, line = where.rpartition(":")
    return place(file, int(line)) if file and line.isdecimal() else None


def line_key(location: SourceLocation | None) -> tuple[str, int]:
    """What lines are told apart by; of a backward step it is the forward line, if that is known."""
    if location is None:
        return ("", 0)
    shown = location.forward or location
    return (shown.file, shown.line)


def short(where: dict[str, Any] | None) -> str:
    """model.py:12"""
    return "" if where is None else f"{short_name(where['file'])}:{where['line']}"


def forward_of(where: dict[str, Any] | None) -> dict[str, Any] | None:
    """The line that a backward step differentiates, where it is known; else the line itself."""
    if where is None or "forward" not in where:
        return where
    forward: dict[str, Any] = where["forward"]
    return forward


def is_users(file: str) -> bool:
    return not file.startswith(PACKAGE)
