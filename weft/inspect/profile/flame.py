"""Pictures of a profile: time by module, line and kernel, and memory over time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape

from weft.inspect.explain.style import shown_bytes, shown_seconds
from weft.inspect.profile.events import Event, MemoryChange
from weft.inspect.profile.summary import line_of, line_text, module_of

__all__ = ["flame_svg", "memory_svg"]

WIDTH, ROW = 1060, 21
#: The colours of the graph page: forward blue, backward orange, updates green.
_HUES = {"": 212, "backward": 28, "update": 150}


@dataclass(slots=True)
class _Box:
    """The time spent under one name, and the boxes inside."""

    name: str
    role: str = ""
    seconds: float = 0.0
    inner: dict[str, _Box] = field(default_factory=dict)

    def at(self, name: str, role: str) -> _Box:
        return self.inner.setdefault(name, _Box(name, role))

    def depth(self) -> int:
        return 1 + max((box.depth() for box in self.inner.values()), default=0)


def flame_svg(events: Iterable[Event]) -> str:
    """A flame graph: modules, below them lines, below them kernels and ops; width is time."""
    root = _Box("all")
    for event in events:
        if event.holds_others or event.kind == "compile":
            continue
        places = event.places or (None,)
        for place in places:
            took = event.seconds / len(places)
            role = place.role if place is not None else ""
            path = [event.program] if event.program else []
            if place is not None:
                module = module_of(place)
                path += [] if module.startswith("(") else module.split(".")
                path.append(line_text(line_of(place)))
            box = root
            box.seconds += took
            for name in [*path, event.name]:
                box = box.at(name, role)
                box.seconds += took
    height = root.depth() * ROW
    parts: list[str] = []
    _draw(root, 0.0, 0, root.seconds or 1.0, parts)
    return (
        f'<svg class="flame" viewBox="0 0 {WIDTH} {height}" width="100%" role="img" '
        f'aria-label="flame view" font-family="system-ui,sans-serif" font-size="11.5">'
        f"{''.join(parts)}</svg>"
    )


def _draw(box: _Box, x: float, level: int, whole: float, parts: list[str]) -> None:
    width = box.seconds / whole * WIDTH
    if width < 0.4:
        return
    hue, colour = _HUES.get(box.role, 212), 62 if level else 0
    light = 84 - 5 * (level % 3)
    text = f"{box.name}: {shown_seconds(box.seconds)}, {box.seconds / whole:.1%}"
    shown = (
        box.name if len(box.name) * 6.2 < width - 6 else box.name[: max(0, int(width / 6.2) - 2)]
    )
    label = ""
    if width > 24:
        tail = "…" if shown != box.name else ""
        label = (
            f'<text x="{x + 4:.1f}" y="{level * ROW + 14}" fill="#1d2330">'
            f"{escape(shown)}{tail}</text>"
        )
    parts.append(
        f'<g><title>{escape(text)}</title><rect x="{x:.2f}" y="{level * ROW}" width="{width:.2f}" '
        f'height="{ROW - 1}" rx="2" fill="hsl({hue} {colour}% {light}%)"/>{label}</g>'
    )
    for inner in sorted(box.inner.values(), key=lambda inner: -inner.seconds):
        _draw(inner, x, level + 1, whole, parts)
        x += inner.seconds / whole * WIDTH


def memory_svg(changes: Sequence[MemoryChange], height: int = 120) -> str:
    """The bytes in use over time, as a stepped area."""
    if not changes:
        return ""
    ordered = sorted(changes, key=lambda change: change.time)
    begin, end = ordered[0].time, ordered[-1].time
    span = max(1, end - begin)
    points: list[tuple[float, int]] = []
    used = 0
    for change in ordered:
        used += change.bytes
        points.append(((change.time - begin) / span * WIDTH, used))
    most = max(1, *(level for _, level in points))
    path = f"M0 {height}"
    for x, level in _thinned(points):
        path += f" H{x:.1f} V{height - max(0, level) / most * (height - 16):.1f}"
    peak = shown_bytes(most)
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" width="100%" role="img" aria-label="memory">'
        f"<title>at most {peak}</title>"
        f'<path d="{path} V{height} Z" fill="hsl(190 50% 62% / .55)"/>'
        f'<text x="4" y="12" font-size="11.5" fill="currentColor" '
        f'font-family="system-ui,sans-serif">{peak}</text></svg>'
    )


def _thinned(points: list[tuple[float, int]], most: int = 4000) -> list[tuple[float, int]]:
    """At most this many points: the maximum of each interval."""
    size = -(-len(points) // most)
    stretches = [points[i : i + size] for i in range(0, len(points), size)]
    return [max(stretch, key=lambda point: point[1]) for stretch in stretches]
