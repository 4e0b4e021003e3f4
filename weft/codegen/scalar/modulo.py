"""`//` and `%` of floats, step by step as in NumPy, so with the same bits."""

from __future__ import annotations

from weft.codegen.index import Ptr
from weft.codegen.scalar.vec import Vec, vector_type
from weft.codegen.text import Function, Module

__all__ = ["divided"]


def divided(x: Vec, y: Vec) -> tuple[Vec, Vec]:
    """floor(x / y), and the remainder with the sign of y."""
    rest = _rest(x, y)
    ratio = x / y
    turned = rest.differs(0.0) & ((y < 0.0) ^ (rest < 0.0))
    quotient = (x - rest) / y
    quotient = turned.pick(quotient - 1.0, quotient)
    down = quotient.intrinsic("floor")
    down = (quotient - down > 0.5).pick(down + 1.0, down)  # round to the nearer integer
    down = quotient.equals(0.0).pick(x.make(0.0).intrinsic("copysign", ratio), down)
    far = (abs(x).equals(float("inf"))) | (abs(y).equals(float("inf")))
    down = y.equals(0.0).pick(ratio, down)
    down = far.pick(ratio.intrinsic("floor"), down)
    signed = turned.pick(rest + y, rest)
    signed = (rest.equals(0.0)).pick(x.make(0.0).intrinsic("copysign", y), signed)
    return down, signed


def _rest(x: Vec, y: Vec) -> Vec:
    """The remainder of x / y with the sign of x (fmod), exact."""
    name = x.f.module.once(f"weft.rest.{x.suffix}", lambda m: _add_rest(m, x.kind, x.lanes))
    called = x.f(f"call {x.type} @{name}({x.type} {x}, {x.type} {y})")
    return Vec(x.f, x.kind, x.lanes, called)


def _add_rest(module: Module, kind: str, lanes: int) -> None:
    whole = vector_type(kind, lanes)
    short = {"float": "f32", "double": "f64"}[kind]
    name = short if lanes == 1 else f"v{lanes}{short}"
    f = module.function(f"weft.rest.{name}", whole, [(whole, "x"), (whole, "y")])
    x, y = (Vec(f, kind, lanes, value) for value in ("%x", "%y"))
    ratio = x / y
    # Up to here the quotient is off by at most one, and the remainder is exact: it is a multiple of
    # y's last digit, and below 2 |y|.
    near = abs(ratio) < float(1 << (23 if kind == "float" else 52))
    quotient = ratio.intrinsic("trunc")
    left = (-quotient).fma(y, x)
    along, size = (x < 0.0).pick(-left, left), abs(y)
    along = (along < 0.0).pick(along + size, along)
    along = (along >= size).pick(along - size, along)
    rest = quotient.equals(0.0).pick(x, along.intrinsic("copysign", x))  # also where y is infinite
    out = f.var(whole, rest.name)
    with f.when((~near).any()):
        _by_lane(f, kind, lanes, out)
    f.do(f"ret {whole} {out.load()}")


def _by_lane(f: Function, kind: str, lanes: int, out: Ptr) -> None:
    """The same lane by lane with the C library's function, for any operands."""
    whole = vector_type(kind, lanes)
    rooms = [f.var(whole, name).of(kind) for name in ("%x", "%y")]
    with f.loop(0, lanes) as i:
        x, y = ((room + i).load() for room in rooms)
        (out.of(kind) + i).store(f(f"frem {kind} {x}, {y}"))
