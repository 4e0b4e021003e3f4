"""What the formulas share: splitting and combining exponents and mantissas."""

from __future__ import annotations

from dataclasses import dataclass

from weft.codegen.scalar.vec import Vec

__all__ = [
    "FORMATS",
    "LN2",
    "Format",
    "clamped",
    "clamped_below",
    "power_of_two",
    "scaled",
    "to_integer",
]


@dataclass(frozen=True)
class Format:
    """A binary format: bits of the mantissa, and the bias of the exponent."""

    digits: int
    bias: int

    @property
    def magic(self) -> float:
        """Added to a small number, it leaves the nearest integer in the last digits."""
        return 1.5 * 2.0**self.digits


FORMATS = {"float": Format(23, 127), "double": Format(52, 1023)}

#: log(2) as the nearest float and what is left, for each format.
LN2 = {
    "float": (0.6931471824645996, -1.9046542121259336e-09),
    "double": (0.6931471805599453, 2.3190468138462996e-17),
}
_SCALEF = {("float", 16): ("ps", "i16"), ("double", 8): ("pd", "i8")}


def clamped(x: Vec, low: float, high: float) -> Vec:
    """x between two bounds; NaN stays."""
    return clamped_below((x > high).pick(high, x), low)


def clamped_below(x: Vec, low: float) -> Vec:
    return (x < low).pick(low, x)


def to_integer(x: Vec, factor: float) -> tuple[Vec, Vec]:
    """x * factor rounded to an integer: as a float, and as bits whose lowest are the integer's."""
    magic = FORMATS[x.kind].magic
    moved = x.fma(factor, magic)
    return moved - magic, moved.as_bits()


def power_of_two(n: Vec, kind: str) -> Vec:
    """2 ** n for integers n where it is a normal number."""
    form = FORMATS[kind]
    return ((n + form.bias) << form.digits).convert("bitcast", kind)


def scaled(x: Vec, n: Vec, bits: Vec, add: int = 0) -> Vec:
    """x * 2 ** (n + add), with n from `to_integer`: rounded once, also if it is denormal."""
    module, form = x.f.module, FORMATS[x.kind]
    if (x.kind, x.lanes) in _SCALEF and module.machine.has("avx512f"):
        word, mask = _SCALEF[x.kind, x.lanes]
        name = f"llvm.x86.avx512.mask.scalef.{word}.512"
        module.declare(x.type, name, f"{x.type}, {x.type}, {x.type}, {mask}, i32 immarg")
        n = n + float(add) if add else n
        made = x.f(
            f"call {x.type} @{name}({x.type} {x}, {x.type} {n}, {x.type} {x}, {mask} -1, i32 4)"
        )
        return Vec(x.f, x.kind, x.lanes, made)
    # In two steps, as 2 ** n alone may be out of range; only the second one rounds.
    whole = bits - x.make(form.magic).as_bits() + add
    first = whole >> 1
    return x * power_of_two(first, x.kind) * power_of_two(whole - first, x.kind)
