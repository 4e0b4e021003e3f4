"""Reads fields of Python's objects, in generated code; `weft.runtime.object_layout` knows where
they are."""

from __future__ import annotations

from weft.codegen.index import Ptr, Size
from weft.codegen.text import Function

__all__ = ["field_at", "item_at", "leave", "pointer_at"]


def leave(f: Function, result: str) -> None:
    """Return from the function."""
    f.do(f"ret ptr {result}")
    f.block(f.fresh("never"))


def field_at(kind: str, base: Ptr, at: int) -> str:
    """The field of a type at a place of an object."""
    return base.bytes(at).of(kind).load()


def pointer_at(base: Ptr, at: int = 0) -> Ptr:
    """The pointer at a place of an object."""
    return base.bytes(at).of("ptr").load_ptr()


def item_at(base: Ptr, i: Size) -> Ptr:
    """The pointer `i` of a table."""
    return (base.of("ptr") + i).load_ptr()
