"""Choices that rounding decides.

An argmax of numbers that are equal but for rounding may be any of them, and so may a comparison,
an order or a `floor` at such a place. Noise alone does not show all of what may follow: that all of
a row come out equal, so that the first is chosen everywhere, is something noise never does.

So each choosing op of the reference has *gaps*: how far its operands are from another choice. Noise
moves them. A choice is undecided where its gap is not larger than what the noise does to it, with
the margin that results have. Equal numbers that no noise moves apart are decided: the first counts.
The sign bit of a NaN is whatever the processor made it: what reads it is undecided.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.core.tensor import Tensor
from weft.ir.op import Op

#: From operands to gaps.
Gaps = Callable[[Sequence[Any]], Any]


# --- how far a choice is from another, by op: made for the operands without noise ----------------


def _compared(_: Sequence[Any], __: dict[str, Any]) -> Gaps:
    return lambda x: x[0] - x[1]


def _around_zero(_: Sequence[Any], __: dict[str, Any]) -> Gaps:
    return lambda x: np.stack(np.broadcast_arrays(*x))


def _sign_of_last(_: Sequence[Any], __: dict[str, Any]) -> Gaps:
    return lambda x: x[-1]


def _around(edge: Callable[[Any], Any], value: Callable[[Sequence[Any]], Any]) -> Any:
    """Gaps to the nearest number at which an op jumps."""

    def gaps(x: Sequence[Any], _: dict[str, Any]) -> Gaps:
        nearest = edge(value(x))
        return lambda other: value(other) - nearest

    return gaps


def _extreme(index: Callable[..., Any]) -> Any:
    def gaps(x: Sequence[Any], attrs: dict[str, Any]) -> Gaps:
        if attrs["axis"] is None:
            return _from(np.expand_dims(index(x[0]), 0), 0, np.ravel)
        return _from(index(x[0], axis=attrs["axis"], keepdims=True), attrs["axis"], lambda a: a)

    return gaps


def _from(place: Any, axis: int, view: Callable[[Any], Any]) -> Gaps:
    """The gaps between the chosen element along an axis and all others."""

    def gaps(x: Sequence[Any]) -> Any:
        whole = view(x[0])
        return np.take_along_axis(whole, place, axis) - whole

    return gaps


def _ordered(x: Sequence[Any], attrs: dict[str, Any]) -> Gaps:
    """The gaps between neighbours in order."""
    axis = attrs.get("axis", 0)
    view = np.asarray if "axis" in attrs else np.ravel
    order = np.argsort(view(x[0]), axis=axis, kind="stable")
    return lambda other: np.diff(np.take_along_axis(view(other[0]), order, axis), axis=axis)


def _searched(_: Sequence[Any], __: dict[str, Any]) -> Gaps:
    return lambda x: x[0].reshape(-1, 1) - x[1].reshape(1, -1)


def _pooled(operand: int) -> Any:
    def gaps(x: Sequence[Any], attrs: dict[str, Any]) -> Gaps:
        place = np.expand_dims(np.argmax(_windows(x[operand], attrs), axis=-1), -1)
        return lambda other: _from(place, -1, lambda a: _windows(a, attrs))([other[operand]])

    return gaps


def _windows(x: Any, attrs: dict[str, Any]) -> Any:
    """The elements under each place of a pooling window, along the last axis."""
    kernel, stride, dilation = (attrs[key] for key in ("kernel", "stride", "dilation"))
    rank = len(kernel)
    first = x.ndim - rank
    around = [(0, 0)] * first + [(low, max(high, 0)) for low, high in attrs["padding"]]
    span = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    padded = np.pad(x, around, constant_values=-np.inf)
    seen = np.lib.stride_tricks.sliding_window_view(padded, span, tuple(range(first, x.ndim)))
    steps = [slice(None)] * first + [slice(None, None, s) for s in [*stride, *dilation]]
    found = seen[tuple(steps)]
    return found.reshape(*found.shape[: x.ndim], -1)


def _first(x: Sequence[Any]) -> Any:
    return x[0]


def _quotient(x: Sequence[Any]) -> Any:
    return x[0] / x[1]


#: Ops that read the sign bit of their last operand, also of a NaN.
SIGN_BITS = ("signbit", "copysign")
_whole = _around(np.round, _first)
CHOOSING: dict[str, Callable[[Sequence[Any], dict[str, Any]], Gaps]] = {
    **dict.fromkeys(("less", "less_equal", "greater", "greater_equal"), _compared),
    **dict.fromkeys(("equal", "not_equal"), _compared),
    **dict.fromkeys(("sign", "nonzero", "any", "all", "logical_not"), _around_zero),
    **dict.fromkeys(SIGN_BITS, _sign_of_last),
    **dict.fromkeys(("logical_and", "logical_or", "logical_xor"), _around_zero),
    **dict.fromkeys(("floor", "ceil", "trunc", "astype"), _whole),
    **dict.fromkeys(("floor_divide", "remainder"), _around(np.round, _quotient)),
    "round": _around(lambda x: np.floor(x) + 0.5, _first),
    "argmax": _extreme(np.argmax),
    "argmin": _extreme(np.argmin),
    **dict.fromkeys(("argsort", "unique_all"), _ordered),
    "searchsorted": _searched,
    "max_pool_indices": _pooled(0),
    **dict.fromkeys(("max_pool_pick", "max_pool_input"), _pooled(1)),
}


class Choices:
    """The choices of a program: their gaps, and how far noise moved them.

    A run calls `start` first and `note` for each op. The first run has no noise, and says what the
    gaps are; the others must have the same choices in the same order.
    """

    def __init__(self) -> None:
        self.gaps: list[tuple[str, Gaps, Any]] = []
        self.moved: list[Any] = []
        self.place = 0
        self.runs = 0
        self.went_another_way = False
        self.reads_sign_of_nan = False

    def start(self) -> None:
        self.went_another_way |= self.runs > 1 and self.place != len(self.gaps)
        self.runs += 1
        self.place = 0

    def note(self, op: Op, inputs: Sequence[Any], attrs: dict[str, Any]) -> None:
        if op.name not in CHOOSING or not inputs or not _is_choice(op, inputs, attrs):
            return
        wide = [np.asarray(x._data if isinstance(x, Tensor) else x, np.float64) for x in inputs]
        if not all(x.size for x in wide):
            return
        with np.errstate(all="ignore"):
            if self.runs == 1:
                self.reads_sign_of_nan |= op.name in SIGN_BITS and bool(np.isnan(wide[-1]).any())
                gaps = CHOOSING[op.name](wide, attrs)
                self.gaps.append((op.name, gaps, gaps(wide)))
                self.moved.append(0.0)
            else:
                self._compare(op.name, wide)
        self.place += 1

    def _compare(self, name: str, wide: list[Any]) -> None:
        known, gaps, before = self.gaps[self.place] if self.place < len(self.gaps) else _NONE
        if known != name:
            self.went_another_way = True
            return
        try:
            moved = np.abs(gaps(wide) - before)
        except (ValueError, IndexError):  # of another shape
            self.went_another_way = True
            return
        self.moved[self.place] = np.fmax(self.moved[self.place], moved)

    def undecided(self, margin: float) -> bool:
        """Whether rounding may make any choice another one, or the sign of a NaN made one."""
        self.start()  # the last run is over
        return (
            self.went_another_way
            or self.reads_sign_of_nan
            or any(
                np.any((moved > 0) & (np.abs(before) <= margin * moved))
                for (_, _, before), moved in zip(self.gaps, self.moved, strict=True)
            )
        )


_NONE: tuple[str, Gaps, Any] = ("", lambda x: x, None)


def _is_choice(op: Op, inputs: Sequence[Any], attrs: dict[str, Any]) -> bool:
    """Whether an op jumps: casts between floats do not, and what has no floats is exact."""
    floats = any(isinstance(x, Tensor) and x.dtype.kind == "float" for x in inputs)
    return floats and not (op.name == "astype" and attrs["dtype"].kind == "float")
