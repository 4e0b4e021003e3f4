"""What a work of `large.py` is: a `Work` of the suite, and bars for any of its figures."""

from __future__ import annotations

from dataclasses import dataclass

from works.base import Work

#: What is measured of each side: seconds of the first and the second call, of a settled step (the
#: least of many), and the largest memory of the process in MB. `further`: see `Large`.
FIGURES = ("first", "second", "step", "peak", "further")


@dataclass(frozen=True)
class Bar:
    """Our figure is at most this: absolute, or times that of side `of`, or of the "best" peer."""

    figure: str
    at_most: float
    of: str = ""


@dataclass(frozen=True)
class Large:
    """A work, its bars, and on which sides it runs.

    sides     who takes part, us first
    shorter   another work with `fewer` layers fewer: gives the figure "further", the seconds that
              each further layer adds to the first call
    check     steps that are compared with PyTorch before anything is timed
    """

    work: Work
    bars: tuple[Bar, ...]
    sides: tuple[str, ...] = ("weft", "torch")
    shorter: str = ""
    fewer: int = 0
    check: int = 2

    @property
    def name(self) -> str:
        return self.work.name
