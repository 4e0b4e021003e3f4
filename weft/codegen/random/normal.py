"""Normal numbers, by the algorithm of `weft.ops.philox`, on vectors of doubles."""

from __future__ import annotations

from weft.base.dtypes import float64, real_dtype
from weft.codegen.index import Index
from weft.codegen.kernel import Kernel
from weft.codegen.random.draws import word_vector
from weft.codegen.random.words import Chunk, draw_kernel, interleaved
from weft.codegen.scalar.forms import rounded, store
from weft.codegen.scalar.vec import Vec
from weft.codegen.text import Function, Module
from weft.ir.graph import Node
from weft.ops.philox import (
    COS,
    LN2,
    LOG,
    LOW_32,
    MANTISSA,
    ONE,
    SIN,
    SQRT_HALF,
    TWO_52,
    elements_per_block,
)

__all__ = ["normal"]


def normal(module: Module, name: str, node: Node) -> list[Kernel] | None:
    out = node.out.tensor_type
    real = real_dtype(out.dtype)
    is_complex = real is not out.dtype
    lanes = module.machine.lanes(8)

    def fill(f: Function, chunk: Chunk) -> None:
        with f.loop(0, chunk.size, 2 * lanes) as i:
            if real is float64:
                z0, z1 = _pairs_64(f, chunk, i, lanes, is_complex)
                numbers = interleaved(z0, z1)
            else:
                z0, z1 = _pairs_32(f, chunk, i, lanes, is_complex)
                numbers = rounded(interleaved(z0, z1).convert("fptrunc", "float"), real)
            place = chunk.target + i
            store(f, real, place, numbers.name, numbers.lanes)

    size = out.size * (2 if is_complex else 1)
    per_block = elements_per_block(real)
    return [draw_kernel(module, name, size, real.itemsize, per_block, 1, fill, 1.5)]


def _float(bits: Vec) -> Vec:
    return bits.convert("bitcast", "double")


def _pairs_32(f: Function, chunk: Chunk, i: Index, lanes: int, is_complex: bool) -> tuple[Vec, Vec]:
    """For each pair of 32-bit words: the first is the radius, the second the angle."""
    both = word_vector(f, chunk, i // 2, 64, lanes)
    radius, angle = both & LOW_32, both.op("lshr", 32)
    u = _float((radius << 20) | (ONE | 1 << 19)) - 1.0
    t = _float(((angle << 22) & MANTISSA) | (ONE | 1 << 21)) - 1.5
    return _polar(u, t, angle << 32, is_complex)


def _pairs_64(f: Function, chunk: Chunk, i: Index, lanes: int, is_complex: bool) -> tuple[Vec, Vec]:
    words = word_vector(f, chunk, i, 64, 2 * lanes)

    def every_second(first: int) -> Vec:
        order = ", ".join(f"i32 {2 * j + first}" for j in range(lanes))
        whole = words.type
        mask = f"<{lanes} x i32> <{order}>"
        return Vec(f, "i64", lanes, f(f"shufflevector {whole} {words}, {whole} poison, {mask}"))

    radius, angle = every_second(0), every_second(1)
    u = _float(radius.op("lshr", 12) | ONE) - (1.0 - 2.0**-53)
    t = _float((angle.op("lshr", 10) & MANTISSA) | (ONE | 1)) - 1.5
    return _polar(u, t, angle, is_complex)


def _polar(u: Vec, t: Vec, flags: Vec, is_complex: bool) -> tuple[Vec, Vec]:
    r = (_log(u) * (-1.0 if is_complex else -2.0)).intrinsic("sqrt")
    v = t * t
    sine, cosine = _polynomial(SIN, v) * t, _polynomial(COS, v)
    cosine = _float(cosine.as_bits() ^ (flags & -(2**63)))
    swap = (flags & 2**62).differs(0)
    return swap.pick(sine, cosine) * r, swap.pick(cosine, sine) * r


def _log(u: Vec) -> Vec:
    shifted = u.as_bits() + (ONE - SQRT_HALF)
    k = _float(shifted.op("lshr", 52) | TWO_52) - (2.0**52 + 1023)
    f = _float((shifted & MANTISSA) + SQRT_HALF) - 1.0
    s = f / (f + 2.0)
    q = s * s
    return (_polynomial(LOG, q) * q + 2.0) * s + k * LN2


def _polynomial(coefficients: tuple[float, ...], x: Vec) -> Vec:
    """Horner's rule with separately rounded products and sums."""
    out = x * coefficients[-1] + coefficients[-2]
    for coefficient in reversed(coefficients[:-2]):
        out = out * x + coefficient
    return out
