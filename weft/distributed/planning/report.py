"""The report about a plan, as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["plan_report", "shown_bytes", "shown_table"]

#: So many rejected mesh shapes are listed.
MOST_ROWS = 16


def shown_bytes(number: float) -> str:
    """80e9 -> 80.0 GB"""
    return f"{number / 1e9:.1f} GB" if number >= 1e8 else f"{number / 1e6:.1f} MB"


def shown_seconds(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"


def shown_layout(shape: Sequence[int], axis: int | None) -> str:
    """[8{tensor},4]"""
    sizes = [f"{size}{{tensor}}" if i == axis else str(size) for i, size in enumerate(shape)]
    return f"[{','.join(sizes)}]"


def shown_table(rows: Sequence[Sequence[str]], head: Sequence[str]) -> list[str]:
    """Columns that are aligned: numbers to the right."""
    lines = [list(head), *[list(row) for row in rows]]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    right = [
        all(row[i][:1].isdigit() or row[i][:1] in "≥~-–" for row in rows) for i in range(len(head))
    ]
    return [
        "  "
        + "  ".join(
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in lines
    ]


def plan_report(planned: Any) -> str:
    """What was chosen, where time and memory go, the stages, and what was rejected."""
    found = planned.prediction
    rate = f"{found.flops_per_device / 1e12:.4g} TF/s per device"
    chosen, cluster = planned.plan, found.cluster
    lines = [
        f"Plan for {cluster.name}",
        f"  {chosen}",
        f"  {shown_seconds(found.seconds)} per step, {rate}, "
        f"{found.micro_batches} micro-batch{'es' * (found.micro_batches > 1)}, "
        f"bubble {found.bubble:.1%}",
    ]
    if planned.pins:
        lines.append("  pinned: " + ", ".join(f"{k}={v!r}" for k, v in planned.pins.items()))
    lines += ["", "Where the time goes"]
    lines += shown_table(
        [[name, f"{share:.1%}"] for name, share in found.shares.items() if share >= 5e-4],
        ["", "share"],
    )
    fullest = max(found.stages, key=lambda stage: stage.memory.total)
    memory = fullest.memory
    lines += ["", f"Memory of the fullest device, of {shown_bytes(cluster.processor.memory)}"]
    parts = {
        "weights": memory.weights,
        "gradients": memory.gradients,
        "optimizer state": memory.state,
        "activations": memory.activations,
        "working": memory.working,
        "reserved": memory.reserved,
        "together": memory.total,
    }
    lines += shown_table([[name, shown_bytes(size)] for name, size in parts.items()], ["", "size"])
    if found.weights:
        lines += ["", f"Weights over {chosen.tensor} devices"]
        cut = [[name, shown_layout(*weight)] for name, weight in found.weights.items()]
        lines += shown_table(cut, ["weight", "layout"])
    if chosen.pipeline > 1:
        lines += ["", "Stages"]
        lines += shown_table(
            _stage_rows(found.stages), ["stage", "units", "of", "forward", "backward"]
        )
    lines += ["", f"Rejected ({planned.tried} plans simulated)"]
    rows = [
        [
            f"{r.data} × {r.tensor} × {r.pipeline}",
            "–" if r.seconds is None else ("≥ " if r.at_least else "") + shown_seconds(r.seconds),
            shown_bytes(r.memory) if r.memory else "–",
            r.why,
        ]
        for r in planned.rejected[:MOST_ROWS]
    ]
    lines += shown_table(rows, ["data × tensor × pipeline", "time", "memory", "why"])
    if len(planned.rejected) > MOST_ROWS:
        lines.append(f"  … and {len(planned.rejected) - MOST_ROWS} more")
    return "\n".join(lines)


def _stage_rows(stages: Sequence[Any]) -> list[list[str]]:
    """One row for stages that are alike."""
    rows: list[list[str]] = []
    begin = 0
    for i in range(1, len(stages) + 1):
        one = stages[begin]
        alike = i < len(stages) and (stages[i].units, stages[i].forward) == (one.units, one.forward)
        if alike:
            continue
        number = str(begin) if i - begin == 1 else f"{begin}–{i - 1}"
        names = one.first if one.units == 1 else f"{one.first} … {stages[i - 1].last}"
        times = [shown_seconds(one.forward), shown_seconds(one.backward)]
        rows.append([number, names, str(one.units), *times])
        begin = i
    return rows
