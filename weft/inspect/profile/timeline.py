"""Runs of the dataflow executor: which node ran where and when, and what waited."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from weft.inspect.explain.blocks import Bar, Block, Dim, Line, Row, Section, Table
from weft.inspect.explain.style import shown_seconds
from weft.runtime.dataflow.timeline import Timeline, TimelineStep

__all__ = ["Drawn", "lanes_svg", "timeline_section", "timeline_svg"]

WIDTH, ROW, LEFT = 1060, 24, 110
#: So many boxes are drawn; of more, those that took longest.
MOST_BOXES = 3000
#: The hues of devices: the CPU's blue first.
_HUES = (212, 28, 150, 280, 340, 60)


@dataclass(frozen=True, slots=True)
class Drawn:
    """A box of a timeline.

    lane     the row that it is in
    hue, light   its colour, and how light that is in percent
    ready    since when it waited; the start if it did not
    framed   whether it has a dark frame
    """

    lane: int
    start: float
    stop: float
    label: str
    title: str
    hue: int
    ready: float
    framed: bool = False
    light: int = 80


def lanes_svg(names: Sequence[str], boxes: Sequence[Drawn], start: float, stop: float) -> str:
    """Rows with names, and in each its boxes, from a time to another; of many, the longest."""
    scale = (WIDTH - LEFT) / ((stop - start) or 1)
    parts = [
        f'<text x="2" y="{lane * ROW + 16}" fill="currentColor">{escape(name)}</text>'
        for lane, name in enumerate(names)
    ]
    drawn = sorted(boxes, key=lambda box: box.start - box.stop)[:MOST_BOXES]
    parts += [_box(box, start, scale) for box in sorted(drawn, key=lambda box: box.start)]
    height = len(names) * ROW
    return (
        f'<svg class="timeline" viewBox="0 0 {WIDTH} {height}" width="100%" role="img" '
        f'aria-label="timeline" font-family="system-ui,sans-serif" font-size="11.5">'
        f"{''.join(parts)}</svg>"
    )


def timeline_svg(timeline: Timeline) -> str:
    """A row for each thread of each device; a box for each node, its frame dark on the critical
    path; a thin line before it while it waited for a thread."""
    steps = [step for step in timeline.steps if not step.is_control]
    if not steps:
        return ""
    lanes: dict[tuple[str, int], int] = {}
    for step in sorted(steps, key=lambda step: (step.device != "cpu", step.device, step.start)):
        lanes.setdefault((step.device, step.thread), len(lanes))
    devices = list(dict.fromkeys(device for device, _ in lanes))
    critical = set(map(id, timeline.critical_path()))
    names: list[str] = []
    numbers: Counter[str] = Counter()
    for device, _ in lanes:
        numbers[device] += 1
        names.append(f"{device} {numbers[device]}")
    boxes = [
        Drawn(
            lanes[step.device, step.thread],
            step.start,
            step.stop,
            step.node.op.name,
            _said(step),
            _HUES[devices.index(step.device) % len(_HUES)],
            step.ready,
            id(step) in critical,
        )
        for step in steps
    ]
    return lanes_svg(names, boxes, timeline.start, timeline.stop)


def _said(step: TimelineStep) -> str:
    said = f"{step.node.op.name}: {shown_seconds((step.stop - step.start) * 1e-9)} on {step.device}"
    if step.start > step.ready:
        said += f", waited {shown_seconds((step.start - step.ready) * 1e-9)}"
    if step.where:
        said += f", {step.where}"
    if step.node.location is not None:
        said += f", {step.node.location.short}"
    return said


def _box(box: Drawn, begin: float, scale: float) -> str:
    x = LEFT + (box.start - begin) * scale
    width = max(0.5, (box.stop - box.start) * scale)
    wait = (box.start - box.ready) * scale
    y = box.lane * ROW
    line = ""
    if wait > 1:
        line = (
            f'<path d="M{x - wait:.1f} {y + ROW - 4} H{x:.1f}" '
            f'stroke="hsl({box.hue} 30% 60% / .5)"/>'
        )
    frame = ' stroke="#1d2330" stroke-width="1.2"' if box.framed else ""
    label = ""
    if width > 6.4 * len(box.label) + 6:
        label = f'<text x="{x + 4:.1f}" y="{y + 15}" fill="#1d2330">{escape(box.label)}</text>'
    return (
        f'<g><title>{escape(box.title)}</title>{line}<rect x="{x:.2f}" y="{y + 2}" '
        f'width="{width:.2f}" height="{ROW - 6}" rx="2" '
        f'fill="hsl({box.hue} 62% {box.light}%)"{frame}/>'
        f"{label}</g>"
    )


def timeline_section(timelines: Sequence[Timeline]) -> Section:
    """How busy devices were, what waited, and the critical path of the longest run."""
    longest = max(timelines, key=lambda timeline: timeline.stop - timeline.start)
    whole = longest.stop - longest.start
    path = longest.critical_path()
    on_path = sum(step.stop - step.start for step in path)
    count = sum(not step.is_control for step in longest.steps)
    brief = (
        f"{count} nodes in {shown_seconds(whole * 1e-9)}; "
        f"{len(path)} on the critical path, {shown_seconds(on_path * 1e-9)}; "
        f"nodes waited {shown_seconds(longest.waited() * 1e-9)} for a thread"
    )
    if longest.left_out:
        brief += f"; {longest.left_out} further steps are not kept"
    devices: list[Row] = [
        [device, Bar(share, 12), f"{share:.0%} busy"] for device, share in longest.busy().items()
    ]
    slowest = sorted(path, key=lambda step: step.start - step.stop)[:8]
    nodes: list[Row] = [
        [
            step.node.op.name,
            step.device,
            shown_seconds((step.stop - step.start) * 1e-9),
            Dim(step.where or ""),
        ]
        for step in sorted(slowest, key=lambda step: step.start)
    ]
    blocks: list[Block] = [
        Line([brief]),
        Table(devices, ["device", "", ""]),
        Table(nodes, ["on the critical path", "device", "time", ""]),
    ]
    return Section("Dataflow", f"{len(timelines)} runs, the longest", blocks)
