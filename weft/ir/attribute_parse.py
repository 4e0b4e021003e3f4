"""Attributes and types read from text: the inverse of `weft.ir.attribute_text`."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from weft.base.device import CPU, Device, as_device
from weft.base.dim_algebra import Dim
from weft.base.dims import has_dims, parse_dim, parse_shape
from weft.base.dtypes import DTYPES, DType
from weft.base.errors import WeftError
from weft.ir.cuts import split_shape_text
from weft.ir.literal import Literal
from weft.ir.scan import QUOTED, Scanner
from weft.ir.types import DENSE, TOKEN, StackType, TensorType, Type

_QUOTED = re.compile(QUOTED)
_NAME = rf"(?:[^\W\d]\w*(?:\.\w+)*|{QUOTED})"
_TYPE = re.compile(
    r"(?P<dtype>[^\W\d]\w*)\[(?P<shape>[^\]\n]*)\](?P<terms>\{\+[^{}\n]*\})?"
    rf"(?P<layout>:{_NAME})?(?P<device>@{_NAME}(?::\d+)?)?|token\b"
)
_STACKS = re.compile(r"(?:stack<)*")
_PLAIN_SHAPE = re.compile(r"\d+(?:,\d+)*")


def unquoted(text: str) -> str:
    """A name without its quotes, if it has any."""
    return str(ast.literal_eval(text)) if _QUOTED.fullmatch(text) else text


class AttributeParser:
    """Reads attributes and types at the position of the scanner."""

    def __init__(self, scanner: Scanner, constants: Mapping[str, Any]) -> None:
        self.scanner = scanner
        self.constants = constants
        self.literals: dict[str, Literal] = {}
        self.names: dict[str, Dim] = {}  # named dimensions with bounds
        self.types: dict[str, Type] = {}
        self.dtypes: dict[str, DType] = dict(DTYPES)
        self.dtypes |= {dtype.short: dtype for dtype in DTYPES.values()}

    # --- types --------------------------------------------------------------------------------

    def type(self) -> Type:
        """f32[B,4]:layout@device, or token, or stack<f32[B,4]>"""
        scan = self.scanner
        stacks = scan.match(_STACKS, "a type").group().count("<")
        position = scan.position
        match = scan.match(_TYPE, "a type such as f32[2,3]")
        text = match.group()
        found = self.types.get(text)
        if found is None:
            found = self.types[text] = self._type(match, position)
        if stacks:
            scan.match(re.compile(">" * stacks), f"{'>' * stacks!r} after the type in a stack")
            for _ in range(stacks):
                if not isinstance(found, (TensorType, StackType)):
                    scan.fail("a stack holds tensors or stacks", position)
                found = StackType(found)
        return found

    def _type(self, match: re.Match[str], position: int) -> Type:
        if match["dtype"] is None:
            return TOKEN
        device = CPU
        if match["device"]:
            place, _, number = match["device"][1:].rpartition(":")
            kind, index = (place, int(number)) if place and number.isdigit() else (number, 0)
            device = Device(unquoted(kind), index)
        layout = unquoted(match["layout"][1:]) if match["layout"] else DENSE
        dtype = self._known_dtype(match["dtype"], position)
        text, cuts = match["shape"], None
        if _PLAIN_SHAPE.fullmatch(text) and not match["terms"]:
            return TensorType(dtype, tuple(map(int, text.split(","))), device, layout)
        if "{" in text or match["terms"]:
            text, cuts = split_shape_text(text, match["terms"] or "")
        try:
            return TensorType(dtype, parse_shape(text, self.names), device, layout, cuts)
        except WeftError as error:
            self.scanner.fail(error.message, position, hint=error.hint)

    # --- attributes ---------------------------------------------------------------------------

    def value(self, known: Type | None = None, *, slices: bool = True) -> Any:
        """One attribute; `known` is the type of arrays that are written without a type."""
        scan = self.scanner
        if scan.text == ":" and scan.kind == "sign":
            return self._slice(None)
        kind, text = scan.kind, scan.text
        if kind == "int":
            scan.advance()
            found: Any = int(text)
        elif kind == "word":
            found = self._word(text)
        elif text == "{" and isinstance(known, TensorType):
            return self._literal(known, scan.position)
        else:
            reader = _READERS.get(text if kind == "sign" else kind)
            if reader is None:
                scan.fail("expected the value of an attribute")
            return reader(self)
        if slices and scan.text == ":" and scan.kind == "sign" and type(found) in (int, Dim):
            return self._slice(found)
        return found

    def _items(self, close: str) -> tuple[list[Any], bool]:
        """The values up to a closing sign, and whether a comma follows the last one."""
        scan = self.scanner
        found: list[Any] = []
        comma = True
        while not scan.accept(close):
            if not comma:
                scan.fail(f"expected ',' or {close!r}")
            found.append(self.value())
            comma = scan.accept(",")
        return found, comma

    def _list(self) -> list[Any]:
        self.scanner.expect("[")
        return self._items("]")[0]

    def _tuple(self) -> tuple[Any, ...]:
        position = self.scanner.position
        self.scanner.expect("(")
        found, comma = self._items(")")
        if len(found) == 1 and not comma:
            self.scanner.fail("a tuple of one value has a comma: (1,)", position)
        return tuple(found)

    def _slice(self, start: Any) -> slice:
        scan = self.scanner
        ends = [start, None, None]
        for place in (1, 2):
            if not scan.accept(":"):
                break
            if not (scan.kind == "sign" and scan.text in ":,)]}"):
                ends[place] = self.value(slices=False)
        return slice(*ends)

    def _string(self) -> Any:
        position = self.scanner.position
        try:
            string = ast.literal_eval(self.scanner.take("string", "a string"))
        except (SyntaxError, ValueError):
            self.scanner.fail("this string does not read", position)
        # Interned, like words in source code: cards may compare them with `is`.
        return sys.intern(string) if isinstance(string, str) else string

    def _float(self) -> float:
        position = self.scanner.position
        text = self.scanner.take("float", "a float")
        try:
            return float(_floats([text], np.dtype(np.float64))[0])
        except OverflowError:
            self.scanner.fail("a float has no more than 64 bits", position)

    def _ellipsis(self) -> Any:
        self.scanner.expect("...")
        return ...

    def _word(self, text: str) -> Any:
        scan = self.scanner
        position = scan.position
        if text == "token" or scan.source[scan.stop : scan.stop + 1] == "[":
            type = self.type()
            if isinstance(type, TensorType) and scan.text == "{" and scan.kind == "sign":
                return self._literal(type, position)
            return type
        scan.advance()
        if text in _CONSTANTS:
            return _CONSTANTS[text]
        if text in _FORMS and scan.kind == "sign" and scan.text in "({":
            return _FORMS[text](self, position)
        return self.dtypes[text] if text in self.dtypes else self._size(text, position)

    # --- words with something in brackets after them ------------------------------------------

    def _arguments(self, count: int, what: str, position: int) -> list[Any]:
        self.scanner.expect("(")
        found, _ = self._items(")")
        if len(found) != count:
            self.scanner.fail(f"expected {what}", position)
        return found

    def _complex(self, position: int) -> complex:
        parts = self._arguments(2, "complex(real, imaginary)", position)
        if any(type(part) is not float for part in parts):
            self.scanner.fail("expected two floats: complex(1.0, 0.0)", position)
        return complex(*parts)

    def _slice_form(self, position: int) -> slice:
        return slice(*self._arguments(3, "slice(start, stop, step)", position))

    def _device(self, position: int) -> Device:
        [name] = self._arguments(1, "device('cpu')", position)
        try:
            return as_device(name)
        except WeftError as error:
            self.scanner.fail(error.message, position, hint=error.hint)

    def _dtype(self, position: int) -> DType:
        [name] = self._arguments(1, "dtype('float32')", position)
        return self._known_dtype(str(name), position)

    def _known_dtype(self, name: str, position: int) -> DType:
        if name not in self.dtypes:
            known = ", ".join(dtype.short for dtype in DTYPES.values())
            self.scanner.fail(f"there is no dtype {name!r}", position, hint=f"use one of {known}")
        return self.dtypes[name]

    def _scalar(self, position: int) -> Any:
        scan = self.scanner
        scan.expect("(")
        dtype = self.value()
        scan.expect(",")
        if not isinstance(dtype, DType):
            scan.fail("expected scalar(f32, 1.0)", position)
        array = self._elements(dtype, ")", position)
        if array.size != 1:
            scan.fail("expected one number", position)
        return array[0]

    def _dict(self, position: int) -> dict[Any, Any]:
        scan = self.scanner
        scan.expect("{")
        found: dict[Any, Any] = {}
        while not scan.accept("}"):
            if found:
                scan.expect(",")
            name = self.value(slices=False)
            scan.expect(":")
            try:
                found[name] = self.value()
            except TypeError as error:
                scan.fail(f"{name!r} cannot be a key: {error}", position)
        return found

    def _opaque(self, position: int) -> Any:
        self.scanner.fail(
            "this attribute is an object of Python's, and was only shown",
            position,
            hint="build the graph again from its source",
        )

    def _dim(self, position: int) -> Any:
        source = self.scanner.source
        start = end = self.scanner.position + 1
        depth = 1
        while depth and end < len(source) and source[end] != "\n":
            depth += {"(": 1, ")": -1}.get(source[end], 0)
            end += 1
        found = self._size(source[start : end - 1], position)
        self.scanner.jump(end)
        return found

    def _size(self, text: str, position: int) -> int:
        try:
            return parse_dim(text, self.names)
        except WeftError as error:
            self.scanner.fail(error.message, position, hint=error.hint)

    # --- arrays -------------------------------------------------------------------------------

    def _literal(self, type: TensorType, position: int) -> Literal:
        self.scanner.expect("{")
        array = self._elements(type.dtype, "}", position)
        if has_dims(type.shape):
            self.scanner.fail("the sizes of an array are numbers", position)
        if array.size != type.size:
            self.scanner.fail(f"{array.size} elements for an array of {type}", position)
        return Literal(array.reshape(type.shape))

    def _elements(self, dtype: DType, close: str, position: int) -> np.ndarray[Any, Any]:
        """The numbers up to a closing sign as a flat array, with all their bits."""
        scan = self.scanner
        texts: list[str] = []
        while not scan.accept(close):
            if texts:
                scan.expect(",")
            if dtype.kind == "complex":
                scan.expect("complex")
                scan.expect("(")
                texts.append(self._number())
                scan.expect(",")
                texts.append(self._number())
                scan.expect(")")
            else:
                texts.append(self._number())
        try:
            return elements_array(texts, dtype)
        except (ValueError, OverflowError) as error:
            scan.fail(f"these are no elements of {dtype.short}: {error}", position)

    def _number(self) -> str:
        if self.scanner.kind not in ("int", "float", "word"):
            self.scanner.fail("expected a number")
        text = self.scanner.text
        self.scanner.advance()
        return text

    def _reference(self) -> Literal:
        scan = self.scanner
        digest = scan.text[1:]
        found = self.literals.get(digest)
        if found is None:
            if digest not in self.constants:
                scan.fail(
                    f"the constant @{digest} is not in the table of constants",
                    hint="give it: weft.parse_graph(text, constants=graph.constants())",
                )
            given = self.constants[digest]
            found = given if isinstance(given, Literal) else Literal(np.asarray(given))
            self.literals[digest] = found
            if found.digest != digest:
                scan.fail(f"the table has another array for @{digest}")
        scan.advance()
        return found


_CONSTANTS = {"None": None, "True": True, "False": False}
_READERS: dict[str, Callable[[AttributeParser], Any]] = {
    "float": AttributeParser._float,
    "string": AttributeParser._string,
    "at": AttributeParser._reference,
    "...": AttributeParser._ellipsis,
    "(": AttributeParser._tuple,
    "[": AttributeParser._list,
}
_FORMS: dict[str, Callable[[AttributeParser, int], Any]] = {
    "complex": AttributeParser._complex,
    "slice": AttributeParser._slice_form,
    "device": AttributeParser._device,
    "dtype": AttributeParser._dtype,
    "scalar": AttributeParser._scalar,
    "dict": AttributeParser._dict,
    "dim": AttributeParser._dim,
    "opaque": AttributeParser._opaque,
}


# --- numbers -----------------------------------------------------------------------------------


def _bits_of(text: str) -> int | None:
    """The bits of a NaN that spells them out: nan(0x7fc00001)."""
    return int(text[text.index("(") + 1 : -1], 16) if text.endswith(")") else None


def elements_array(texts: list[str], dtype: DType) -> np.ndarray[Any, Any]:
    """The array of numbers that prints as these texts."""
    if dtype.kind == "complex":
        return _floats(texts, np.dtype(f"f{dtype.itemsize // 2}")).view(dtype.numpy)
    if dtype.kind == "float":
        return _floats(texts, dtype.numpy)
    if dtype.kind == "bool":
        if not {"True", "False"}.issuperset(texts):
            raise ValueError("expected True or False")
        return np.array([text == "True" for text in texts], dtype.numpy)
    return np.array(list(map(int, texts)), dtype.numpy)


def _floats(texts: list[str], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    bits = [_bits_of(text) for text in texts]
    pairs = zip(texts, bits, strict=True)
    numbers = [float(text) if exact is None else 0.0 for text, exact in pairs]
    array = np.array(numbers, np.float64).astype(dtype)
    for place, exact in enumerate(bits):
        if exact is not None:
            raw = exact.to_bytes(dtype.itemsize, sys.byteorder)
            array[place : place + 1] = np.frombuffer(raw, dtype)
    return array
