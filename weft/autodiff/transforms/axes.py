"""`in_axes` and `out_axes` of `vmap`: which axis of each argument and result is mapped."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from weft.autodiff.transforms.trees import is_value
from weft.base.errors import AxisError, DTypeError, ShapeError
from weft.base.pytree import TreeSpec, tree_flatten
from weft.core.operands import number_kind

__all__: list[str] = []

Axis = int | None


def _is_axis(axes: Any) -> bool:
    return axes is None or isinstance(axes, int)


def axes_of(axes: Any, spec: TreeSpec, name: str, what: str) -> list[Axis]:
    """The axis of each leaf: `axes` is a tree of them that may end above the leaves."""
    found, prefix = tree_flatten(axes, _is_axis)
    for axis in found:
        if not _is_axis(axis):
            raise DTypeError(
                f"{name} must be an int, None, or a tree of them that fits {what}, "
                f"not {axes!r:.60}",
                op="vmap",
            )
    return _spread(prefix, spec, iter(found), name, what)


def _spread(prefix: TreeSpec, spec: TreeSpec, axes: Any, name: str, what: str) -> list[Axis]:
    if prefix.kind is None:
        return [next(axes)] * spec.leaves
    if not _fits(prefix, spec):
        raise ShapeError(
            f"{name} does not fit {what}: {_shown(prefix)} stands for {_shown(spec)}",
            op="vmap",
            hint=f"{name} has the structure of {what}, or an int or None for a whole part of it",
        )
    spread: list[Axis] = []
    for below, part in zip(prefix.children, spec.children, strict=True):
        spread += _spread(below, part, axes, name, what)
    return spread


def _fits(prefix: TreeSpec, spec: TreeSpec) -> bool:
    sequences = prefix.kind in (tuple, list) and spec.kind in (tuple, list)
    same = prefix.kind is spec.kind and prefix.what == spec.what
    return (sequences or same) and len(prefix.children) == len(spec.children)


def _shown(spec: TreeSpec) -> str:
    if spec.kind is None:
        return "one value"
    kind = spec.kind.__name__
    if issubclass(spec.kind, dict):
        return f"a {kind} with the keys {list(spec.what)}" if spec.what else f"an empty {kind}"
    return f"a {kind} of {len(spec.children)}"


def checked_axis(axis: int, ndim: int, what: str) -> int:
    """An axis as a number from 0 up."""
    number = operator.index(axis)
    if not -ndim <= number < ndim:
        raise AxisError(
            f"{what} has {ndim} axes, so axis {number} cannot be mapped",
            op="vmap",
            hint="use in_axes=None for arguments that are the same for all"
            if what.startswith("arg")
            else "",
        )
    return number % ndim


def mapped_size(
    leaves: Sequence[Any], axes: Sequence[Axis], paths: Sequence[str], axis_size: int | None
) -> int:
    """The size of the mapped axis, which all mapped arguments agree on."""
    sizes: dict[str, int] = {}
    for leaf, axis, path in zip(leaves, axes, paths, strict=True):
        if axis is None:
            continue
        if not is_value(leaf):
            raise DTypeError(
                f"{path} is {type(leaf).__name__} {leaf!r:.40}, which has no axes to map over",
                op="vmap",
                hint="use in_axes=None for it",
            )
        if number_kind(leaf) is not None:
            raise AxisError(
                f"{path} is the number {leaf!r:.40}, which has no axes to map over",
                op="vmap",
                hint="use in_axes=None for it",
            )
        sizes[path] = leaf.shape[checked_axis(axis, len(leaf.shape), path)]
    if axis_size is not None:
        sizes["axis_size"] = axis_size
    if not sizes:
        raise ShapeError(
            "no argument is mapped, so the size of the mapped axis is not known",
            op="vmap",
            hint="say axis_size=n, or let in_axes name an axis",
        )
    (first, size), *rest = sizes.items()
    for path, other in rest:
        if other != size:
            raise ShapeError(
                f"the mapped axes differ in size: {first} has {size}, and {path} {other}",
                op="vmap",
                hint="use in_axes to say which axis of each argument is mapped, None for none",
            )
    return size
