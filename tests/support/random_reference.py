"""What `weft/ops/philox.py` describes, once more: number by number, on Python's ints and floats."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np

import weft
from weft.ops import philox

FLOATS = [weft.float16, weft.bfloat16, weft.float32, weft.float64]
NORMALS = [*FLOATS, weft.complex64, weft.complex128]
INTEGERS = [
    weft.int8, weft.int16, weft.int32, weft.int64,
    weft.uint8, weft.uint16, weft.uint32, weft.uint64,
]  # fmt: skip


def generator(seed: int = 0) -> weft.Generator:
    return weft.Generator(seed)


def doubles(x: weft.Tensor) -> np.ndarray[Any, Any]:
    return x.numpy().astype(np.complex128 if x.dtype.kind == "complex" else np.float64)


def same(x: weft.Tensor, y: weft.Tensor) -> bool:
    return x.type == y.type and x.numpy().tobytes() == y.numpy().tobytes()


STATES = [(0, 0), (0xA4093822299F31D0, 0x85A308D3243F6A88), (2**64 - 1, 2**64 - 3), (1, 2**32 - 2)]


def at(state: tuple[int, int]) -> weft.Generator:
    made = weft.Generator()
    made.state = weft.asarray(state, dtype=weft.uint64)
    return made


# --- bits


def reference_block(seed: int, index: int) -> tuple[int, int, int, int]:
    """Philox as the paper writes it, on Python's ints."""
    c0, c1, c2, c3 = index % 2**32, index >> 32, 0, 0
    k0, k1 = seed % 2**32, seed >> 32
    for _ in range(10):
        high0, low0 = divmod(0xD2511F53 * c0, 2**32)
        high1, low1 = divmod(0xCD9E8D57 * c2, 2**32)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return c0, c1, c2, c3


def reference_words(seed: int, first: int, blocks: int, bits: int) -> list[int]:
    words = [w for i in range(blocks) for w in reference_block(seed, (first + i) % 2**64)]
    if bits == 32:
        return words
    return [low + (high << 32) for low, high in zip(words[::2], words[1::2], strict=True)]


# --- normal numbers


def bits_of(x: float) -> int:
    return int(struct.unpack("<Q", struct.pack("<d", x))[0])


def float_of(bits: int) -> float:
    return float(struct.unpack("<d", struct.pack("<Q", bits))[0])


def horner(coefficients: tuple[float, ...], x: float) -> float:
    out = coefficients[-1]
    for c in reversed(coefficients[:-1]):
        out = out * x + c
    return out


def reference_pair(radius: int, angle: int, bits: int, scale: float) -> tuple[float, float]:
    if bits == 32:
        u = (2 * radius + 1) * 2.0**-33
        t = (2 * (angle % 2**30) + 1) * 2.0**-31 - 0.5
    else:
        u = (2 * (radius >> 12) + 1) * 2.0**-53
        t = (2 * (angle % 2**62 >> 11) + 1) * 2.0**-52 - 0.5
    shifted = bits_of(u) + 0x3FF0000000000000 - 0x3FE6A09E00000000
    k = (shifted >> 52) - 1023
    m = float_of((shifted & (2**52 - 1)) + 0x3FE6A09E00000000)
    assert math.sqrt(0.5) - 1e-6 < m < math.sqrt(2) + 1e-6
    assert m * 2.0**k == u
    f = m - 1.0
    s = f / (f + 2.0)
    q = s * s
    logarithm = (horner(philox.LOG, q) * q + 2.0) * s + k * philox.LN2
    r = math.sqrt(logarithm * scale)
    v = t * t
    sine, cosine = horner(philox.SIN, v) * t, horner(philox.COS, v)
    if angle >> (bits - 1):
        cosine = -cosine
    if angle >> (bits - 2) & 1:
        sine, cosine = cosine, sine
    return r * cosine, r * sine
