"""What code needs of libm and libc, for targets that have neither."""

from __future__ import annotations

from weft.codegen.scalar.vec import Vec
from weft.codegen.text import Function, Module

__all__ = ["add_fma", "add_math"]

#: Veltkamp's factor: it splits a float64 into two halves.
_SPLIT = float((1 << 27) + 1)


def _function(module: Module, name: str, count: int) -> tuple[Function, list[Vec]]:
    words = "xyz"[:count]
    params = [("double", word) for word in words]
    f = module.function(name, "double", params, "nounwind noinline", linkage="weak hidden")
    return f, [Vec(f, "double", 1, f"%{word}") for word in words]


def add_fma(module: Module) -> None:
    """`double fma(double, double, double)`: the product as a sum of two numbers, without an error
    (Dekker), so that the result is rounded as if once in all but a few cases."""
    f, (x, y, z) = _function(module, "fma", 3)
    product = x * y
    endless = f(f"fcmp oeq double {abs(z)}, 0x7FF0000000000000")
    finite = [f(f"fcmp olt double {abs(word)}, 0x7FF0000000000000") for word in (x, y)]
    with f.when(f(f"and i1 {endless}, {f(f'and i1 {finite[0]}, {finite[1]}')}")):
        f.do(f"ret double {z}")
        f.block(f.fresh("never"))
    total = product + z
    # Too large to split, or infinite, or NaN: as it is.
    small = [f(f"fcmp olt double {abs(word)}, 0x7E00000000000000") for word in (x, y, total)]
    with f.when(f(f"and i1 {f(f'and i1 {small[0]}, {small[1]}')}, {small[2]}")):
        lost = _lost_by_product(x, y, product)
        part = total - product
        rest = (product - (total - part)) + (z - part)
        f.do(f"ret double {total + (rest + lost)}")
        f.block(f.fresh("never"))
    f.do(f"ret double {total}")


def _lost_by_product(x: Vec, y: Vec, product: Vec) -> Vec:
    high, low = [], []
    for part in (x, y):
        wide = part * _SPLIT
        high.append(wide - (wide - part))
        low.append(part - high[-1])
    lost = high[0] * high[1] - product
    return ((lost + high[0] * low[1]) + low[0] * high[1]) + low[0] * low[1]


def add_math(module: Module) -> None:
    """`trunc` and `sqrt` of float64, `memcpy` and `memset`, for processors without them."""
    _trunc(module)
    _sqrt(module)
    for name, kind in (("memcpy", "ptr"), ("memset", "i32")):
        params = [("ptr", "to"), (kind, "from"), ("i32", "size")]
        f = module.function(name, "ptr", params, "nounwind noinline", linkage="weak hidden")
        size = f.index(f("zext i32 %size to i64"))
        if kind == "i32":
            value = f("trunc i32 %from to i8")
            with f.loop(0, size) as i:
                (f.ptr("%to") + i).store(value)
        else:
            with f.loop(0, size // 4) as i:
                word = f(f"load i32, ptr {f.ptr('%from', 'i32') + i}, align 1")
                f.do(f"store i32 {word}, ptr {f.ptr('%to', 'i32') + i}, align 1")
            with f.loop(size // 4 * 4, size) as i:
                (f.ptr("%to") + i).store((f.ptr("%from") + i).load())
        f.do("ret ptr %to")


def _trunc(module: Module) -> None:
    f, (x,) = _function(module, "trunc", 1)
    bits = x.as_bits()
    exponent = f(f"and i64 {f(f'lshr i64 {bits}, 52')}, 2047")
    small = f(f"icmp ult i64 {exponent}, 1023")
    with f.when(small):  # below 1: a zero with the sign
        sign = f(f"and i64 {bits}, {-(1 << 63)}")
        f.do(f"ret double {f(f'bitcast i64 {sign} to double')}")
        f.block(f.fresh("never"))
    with f.when(f(f"icmp uge i64 {exponent}, 1075")):
        f.do("ret double %x")
        f.block(f.fresh("never"))
    count = f(f"sub i64 1075, {exponent}")
    mask = f(f"shl i64 -1, {count}")
    whole = f(f"and i64 {bits}, {mask}")
    f.do(f"ret double {f(f'bitcast i64 {whole} to double')}")


def _sqrt(module: Module) -> None:
    """Digit by digit, of the mantissa: exact, and rounded to nearest."""
    f, (x,) = _function(module, "sqrt", 1)
    bits = f.var("i64", x.as_bits().name)
    zero = f("fcmp oeq double %x, 0.0")
    good = f("fcmp ogt double %x, 0.0")
    finite = f("fcmp olt double %x, 0x7FF0000000000000")
    with f.when(f(f"xor i1 {f(f'and i1 {good}, {finite}')}, true")):
        bad = f(f"select i1 {f(f'or i1 {zero}, {good}')}, double %x, double 0x7FF8000000000000")
        nan = f("fcmp uno double %x, %x")
        f.do(f"ret double {f(f'select i1 {nan}, double %x, double {bad}')}")
        f.block(f.fresh("never"))
    scale = f.var("i64", 0)
    with f.when(f("fcmp olt double %x, 0x0010000000000000")):  # denormal
        bits.store((x * 2.0**54).as_bits().name)
        scale.store(-27)
    whole = bits.load()
    exponent = f(f"sub i64 {f(f'lshr i64 {whole}, 52')}, 1023")
    mantissa = f(f"or i64 {f(f'and i64 {whole}, {(1 << 52) - 1}')}, {1 << 52}")
    odd = f(f"and i64 {exponent}, 1")
    half = f(f"ashr i64 {f(f'sub i64 {exponent}, {odd}')}, 1")
    # The root of mantissa · 2^(54 + odd) has 54 bits: one more than a float64 holds.
    rest, root = f.var("i64", 0), f.var("i64", 0)
    left = f.var("i64", f(f"shl i64 {mantissa}, {f(f'add i64 {odd}, 10')}"))
    with f.loop(0, 54):
        top = f(f"lshr i64 {left.load()}, 62")
        f.do(f"store i64 {f(f'shl i64 {left.load()}, 2')}, ptr {left}")
        more = f(f"or i64 {f(f'shl i64 {rest.load()}, 2')}, {top}")
        test = f(f"or i64 {f(f'shl i64 {root.load()}, 2')}, 1")
        fits = f(f"icmp uge i64 {more}, {test}")
        less = f(f"sub i64 {more}, {test}")
        rest.store(f(f"select i1 {fits}, i64 {less}, i64 {more}"))
        twice = f(f"shl i64 {root.load()}, 1")
        root.store(f(f"or i64 {twice}, {f(f'zext i1 {fits} to i64')}"))
    found = root.load()
    # The last bit is half a unit, and the root is never exactly there: it rounds up.
    rounded = f(f"add i64 {f(f'lshr i64 {found}, 1')}, {f(f'and i64 {found}, 1')}")
    power = f(f"add i64 {f(f'add i64 {half}, {scale.load()}')}, 1022")
    made = f(f"add i64 {rounded}, {f(f'shl i64 {power}, 52')}")
    f.do(f"ret double {f(f'bitcast i64 {made} to double')}")
