"""Padding at the edges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.base.asked_sizes import is_less
from weft.base.errors import RangeError, ShapeError
from weft.core.tensor import Tensor, labelled, type_of
from weft.ops.creation import full
from weft.ops.shape import broadcast_to, concat, flip

__all__ = ["pad"]


def pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: Any = None) -> Tensor:
    """The input with its axes made longer (or, with negative numbers, shorter) at both ends.

    `pad` names them from the last axis on: (before, after) the last, (before, after) the one in
    front of it, and so on. Modes: "constant" with `value`, "reflect", "replicate", "circular".
    """
    amounts = list(pad)
    if len(amounts) % 2 or len(amounts) > 2 * input.ndim:
        raise ShapeError(
            f"{len(amounts)} amounts of padding for a tensor of {input.ndim} axes",
            op="pad",
            operands=[type_of(input)],
            hint="give two for each axis, from the last axis on",
        )
    if mode not in ("constant", "reflect", "replicate", "circular"):
        raise RangeError(f"there is no mode {mode!r} of padding", op="pad")
    pairs = [
        (input.ndim - 1 - i // 2, amounts[i], amounts[i + 1]) for i in range(0, len(amounts), 2)
    ]
    x = _cropped(input, [(axis, min(a, 0), min(b, 0)) for axis, a, b in pairs])
    grown = [(axis, max(a, 0), max(b, 0)) for axis, a, b in pairs if a > 0 or b > 0]
    if not grown:
        return x if x is not input else input.clone()
    if mode == "constant":
        return _with_constant(x, grown, 0 if value is None else fitting(value, x))
    for axis, before, after in grown:
        x = _extended(x, axis, before, after, mode)
    return x


def fitting(value: Any, x: Tensor) -> Any:
    """A value to fill with: 0.0 and its like fit integers, too."""
    if isinstance(value, float) and x.dtype.kind != "float" and value.is_integer():
        return int(value)
    return value


def _part(x: Tensor, axis: int, start: int, stop: int) -> Tensor:
    return x[(*(slice(None),) * axis, slice(start, stop))]


def _cropped(x: Tensor, pairs: list[tuple[int, int, int]]) -> Tensor:
    for axis, before, after in pairs:
        if before or after:
            size = x.shape[axis]
            if is_less(size, -before - after):
                raise ShapeError(
                    f"axis {axis} of size {size} cannot lose {-before - after}", op="pad"
                )
            x = _part(x, axis, -before, size + after)
    return x


def _with_constant(x: Tensor, pairs: list[tuple[int, int, int]], value: Any) -> Tensor:
    shape = list(x.shape)
    places = [slice(None)] * x.ndim
    for axis, before, after in pairs:
        places[axis] = slice(before, before + shape[axis])
        shape[axis] += before + after
    out = labelled(full(shape, value, dtype=x.dtype, device=x.device), x._result_class)
    out[tuple(places)] = x
    return out


def _extended(x: Tensor, axis: int, before: int, after: int, mode: str) -> Tensor:
    """The axis continued by what is already on it."""
    size = x.shape[axis]
    needed = max(before, after)
    least = {"reflect": needed + 1, "circular": needed, "replicate": 1}[mode]
    if is_less(size, least):
        raise ShapeError(
            f"{mode} padding of {needed} needs a longer axis {axis} than {size}",
            op="pad",
            operands=[type_of(x)],
        )
    if mode == "circular":
        ends = [_part(x, axis, size - before, size), _part(x, axis, 0, after)]
    elif mode == "reflect":
        ends = [
            flip(_part(x, axis, 1, before + 1), axis=axis),
            flip(_part(x, axis, size - 1 - after, size - 1), axis=axis),
        ]
    else:
        ends = []
        for edge, amount in (
            (_part(x, axis, 0, 1), before),
            (_part(x, axis, size - 1, size), after),
        ):
            shape = (*x.shape[:axis], amount, *x.shape[axis + 1 :])
            ends.append(broadcast_to(edge, shape))
    parts = [ends[0], x, ends[1]]
    return concat([part for part in parts if part.shape[axis] != 0], axis=axis)
