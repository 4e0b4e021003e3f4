"""sin, cos and tan of doubles far from 0, where there is no C library: on GPUs.

x = m 2^s with an integer m of 53 bits. Of 2/π, the bits that matter for x 2/π mod 4 are 192 from
bit s - 2 on: m times these, mod 2^192, is the number of the quarter turn in its top two bits, and
the fraction of a quarter turn in the others (Payne and Hanek, 1983).
"""

from __future__ import annotations

import functools
import math
from fractions import Fraction

from weft.codegen.text import Function, Module

__all__ = ["reduced"]

#: Bits of 2/π that are needed for the largest double, and more.
BITS = 64 * 21


@functools.cache
def _two_over_pi() -> list[int]:
    """The first bits of 2/π, as words of 64 bits."""

    def arctan(inverse: int) -> Fraction:
        scale = 1 << (BITS + 64)
        total, term, n, square = 0, scale // inverse, 1, inverse * inverse
        while term:
            total += term // n if n % 4 == 1 else -(term // n)
            term //= square
            n += 2
        return Fraction(total, scale)

    pi = 4 * (4 * arctan(5) - arctan(239))  # Machin
    bits = math.floor(2 / pi * (1 << BITS))
    count = BITS // 64
    return [bits >> 64 * (count - 1 - k) & (1 << 64) - 1 for k in range(count)]


def reduced(module: Module) -> str:
    """`{double, i64} @weft.reduced(double x)`: r and n with |x| = n π/2 + r, |r| ≤ π/4, n mod 4."""
    return module.once("weft.reduced", _add)


def _add(module: Module) -> None:
    words = [0, *_two_over_pi(), 0, 0]
    table = module.constant(f"[{len(words)} x i64]", f"[{', '.join(f'i64 {w}' for w in words)}]")
    f = module.function("weft.reduced", "{ double, i64 }", [("double", "x")])
    bits = f("bitcast double %x to i64")
    exponent = f(f"and i64 {f(f'lshr i64 {bits}, 52')}, 2047")
    with f.when(f(f"icmp eq i64 {exponent}, 2047")):
        f.do("ret { double, i64 } { double 0x7FF8000000000000, i64 0 }")
        f.block(f.fresh("never"))
    m = f(f"or i64 {f(f'and i64 {bits}, {(1 << 52) - 1}')}, {1 << 52}")
    s = f(f"sub i64 {exponent}, 1075")
    start = f(f"add i64 {s}, {64 - 2}")  # there is a word of zeros before: |x| is at least 2^16
    first, shift = f(f"lshr i64 {start}, 6"), f(f"and i64 {start}, 63")
    word = f.ptr(table, "i64") + f.index(first)
    found = [(word + k).load() for k in range(4)]
    high, middle, low = (_left(f, found[k], found[k + 1], shift) for k in range(3))
    # m · (high, middle, low) mod 2^192.
    a, b = _product(f, m, low), _product(f, m, middle)
    carried = f(f"add i128 {b}, {_wide(f, _high(f, a))}")
    r0, r1 = _low(f, a), _low(f, carried)
    r2 = f(f"add i64 {f(f'mul i64 {m}, {high}')}, {_high(f, carried)}")
    # The fraction, as a signed number of 128 bits: the nearest quarter turn counts.
    upper, lower = _left(f, r2, r1, "2"), _left(f, r1, r0, "2")
    above = f(f"icmp slt i64 {upper}, 0")
    quarter = f(f"add i64 {f(f'lshr i64 {r2}, 62')}, {f(f'zext i1 {above} to i64')}")
    both = f(f"or i128 {f(f'shl i128 {_wide(f, upper)}, 64')}, {_wide(f, lower)}")
    size = f(f"select i1 {above}, i128 {f(f'sub i128 0, {both}')}, i128 {both}")
    clz = module.declare("i128", "llvm.ctlz.i128", "i128, i1 immarg")
    zeros = f(f"call i128 @{clz}(i128 {f(f'or i128 {size}, 1')}, i1 false)")
    top = _high(f, f(f"shl i128 {size}, {zeros}"))
    number = f(f"uitofp i64 {top} to double")
    # The exponent of 2^(-64 - zeros), in bits.
    power = f(f"sub i64 {1023 - 64}, {f(f'trunc i128 {zeros} to i64')}")
    scale = f(f"bitcast i64 {f(f'shl i64 {power}, 52')} to double")
    # times π/2
    r = f(f"fmul double {f(f'fmul double {number}, {scale}')}, 0x3FF921FB54442D18")
    r = f(f"select i1 {above}, double {f(f'fneg double {r}')}, double {r}")
    made = f(f"insertvalue {{ double, i64 }} undef, double {r}, 0")
    made = f(f"insertvalue {{ double, i64 }} {made}, i64 {f(f'and i64 {quarter}, 3')}, 1")
    f.do(f"ret {{ double, i64 }} {made}")


def _left(f: Function, high: str, low: str, by: str) -> str:
    """The upper word of two, shifted to the left together."""
    name = f.module.declare("i64", "llvm.fshl.i64", "i64, i64, i64")
    return f(f"call i64 @{name}(i64 {high}, i64 {low}, i64 {by})")


def _wide(f: Function, x: str) -> str:
    return f(f"zext i64 {x} to i128")


def _product(f: Function, x: str, y: str) -> str:
    return f(f"mul i128 {_wide(f, x)}, {_wide(f, y)}")


def _low(f: Function, x: str) -> str:
    return f(f"trunc i128 {x} to i64")


def _high(f: Function, x: str) -> str:
    return f(f"trunc i128 {f(f'lshr i128 {x}, 64')} to i64")
