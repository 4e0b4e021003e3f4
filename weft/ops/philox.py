"""Philox 4×32-10 and the numbers made from its bits, as pure rules over arrays.

Random numbers in Weft are a function of a state, `uint64[2]` = (key, block), and of nothing else:
the same state gives the same bits eagerly, interpreted, in native code and on any device. So
everything here is integer arithmetic and IEEE +, -, ×, ÷, sqrt, each rounded by itself (no fused
multiply-add, no libm). What follows is all that another implementation needs.

**Blocks.** Philox 4×32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC11)
maps a counter of four 32-bit words and a key of two to a block of four words w0 w1 w2 w3. Block b
of a draw has the counter (lo, hi, 0, 0), where lo and hi are the halves of state[1] + b (mod 2^64),
and the key (lo, hi) of the halves of state[0]. A draw that uses n blocks adds n to state[1].

**Words.** Elements are counted in row-major order. Element i of a draw takes

- of 32 bits (`uint32`, `float32`, `float16`, `bfloat16`): word i mod 4 of block i div 4;
- of 64 bits (`uint64`, `float64`, integers): X0 = w0 + 2^32 w1 or X1 = w2 + 2^32 w3 of block
  i div 2, by i mod 2.

**Uniform** in [0, 1): the top 24 bits of the word times 2^-24; for float16 the top 11 bits times
2^-11, for bfloat16 8 bits times 2^-8, for float64 the top 53 bits of X times 2^-53. All exact.

**Integers** in [low, low + span): low + (X · span div 2^64), the product taken in 128 bits.

**Bernoulli**: 1 where word · 2^-32 < p (float64 p: (X div 2^11) · 2^-53 < p), compared exactly.

**Normal**: Box-Muller in float64, one pair (z0, z1) from a radius word R and an angle word A.
Blocks hold two pairs of 32-bit words, (w0, w1) and (w2, w3), giving elements 4b…4b+3, or one pair
of 64-bit words, (X0, X1), giving elements 2b and 2b+1. A complex number is two elements, its real
and imaginary part. With n = 32 or 64 bits to a word:

1. u in (0, 1): (R + ½)·2^-32, or ((R div 2^12) + ½)·2^-52.
2. u = m·2^k with m in [√½, √2): add 0x3ff0000000000000 - 0x3fe6a09e00000000 to the bits of u; k is
   their exponent field - 1023; the bits of m are the 52 low bits + 0x3fe6a09e00000000.
3. f = m - 1; s = f / (f + 2); q = s·s; log u = ((LOG(q)·q + 2)·s) + k·LN2.
4. r = sqrt(log u · -2); for complex numbers sqrt(log u · -1), for a total variance of 1.
5. t in (-½, ½) from a, the n - 2 low bits of A: (a + ½)·2^-30 - ½, or ((a div 2^11) + ½)·2^-51 - ½.
6. v = t·t; sine = SIN(v)·t; cosine = COS(v); the polynomials by Horner's rule from the last
   coefficient, each step one product and one sum.
7. Where the top bit of A is set, cosine = -cosine. Where the next one is set, the two swap.
8. z0 = r·cosine, z1 = r·sine, rounded to float32 (float64 stays; narrower floats are then rounded
   from float32).

The polynomials are minimax fits of (2·atanh(s) - 2s)/s³, sin(πt/2)/t and cos(πt/2). Relative error
of log u, sine and cosine, rounding included: below 5e-16.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import numpy as np

from weft.base.dtypes import DType, bfloat16, float16, float32, float64, real_dtype
from weft.base.shapes import Shape, size_of

ROUNDS = 10
LOW_32 = 0xFFFFFFFF
CONSTANTS = (0xD2511F53, 0xCD9E8D57, 32, LOW_32)
#: What is added to the key in each round: multiples of the golden ratio and of √3 - 1.
KEY_STEPS = [[step * i % 2**32 for i in range(ROUNDS)] for step in (0x9E3779B9, 0xBB67AE85)]

LN2 = 0.6931471805599453
LOG = (
    0.6666666666666734, 0.3999999999941464, 0.2857142874239637, 0.2222219857220925,
    0.18183564380545045, 0.15314049069602145, 0.14795965391338747,
)  # fmt: skip
SIN = (
    1.5707963267948966, -0.6459640975062443, 0.07969262624604308, -0.004681754132342263,
    0.00016044115075211507, -3.598643388267427e-06, 5.633938485968788e-08,
)  # fmt: skip
COS = (
    1.0, -1.2337005501361513, 0.25366950789986553, -0.020863480734960475,
    0.0009192599501489455, -2.5200135645732517e-05, 4.6553012731989125e-07,
)  # fmt: skip

UNIFORM_BITS = {float16: 11, bfloat16: 8, float32: 24, float64: 53}

#: Blocks made at a time: 64 KiB per array of words, so that a dozen of them stay in the cache.
CHUNK = 2**13
#: Up to this many blocks are made one by one.
FEW = 8

Words = tuple[Any, Any, Any, Any]  # w0 w1 w2 w3


def elements_per_block(dtype: DType) -> int:
    """The number of elements from one block of 128 bits; each takes at least a 32-bit word."""
    return 16 // max(4, dtype.itemsize)


# --- bits --------------------------------------------------------------------------------------


def philox_4x32(counter: Words, keys: Iterable[tuple[Any, Any]], constants: Any) -> Words:
    """The block of a counter, or the blocks of many: words are ints or uint64 arrays.

    `keys` are the two words of the key in each round; `constants` are `CONSTANTS`.
    """
    m0, m1, half, low = constants
    c0, c1, c2, c3 = counter
    for k0, k1 in keys:
        product0 = c0 * m0
        product1 = c2 * m1
        c0 = product1 >> half
        c0 ^= c1
        c0 ^= k0
        c2 = product0 >> half
        c2 ^= c3
        c2 ^= k1
        product0 &= low
        product1 &= low
        c1, c3 = product1, product0
    return c0, c1, c2, c3


@cache
def _arrays(xp: Any) -> tuple[Any, Any]:
    """The constants as arrays: with small arrays, these are faster than ints."""
    constants = [xp.asarray(c, dtype=xp.uint64) for c in CONSTANTS]
    return constants, xp.asarray(KEY_STEPS, dtype=xp.uint64)


def _constants(xp: Any) -> tuple[Any, Any]:
    """The constants on the device on which the numbers are made, of which there may be several."""
    return _arrays(xp) if xp is np else _arrays.__wrapped__(xp)


def blocks(xp: Any, state: Any, first: int, count: int) -> Words:
    """The words of blocks first … first + count - 1 of a draw."""
    if count <= FEW:
        return _few_blocks(xp, state, first, count)
    constants, steps = _constants(xp)
    key, block = state[0, ...], state[1, ...]
    low, high = (key + steps[0]) & LOW_32, ((key >> 32) + steps[1]) & LOW_32
    index = xp.arange(first, first + count, dtype=xp.uint64) + block
    zeros = xp.zeros_like(index)
    keys = [(low[i, ...], high[i, ...]) for i in range(ROUNDS)]
    return philox_4x32((index & LOW_32, index >> 32, zeros, zeros), keys, constants)


def _few_blocks(xp: Any, state: Any, first: int, count: int) -> Words:
    """The same with Python ints, which are faster than arrays for a few numbers."""
    key, block = int(state[0]), int(state[1]) + first
    low, high = key & LOW_32, key >> 32
    keys = [((low + a) & LOW_32, (high + b) & LOW_32) for a, b in zip(*KEY_STEPS, strict=True)]
    made = [
        philox_4x32((i & LOW_32, (i >> 32) & LOW_32, 0, 0), keys, CONSTANTS)
        for i in range(block, block + count)
    ]
    w0, w1, w2, w3 = xp.asarray(made, dtype=xp.uint64).T
    return w0, w1, w2, w3


def interleaved(xp: Any, dtype: Any, *rows: Any) -> Any:
    """The elements of several arrays, interleaved."""
    out = xp.empty((rows[0].shape[0], len(rows)), dtype=dtype)
    for i, row in enumerate(rows):
        out[:, i] = row
    return xp.reshape(out, (-1,))


def words_32(xp: Any, w: Words) -> Any:
    return interleaved(xp, xp.uint32, *w)


def words_64(xp: Any, w: Words) -> Any:
    return interleaved(xp, xp.uint64, w[0] | (w[1] << 32), w[2] | (w[3] << 32))


def filled(
    xp: Any,
    state: Any,
    size: int,
    dtype: DType,
    per_block: int,
    values: Callable[[Any, Words], Any],
) -> Any:
    """`size` elements, made a chunk of blocks at a time by `values`."""
    out = xp.empty((size,), dtype=dtype.numpy)
    total = -(-size // per_block)
    for first in range(0, total, CHUNK):
        made = values(xp, blocks(xp, state, first, min(CHUNK, total - first)))
        start = first * per_block
        stop = min(start + made.shape[0], size)
        out[start:stop] = made[: stop - start]
    return out


# --- evaluation rules of the cards -------------------------------------------------------------


def advance(xp: Any, state: Any, *, blocks: int) -> Any:
    """The state after a draw of this many blocks."""
    return state + xp.asarray([0, blocks % 2**64], dtype=xp.uint64)


def bits(xp: Any, state: Any, *, shape: Shape, dtype: DType) -> Any:
    words = {4: words_32, 8: words_64}[dtype.itemsize]
    out = filled(xp, state, size_of(shape), dtype, elements_per_block(dtype), words)
    return xp.reshape(out, shape)


def uniform(xp: Any, state: Any, *, shape: Shape, dtype: DType) -> Any:
    kept = UNIFORM_BITS[dtype]

    def values(xp: Any, w: Words) -> Any:
        if dtype is float64:
            return xp.astype(words_64(xp, w) >> (64 - kept), xp.float64) * 2.0**-kept
        # The values are below 2^24: as int32 they convert with vector instructions everywhere.
        return xp.astype((words_32(xp, w) >> (32 - kept)).view(xp.int32), xp.float32) * 2.0**-kept

    out = filled(xp, state, size_of(shape), dtype, elements_per_block(dtype), values)
    return xp.reshape(out, shape)


def integers(xp: Any, state: Any, *, shape: Shape, dtype: DType, low: int, high: int) -> Any:
    span = high - low

    def values(xp: Any, w: Words) -> Any:
        scaled = [multiply_high(w[0], w[1], span), multiply_high(w[2], w[3], span)]
        return interleaved(xp, xp.uint64, *scaled) + (low % 2**64)  # wraps, and so does the cast

    return xp.reshape(filled(xp, state, size_of(shape), dtype, 2, values), shape)


def multiply_high(low: Any, high: Any, span: int) -> Any:
    """(low + 2^32 high) · span div 2^64, for 1 ≤ span ≤ 2^64."""
    if span == 2**64:
        return low | (high << 32)
    span_high, span_low = divmod(span, 2**32)
    middle = ((low * span_low) >> 32) + high * span_low
    if not span_high:
        return middle >> 32
    other = low * span_high + (middle & LOW_32)
    return high * span_high + (middle >> 32) + (other >> 32)


def bernoulli(xp: Any, state: Any, p: Any, *, shape: Shape, dtype: DType) -> Any:
    wide = p.dtype == xp.float64
    kept = 53 if wide else 32
    threshold = xp.astype(p, xp.float64) * 2.0**kept
    word = float64 if wide else float32
    drawn = filled(
        xp,
        state,
        size_of(shape),
        float64,
        elements_per_block(word),
        (lambda xp, w: words_64(xp, w) >> 11) if wide else words_32,
    )
    return xp.astype(xp.reshape(drawn, shape) < threshold, dtype.numpy)


def normal(xp: Any, state: Any, *, shape: Shape, dtype: DType) -> Any:
    real = real_dtype(dtype)
    is_complex = real is not dtype
    scale = -1.0 if is_complex else -2.0

    def values(xp: Any, w: Words) -> Any:
        n = w[0].shape[0]
        if real is float64:
            z0, z1 = normal_pairs_64(xp, w[0] | (w[1] << 32), w[2] | (w[3] << 32), scale)
            return interleaved(xp, xp.float64, z0, z1)
        radius, angle = xp.concat([w[0], w[2]]), xp.concat([w[1], w[3]])
        z0, z1 = normal_pairs_32(xp, radius, angle, scale)
        return interleaved(xp, xp.float32, z0[:n], z1[:n], z0[n:], z1[n:])

    size = size_of(shape) * (2 if is_complex else 1)
    out = filled(xp, state, size, real, elements_per_block(real), values)
    return xp.reshape(out.view(dtype.numpy) if is_complex else out, shape)


# --- normal numbers, step by step --------------------------------------------------------------

ONE = 0x3FF0000000000000  # the bits of 1.0
MANTISSA = 0x000FFFFFFFFFFFFF
SQRT_HALF = 0x3FE6A09E00000000  # just below √½
TWO_52 = 0x4330000000000000  # 2^52 as a float: its mantissa holds an integer


def normal_pairs_32(xp: Any, radius: Any, angle: Any, scale: float) -> tuple[Any, Any]:
    # Bits of numbers in [1, 2): one exact subtraction gives the result.
    u = ((radius << 20) | (ONE | 1 << 19)).view(xp.float64) - 1.0
    t = (((angle << 22) & MANTISSA) | (ONE | 1 << 21)).view(xp.float64) - 1.5
    return _polar(xp, u, t, angle << 32, scale)


def normal_pairs_64(xp: Any, radius: Any, angle: Any, scale: float) -> tuple[Any, Any]:
    u = ((radius >> 12) | ONE).view(xp.float64) - (1.0 - 2.0**-53)
    t = (((angle >> 10) & MANTISSA) | (ONE | 1)).view(xp.float64) - 1.5
    return _polar(xp, u, t, angle, scale)


def _polar(xp: Any, u: Any, t: Any, flags: Any, scale: float) -> tuple[Any, Any]:
    r = log(xp, u)
    r *= scale
    r = xp.sqrt(r)
    sine, cosine = sincos(t)
    cosine_bits = cosine.view(xp.uint64)
    cosine_bits ^= flags & (1 << 63)
    swap = xp.astype((flags >> 62) & 1, xp.bool)
    z0 = xp.where(swap, sine, cosine)
    z1 = xp.where(swap, cosine, sine)
    z0 *= r
    z1 *= r
    return z0, z1


def log(xp: Any, u: Any) -> Any:
    """The natural logarithm of normal numbers u > 0."""
    shifted = u.view(xp.uint64) + (ONE - SQRT_HALF)
    k = ((shifted >> 52) | TWO_52).view(xp.float64) - (2.0**52 + 1023)
    shifted &= MANTISSA
    shifted += SQRT_HALF
    f = shifted.view(xp.float64) - 1.0
    s = f / (f + 2.0)
    q = s * s
    out = polynomial(LOG, q)
    out *= q
    out += 2.0
    out *= s
    k *= LN2
    out += k
    return out


def sincos(t: Any) -> tuple[Any, Any]:
    """The sine and cosine of πt/2 for t in [-½, ½]."""
    v = t * t
    sine = polynomial(SIN, v)
    sine *= t
    return sine, polynomial(COS, v)


def polynomial(coefficients: tuple[float, ...], x: Any) -> Any:
    out = x * coefficients[-1]
    out += coefficients[-2]
    for c in reversed(coefficients[:-2]):
        out *= x
        out += c
    return out
