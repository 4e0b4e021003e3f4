"""A step length that satisfies the strong Wolfe conditions, by cubic interpolation."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from weft.core.tensor import Tensor

ENOUGH_DECREASE = 1e-4  # c1 of the Wolfe conditions
ENOUGH_FLATTER = 0.9  # c2


@dataclass(frozen=True, slots=True)
class Point:
    """A point along the direction of search.

    t       the step length
    loss    the function there
    grad    its gradient
    slope   its derivative along the direction
    """

    t: float
    loss: float
    grad: Tensor
    slope: float


def strong_wolfe(
    evaluate: Callable[[float], Point],
    start: Point,
    t: float,
    reach: float,
    most: int,
    tolerance: float = 1e-9,
) -> tuple[Point, int]:
    """Search from `start` on, first at step length t; returns (point, evaluations made).

    reach   the largest element of the direction: a bracket within tolerance of it is a point
    most    how often the function may be evaluated, after the first time
    """
    low, high, done, count = _bracket(evaluate, start, t, most)
    stuck = False  # the last step was close to an end of the bracket
    while not done and count < most:
        if abs(high.t - low.t) * reach < tolerance:
            break
        left, right = sorted((low.t, high.t))
        t = _minimum(low, high, (left, right))
        margin = 0.1 * (right - left)
        if min(right - t, t - left) < margin:
            if stuck or t >= right or t <= left:
                t = right - margin if abs(t - right) < abs(t - left) else left + margin
                stuck = False
            else:
                stuck = True
        else:
            stuck = False
        point = evaluate(t)
        count += 1
        if _too_high(point, start) or point.loss >= low.loss:
            low, high = (point, low) if point.loss < low.loss else (low, point)
        else:
            if abs(point.slope) <= -ENOUGH_FLATTER * start.slope:
                done = True
            elif point.slope * (high.t - low.t) >= 0:
                high = low
            low = point
    return low, count + 1


def _bracket(
    evaluate: Callable[[float], Point], start: Point, t: float, most: int
) -> tuple[Point, Point, bool, int]:
    """Go on until a minimum lies behind: (lower end, higher end, found, evaluations)."""
    before, point = start, evaluate(t)
    count = 0
    while count < most:
        if _too_high(point, start) or (count > 1 and point.loss >= before.loss):
            break
        if abs(point.slope) <= -ENOUGH_FLATTER * start.slope:
            return point, point, True, count
        if point.slope >= 0:
            break
        bounds = (point.t + 0.01 * (point.t - before.t), point.t * 10)
        before, point = point, evaluate(_minimum(before, point, bounds))
        count += 1
    else:
        before = start
    low, high = (point, before) if point.loss < before.loss else (before, point)
    return low, high, False, count


def _too_high(point: Point, start: Point) -> bool:
    """Whether the loss did not fall enough; a loss of NaN did not."""
    return not point.loss <= start.loss + ENOUGH_DECREASE * point.t * start.slope


def _minimum(a: Point, b: Point, bounds: tuple[float, float]) -> float:
    """Where the cubic through two points, with their slopes, is least, within bounds."""
    least, most = bounds
    middle = (least + most) / 2
    if a.t > b.t:
        a, b = b, a
    if a.t == b.t:
        return middle
    d1 = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.t - b.t)
    square = d1 * d1 - a.slope * b.slope
    if not square >= 0:
        return middle
    d2 = math.sqrt(square)
    below = b.slope - a.slope + 2 * d2
    if below == 0:
        return middle
    return min(max(b.t - (b.t - a.t) * ((b.slope + d2 - d1) / below), least), most)
