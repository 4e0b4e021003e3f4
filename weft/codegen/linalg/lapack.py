"""The LAPACK that NumPy brings, for machine code: its functions by name.

Generated code calls `@lapack.dgesv`; where it is loaded, the name is looked up here. What a program
computes so has the bits of `numpy.linalg`. Other builds of NumPy name the functions otherwise, and
count with 32 bits: the first of the names that is found tells.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
from typing import Any

from weft.base.dtypes import DType, complex128, float64

__all__ = ["LETTERS", "PREFIX", "address", "integer", "workspace"]

#: Names in generated code begin with this.
PREFIX = "lapack."
#: The first letter of a function's name, by what it computes with.
LETTERS: dict[DType, str] = {float64: "d", complex128: "z"}
#: How a function `dgesv` may be named, and the integers that it takes.
_FORMS = (("scipy_{}_64_", "i64"), ("{}_64_", "i64"), ("scipy_{}_", "i32"), ("{}_", "i32"))


@functools.cache
def _library() -> ctypes.CDLL | None:
    """What NumPy's linear algebra is linked to."""
    try:
        return ctypes.CDLL(importlib.import_module("numpy.linalg._umath_linalg").__file__)
    except (ImportError, OSError):
        return None


@functools.cache
def _form() -> tuple[str, str] | None:
    library = _library()
    for name, kind in _FORMS:
        if hasattr(library, name.format("dgesv")) and hasattr(library, name.format("dtrsm")):
            return name, kind
    return None


def integer() -> str:
    """The type of LAPACK's integers; empty if there is no LAPACK."""
    form = _form()
    return form[1] if form else ""


@functools.cache
def address(name: str) -> int:
    """The address of a function, by the name that generated code has for it; 0 if there is none."""
    form = _form()
    if form is None or not name.startswith(PREFIX):
        return 0
    function = getattr(_library(), form[0].format(name.removeprefix(PREFIX)), None)
    return ctypes.cast(function, ctypes.c_void_p).value or 0 if function else 0


def workspace(dtype: DType, name: str, *given: str | int | None) -> int:
    """The elements of workspace that a function asks for: it is called with these arguments, and
    answers in the first element of it. None is an array that it does not read then, "work" the
    workspace, "query" the size that asks (-1); other texts are letters."""
    number = ctypes.c_int64 if integer() == "i64" else ctypes.c_int32
    answer = (ctypes.c_double * 2)()
    args: list[Any] = []
    for argument in given:
        if argument == "work":
            args.append(answer)
        elif argument is None:
            args.append(ctypes.create_string_buffer(64))
        elif argument == "query":
            args.append(number(-1))
        elif isinstance(argument, str):
            args.append(ctypes.c_char(argument.encode()))
        else:
            args.append(number(argument))
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(args))(
        address(f"{PREFIX}{LETTERS[dtype]}{name}")
    )
    function(*[ctypes.addressof(x) for x in args])
    return max(1, int(answer[0]))
