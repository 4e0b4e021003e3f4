"""sin, cos and tan.

|x| is split into n π/2 + r, |r| ≤ π/4, with π/2 as the sum of three floats. Beyond the range in
which that is exact enough, the C library (on GPUs: `far.py`) is called lane by lane: rare, and
correct.
"""

from __future__ import annotations

from weft.codegen.math import far
from weft.codegen.math.parts import to_integer
from weft.codegen.scalar.vec import Vec, vector_type
from weft.codegen.text import Module

__all__ = ["cos", "sin", "tan"]

_TWO_OVER_PI = 0.6366197723675814
_HALF_PI = {
    "float": (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15),
    "double": (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33),
}
_END = {"float": 2.0**16, "double": 2.0**20}
#: (sin(r) / r - 1) / r² in r²: 2**-28, 2**-55
_SIN = {
    "float": (2.724378191487631e-06, -0.00019840039021801203, 0.008333331905305386,
              -0.1666666716337204),
    "double": (1.5915309183035184e-10, -2.505109230843092e-08, 2.7557315910939e-06,
               -0.00019841269836385435, 0.0083333333333307, -0.16666666666666666),
}  # fmt: skip
#: (cos(r) - 1 + r² / 2) / r⁴ in r²: 2**-29, 2**-59
_COS = {
    "float": (2.4542870960431173e-05, -0.0013888279208913445, 0.0416666641831398),
    "double": (-1.138086817143567e-11, 2.087612153460821e-09, -2.7557317151858866e-07,
               2.480158729853226e-05, -0.0013888888888887241, 0.041666666666666664),
}  # fmt: skip


def _reduced(size: Vec) -> tuple[Vec, Vec]:
    """r, and integers whose lowest bits are those of n."""
    n, bits = to_integer(size, _TWO_OVER_PI)
    r = size
    for part in _HALF_PI[size.kind]:
        r = n.fma(-part, r)
    return r, bits


def _both(r: Vec) -> tuple[Vec, Vec]:
    """sin(r) and cos(r)."""
    z = r * r
    sine = (r * z).fma(z.poly(_SIN[r.kind]), r)
    cosine = (z * z).fma(z.poly(_COS[r.kind]), z.fma(-0.5, 1.0))
    return sine, cosine


def _wave(x: Vec, turn: int) -> Vec:
    """sin(x + turn π/2), of |x| for a turn."""
    size = abs(x)
    r, quarter = _reduced(size)
    if turn:
        quarter = quarter + turn
    sine, cosine = _both(r)
    out = (quarter & 1).differs(0).pick(cosine, sine).as_bits()
    sign = quarter << (x.bits - 2)  # the second bit moved to the sign
    if not turn:
        sign = sign ^ x.as_bits()
    out = out ^ (sign & (-1 << (x.bits - 1)))
    return out.convert("bitcast", x.kind)


def sin(x: Vec) -> Vec:
    return _with_far(x, _wave(x, 0), "sin")


def cos(x: Vec) -> Vec:
    return _with_far(x, _wave(x, 1), "cos")


def tan(x: Vec) -> Vec:
    r, quarter = _reduced(abs(x))
    sine, cosine = _both(r)
    odd = (quarter & 1).differs(0)
    ratio = odd.pick(-cosine, sine) / odd.pick(sine, cosine)
    out = ratio.as_bits() ^ (x.as_bits() & (-1 << (x.bits - 1)))
    return _with_far(x, out.convert("bitcast", x.kind), "tan")


# --- numbers far from 0 ---------------------------------------------------------------------------


def _with_far(x: Vec, out: Vec, name: str) -> Vec:
    """`out`, with the lanes that are too far from 0 computed by the C library."""
    f = x.f
    room = f.var(x.type, out.name)
    with f.when((abs(x) > _END[x.kind]).any()):
        known = f.module.once(
            f"weft.far.{name}.{x.suffix}",
            lambda module: _add_far(module, name, x.kind, x.lanes, x.suffix),
        )
        room.store(f(f"call {x.type} @{known}({x.type} {x}, {x.type} {out})"))
    return Vec(f, x.kind, x.lanes, room.load())


def _add_far(module: Module, name: str, kind: str, lanes: int, suffix: str) -> None:
    single = module.once(f"weft.far.{name}", lambda m: _add_single(m, name))
    whole = vector_type(kind, lanes)
    f = module.function(
        f"weft.far.{name}.{suffix}", whole, [(whole, "x"), (whole, "near")], "nounwind noinline"
    )
    values, out = f.var(whole, "%x"), f.var(whole, "%near")
    with f.loop(0, lanes) as i:
        x = Vec(f, kind, 1, (values.of(kind) + i).load())
        with f.when((abs(x) > _END[kind]).name):
            wide = x.convert("fpext", "double")
            called = Vec(f, "double", 1, f(f"call double @{single}(double {wide})"))
            (out.of(kind) + i).store(called.convert("fptrunc", kind))
    f.do(f"ret {whole} {out.load()}")


def _add_single(module: Module, name: str) -> None:
    """The function of one double: the C library's, or one of ours where there is none."""
    f = module.function(f"weft.far.{name}", "double", [("double", "x")])
    if module.has_c_library:
        module.declare("double", name, "double")
        f.do(f"ret double {f(f'call double @{name}(double %x)')}")
        return
    both = f(f"call {{ double, i64 }} @{far.reduced(module)}(double %x)")
    r = Vec(f, "double", 1, f(f"extractvalue {{ double, i64 }} {both}, 0"))
    quarter = Vec(f, "i64", 1, f(f"extractvalue {{ double, i64 }} {both}, 1"))
    x = Vec(f, "double", 1, "%x")
    sine, cosine = _both(r)
    odd = (quarter & 1).differs(0)
    if name == "tan":
        out = odd.pick(-cosine, sine) / odd.pick(sine, cosine)
    else:
        turned = quarter + (1 if name == "cos" else 0)
        out = (turned & 1).differs(0).pick(cosine, sine)
        out = (turned & 2).differs(0).pick(-out, out)
    if name != "cos":
        out = (x < 0.0).pick(-out, out)
    f.do(f"ret double {out}")
