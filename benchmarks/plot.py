"""The suite's figures as a picture (SVG) and a page (HTML), in plain Python."""

from __future__ import annotations

import math
from html import escape
from pathlib import Path
from typing import Any

from works.base import SIDES

COLOURS = {"weft": "#c2410c", "torch": "#64748b", "torch.compile": "#94a3b8", "jax": "#0f766e"}
LABELS, BARS, BAR, GAP, TOP = 340, 520, 11, 14, 64
LEAST, MOST = 0.02, 20.0  # of the axis: a step's time over that of the best peer


def x_of(ratio: float) -> float:
    """The axis is logarithmic, and what lies beyond it ends at its edge."""
    clipped = min(max(ratio, LEAST), MOST)
    return LABELS + BARS * math.log(clipped / LEAST) / math.log(MOST / LEAST)


def picture(rows: list[dict[str, Any]], threads: int) -> str:
    rows = [row for row in rows if "ratio" in row]
    heights = [len([s for s in row["sides"].values() if "us" in s]) * BAR + GAP for row in rows]
    width, height = LABELS + BARS + 110, TOP + sum(heights) + 24
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="10" y="20" font-size="14">Time of a step over that of the best peer '
        f"(1.0), {threads} threads; shorter is faster</text>",
        *_legend(),
        *_axis(height),
    ]
    y = float(TOP)
    for row, tall in zip(rows, heights, strict=True):
        parts += _row(row, y)
        y += tall
    return "\n".join([*parts, "</svg>\n"])


def _legend() -> list[str]:
    parts, x = [], 10
    for name in SIDES:
        parts.append(f'<rect x="{x}" y="32" width="10" height="10" fill="{COLOURS[name]}"/>')
        parts.append(f'<text x="{x + 14}" y="41">{name}</text>')
        x += 34 + 7 * len(name)
    parts.append(f'<path d="M{x} 30v14" stroke="black" stroke-width="2"/>')
    parts.append(f'<text x="{x + 8}" y="41">our bar</text>')
    return parts


def _axis(height: int) -> list[str]:
    parts = []
    for ratio in (0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20):
        x = x_of(ratio)
        colour = "#111" if ratio == 1 else "#ddd"
        parts.append(f'<path d="M{x:.1f} {TOP - 6}V{height - 20}" stroke="{colour}"/>')
        parts.append(f'<text x="{x:.1f}" y="{height - 8}" text-anchor="middle">{ratio:g}</text>')
    return parts


def _row(row: dict[str, Any], y: float) -> list[str]:
    best = row["sides"][row["best"]]["us"]
    shown = [name for name in SIDES if "us" in row["sides"].get(name, {})]
    middle = y + len(shown) * BAR / 2 + 4
    mark = "" if row["met"] else " ✗"
    parts = [
        f'<text x="{LABELS - 8}" y="{middle:.1f}" text-anchor="end">'
        f"{escape(row['title'])}{mark}</text>"
    ]
    for at, name in enumerate(shown):
        us = row["sides"][name]["us"]
        end, top = x_of(us / best), y + at * BAR
        parts.append(
            f'<rect x="{LABELS}" y="{top:.1f}" width="{end - LABELS:.1f}" height="{BAR - 2}" '
            f'fill="{COLOURS[name]}"><title>{name}: {us:,.1f} µs</title></rect>'
        )
        parts.append(
            f'<text x="{end + 4:.1f}" y="{top + BAR - 3:.1f}" font-size="9">{us:,.0f} µs</text>'
        )
    x, end_y = x_of(row["bar"]), y + len(shown) * BAR
    parts.append(f'<path d="M{x:.1f} {y - 2:.1f}V{end_y:.1f}" stroke="black" stroke-width="2"/>')
    return parts


def page(rows: list[dict[str, Any]], svg: str) -> str:
    head = "".join(f"<th>{name}</th>" for name in SIDES)
    lines = []
    for row in rows:
        cells = "".join(f"<td>{_cell(row['sides'].get(name, {}))}</td>" for name in SIDES)
        ratio = f"{row['ratio']:.2f}" if "ratio" in row else "–"
        verdict = {True: "pass", False: "<b>fail</b>", None: "–"}[row.get("met")]
        lines.append(
            f"<tr><td class=t>{escape(row['title'])}</td>{cells}<td>{ratio}</td>"
            f"<td>{row['bar']:g}</td><td>{verdict}</td></tr>"
        )
    return f"""<!doctype html>
<meta charset="utf-8">
<title>Weft's benchmarks</title>
<style>
body {{ font-family: sans-serif; margin: 2em; }}
td, th {{ padding: 0.2em 0.8em; text-align: right; border-bottom: 1px solid #ddd; }}
td.t {{ text-align: left; }}
</style>
<h1>Weft beside PyTorch and JAX</h1>
{svg}
<table>
<tr><th>µs per step</th>{head}<th>ours / best peer</th><th>bar</th><th></th></tr>
{chr(10).join(lines)}
</table>
"""


def _cell(found: dict[str, Any]) -> str:
    if "us" in found:
        return f"{found['us']:,.1f}"
    return f'<span title="{escape(found.get("failed", "left out"))}">–</span>'


def write(folder: Path, rows: list[dict[str, Any]], threads: int) -> None:
    """`suite.svg` and `suite.html` in a folder."""
    svg = picture(rows, threads)
    (folder / "suite.svg").write_text(svg)
    (folder / "suite.html").write_text(page(rows, svg))
