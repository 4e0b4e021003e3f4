"""What draws with parameters share: numbers or tensors that broadcast, the dtype, the shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.base import dtypes
from weft.base.dataclass import dataclass
from weft.base.device import as_device
from weft.base.dtypes import DType, as_dtype
from weft.base.errors import RangeError, ShapeError
from weft.base.promotion import promote_weak, result_dtype
from weft.base.shapes import Shape, broadcast_shapes, new_shape
from weft.core.operands import as_tensor, cast, constant, number_kind
from weft.core.tensor import Tensor
from weft.ops.draws import FLOATS, check_dtype, check_fits, source_of

__all__ = ["Parameters", "parameters"]


@dataclass(frozen=True)
class Parameters:
    """The parameters as tensors of one dtype, the shape to draw, its dtype and device."""

    tensors: tuple[Tensor, ...]
    shape: Shape
    dtype: DType
    device: Any


def parameters(
    op: str,
    given: Sequence[Any],
    shape: Any,
    dtype: Any,
    device: Any,
    generator: Any,
    *,
    positive: Sequence[str] = (),
) -> Parameters:
    """Parameters by their order; numbers in the first `positive` places must be above 0."""
    for name, value in zip(positive, given, strict=False):
        kind = number_kind(value)
        if name and kind is not None and (kind == "complex" or not value > 0):
            raise RangeError(f"{name} must be positive, not {value}", op=op)
    tensors = [as_tensor(p, op) for p in given if number_kind(p) is None]
    numbers = [kind for kind in map(number_kind, given) if kind is not None]
    common = promote_weak(result_dtype([t.dtype for t in tensors], numbers), "float")
    wanted = common if dtype is None else as_dtype(dtype)
    if wanted.kind == "float":
        common = wanted
    elif not tensors:
        common = dtypes.default_float()
    check_dtype(common, FLOATS, op)
    try:
        together = broadcast_shapes(*(t.shape for t in tensors))
    except ShapeError as error:
        raise error.about(op, [t.type for t in tensors]) from None
    sizes = together if shape is None else new_shape(shape, op)
    check_fits(together, sizes, op)
    place = source_of(generator, op).device if device is None else as_device(device)
    if tensors and device is None:
        place = tensors[0].device
    found = tuple(
        cast(as_tensor(p, op), common).to_device(place)
        if number_kind(p) is None
        else constant(p, common, place)
        for p in given
    )
    return Parameters(found, sizes, wanted, place)
