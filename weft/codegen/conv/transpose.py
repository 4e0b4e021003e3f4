"""Transposition in registers."""

from __future__ import annotations

from weft.codegen.scalar.vec import vector_type
from weft.codegen.text import Function

__all__ = ["transpose"]


def transpose(f: Function, kind: str, rows: list[str]) -> list[str]:
    """Transpose as many vectors as each has lanes: exchange halves, then quarters, and so on."""
    lanes = len(rows)
    whole = vector_type(kind, lanes)
    rows = list(rows)
    apart = lanes // 2
    while apart:
        for i in range(lanes):
            if i & apart:
                continue
            one, other = rows[i], rows[i + apart]
            for place, shift in ((i, 0), (i + apart, apart)):
                order = [
                    lanes + lane - apart + shift if lane & apart else lane + shift
                    for lane in range(lanes)
                ]
                text = ", ".join(f"i32 {number}" for number in order)
                rows[place] = f(
                    f"shufflevector {whole} {one}, {whole} {other}, <{lanes} x i32> <{text}>"
                )
        apart //= 2
    return rows
