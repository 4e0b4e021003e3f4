"""What Weft made of a function: its kernels, and what is not machine code.

`watch()` comes before the first call; then every program that is built is kept here.
"""

from __future__ import annotations

import collections
import time
from typing import Any

from weft.runtime import interpreted, native

_made: list[Any] = []
_built: dict[int, float] = {}


def watch() -> None:
    for kind in (native.NativeProgram, interpreted.InterpretedProgram):
        _keep(kind)


def _keep(kind: Any) -> None:
    init = kind.__init__

    def keeping(self: Any, *args: Any) -> None:
        start = time.perf_counter()
        init(self, *args)
        _built[id(self)] = time.perf_counter() - start
        _made.append(self)

    kind.__init__ = keeping


def programs() -> list[dict[str, Any]]:
    """Each program that was built: numbers, and the names of what goes back to Python."""
    return [_native(p) if isinstance(p, native.NativeProgram) else _other(p) for p in _made]


def _native(program: Any) -> dict[str, Any]:
    return {
        "kind": "native",
        "nodes": len(program.graph.nodes),
        "kernels": list(program.kernels),
        "python_calls": dict(collections.Counter(n.op.name for n in program.calls)),
        "arena": program.arena,
        "lower_bound": program.lower_bound,
        "ir_lines": program.text.count("\n"),
        "built_s": _built[id(program)],
    }


def _other(program: Any) -> dict[str, Any]:
    ops = collections.Counter(node.op.name for node in program.graph.nodes)
    return {
        "kind": "interpreted",
        "reason": program.reason,
        "nodes": len(program.graph.nodes),
        "python_calls": dict(ops),
        "built_s": _built[id(program)],
    }


def summary(found: list[dict[str, Any]]) -> str:
    """One line per program."""
    lines = []
    for p in found:
        if p["kind"] == "interpreted":
            lines.append(f"interpreted, {p['nodes']} nodes: {p['reason']}")
            continue
        calls = ", ".join(f"{op} × {n}" for op, n in p["python_calls"].items()) or "none"
        lines.append(
            f"{p['nodes']} nodes, {len(p['kernels'])} kernels, {p['ir_lines']:,} lines of IR, "
            f"arena {p['arena']:,} bytes (at least {p['lower_bound']:,}), built in "
            f"{p['built_s']:.3f} s; calls into Python: {calls}"
        )
    return "\n".join(lines)
