"""What notebooks show: HTML of tensors, modules and compiled functions."""

from __future__ import annotations

import html
from typing import Any

from weft.capture.trace.captured import Captured
from weft.core.tensor import Tensor

__all__ = ["compiled_html", "module_html", "tensor_html"]

#: Maximum rows and columns of a matrix that is shown as a table.
LARGEST = 12


def tensor_html(tensor: Tensor) -> str:
    """The type of a tensor, and its numbers: those of a small matrix as a table."""
    kind = f"{tensor.type}" + (" · requires grad" if tensor.requires_grad else "")
    if tensor.ndim == 2 and tensor.size > 0 and max(tensor.shape) <= LARGEST:
        rows = ["".join(f"<td>{_number(cell)}</td>" for cell in row) for row in tensor]
        return _box(kind, "<table>" + "".join(f"<tr>{row}</tr>" for row in rows) + "</table>")
    return _box(kind, _pre(str(tensor)))


def _number(cell: Tensor) -> str:
    text = f"{cell:.4g}" if cell.dtype.kind == "float" else str(cell)
    return html.escape(text)


def module_html(module: Any) -> str:
    """The tree of a module, and how many parameters it has."""
    count = sum(p.size for p in module.parameters())
    return _box(f"{type(module).__name__} · {count:,} parameters", _pre(repr(module)))


def compiled_html(compiled: Captured[..., Any]) -> str:
    """The recordings of a compiled function: why each was made, and what came of it."""
    rows = "".join(
        f"<tr><td>{r.number}</td><td>{html.escape(r.reason)}</td>"
        f"<td>{html.escape(r.outcome)}</td><td>{r.seconds * 1e3:.3g} ms</td></tr>"
        for r in compiled.recordings
    )
    head = "<tr><th></th><th>recorded because</th><th>gave</th><th>time</th></tr>"
    shown = f"<table>{head}{rows}</table>" if rows else _pre("not called yet")
    return _box(repr(compiled), shown)


def _box(title: str, body: str) -> str:
    return f"<div><code>{html.escape(title)}</code>{body}</div>"


def _pre(text: str) -> str:
    return f"<pre>{html.escape(text)}</pre>"
