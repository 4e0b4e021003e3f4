"""The result of a comparison, which prints as a table."""

from __future__ import annotations

from dataclasses import dataclass, field

from weft.inspect.compare.locate import Finding

__all__ = ["Comparison", "Row"]


@dataclass(slots=True)
class Row:
    """One mode.

    status      "reference", "same", "differs" or "error"
    place       the first result that differs: a part of the returned value, or of the state
    difference  the largest difference, with a description
    finding     the first op that differs
    """

    mode: str
    status: str
    seconds: float
    place: str = ""
    size: float = 0.0
    text: str = ""
    finding: Finding | None = None
    error: BaseException | None = None


@dataclass
class Comparison:
    """The result of `weft.compare`; true if all modes agree."""

    name: str
    rows: list[Row] = field(default_factory=list)

    @property
    def same(self) -> bool:
        """Whether all modes agree."""
        return all(row.status in ("reference", "same") for row in self.rows)

    @property
    def first(self) -> Finding | None:
        """The first op that differs, of the first mode that differs."""
        return next((row.finding for row in self.rows if row.finding is not None), None)

    def __bool__(self) -> bool:
        return self.same

    def __str__(self) -> str:
        head = ("mode", "", "time", "largest difference", "in")
        lines = [head]
        for row in self.rows:
            size = "" if row.status in ("reference", "error") else f"{row.size:.3g}"
            lines.append((row.mode, row.status, f"{row.seconds * 1e3:.3g} ms", size, row.place))
        widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
        pairs = [zip(line, widths, strict=True) for line in lines]
        shown = ["  ".join(cell.ljust(width) for cell, width in pair).rstrip() for pair in pairs]
        shown.insert(0, f"{self.name} in {len(self.rows)} modes")
        for row in self.rows:
            if row.error is not None:
                shown.append(f"{row.mode} raises {type(row.error).__name__}: {row.error}")
            elif row.status == "differs":
                shown.append(f"{row.mode}: {row.place}: {row.text}")
            if row.finding is not None:
                shown.append(f"the first op that differs, in {_LAYERS[row.finding.layer]}:")
                shown.append(_indented(str(row.finding)))
        return "\n".join(shown)

    def __repr__(self) -> str:
        states = ", ".join(f"{row.mode} {row.status}" for row in self.rows)
        return f"<comparison of {self.name}: {states}>"


_LAYERS = {
    "capture": "what was captured",
    "passes": "the passes over the graph",
    "code": "machine code",
}


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())
