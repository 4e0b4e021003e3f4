"""Element types: their names, their NumPy dtypes and their limits."""

from __future__ import annotations

import builtins
from typing import Any, Literal

import ml_dtypes
import numpy as np

from weft.base.dataclass import dataclass
from weft.base.errors import DTypeError
from weft.base.pytree import value_class

__all__ = [
    "DType",
    "bfloat16",
    "bool",
    "complex64",
    "complex128",
    "float16",
    "float32",
    "float64",
    "get_default_dtype",
    "int8",
    "int16",
    "int32",
    "int64",
    "register_dtype",
    "set_default_dtype",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
]

Kind = Literal["bool", "int", "uint", "float", "complex"]

#: The names of groups of kinds, as `isdtype` and op cards use them.
KINDS: dict[str, frozenset[str]] = {
    "bool": frozenset({"bool"}),
    "signed integer": frozenset({"int"}),
    "unsigned integer": frozenset({"uint"}),
    "integral": frozenset({"int", "uint"}),
    "real floating": frozenset({"float"}),
    "complex floating": frozenset({"complex"}),
    "floating": frozenset({"float", "complex"}),
    "real numeric": frozenset({"int", "uint", "float"}),
    "numeric": frozenset({"int", "uint", "float", "complex"}),
    "integral or bool": frozenset({"bool", "int", "uint"}),
    "real": frozenset({"bool", "int", "uint", "float"}),
    "all": frozenset({"bool", "int", "uint", "float", "complex"}),
}


@value_class
@dataclass(frozen=True, eq=False, slots=True)
class DType:
    """An element type. There is one object per type: compare with `==` or `is`."""

    name: str
    kind: Kind
    numpy: np.dtype[Any]
    short: str  # its name in printed graphs: f32

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return self.numpy.itemsize

    @property
    def bits(self) -> int:
        return 8 * self.numpy.itemsize

    @property
    def is_floating_point(self) -> builtins.bool:
        return self.kind == "float"

    @property
    def is_complex(self) -> builtins.bool:
        return self.kind == "complex"

    def __repr__(self) -> str:
        return f"weft.{self.name}"

    def __reduce__(self) -> Any:
        return as_dtype, (self.name,)


DTYPES: dict[str, DType] = {}  # by name
_BY_NUMPY: dict[np.dtype[Any], DType] = {}


def register_dtype(name: str, numpy: Any, kind: Kind, short: str) -> DType:
    """Register another element type, for example one of the 8-bit floats of `ml_dtypes`.

    Ops that only move data accept it at once. An op that computes needs a kernel for it
    (see `weft.register_kernel`), and `promotes` entries to mix it with other dtypes.

    >>> import ml_dtypes, weft
    >>> float8 = weft.register_dtype("float8_e5m2", ml_dtypes.float8_e5m2, "float", "f8e5m2")
    >>> weft.asarray([1.0, 2.0, 3.3], dtype=float8).astype(weft.float32)
    tensor([1. , 2. , 3.5])
    """
    dtype = DType(name, kind, np.dtype(numpy), short)
    old = DTYPES.get(name) or _BY_NUMPY.get(dtype.numpy)
    if old is not None:
        if (old.name, old.kind, old.numpy, old.short) == (name, kind, dtype.numpy, short):
            return old
        raise DTypeError(f"{name} is taken by {old!r}", op="register_dtype")
    DTYPES[name] = _BY_NUMPY[dtype.numpy] = dtype
    return dtype


bool = register_dtype("bool", np.bool, "bool", "bool")
int8 = register_dtype("int8", np.int8, "int", "i8")
int16 = register_dtype("int16", np.int16, "int", "i16")
int32 = register_dtype("int32", np.int32, "int", "i32")
int64 = register_dtype("int64", np.int64, "int", "i64")
uint8 = register_dtype("uint8", np.uint8, "uint", "u8")
uint16 = register_dtype("uint16", np.uint16, "uint", "u16")
uint32 = register_dtype("uint32", np.uint32, "uint", "u32")
uint64 = register_dtype("uint64", np.uint64, "uint", "u64")
float16 = register_dtype("float16", np.float16, "float", "f16")
bfloat16 = register_dtype("bfloat16", ml_dtypes.bfloat16, "float", "bf16")
float32 = register_dtype("float32", np.float32, "float", "f32")
float64 = register_dtype("float64", np.float64, "float", "f64")
complex64 = register_dtype("complex64", np.complex64, "complex", "c64")
complex128 = register_dtype("complex128", np.complex128, "complex", "c128")

#: Floats that are too narrow to compute in: ops convert them to float32 and round the result.
NARROW_FLOATS = frozenset({float16, bfloat16})

_default_float = float32


def default_float() -> DType:
    """The dtype of tensors made from Python floats: float32, or what `set_default_dtype` chose."""
    return _default_float


def default_int() -> DType:
    return int64


def default_complex() -> DType:
    return complex128 if _default_float is float64 else complex64


def set_default_dtype(dtype: Any) -> None:
    """Choose the dtype of `weft.zeros(3)`, `weft.asarray(0.5)`, `weft.rand(3)`…"""
    global _default_float
    chosen = as_dtype(dtype)
    if chosen.kind != "float":
        raise DTypeError(f"{chosen!r} is not a real floating dtype", op="set_default_dtype")
    _default_float = chosen


def get_default_dtype() -> DType:
    return _default_float


def dtype_of_numpy(dtype: np.dtype[Any]) -> DType:
    """The DType of a NumPy dtype."""
    known = _BY_NUMPY.get(dtype)
    if known is None:
        known = _BY_NUMPY.get(dtype.newbyteorder("="))  # big-endian input, say
    if known is None:
        raise DTypeError(
            f"NumPy's dtype {dtype} has no counterpart in Weft",
            hint=f"convert first to one of {', '.join(DTYPES)}",
        )
    return known


def as_dtype(dtype: Any) -> DType:
    """A DType from a DType, its name, a NumPy dtype or scalar type, or a Python type."""
    if isinstance(dtype, DType):
        return dtype
    if isinstance(dtype, str) and dtype in DTYPES:
        return DTYPES[dtype]
    if isinstance(dtype, type) and dtype in PYTHON_KINDS:
        return default_for_kind(PYTHON_KINDS[dtype])
    try:
        return dtype_of_numpy(np.dtype(dtype))
    except (TypeError, DTypeError):
        raise DTypeError(
            f"{dtype!r} is not a dtype", hint=f"use one of weft.{', weft.'.join(DTYPES)}"
        ) from None


def check_dtype(dtype: DType, kinds: str, op: str = "") -> None:
    """Raise an error if a dtype is of none of the kinds (see `KINDS`) that an op takes."""
    if dtype.kind in KINDS[kinds]:
        return
    logic = "for bools say & | ^ ~, or cast" if dtype.kind == "bool" else "cast"
    raise DTypeError(
        f"{dtype.name} is none of the {kinds} dtypes that it takes",
        op=op,
        hint=f"{logic} the operands: x.astype(...)",
    )


PYTHON_KINDS: dict[type, Kind] = {
    builtins.bool: "bool",
    int: "int",
    float: "float",
    complex: "complex",
}


def default_for_kind(kind: str) -> DType:
    """The dtype of a Python value of this kind."""
    return {
        "bool": bool,
        "int": int64,
        "uint": uint64,
        "float": default_float(),
        "complex": default_complex(),
    }[kind]


def real_dtype(dtype: DType) -> DType:
    """The dtype of the real part."""
    return {complex64: float32, complex128: float64}.get(dtype, dtype)


def complex_dtype(dtype: DType) -> DType:
    """The complex dtype whose real and imaginary parts hold values of `dtype`."""
    if dtype.kind == "complex":
        return dtype
    if dtype.kind != "float":
        return default_complex()
    return complex128 if dtype is float64 else complex64


@value_class
@dataclass(frozen=True, slots=True)
class FloatInfo:
    """Limits of a floating dtype, as `weft.finfo` returns them."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType


@value_class
@dataclass(frozen=True, slots=True)
class IntInfo:
    """Limits of an integer dtype, as `weft.iinfo` returns them."""

    bits: int
    max: int
    min: int
    dtype: DType


def float_info(dtype: DType) -> FloatInfo:
    real = real_dtype(dtype)
    if real.kind != "float":
        raise DTypeError(f"{dtype!r} is not a floating dtype", op="finfo", hint="use weft.iinfo")
    info: Any = ml_dtypes.finfo(real.numpy)  # type: ignore[no-untyped-call]
    return FloatInfo(
        bits=real.bits,
        eps=float(info.eps),
        max=float(info.max),
        min=float(info.min),
        smallest_normal=float(info.smallest_normal),
        dtype=real,
    )


def int_info(dtype: DType) -> IntInfo:
    if dtype.kind not in ("int", "uint"):
        raise DTypeError(f"{dtype!r} is not an integer dtype", op="iinfo", hint="use weft.finfo")
    info = np.iinfo(dtype.numpy)
    return IntInfo(dtype.bits, int(info.max), int(info.min), dtype)
