"""Checks that branches give equal types and loops keep theirs; errors name the value and line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.base.device import as_device
from weft.base.errors import CaptureDTypeError, CaptureShapeError, WeftError
from weft.base.promotion import promote_weak, result_dtype
from weft.base.pytree import TreeSpec
from weft.base.source import SourceLocation
from weft.core.operands import as_tensor, constant, number_kind
from weft.core.symbolic import SymbolicArray
from weft.core.tensor import Tensor, type_of
from weft.ir.types import TensorType, Type, undivided


def is_number(value: Any) -> bool:
    return not isinstance(value, Tensor) and number_kind(value) is not None


def kind_of_tensor(tensor: Tensor) -> Type:
    """The type of a tensor, or of the stack or token that it represents."""
    data = tensor._data
    if data.__class__ is SymbolicArray:
        return undivided(data.value.type)
    return undivided(type_of(tensor))


def as_leaf(value: Any, op: str) -> Any:
    """A leaf of a tree; an array becomes a tensor."""
    return as_tensor(value, op) if isinstance(value, np.ndarray) else value


def shown(value: Any) -> str:
    """A leaf as errors print it."""
    if isinstance(value, Tensor):
        return str(type_of(value))
    if isinstance(value, TensorType):
        return str(value)
    return f"the Python {type(value).__name__} {value!r:.40}"


def line_of(value: Any, function: Callable[..., Any]) -> str:
    """The line that computed a value; if unknown, the line where `function` begins."""
    where: SourceLocation | None = None
    if isinstance(value, Tensor) and value._data.__class__ is SymbolicArray:
        made = value._data.value.node
        where = None if made is None else made.location
    if where is None:
        code = getattr(function, "__code__", None)
        if code is None:
            return ""
        where = SourceLocation(code.co_filename, code.co_firstlineno, code.co_name)
    return f" ({where})"


def same_static(a: Any, b: Any) -> bool:
    """Whether two leaves that are not tensors have the same type and value."""
    try:
        return type(a) is type(b) and (a is b or bool(a == b))
    except Exception:
        return False


def differ(
    op: str, name: str, one: tuple[Any, str, str], two: tuple[Any, str, str], hint: str
) -> WeftError:
    """The error for two values that should have one type; each is (value, where, line)."""
    a, b = one[0], two[0]
    types = [type_of(v) if isinstance(v, Tensor) else v for v in (a, b)]
    shapes = all(isinstance(t, TensorType) for t in types) and types[0].dtype is types[1].dtype
    kind = CaptureShapeError if shapes else CaptureDTypeError
    return kind(
        f"{name} is {shown(a)} {one[1]}{one[2]}, and {shown(b)} {two[1]}{two[2]}",
        op=op,
        hint=hint,
    )


def check_structure(
    op: str, one: TreeSpec, two: TreeSpec, words: tuple[str, str], lines: tuple[str, str]
) -> None:
    if one != two:
        a, b = (repr(spec).removeprefix("TreeSpec(")[:-1] for spec in (one, two))
        raise CaptureDTypeError(
            f"the results have different structures: {a} {words[0]}{lines[0]}, "
            f"and {b} {words[1]}{lines[1]}",
            op=op,
            hint="return the same tuples, lists and dicts, with the same keys",
        )


BRANCH_HINT = "make both branches give the same dtype and shape: x.astype(...), x.expand(...)"


def branch_types(
    op: str,
    columns: Sequence[Sequence[Any]],
    names: Sequence[str],
    functions: Sequence[Callable[..., Any]],
) -> list[TensorType | None]:
    """The type of each result; None if all branches give the same Python value.

    `columns` has, for each result, its value in each branch. Python numbers take the dtype of a
    tensor in another branch. If all branches give numbers, their dtypes are promoted together.
    """
    words = branch_words(op, len(functions))
    found: list[TensorType | None] = []
    for column, name in zip(columns, names, strict=True):
        first = column[0]
        tensors = [value for value in column if isinstance(value, Tensor)]
        if not tensors and all(same_static(first, value) for value in column):
            found.append(None)
            continue
        kind = type_of(tensors[0]) if tensors else _weak_type(column)
        chosen = next(i for i, v in enumerate(column) if not tensors or v is tensors[0])
        for i, value in enumerate(column):
            if kind is None or not _fits(value, kind):
                pair = sorted([chosen, i] if chosen != i else [0, _other(column)])
                one, two = [(column[k], words[k], line_of(column[k], functions[k])) for k in pair]
                raise differ(op, name, one, two, BRANCH_HINT)
        found.append(kind)
    return found


def branch_words(op: str, number: int) -> list[str]:
    if op == "cond":
        return ["where the condition holds", "where it does not"]
    return [f"in branch {i}" for i in range(number)]


def _other(column: Sequence[Any]) -> int:
    return next(i for i, value in enumerate(column) if not same_static(column[0], value))


def _joint_type(values: Sequence[Any]) -> TensorType | None:
    """The type of tensors and Python numbers together, if there is one."""
    tensors = [value for value in values if isinstance(value, Tensor)]
    kind = type_of(tensors[0]) if tensors else _weak_type(values)
    return kind if kind is not None and all(_fits(value, kind) for value in values) else None


def _weak_type(column: Sequence[Any]) -> TensorType | None:
    kinds = [number_kind(value) for value in column]
    if any(kind is None for kind in kinds):
        return None
    return TensorType(result_dtype([], [k for k in kinds if k is not None]), (), as_device(None))


def _fits(value: Any, kind: TensorType) -> bool:
    if isinstance(value, Tensor):
        return type_of(value) == kind
    weak = number_kind(value)
    return weak is not None and not kind.shape and promote_weak(kind.dtype, weak) is kind.dtype


def typed(value: Any, kind: Type) -> Tensor:
    """A leaf as a tensor; a Python number becomes a constant of type `kind`."""
    if isinstance(value, Tensor):
        return value
    assert isinstance(kind, TensorType)
    return constant(value, kind.dtype, kind.device)


LOOP_HINT = "a loop keeps dtypes and shapes: start with a value of the type that the body returns"


def carry_type(
    op: str,
    name: str,
    given: tuple[Any, Type | None],
    out: Any,
    function: Callable[..., Any],
    start: str,
) -> TensorType | None:
    """The type of a carried value for which the body gave `out`; None for a Python value.

    `given` is (value before the loop, its type in the body or None for a Python value).
    """
    initial, kind = given
    assert kind is None or isinstance(kind, TensorType)
    if kind is None and not is_number(initial):
        if same_static(initial, out):
            return None
        made = None
    elif kind is None or (is_number(initial) and isinstance(out, Tensor)):
        made = _joint_type([initial, out])  # a number takes the dtype that the body gives it
    else:
        made = kind if _fits(out, kind) else None
    if made is None:
        before = (kind or initial, "before the loop", start)
        after = (out, "after the body", line_of(out, function))
        raise differ(op, name, before, after, LOOP_HINT)
    return made
