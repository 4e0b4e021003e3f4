"""The types of the results of a call, by the type rule of its op."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from weft.ir.op import Op
from weft.ir.types import TensorType, Type

if TYPE_CHECKING:
    from weft.ir.graph import Graph, Value


def infer_types(
    op: Op, inputs: Sequence[Value], attrs: Mapping[str, Any], graphs: Sequence[Graph] = ()
) -> tuple[Type, ...]:
    """The types of the results, by the op's type rule."""
    types = [value.type for value in inputs]
    for i, kind in enumerate(types):
        if kind.__class__ is TensorType and kind.cuts is not None:
            types[i] = kind.cut(None)
    nested = {"graphs": graphs} if op.nested else {}
    inferred = op.infer(*types, **nested, **attrs)
    return inferred if isinstance(inferred, tuple) else (inferred,)
