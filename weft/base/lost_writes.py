"""The warning about a write to a temporary tensor.

A write to one tensor never changes another. So `x[0][1] = 5` creates a new tensor, `x[0]`, writes
to it, and drops it.
"""

from __future__ import annotations

import ast
import linecache
from types import FrameType

from weft.base.errors import LostWriteWarning
from weft.base.source import warn_user

__all__ = ["text_at", "warn_lost_write"]


def warn_lost_write(text: str | None) -> None:
    """Warn at the user's line.

    `text` is the source of the target of the assignment, or of the call of the method that writes;
    None if the source is not known.
    """
    parsed = _parsed(text)
    if parsed is None:
        message, hint = "a write goes nowhere: it is to a new tensor that nothing holds", _GENERAL
    else:
        whole, holder = parsed
        says = ast.unparse(whole) + ("" if isinstance(whole, ast.Call) else " = …")
        message = f"{says} goes nowhere: {ast.unparse(holder)} is a new tensor that nothing holds"
        hint = _hint(whole, holder)
    warn_user(
        f"{message} (a write to one tensor never changes another)\n  to fix: {hint}",
        LostWriteWarning,
    )


_GENERAL = "give the new tensor a name, write to that, and use it from then on"


def _parsed(text: str | None) -> tuple[ast.expr, ast.expr] | None:
    """The target of a write, and the part of it that is a temporary tensor."""
    try:
        whole = ast.parse(f"({text})", mode="eval").body
    except SyntaxError:
        return None
    if isinstance(whole, ast.Subscript):
        return whole, whole.value
    if isinstance(whole, ast.Call) and isinstance(whole.func, ast.Attribute):
        return whole, whole.func.value
    return None


def _hint(whole: ast.expr, holder: ast.expr) -> str:
    of_data = isinstance(holder, ast.Attribute) and holder.attr == "data"
    if of_data:
        named = ast.unparse(holder.value)  # type: ignore[attr-defined]
        return f"with weft.no_grad(): {_written(whole, named)}"
    if not isinstance(holder, ast.Subscript):
        return f"y = {ast.unparse(holder)}; {_written(whole, 'y')}; and use y from then on"
    part = ast.unparse(holder)
    apart = f"part = {part}; {_written(whole, 'part')}; {part} = part"
    if not isinstance(whole, ast.Subscript):
        return apart
    kind = _kind(holder.slice)
    if kind == "slices":
        return apart
    keys = [*_keys(holder.slice), *_keys(whole.slice)]
    one = f"{ast.unparse(holder.value)}[{', '.join(map(ast.unparse, keys))}] = …"
    if kind == "integers":
        return one
    return f"{one} if {ast.unparse(holder.slice)} is an integer; else {apart}"


def _written(whole: ast.expr, name: str) -> str:
    """The text of the same write to a tensor of this name."""
    if isinstance(whole, ast.Subscript):
        return f"{name}[{ast.unparse(whole.slice)}] = …"
    assert isinstance(whole, ast.Call)
    assert isinstance(whole.func, ast.Attribute)
    return f"{name}.{whole.func.attr}(…)" if whole.args else f"{name}.{whole.func.attr}()"


def _keys(index: ast.expr) -> list[ast.expr]:
    return list(index.elts) if isinstance(index, ast.Tuple) else [index]


def _kind(index: ast.expr) -> str:
    """The kind of an index: after "integers", two indices can be one; "slices" keep the axes."""
    kinds = set()
    for key in _keys(index):
        if isinstance(key, ast.UnaryOp) and isinstance(key.op, ast.USub):
            key = key.operand
        if isinstance(key, ast.Constant) and type(key.value) is int:
            kinds.add("integers")
        elif isinstance(key, (ast.Slice, ast.Constant, ast.List, ast.Compare, ast.Starred)):
            return "slices"
        else:
            kinds.add("unknown")
    return "integers" if kinds == {"integers"} else "unknown"


def text_at(frame: FrameType) -> str | None:
    """The source of the expression that a frame is running."""
    positions = list(frame.f_code.co_positions())[frame.f_lasti // 2]
    first, last, start, end = positions
    if first is None or last is None or start is None or end is None:
        return None
    file = frame.f_code.co_filename
    lines = [linecache.getline(file, n, frame.f_globals).encode() for n in range(first, last + 1)]
    if not all(lines):
        return None
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][start:]
    return b"".join(lines).decode(errors="replace")
