"""The batching rule of cross entropy, which reduces over all of an element."""

from __future__ import annotations

from typing import Any

from weft.base import dtypes
from weft.core.bind import bind
from weft.core.operands import cast
from weft.ir.op import OPS, Op
from weft.ops.batching import Attrs, Inputs, Mapped, all_mapped, example_types
from weft.ops.elementwise import not_equal

__all__: list[str] = []


def cross_entropy_rule(op: Op, size: int, mapped: Mapped, inputs: Inputs, attrs: Attrs) -> Any:
    op.infer(*example_types(mapped, inputs), **attrs)
    x, target = all_mapped(size, mapped, inputs)
    each = {**attrs, "axis": attrs["axis"] + 1, "reduction": "none"}
    losses, logp, _ = bind(op, x, target, **each)
    over = {"axis": tuple(range(1, target.ndim)), "keepdims": False}
    used = cast(not_equal(cast(target, dtypes.int64), attrs["ignore_index"]), x.dtype)
    count = bind(OPS["sum"], used, **over)
    if attrs["reduction"] != "none":
        losses = bind(OPS["sum"], losses, **over)
    if attrs["reduction"] == "mean":
        losses = bind(OPS["divide"], losses, count)
    return losses, logp, count
