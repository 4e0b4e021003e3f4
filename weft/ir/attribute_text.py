"""Attributes as text: every value that cards take, in a form that reads back bit for bit.

`weft.ir.attribute_parse` is the inverse, and `docs/ir.md` has the grammar of both.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.base.device import CPU, Device
from weft.base.dim_algebra import Dim
from weft.base.dtypes import DTYPES, DType, dtype_of_numpy
from weft.base.errors import DTypeError
from weft.ir.literal import Literal
from weft.ir.types import DENSE, StackType, TensorType, TokenType, Type

#: Constants with more elements are printed by reference, as @digest.
MOST_ELEMENTS = 16

#: Words that are not names of dimensions.
WORDS = frozenset(
    {"None", "True", "False", "nan", "inf", "token", "complex", "device", "dict", "dim", "dtype"}
    | {"opaque", "scalar", "slice"}
)

WORD = re.compile(r"[^\W\d]\w*(?:\.\w+)*")

Table = dict[str, np.ndarray[Any, Any]]


def word(text: str) -> str:
    """A name, in quotes if it would not read back without them."""
    return text if WORD.fullmatch(text) else repr(text)


class AttributeText:
    """Prints attributes and types; collects the constants that are printed by reference."""

    def __init__(self, constants: Table) -> None:
        self.constants = constants
        #: bounds of the named dimensions that were printed
        self.bounds: dict[str, tuple[int | None, int | None]] = {}
        self.types: dict[Type, str] = {}
        self.words = {dtype: _dtype_word(dtype) for dtype in DTYPES.values()}
        taken = (*WORDS, *self.words.values())
        self.reserved = frozenset(taken)

    def type(self, type: Type) -> str:
        """f32[B,4]:layout@device"""
        found = self.types.get(type)
        if found is None:
            found = self.types[type] = self._type(type)
        return found

    def _type(self, type: Type) -> str:
        if isinstance(type, TokenType):
            return "token"
        if isinstance(type, StackType):
            return f"stack<{self.type(type.element)}>"
        for size in type.shape:
            self._note_names(size)
        layout = "" if type.layout == DENSE else f":{word(type.layout)}"
        place = "" if type.device == CPU else f"@{_device_text(type.device)}"
        cuts = type.cuts
        shape = cuts.shape_text(type.shape) if cuts else f"[{','.join(map(str, type.shape))}]"
        return f"{self.words[type.dtype]}{shape}{layout}{place}"

    def value(self, value: Any) -> str:
        """One attribute."""
        printer = _PRINTERS.get(type(value))
        if printer is not None:
            return printer(self, value)
        if isinstance(value, np.generic):
            return self._scalar(value)
        # For example a function of the user: it is shown, but cannot be read back.
        return f"opaque({str(value)!r})"

    def literal(self, literal: Literal, known: Type | None = None) -> str:
        """The elements of an array, or a reference; without the type if that is `known`."""
        array = literal.array
        if array.size <= MOST_ELEMENTS:
            elements = elements_text(array)
            if elements is not None:
                type = TensorType(literal.dtype, array.shape)
                shown = "" if _alike(type, known) else self.type(type)
                return f"{shown}{{{', '.join(elements)}}}"
        self.constants[literal.digest] = array
        return f"@{literal.digest}"

    # --- the kinds of attributes --------------------------------------------------------------

    def _float(self, value: float) -> str:
        return repr(value) if value == value else _float_text(np.array(value))

    def _complex(self, value: complex) -> str:
        return f"complex({self._float(value.real)}, {self._float(value.imag)})"

    def _sequence(self, value: Any) -> str:
        parts = ", ".join([self.value(part) for part in value])
        if type(value) is list:
            return f"[{parts}]"
        return f"({parts},)" if len(value) == 1 else f"({parts})"

    def _dict(self, value: dict[Any, Any]) -> str:
        items = [f"{self.value(name)}: {self.value(part)}" for name, part in value.items()]
        return f"dict{{{', '.join(items)}}}"

    def _slice(self, value: slice) -> str:
        ends = [value.start, value.stop, value.step]
        if all(end is None or type(end) in (int, Dim) for end in ends):
            start, stop, step = ["" if end is None else self.value(end) for end in ends]
            return f"{start}:{stop}:{step}" if step else f"{start}:{stop}"
        return f"slice({', '.join(map(self.value, ends))})"

    def _dim(self, value: Dim) -> str:
        self._note_names(value)
        text = str(value)
        return text if text.isidentifier() and text not in self.reserved else f"dim({text})"

    def _dtype(self, value: DType) -> str:
        return self.words.get(value) or f"dtype({value.name!r})"

    def _scalar(self, value: np.generic) -> str:
        """A NumPy scalar."""
        array = np.asarray(value)
        try:
            dtype = self._dtype(dtype_of_numpy(array.dtype))
        except DTypeError:
            return f"opaque({str(value)!r})"
        elements = elements_text(array)
        return f"opaque({str(value)!r})" if elements is None else f"scalar({dtype}, {elements[0]})"

    def _note_names(self, size: int) -> None:
        if isinstance(size, Dim):
            for monomial, _ in size._terms:
                for atom in monomial:
                    if atom.kind == "name":
                        self.bounds.setdefault(atom.text, (atom.low, atom.high))
                    for arg in atom.args:
                        self._note_names(arg)


_PRINTERS: dict[type, Callable[[AttributeText, Any], str]] = {
    type(None): lambda _, value: "None",
    type(...): lambda _, value: "...",
    bool: lambda _, value: str(value),
    int: lambda _, value: str(value),
    str: lambda _, value: repr(value),
    bytes: lambda _, value: repr(value),
    float: AttributeText._float,
    complex: AttributeText._complex,
    tuple: AttributeText._sequence,
    list: AttributeText._sequence,
    dict: AttributeText._dict,
    slice: AttributeText._slice,
    Dim: AttributeText._dim,
    DType: AttributeText._dtype,
    Device: lambda _, value: f"device({str(value)!r})",
    Literal: AttributeText.literal,
    TensorType: AttributeText.type,
    TokenType: AttributeText.type,
}


def _alike(type: TensorType, known: Type | None) -> bool:
    return isinstance(known, TensorType) and (type.dtype, type.shape) == (known.dtype, known.shape)


def _device_text(device: Device) -> str:
    return word(device.kind) + (f":{device.index}" if device.index else "")


def _dtype_word(dtype: DType) -> str:
    """The short name, unless several dtypes share it."""
    alone = sum(other.short == dtype.short for other in DTYPES.values()) == 1
    return dtype.short if alone and WORD.fullmatch(dtype.short) else dtype.name


# --- elements of arrays ------------------------------------------------------------------------


def elements_text(array: np.ndarray[Any, Any]) -> list[str] | None:
    """Each element as text, in order; None if an element has no exact text."""
    dtype = dtype_of_numpy(array.dtype)
    kind = dtype.kind
    array = np.ascontiguousarray(array, dtype.numpy)  # in the byte order of this machine
    if kind == "complex":
        parts = elements_text(array.reshape(-1).view(f"f{dtype.itemsize // 2}"))
        if parts is None:
            return None
        pairs = zip(parts[::2], parts[1::2], strict=True)
        return [f"complex({real}, {imaginary})" for real, imaginary in pairs]
    flat = array.reshape(-1)
    if kind != "float":
        return [str(bool(x) if kind == "bool" else int(x)) for x in flat]
    try:
        return [_float_text(flat[i : i + 1]) for i in range(flat.size)]
    except (ValueError, OverflowError):
        return None


def _float_text(element: np.ndarray[Any, Any]) -> str:
    """The float in `element`, as the shortest text that reads back to the same bits."""
    number = float(element.item())
    if number != number:
        for text in ("nan", "-nan"):
            if _bits(np.array(float(text)).astype(element.dtype)) == _bits(element):
                return text
        return f"nan(0x{_bits(element):x})"
    # float32's own 0.1 is shorter than the float64 it stands for, but is not to be trusted unseen.
    for text in (str(element.reshape(())[()]), repr(number)):
        if _bits(np.array(float(text)).astype(element.dtype)) == _bits(element):
            return text if re.search(r"[.en]", text) else f"{text}.0"
    raise ValueError(text)


def _bits(element: np.ndarray[Any, Any]) -> int:
    return int.from_bytes(element.tobytes(), sys.byteorder)
