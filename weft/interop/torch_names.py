"""The names in files of PyTorch that are understood, and the functions of plain values.

A pickle makes plain values that it has no opcode for by calling a function by its name. Those in
`FUNCTIONS` make such a value of plain arguments, and do nothing else.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from weft.base.device import as_device
from weft.base.dtypes import DTYPES as KNOWN
from weft.base.errors import WeftError
from weft.interop.pickle_reader import plain_key

__all__ = ["DTYPES", "FUNCTIONS", "STORAGES", "TENSOR_CLASSES"]

#: Classes of storages, and the dtypes of their elements.
STORAGES = {
    "BoolStorage": "bool", "ByteStorage": "uint8", "CharStorage": "int8", "ShortStorage": "int16",
    "IntStorage": "int32", "LongStorage": "int64", "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16", "FloatStorage": "float32", "DoubleStorage": "float64",
    "ComplexFloatStorage": "complex64", "ComplexDoubleStorage": "complex128",
    "UntypedStorage": "uint8",
}  # fmt: skip
#: Dtypes by their names in PyTorch.
_FLOAT8 = ("float8_e5m2", "float8_e4m3fn", "float8_e8m0fnu", "float8_e4m3fnuz", "float8_e5m2fnuz")
DTYPES = {
    **{name: name for name in (*KNOWN, *_FLOAT8)},
    **{"float": "float32", "double": "float64", "half": "float16", "long": "int64"},
    **{"int": "int32", "short": "int16", "cfloat": "complex64", "cdouble": "complex128"},
}


def _numbers(values: Any) -> tuple[int, ...]:
    if not all(type(n) is int for n in values):
        raise TypeError("a size is no number")
    return tuple(values)


def _device(*said: Any) -> Any:
    try:
        return as_device(":".join(map(str, said)))
    except WeftError:
        raise ValueError("a device that is none") from None


def _encoded(text: Any, encoding: Any) -> bytes:
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
        raise TypeError("bytes in another encoding")
    return text.encode("latin-1")


def _byte_array(*given: Any) -> bytearray:
    if not given:
        return bytearray()
    data = given[0] if isinstance(given[0], bytes) else _encoded(*given)
    return bytearray(data)


def _complex(real: Any, imaginary: Any) -> complex:
    if type(real) is not float or type(imaginary) is not float:
        raise TypeError("a complex number of other things than numbers")
    return complex(real, imaginary)


_BUILTINS: dict[str, Callable[..., Any]] = {
    "set": lambda values=(): set(map(plain_key, values)),
    "frozenset": lambda values=(): frozenset(map(plain_key, values)),
    "bytearray": _byte_array,
    "complex": _complex,
}
FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{f"{m}.{name}": f for m in ("builtins", "__builtin__") for name, f in _BUILTINS.items()},
    "collections.OrderedDict": lambda: OrderedDict(),
    "_codecs.encode": _encoded,
    "torch.Size": _numbers,
    "torch.device": _device,
}
#: Names that are only values: of which class a tensor is.
TENSOR_CLASSES = frozenset(
    {
        "torch.Tensor",
        "torch._tensor.Tensor",
        "torch.nn.parameter.Parameter",
        "torch.nn.parameter.Buffer",
    }
)
