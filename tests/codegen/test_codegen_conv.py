"""Kernels of convolutions: each card against its own evaluation on NumPy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from conv_cases import SHAPES
from emitted import OTHER_CACHES, Case, build_cases, eager, narrower

from weft.base import dtypes
from weft.codegen.conv import EMITTERS
from weft.codegen.index import Size
from weft.codegen.kernel import Kernel, argument
from weft.codegen.machine import Caches, Machine, host
from weft.codegen.scalar.forms import load, store
from weft.codegen.text import Function, Module
from weft.ir.graph import Node

DTYPES = ["float64", "float16", "bfloat16", "int8", "uint8", "int16", "int32", "uint64"]
SOME = ["by 3 and 2, dilated", "depthwise", "second of a CNN", "one of everything", "by 2"]


def _values(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Any:
    kind = dtypes.as_dtype(dtype)
    if kind.kind == "float":
        return rng.standard_normal(shape).astype(kind.numpy)
    return rng.integers(0 if kind.kind == "uint" else -100, 100, shape).astype(kind.numpy)


def _cases(label: str, dtype: str) -> list[Case]:
    batch, channels, sizes, outputs, kernel, stride, padding, dilation, groups = SHAPES[label]
    rng = np.random.default_rng(len(label))
    attrs = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    x = _values(rng, (batch, channels, *sizes), dtype)
    weight = _values(rng, (outputs, channels // groups, *kernel), dtype)
    bias = _values(rng, (outputs,), dtype)
    (y,) = eager("conv", [x, weight], attrs)
    g = _values(rng, y.shape, dtype)
    return [
        Case("conv", [x, weight], attrs),
        Case("conv_bias", [x, weight, bias], attrs),
        Case("conv_input", [g, weight], {**attrs, "size": sizes}),
        Case("conv_weight", [x, g], {**attrs, "size": kernel}),
    ]


def _check(case: Case) -> None:
    """Close to the card in float64 (or equal in integers), and the same for every cut."""
    status, (found,) = case.run()
    assert status == 0
    for pieces in (2, 5):
        assert case.run(pieces, backwards=True)[1][0].tobytes() == found.tobytes(), case.op
    if found.dtype.kind in "iu":
        (wanted,) = eager(case.op, case.arrays, case.attrs)
        np.testing.assert_array_equal(found, wanted, err_msg=case.op)
        return
    (wanted,) = eager(case.op, [a.astype(np.float64) for a in case.arrays], case.attrs)
    (scale,) = eager(case.op, [abs(a.astype(np.float64)) for a in case.arrays], case.attrs)
    dtype = dtypes.dtype_of_numpy(found.dtype)
    sums = np.finfo(np.float64 if dtype is dtypes.float64 else np.float32).eps
    last = {"float16": 2.0**-11, "bfloat16": 2.0**-8}.get(dtype.name, 0.0)  # the one rounding
    error = abs(found.astype(np.float64) - wanted)
    assert (error <= 20 * sums * scale + last * abs(wanted) + 1e-7 * last).all(), case.op


@pytest.mark.parametrize("label", SHAPES)
def test_shapes(label: str) -> None:
    cases = _cases(label, "float32")
    build_cases(cases, EMITTERS)
    for case in cases:
        _check(case)


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes(dtype: str) -> None:
    number = DTYPES.index(dtype)
    labels = ["by 4", *(SOME[(number + i) % len(SOME)] for i in (0, 2))]
    cases = [case for label in labels for case in _cases(label, dtype)]
    build_cases(cases, EMITTERS)
    for case in cases:
        _check(case)


@pytest.mark.parametrize("width", [32, 16])
def test_narrower_vectors(width: int) -> None:
    if host().vector_bytes < width:
        pytest.skip(f"vectors of {host().vector_bytes} bytes are all there are here")
    cases = [c for label in (*SOME, "groups") for c in _cases(label, "float32")]
    cases += _cases("by 2", "bfloat16") + _cases("depthwise", "float16")
    build_cases(cases, EMITTERS, narrower(width))
    for case in cases:
        _check(case)


#: Without FMA, and with caches so small that channels are summed in parts.
SMALL = replace(narrower(16), caches=Caches(4 << 10, 8 << 10, 8 << 20, 4096))


@pytest.mark.parametrize("machine", [*OTHER_CACHES, narrower(16), SMALL])
def test_other_caches(machine: Machine) -> None:
    rng = np.random.default_rng(0)
    attrs = {"stride": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1), "groups": 1}
    x, weight, g = (
        _values(rng, shape, "float32")
        for shape in ((2, 24, 40, 40), (20, 24, 3, 3), (2, 20, 40, 40))
    )
    cases = [
        Case("conv", [x, weight], attrs),
        Case("conv_weight", [x, g], {**attrs, "size": (3, 3)}),
    ]
    build_cases(cases, EMITTERS, machine)
    for case in cases:
        _check(case)


def test_what_is_left_to_the_card() -> None:
    attrs = {"stride": (1,), "padding": ((0, 0),), "dilation": (1,), "groups": 1}
    empty = Case("conv", [np.zeros((0, 1, 4)), np.zeros((1, 1, 2))], attrs)
    complex_one = Case("conv", [np.zeros((1, 1, 4), "c8"), np.zeros((1, 1, 2), "c8")], attrs)
    build_cases([empty, complex_one], EMITTERS)
    assert empty.kernels is None
    assert complex_one.kernels is None


def test_windows_that_reach_too_far_for_the_stack() -> None:
    attrs = {
        "stride": (1, 1, 1),
        "padding": ((0, 0),) * 3,
        "dilation": (40, 40, 40),
        "groups": 1,
    }
    x, weight = np.zeros((1, 1, 90, 90, 90), np.float32), np.zeros((1, 1, 3, 3, 3), np.float32)
    y = np.zeros((1, 1, 10, 10, 10), np.float32)
    cases = [
        Case("conv", [x, weight], attrs),
        Case("conv_input", [y, weight], {**attrs, "size": (90, 90, 90)}),
        Case("conv_weight", [x, y], {**attrs, "size": (3, 3, 3)}),
    ]
    build_cases(cases, EMITTERS)
    assert [case.kernels for case in cases] == [None, None, None]


class _AddingStore:
    """An epilogue that adds to what is there: an element written twice would show.

    It adds 1000 more where the lanes that count go beyond the end of a row.
    """

    def __init__(self, place: int, shape: tuple[int, ...]) -> None:
        self.place, self.channels, self.width = place, shape[1], shape[-1]
        self.positions = int(np.prod(shape[2:]))

    def begin(self, f: Function) -> None:
        self.pointer = argument(f, self.place, "i32")

    def put(
        self, f: Function, value: str, lanes: int, index: Sequence[Size], mask: str | None = None
    ) -> None:
        n, channel, position = index
        place = self.pointer + ((n * self.channels + channel) * self.positions + position)
        before = load(f, dtypes.int32, place, lanes, mask)
        kind = "i32" if lanes == 1 else f"<{lanes} x i32>"
        count: Size = lanes
        if mask is not None:
            name = f.module.declare(f"i{lanes}", f"llvm.ctpop.i{lanes}", f"i{lanes}")
            bits = f(f"bitcast <{lanes} x i1> {mask} to i{lanes}")
            count = f.index(
                f(f"zext i{lanes} {f(f'call i{lanes} @{name}(i{lanes} {bits})')} to i64")
            )
        end = position % self.width + count
        wrong = f(f"icmp ugt i64 {end}, {self.width}")
        more = "1000" if lanes == 1 else "splat (i32 1000)"
        extra = f(f"select i1 {wrong}, {kind} {more}, {kind} zeroinitializer")
        value = f(f"add {kind} {value}, {extra}")
        store(f, dtypes.int32, place, f(f"add {kind} {before}, {value}"), lanes, mask)


@pytest.mark.parametrize(
    ("label", "width"),
    [
        *((label, 0) for label in ("valid", "by 2", "many channels", "1x1", "many results")),
        ("many channels", 16),
    ],
)
def test_epilogue(label: str, width: int) -> None:
    """Every element comes to the store, once."""

    def emit(module: Module, name: str, node: Node) -> list[Kernel] | None:
        given = _AddingStore(len(node.inputs), node.outputs[0].tensor_type.shape)
        return EMITTERS[node.op.name](module, name, node, given)

    cases = _cases(label, "int32")[:3]
    machine = narrower(width) if width else host()
    build_cases(cases, {case.op: emit for case in cases}, machine)
    for case in cases:
        _, (found,) = case.run(2)
        (wanted,) = eager(case.op, case.arrays, case.attrs)
        np.testing.assert_array_equal(found - np.uint32(0xA5A5A5A5).astype(np.int32), wanted)
