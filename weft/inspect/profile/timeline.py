"""Runs of the dataflow executor: which node ran where and when, and what waited."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from html import escape

from weft.inspect.explain.blocks import Bar, Block, Dim, Line, Row, Section, Table
from weft.inspect.explain.style import shown_seconds
from weft.runtime.dataflow.timeline import Timeline, TimelineStep

__all__ = ["timeline_section", "timeline_svg"]

WIDTH, ROW, LEFT = 1060, 24, 110
#: So many boxes are drawn; of more, those that took longest.
MOST_BOXES = 3000
#: The hues of devices: the CPU's blue first.
_HUES = (212, 28, 150, 280, 340, 60)


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
    drawn = sorted(steps, key=lambda step: step.start - step.stop)[:MOST_BOXES]
    span = max(1, timeline.stop - timeline.start)
    scale = (WIDTH - LEFT) / span
    parts: list[str] = []
    numbers: Counter[str] = Counter()
    for (device, _), lane in lanes.items():
        numbers[device] += 1
        parts.append(
            f'<text x="2" y="{lane * ROW + 16}" fill="currentColor">'
            f"{escape(device)} {numbers[device]}</text>"
        )
    for step in sorted(drawn, key=lambda step: step.start):
        lane = lanes[step.device, step.thread]
        hue = _HUES[devices.index(step.device) % len(_HUES)]
        parts.append(_box(step, timeline.start, scale, lane, hue, id(step) in critical))
    height = len(lanes) * ROW
    return (
        f'<svg class="timeline" viewBox="0 0 {WIDTH} {height}" width="100%" role="img" '
        f'aria-label="timeline" font-family="system-ui,sans-serif" font-size="11.5">'
        f"{''.join(parts)}</svg>"
    )


def _box(step: TimelineStep, begin: int, scale: float, lane: int, hue: int, critical: bool) -> str:
    x = LEFT + (step.start - begin) * scale
    width = max(0.5, (step.stop - step.start) * scale)
    wait = (step.start - step.ready) * scale
    y = lane * ROW
    name = step.node.op.name
    said = f"{name}: {shown_seconds((step.stop - step.start) * 1e-9)} on {step.device}"
    if step.start > step.ready:
        said += f", waited {shown_seconds((step.start - step.ready) * 1e-9)}"
    if step.where:
        said += f", {step.where}"
    if step.node.location is not None:
        said += f", {step.node.location.short}"
    line = ""
    if wait > 1:
        line = (
            f'<path d="M{x - wait:.1f} {y + ROW - 4} H{x:.1f}" stroke="hsl({hue} 30% 60% / .5)"/>'
        )
    frame = ' stroke="#1d2330" stroke-width="1.2"' if critical else ""
    label = ""
    if width > 6.4 * len(name) + 6:
        label = f'<text x="{x + 4:.1f}" y="{y + 15}" fill="#1d2330">{escape(name)}</text>'
    return (
        f'<g><title>{escape(said)}</title>{line}<rect x="{x:.2f}" y="{y + 2}" '
        f'width="{width:.2f}" height="{ROW - 6}" rx="2" fill="hsl({hue} 62% 80%)"{frame}/>'
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
