"""The library `onnx`, loaded when it is first needed, and what is written with it."""

from __future__ import annotations

import functools
import importlib
from typing import Any

from weft.base import dtypes
from weft.base.dtypes import DType
from weft.base.errors import DeviceError, DTypeError

__all__ = ["IR_VERSION", "OPSET", "element_type", "onnx_library"]

#: What onnxruntime and OpenVINO of the last years read.
OPSET, IR_VERSION = 20, 10

#: The numbers of dtypes in the format.
_ELEMENT_TYPES = {
    "float32": 1, "uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "int64": 7,
    "bool": 9, "float16": 10, "float64": 11, "uint32": 12, "uint64": 13, "bfloat16": 16,
}  # fmt: skip


@functools.cache
def onnx_library() -> Any:
    """The module `onnx`; an error says how to get it."""
    try:
        return importlib.import_module("onnx")
    except ImportError as error:
        raise DeviceError(
            f"ONNX models need the library onnx, which cannot be imported here: {error}",
            op="onnx",
            hint="pip install 'weft[onnx]'",
        ) from None


def element_type(dtype: DType) -> int:
    """The number of a dtype in the format."""
    found = _ELEMENT_TYPES.get(dtype.name)
    if found is None:
        kind = "complex numbers" if dtype.kind == "complex" else dtype.name
        raise DTypeError(
            f"ONNX operators take no {kind}",
            hint="weft.view_as_real gives the parts of complex numbers"
            if dtype.kind == "complex"
            else "cast it with astype",
        )
    return found


#: In which dtype arithmetic on a dtype is written. Weft computes narrow floats in float32 and
#: rounds once; integers wrap, and few engines have arithmetic for all widths.
COMPUTED_IN: dict[DType, DType] = {
    **dict.fromkeys((dtypes.float16, dtypes.bfloat16), dtypes.float32),
    **dict.fromkeys(
        (dtypes.int8, dtypes.int16, dtypes.uint8, dtypes.uint16, dtypes.uint32), dtypes.int64
    ),
}
