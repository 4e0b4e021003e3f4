"""Every elementwise card in registers gives what its evaluation in NumPy gives, for every dtype."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np
import pytest
from registers import Array, Call, Loops

import weft
from weft.base import dtypes
from weft.base.dtypes import KINDS, NARROW_FLOATS, DType, int_info
from weft.codegen import elementwise
from weft.codegen.machine import Machine, host
from weft.codegen.math import FUNCTIONS
from weft.codegen.scalar.forms import supported
from weft.codegen.text import Module
from weft.ir.op import OPS

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, of NaNs and overflow

#: Cards that machine code calls in Python: they have no emitter yet.
NO_EMITTER = {"complex", "gcd", "lcm", "log_gamma_slope", "gammainc", "gammaincc"}
CARDS = [
    op for op in OPS.values() if op.elementwise and not op.composite and op.name not in NO_EMITTER
]
REALS = [d for d in dtypes.DTYPES.values() if supported(d)]
#: Functions may be off by some units in the last place, and so may NumPy's; the rest is exact.
INEXACT = {*FUNCTIONS, "binary_cross_entropy"}
UNITS = 6
SUMS = {"logaddexp": 1, "binary_cross_entropy": 100}  # how large their terms may be
TARGETS = {"host": host()}


def _narrower(name: str, off: str, width: int) -> None:
    if host().vector_bytes > width:
        words = host().features.split(",")
        kept = [f"-{w[1:]}" if w[1:].startswith(tuple(off.split())) else w for w in words]
        TARGETS[name] = dataclasses.replace(host(), features=",".join(kept), vector_bytes=width)


_narrower("32 bytes", "avx512", 32)
_narrower("16 bytes", "avx fma f16c", 16)

# --- operands -------------------------------------------------------------------------------------

_FLOATS = [0.0, 1.0, 0.5, 1.5, 2.5, 2.0, 3.0, 7.0, 10.0, 100.0, 0.1, 1e-3, 1e-5, 0.75, 255.0]
_FLOATS += [127.0, 128.0, 256.0, 300.0, 32768.0, 65504.0, 65519.0, 65520.0, 65536.0, 1e4, 3.7]
_FLOATS += [float("inf"), float("nan"), 2.0**31, 2.0**32, 2.0**63, 2.0**64, 1e20, 1e30, 8388609.5]
# Between two float16s, and a little off the middle: rounding by way of float32 would go wrong.
_FLOATS += [1 + 2.0**-11 + 2.0**-40, 1 + 3 * 2.0**-11 - 2.0**-40, 2.0**-24 * (1.5 - 2.0**-40)]
_INTEGERS = [0, 1, 2, 3, 5, 7, 8, 15, 16, 31, 32, 33, 63, 64, 65, 100, 127, 128, 255, 1000]


@functools.cache
def specials(dtype: DType) -> Array:
    if dtype is dtypes.bool:
        return np.array([False, True])
    if dtype.kind == "float":
        info = weft.finfo(dtype)
        tiny = float(np.nextafter(np.zeros(1, dtype.numpy), np.ones(1, dtype.numpy))[0])
        edges = [info.max, info.smallest_normal, tiny, info.eps, 1 + info.eps, 1 - info.eps / 2]
        found = np.array([*_FLOATS, *edges]).astype(dtype.numpy)
        return np.concatenate([found, -found])
    limits = int_info(dtype)
    wanted = {*_INTEGERS, *(-i for i in _INTEGERS), limits.min, limits.max, limits.max - 1}
    wanted |= {limits.min + 1, limits.max // 2, limits.max // 3, 2**24 + 1, 2**53 + 1}
    return np.array(sorted(i for i in wanted if limits.min <= i <= limits.max), dtype.numpy)


def randoms(dtype: DType, count: int, seed: int) -> Array:
    rng = np.random.default_rng(seed)
    if dtype is dtypes.bool:
        return rng.integers(0, 2, count).astype(bool)
    if dtype.kind == "float":
        anything = rng.integers(0, 256, count // 2 * dtype.itemsize, np.uint8).view(dtype.numpy)
        usual = rng.standard_normal(count - anything.size) * 4
        return np.concatenate([anything, usual.astype(dtype.numpy)])
    limits = int_info(dtype)
    wide = rng.integers(limits.min, limits.max, count // 2, dtype.numpy, endpoint=True)
    small = rng.integers(0 if dtype.kind == "uint" else -9, 9, count - count // 2, dtype.numpy)
    return np.concatenate([wide, small])


def operands(inputs: tuple[DType, ...]) -> list[Array]:
    """All pairs of special values, and random ones."""
    values = [specials(dtype) for dtype in inputs]
    grid = [a.ravel() for a in np.meshgrid(*values, indexing="ij")]
    more = [randoms(dtype, 200, seed) for seed, dtype in enumerate(inputs)]
    return [np.concatenate(pair) for pair in zip(grid, more, strict=True)]


# --- calls ----------------------------------------------------------------------------------------


def types_of(op: Any, dtype: DType) -> list[tuple[tuple[DType, ...], DType, dict[str, Any]]]:
    """(operands, result, attributes) of a card for operands of a dtype."""
    if dtype.kind not in KINDS[op.kinds]:
        return []
    if op.name == "astype":
        return [((dtype,), result, {"dtype": result}) for result in REALS]
    if op.name == "where":
        return [((dtypes.bool, dtype, dtype), dtype, {})]
    inputs = (dtype,) * len(op.inputs)
    like = weft.ir.types.TensorType(dtype, (1,), weft.base.device.CPU)
    return [(inputs, op.infer(*[like] * len(inputs)).dtype, {})]


def calls_of(dtype: DType, target: Machine) -> list[Call]:
    return [
        Call(op.name, inputs, result, lanes, attrs)
        for op in CARDS
        for inputs, result, attrs in types_of(op, dtype)
        for lanes in sorted({1, target.lanes(dtype.itemsize)})
        if lanes > 1 or target is host()
    ]


def eager(call: Call, arrays: list[Array]) -> Array:
    card = OPS[call.op]
    kernel = card.kernels[np.ndarray][arrays[card.dispatch_on].dtype]
    return np.asarray(kernel(*arrays, **call.attrs))


def same_bits(found: Array, wanted: Array) -> Array:
    """Where two arrays are equal to the bit; any NaN equals any other."""
    bits = f"u{found.itemsize}"
    equal = found.view(bits) == np.ascontiguousarray(wanted).view(bits)
    if dtypes.as_dtype(found.dtype).kind == "float":
        equal |= (found != found) & (wanted != wanted)
    return np.asarray(equal)


def nearly(found: Array, wanted: Array, units: float) -> Array:
    """Where two arrays are equal but for some units in the last place."""
    dtype = dtypes.as_dtype(wanted.dtype)
    wide = [a.astype(np.float64) for a in (found, wanted)]
    eps, tiny = weft.finfo(dtype).eps, weft.finfo(dtype).smallest_normal
    unit = eps * np.exp2(np.floor(np.log2(np.maximum(np.abs(wide[1]), tiny))))
    close = np.abs(wide[0] - wide[1]) <= units * unit
    alike = np.signbit(wide[0]) == np.signbit(wide[1])
    # Where NumPy's result is the largest number or beyond, one unit makes the difference.
    large = weft.finfo(dtype).max * (1 - units * eps)
    edge = (np.abs(wide[0]) >= large) & (np.abs(wide[1]) >= large)
    return same_bits(found, wanted) | (alike & (close & np.isfinite(wide[1]) | edge))


def check(call: Call, loops: Loops, number: int, arrays: list[Array]) -> list[str]:
    found, wanted = loops.run(number, *arrays), eager(call, arrays)
    assert found.dtype == wanted.dtype, call
    if call.op not in INEXACT or call.inputs[0].kind != "float":
        right = same_bits(found, wanted)
    elif call.op in SUMS:  # what cancels keeps its error
        size = np.fmax(np.maximum(*[np.abs(a.astype(np.float64)) for a in arrays]), 1)
        room = UNITS * weft.finfo(call.result).eps * size * SUMS[call.op]
        off = np.abs(found.astype(np.float64) - wanted.astype(np.float64))
        right = same_bits(found, wanted) | ((off <= room) & np.isfinite(room))
    else:
        right = nearly(found, wanted, 1 if call.result in NARROW_FLOATS else UNITS)
    wrong = np.flatnonzero(~right)[:3]
    return [
        f"{call.op}({', '.join(str(a[i]) for a in arrays)}) of {call.inputs[0].name}, "
        f"{call.lanes} lanes, is {found[i]}, not {wanted[i]}"
        for i in wrong
    ]


#: On narrower machines these stand for all: the code for the others differs in widths only.
FEW = (dtypes.bool, dtypes.int8, dtypes.uint64, dtypes.float16, dtypes.float32, dtypes.float64)
PLACES = [(t, d) for t in TARGETS for d in (REALS if t == "host" else FEW)]


@pytest.mark.parametrize(("target", "dtype"), PLACES, ids=lambda part: getattr(part, "name", part))
def test_every_card(target: str, dtype: DType) -> None:
    calls = calls_of(dtype, TARGETS[target])
    loops = Loops(calls, TARGETS[target])
    wrong = []
    for number, call in enumerate(calls):
        wrong += check(call, loops, number, operands(call.inputs))
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("dtype", sorted(NARROW_FLOATS, key=str), ids=lambda dtype: dtype.name)
def test_narrow_floats_are_rounded_after_every_op(dtype: DType) -> None:
    """(x + y) * y - x in one kernel is what the three cards give one after the other."""
    x, y = operands((dtype, dtype))

    def write(f: Any, values: Any) -> str:
        total = _of(f, "add", dtype, values[0], values[1])
        return _of(f, "subtract", dtype, _of(f, "multiply", dtype, total, values[1]), values[0])

    found = Loops([Call("", (dtype, dtype), dtype, 16, {}, write)]).run(0, x, y)
    total = eager(Call("add", (), dtype, 16), [x, y])
    product = eager(Call("multiply", (), dtype, 16), [total, y])
    assert same_bits(found, eager(Call("subtract", (), dtype, 16), [product, x])).all()


def _of(f: Any, op: str, dtype: DType, *values: str) -> str:
    return elementwise.emit(f, op, [(dtype, v) for v in values], dtype, 16, {}) or ""


def test_what_has_no_emitter() -> None:
    """Complex numbers have none; nothing else is missing."""
    missing = {
        (op.name, dtype.name)
        for op in CARDS
        for dtype in dtypes.DTYPES.values()
        for inputs, result, _ in types_of(op, dtype)
        if not elementwise.has_emitter(op.name, inputs, result)
    }
    assert {dtype for _, dtype in missing} <= {"complex64", "complex128"} | {
        name for name, dtype in dtypes.DTYPES.items() if not supported(dtype)
    }


def test_mixed_dtypes_and_unknown_ops_have_none() -> None:
    f = Module(host()).function("f", "void", [])
    pair = [(dtypes.float32, "%x"), (dtypes.float64, "%y")]
    assert elementwise.emit(f, "add", pair, dtypes.float64, 4, {}) is None
    assert elementwise.emit(f, "matmul", pair[:1] * 2, dtypes.float32, 4, {}) is None
    assert elementwise.emit(f, "tan", [(dtypes.complex64, "%x")], dtypes.complex64, 4, {}) is None


# --- constants ------------------------------------------------------------------------------------


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("dtype", REALS, ids=lambda dtype: dtype.name)
def test_literals_keep_their_bits(dtype: DType, lanes: int) -> None:
    wanted = specials(dtype)
    calls = [
        Call("", (dtype,), dtype, lanes, {}, lambda f, v, x=x: elementwise.literal(dtype, x, lanes))
        for x in wanted
    ]
    loops = Loops(calls)
    found = [loops.run(i, wanted[:1])[0] for i in range(len(calls))]
    assert same_bits(np.array(found, dtype.numpy), wanted).all()


POWERS = [0.0, 1.0, 2.0, 3.0, -1.0, 0.5, -0.5, 4.0, 1.5]


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64, dtypes.bfloat16, dtypes.int32])
def test_powers_that_are_constants(dtype: DType) -> None:
    """They may be products or roots: as eager mode has 2 and 3 for all, and near it for others."""
    powers = [p for p in POWERS if dtype.kind == "float" or p == int(p)]
    x = operands((dtype,))[0]

    def writer(power: float) -> Any:
        def write(f: Any, values: Any) -> str:
            constant = elementwise.literal(dtype, power, 4)
            pair = [(dtype, values[0]), (dtype, constant)]
            return elementwise.emit(f, "pow", pair, dtype, 4, {}) or ""

        return write

    loops = Loops([Call("pow", (dtype,), dtype, 4, {}, writer(p)) for p in powers])
    for number, power in enumerate(powers):
        found = loops.run(number, x)
        wanted = eager(Call("pow", (), dtype, 4), [x, np.asarray(power).astype(dtype.numpy)])
        exact = power in (2.0, 3.0) or dtype.kind != "float"
        right = same_bits(found, wanted) if exact else nearly(found, wanted, UNITS)
        assert right.all(), (power, x[~right], found[~right], wanted[~right])


@pytest.mark.parametrize("dtype", [dtypes.int8, dtypes.int32, dtypes.int64, dtypes.uint16])
def test_division_by_constants(dtype: DType) -> None:
    x = operands((dtype,))[0]
    divisors = [d for d in (0, 1, 2, 3, 7, 64, -1, -3, -4) if d >= 0 or dtype.kind == "int"]
    cases = [(op, d) for op in ("floor_divide", "remainder") for d in divisors]

    def writer(op: str, divisor: int) -> Any:
        def write(f: Any, values: Any) -> str:
            pair = [(dtype, values[0]), (dtype, elementwise.literal(dtype, divisor, 8))]
            return elementwise.emit(f, op, pair, dtype, 8, {}) or ""

        return write

    loops = Loops([Call(op, (dtype,), dtype, 8, {}, writer(op, d)) for op, d in cases])
    for number, (op, divisor) in enumerate(cases):
        wanted = eager(Call(op, (), dtype, 8), [x, np.full_like(x, divisor)])
        assert (loops.run(number, x) == wanted).all(), (op, divisor)


# --- memory ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", REALS, ids=lambda dtype: dtype.name)
def test_masks_spare_memory(dtype: DType) -> None:
    """What a mask leaves out is neither read (it gives 0) nor written."""
    cases = [(n, np.arange(n) % 2 == odd) for n in (1, 4, 16) for odd in (0, 1)]
    loops = Loops([Call("", (dtype,), dtype, n, {}, _masked(dtype, n, keep)) for n, keep in cases])
    for number, (lanes, keep) in enumerate(cases):
        x = operands((dtype,))[0][-lanes:]
        wanted = np.where(keep, x, np.ones((), dtype.numpy)).astype(dtype.numpy)
        assert same_bits(loops.run(number, x), wanted).all()


def _masked(dtype: DType, lanes: int, keep: Array) -> Any:
    """Ones in memory, overwritten where a mask holds; what is read where it does not is 0."""
    text = ", ".join(f"i1 {str(bool(k)).lower()}" for k in keep)
    mask = text.removeprefix("i1 ") if lanes == 1 else f"<{text}>"

    def write(f: Any, values: Any) -> str:
        room = f.var(elementwise.memory_type(dtype), count=lanes)
        elementwise.store(f, dtype, room, elementwise.literal(dtype, 1, lanes), lanes)
        elementwise.store(f, dtype, room, values[0], lanes, mask)
        kind, whole = dtypes.bool, elementwise.load(f, dtype, room, lanes)
        some = elementwise.load(f, dtype, room, lanes, mask)
        none = elementwise.emit(
            f, "equal", [(dtype, some), (dtype, _zero(dtype, lanes))], kind, lanes, {}
        )
        part = elementwise.emit(
            f, "where", [(kind, str(none)), (dtype, whole), (dtype, some)], dtype, lanes, {}
        )
        return str(part)

    return write


def _zero(dtype: DType, lanes: int) -> str:
    return elementwise.literal(dtype, 0, lanes)


@pytest.mark.parametrize("dtype", REALS, ids=lambda dtype: dtype.name)
def test_splat_fills_all_lanes(dtype: DType) -> None:
    x = specials(dtype)[:1]

    def write(f: Any, values: Any) -> str:
        kind = elementwise.compute_type(dtype, 8)
        first = f(f"extractelement {kind} {values[0]}, i64 0")
        return elementwise.splat(f, dtype, first, 8)

    found = Loops([Call("", (dtype,), dtype, 8, {}, write)]).run(0, np.repeat(x, 8))
    assert same_bits(found, np.repeat(x, 8)).all()
