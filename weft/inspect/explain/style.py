"""The style of text: numbers with units, bars, and colour on terminals."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Style", "bar", "shown_bytes", "shown_flops", "shown_seconds", "sparkline", "style_for"]

_EIGHTHS = " ▏▎▍▌▋▊▉█"
_LEVELS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True)
class Style:
    """Adds escape sequences to text, if colour is on."""

    colour: bool

    def _in(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour and text else text

    def head(self, text: str) -> str:
        return self._in("1", text)

    def place(self, text: str) -> str:
        return self._in("36", text)

    def code(self, text: str) -> str:
        return self._in("33", text)

    def dim(self, text: str) -> str:
        return self._in("2", text)

    def good(self, text: str) -> str:
        return self._in("32", text)

    def warn(self, text: str) -> str:
        return self._in("31", text)


def style_for(colour: bool | None) -> Style:
    """A style with colour or without; None: with colour if the output is a terminal."""
    if colour is None:
        colour = "NO_COLOR" not in os.environ and sys.stdout is not None and sys.stdout.isatty()
    return Style(colour)


def bar(share: float, width: int = 20) -> str:
    """A bar that fills this share of the width, in eighths of a character."""
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    if share > 0:
        eighths = max(eighths, 1)
    whole, rest = divmod(eighths, 8)
    return ("█" * whole + (_EIGHTHS[rest] if rest else "")).ljust(width)


def sparkline(values: Sequence[float], width: int = 60) -> str:
    """Values as a row of blocks; if there are too many, the maximum of each interval."""
    if not values:
        return ""
    size = max(1, -(-len(values) // width))
    shown = [max(values[i : i + size]) for i in range(0, len(values), size)]
    most = max(shown) or 1
    return "".join(_LEVELS[round(value / most * (len(_LEVELS) - 1))] for value in shown)


def shown_bytes(number: float) -> str:
    """1.5 MB"""
    return _scaled(number, ("B", "kB", "MB", "GB", "TB"))


def shown_flops(number: float) -> str:
    """2.1 Mflop"""
    return _scaled(number, ("flop", "kflop", "Mflop", "Gflop", "Tflop", "Pflop"))


def _scaled(number: float, units: Sequence[str]) -> str:
    place = 0
    while abs(number) >= 999.5 and place < len(units) - 1:
        number /= 1000
        place += 1
    text = f"{number:.0f}" if place == 0 else f"{number:.3g}"
    return f"{text} {units[place]}"


def shown_seconds(seconds: float | None) -> str:
    """1.24 ms"""
    if seconds is None:
        return "–"
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"
