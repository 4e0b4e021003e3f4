"""What users pass to transforms, and what their functions return: trees of tensors and numbers."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.base.errors import DTypeError, RangeError, ShapeError
from weft.base.pytree import TreeSpec, tree_flatten
from weft.core.operands import as_tensor, number_kind
from weft.core.tensor import Tensor

__all__: list[str] = []

FLOATS = ("float", "complex")
Function = Callable[..., Any]


def name_of(function: Any) -> str:
    """What a function is called in errors."""
    name = getattr(function, "__name__", None) or type(function).__name__
    return "the lambda" if name == "<lambda>" else f"{name}"


def check_callable(function: Any, op: str) -> None:
    if not callable(function):
        raise DTypeError(
            f"a function is needed, not {type(function).__name__} {function!r:.40}",
            op=op,
            hint=f"give the function itself: weft.{op}(f), and call what it returns",
        )


def is_value(leaf: Any) -> bool:
    """Whether a leaf is a tensor, or becomes one."""
    return isinstance(leaf, (Tensor, np.ndarray)) or number_kind(leaf) is not None


def tensors_of(tree: Any, op: str, what: str) -> tuple[list[Tensor], TreeSpec]:
    """The leaves of a tree as tensors: all of them must be tensors, arrays or numbers."""
    leaves, spec = tree_flatten(tree)
    for leaf, path in zip(leaves, spec.paths(), strict=True):
        if not is_value(leaf):
            raise DTypeError(
                f"{what}{path} is {type(leaf).__name__} {leaf!r:.40}, not a tensor or a number",
                op=op,
                hint="transforms take and give tensors, numbers, and lists, tuples and "
                "dictionaries of them",
            )
    return [as_tensor(leaf, op) for leaf in leaves], spec


# --- argnums -----------------------------------------------------------------------------------


def argument_numbers(argnums: Any, op: str) -> tuple[tuple[int, ...], bool]:
    """The numbers of the arguments, and whether one int was given."""
    given = argnums if isinstance(argnums, (tuple, list)) else (argnums,)
    try:
        numbers = tuple(operator.index(n) for n in given)
    except TypeError:
        raise DTypeError(
            f"argnums must be an int or a tuple of ints, not {argnums!r:.60}", op=op
        ) from None
    if not numbers:
        raise RangeError("argnums names no argument", op=op, hint="say argnums=0 for the first")
    return numbers, not isinstance(argnums, (tuple, list))


def chosen(numbers: Sequence[int], count: int, function: Any, op: str) -> list[int]:
    """The numbers from 0 up, for a call with `count` positional arguments."""
    found: list[int] = []
    for number in numbers:
        if not -count <= number < count:
            given = f"{count} positional argument{'s' * (count != 1)}"
            raise RangeError(
                f"argnums={number} names an argument that the call does not have: "
                f"{name_of(function)} was called with {given}",
                op=op,
                hint="give what is differentiated as a positional argument"
                if not count
                else f"use {-count} to {count - 1}; arguments by keyword are not differentiated",
            )
        if number % count in found:
            raise RangeError(f"argnums names argument {number % count} twice", op=op)
        found.append(number % count)
    return found


def check_same(
    spec: TreeSpec, other: TreeSpec, what: tuple[str, str], op: str, hint: str = ""
) -> None:
    if spec != other:
        raise DTypeError(
            f"{what[0]} and {what[1]} differ in structure: {spec} and {other}", op=op, hint=hint
        )


def check_like(
    given: Sequence[Tensor], wanted: Sequence[Tensor], spec: TreeSpec, what: str, of: str, op: str
) -> None:
    """Whether tensors have the shapes and dtypes of others."""
    for a, b, path in zip(given, wanted, spec.paths(), strict=True):
        if a.shape != b.shape:
            raise ShapeError(
                f"{what}{path} has shape {a.shape}, and {of}{path} {b.shape}: they must be equal",
                op=op,
            )
        if a.dtype is not b.dtype:
            raise DTypeError(
                f"{what}{path} is {a.dtype.name}, and {of}{path} {b.dtype.name}: "
                "they must be equal",
                op=op,
                hint="cast it: x.astype(...)",
            )


def as_run_by(function: Any, made: Function) -> Function:
    """What a transform made of a function, for another transform to run.

    Where functions are watched, the one that was given knows how such a function is to be run.
    """
    prepare = getattr(function, "for_transform", None)
    return made if prepare is None else prepare(made)


def transformed(
    wrapper: Function, function: Any, transform: str, remake: Callable[[Any], Function]
) -> Function:
    """Finish what a transform returns.

    It has the name and the documentation of the function. `transformed` and `remake` are for those
    who watch what a function reads: they put a watched one in its place.
    """
    name = getattr(function, "__name__", type(function).__name__)
    made: Any = wrapper
    made.__name__ = made.__qualname__ = f"{transform}_{name}".replace("<lambda>", "lambda")
    made.__doc__ = getattr(function, "__doc__", None)
    made.transformed = function
    made.remake = remake
    return wrapper
