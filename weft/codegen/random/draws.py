"""Draws of bits, uniform numbers and integers, bit for bit as in `weft.ops.philox`."""

from __future__ import annotations

from weft.base.dims import has_dims
from weft.base.dtypes import float64
from weft.codegen.index import Index
from weft.codegen.indexing.access import copy_bytes
from weft.codegen.kernel import PARAMS, Kernel, argument
from weft.codegen.random.words import Chunk, draw_kernel
from weft.codegen.scalar.forms import store
from weft.codegen.scalar.vec import Vec
from weft.codegen.text import Function, Module
from weft.ir.graph import Node
from weft.ops.philox import LOW_32, UNIFORM_BITS, elements_per_block

__all__ = ["advance", "bits", "integers", "uniform", "word_vector"]


def word_vector(f: Function, chunk: Chunk, i: Index, bits: int, lanes: int) -> Vec:
    """The words of elements i … i + lanes - 1 of a chunk."""
    kind = f"i{bits}"
    place = chunk.words.of(kind) + i
    return Vec(f, kind, lanes, f(f"load <{lanes} x {kind}>, ptr {place}, align {bits // 8}"))


def advance(module: Module, name: str, node: Node) -> list[Kernel] | None:
    f = module.function(name, "i32", PARAMS)
    state, out = argument(f, 0, "i64"), argument(f, 1, "i64")
    blocks = node.attrs["blocks"]
    for i, more in enumerate((0, blocks if has_dims((blocks,)) else _signed(blocks % 2**64))):
        total = f(f"add i64 {(state + i).load(8)}, {f.size(more)}")  # modulo 2⁶⁴
        (out + i).store(total, 8)
    f.do("ret i32 0")
    return [Kernel(name, 1, 2.0)]


def _signed(value: int) -> int:
    """The i64 with the bits of an unsigned number."""
    return (value + 2**63) % 2**64 - 2**63


def bits(module: Module, name: str, node: Node) -> list[Kernel] | None:
    out = node.out.tensor_type
    size = out.dtype.itemsize

    def fill(f: Function, chunk: Chunk) -> None:
        copy_bytes(f, chunk.target, chunk.words, chunk.size * size)

    per_block = elements_per_block(out.dtype)
    return [draw_kernel(module, name, out.size, size, per_block, 1, fill, 0.1)]


def uniform(module: Module, name: str, node: Node) -> list[Kernel] | None:
    out = node.out.tensor_type
    dtype, kept = out.dtype, UNIFORM_BITS[out.dtype]
    width, kind = (64, "double") if dtype is float64 else (32, "float")
    lanes = module.machine.lanes(width // 8)

    def fill(f: Function, chunk: Chunk) -> None:
        with f.loop(0, chunk.size, lanes) as i:
            top = word_vector(f, chunk, i, width, lanes).op("lshr", width - kept)
            value = top.convert("sitofp", kind) * 2.0**-kept
            place = chunk.target + i
            store(f, dtype, place, value.name, lanes)

    per_block = elements_per_block(dtype)
    return [draw_kernel(module, name, out.size, dtype.itemsize, per_block, 1, fill, 0.15)]


# --- integers ------------------------------------------------------------------------------------


def integers(module: Module, name: str, node: Node) -> list[Kernel] | None:
    out = node.out.tensor_type
    dtype, low = out.dtype, node.attrs["low"]
    span = node.attrs["high"] - low
    lanes = module.machine.lanes(8)

    def fill(f: Function, chunk: Chunk) -> None:
        with f.loop(0, chunk.size, lanes) as i:
            word = word_vector(f, chunk, i, 64, lanes)
            value = _multiply_high(word, span) + _signed(low % 2**64)
            place = chunk.target + i
            store(f, dtype, place, value.convert("trunc", f"i{dtype.bits}").name, lanes)

    return [draw_kernel(module, name, out.size, dtype.itemsize, 2, 1, fill, 0.4)]


def _multiply_high(word: Vec, span: int) -> Vec:
    """word · span div 2^64, from products of 32 bits."""
    if span == 2**64:
        return word
    low, high = word & LOW_32, word.op("lshr", 32)
    span_high, span_low = divmod(span, 2**32)
    middle = (low * span_low).op("lshr", 32) + high * span_low
    if not span_high:
        return middle.op("lshr", 32)
    other = low * span_high + (middle & LOW_32)
    return high * span_high + middle.op("lshr", 32) + other.op("lshr", 32)
