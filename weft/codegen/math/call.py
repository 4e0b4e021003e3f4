"""Functions of floats as functions of the module: one for each name, dtype and number of lanes.

    y = call(f, "exp", weft.float32, 16, x)

At most 2 units in the last place off in float32 (on GPUs, where powers of 2 are an instruction, 4)
and 4 in float64, over all of their range, with
the infinities, NaNs, signed zeros and denormals that the C library has. Where float32 has no
formula of its own, it is computed in float64 and rounded.
"""

from __future__ import annotations

from collections.abc import Callable
from weakref import WeakKeyDictionary

from weft.base import dtypes
from weft.base.dtypes import DType
from weft.codegen.math import arcs, error, exponential, hyperbolic, logarithm, power, trigonometric
from weft.codegen.scalar.vec import Vec, vector_type
from weft.codegen.text import Function, Module
from weft.ir.op import OPS

__all__ = ["FUNCTIONS", "call"]

Rule = Callable[..., Vec]

#: name: how many values it takes, the formula in float32 (None: that in float64), in float64.
FUNCTIONS: dict[str, tuple[int, Rule | None, Rule]] = {
    "exp": (1, exponential.exp, exponential.exp),
    "expm1": (1, exponential.expm1, exponential.expm1),
    "sigmoid": (1, exponential.sigmoid, exponential.sigmoid),
    "log": (1, logarithm.log, logarithm.log),
    "log1p": (1, logarithm.log1p, logarithm.log1p),
    "log2": (1, None, logarithm.log2),
    "log10": (1, None, logarithm.log10),
    "logaddexp": (2, None, logarithm.logaddexp),
    "softplus": (1, logarithm.softplus, logarithm.softplus),
    "sin": (1, trigonometric.sin, trigonometric.sin),
    "cos": (1, trigonometric.cos, trigonometric.cos),
    "tan": (1, None, trigonometric.tan),
    "asin": (1, None, arcs.asin),
    "acos": (1, None, arcs.acos),
    "atan": (1, None, arcs.atan),
    "atan2": (2, None, arcs.atan2),
    "sinh": (1, None, hyperbolic.sinh),
    "cosh": (1, None, hyperbolic.cosh),
    "tanh": (1, hyperbolic.tanh_single, hyperbolic.tanh),
    "asinh": (1, None, hyperbolic.asinh),
    "acosh": (1, None, hyperbolic.acosh),
    "atanh": (1, None, hyperbolic.atanh),
    "erf": (1, error.erf_single, error.erf),
    "erfc": (1, None, error.erfc),
    "pow": (2, power.pow_single, power.pow),
    "hypot": (2, power.hypot_single, power.hypot),
}


#: Short functions of vectors are inlined, at the first few calls of each kernel: a kernel of four
#: functions is then 1.2 to 1.8 times as fast (constants stay in registers), and each call takes 1
#: to 2 ms more to build. Functions of scalars, which are tails of rows, are not inlined.
INLINED_CYCLES = 16.0
PLACES = 4
_places: WeakKeyDictionary[Function, int] = WeakKeyDictionary()


def call(f: Function, name: str, dtype: DType, lanes: int, *values: str) -> str:
    """A function of values in compute form; narrow floats are float32 here, not yet rounded."""
    kind = "double" if dtype is dtypes.float64 else "float"
    whole = vector_type(kind, lanes)
    suffix = Vec(f, kind, lanes, "").suffix
    known = f.module.once(
        f"weft.{name}.{suffix}", lambda module: _add(module, name, kind, lanes, suffix)
    )
    given = ", ".join(f"{whole} {value}" for value in values)
    return f(f"call {whole} @{known}({given}){_inlining(f, name, lanes)}")


def _inlining(f: Function, name: str, lanes: int) -> str:
    """What a call says of itself: to be replaced by the function's body, or nothing."""
    used = _places.get(f, 0)
    if lanes == 1 or OPS[name].cycles > INLINED_CYCLES or used >= PLACES:
        return ""
    _places[f] = used + 1
    return " alwaysinline"


def _add(module: Module, name: str, kind: str, lanes: int, suffix: str) -> None:
    count, single, double = FUNCTIONS[name]
    whole = vector_type(kind, lanes)
    params = [(whole, f"x{i}") for i in range(count)]
    f = module.function(f"weft.{name}.{suffix}", whole, params, "nounwind")
    values = [Vec(f, kind, lanes, f"%x{i}") for i in range(count)]
    if kind == "double":
        out = double(*values)
    elif single is not None:
        out = single(*values)
    else:
        out = double(*[value.convert("fpext", "double") for value in values])
        out = out.convert("fptrunc", "float")
    f.do(f"ret {whole} {out}")
