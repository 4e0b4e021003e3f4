"""What is computed with a matrix product in one kernel: on its result, and on its operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.nn.functional as F
from weft.codegen.cpu import CpuTarget
from weft.codegen.machine import host
from weft.core.bind import bind
from weft.ir.interpret import interpret
from weft.passes.pipeline import optimize
from weft.runtime.native import NativeProgram
from weft.schedule.grouping import Grouping
from weft.schedule.reasons import said

F32, BF16, I8, BOOL = "float32", "bfloat16", "int8", "bool"
Shapes = list[tuple[tuple[int, ...], str]]


def _program(function: Callable[..., Any], shapes: Shapes) -> tuple[NativeProgram, list[Any]]:
    specs = [weft.spec(shape, dtype=dtype) for shape, dtype in shapes]
    program = NativeProgram(optimize(weft.make_graph(function, *specs)))
    rng = np.random.default_rng(0)
    made = []
    for shape, dtype in shapes:
        x = weft.asarray((rng.standard_normal(shape) * (10 if dtype == I8 else 1)).astype("f4"))
        made.append(x > 0 if dtype == BOOL else x.astype(getattr(weft, dtype)))
    return program, made


def _check(program: NativeProgram, inputs: list[Any], *, rtol: float = 1e-4) -> None:
    wanted = interpret(program.graph, inputs, bind)
    for got, want in zip(program(inputs), wanted, strict=True):
        assert got.type == want.type
        # Terms cancel: what is lost is a part of the largest sums.
        sizes = np.abs(np.asarray(want.numpy(), np.float64))
        most = float(sizes[np.isfinite(sizes)].max(initial=1.0))
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=rtol, atol=1e-5 * most + rtol)


def _steps(program: NativeProgram) -> list[str]:
    return [line.partition(" →")[0] for line in program.plan().splitlines()[1:]]


# --- after the product ----------------------------------------------------------------------------

A, B, V, M = ((40, 48), F32), ((48, 56), F32), ((56,), F32), ((40, 56), F32)
AFTER: dict[str, tuple[Callable[..., Any], Shapes, str]] = {
    "bias": (lambda a, b, v: a @ b + v, [A, B, V], "matmul add"),
    "activation": (lambda a, b: weft.tanh(a @ b), [A, B], "matmul tanh"),
    "residual": (lambda a, b, m: m + a @ b, [A, B, M], "matmul add"),
    "scale": (lambda a, b: (a @ b) * 0.125, [A, B], "matmul multiply"),
    "mask": (
        lambda a, b, m: weft.where(m, a @ b, -1e9),
        [A, B, ((40, 56), BOOL)],
        "matmul where",
    ),
    "all of them": (
        lambda a, b, v, m: weft.relu((a @ b) * 0.5 + v) + m,
        [A, B, V, M],
        "matmul multiply add relu add",
    ),
}


@pytest.mark.parametrize("name", AFTER)
def test_what_follows_a_product_is_done_in_registers(name: str) -> None:
    function, shapes, ops = AFTER[name]
    program, inputs = _program(function, shapes)
    assert _steps(program) == [f"product: {ops}"]
    _check(program, inputs)


# --- before it ------------------------------------------------------------------------------------

X, W, S = ((70, 130), F32), ((130, 100), F32), ((100,), F32)
BEFORE: dict[str, tuple[Callable[..., Any], Shapes, str]] = {
    "scale": (lambda x, w, s: x @ (w * s), [X, W, S], "multiply matmul"),
    "scale of rows": (
        lambda x, w, s: x @ (w * s), [X, W, ((130, 1), F32)], "multiply matmul",
    ),
    "mask": (
        lambda x, w, m: x @ weft.where(m, w, 0.0), [X, W, ((130, 100), BOOL)], "where matmul",
    ),
    "activation": (lambda x, w: x @ weft.relu(w), [X, W], "relu matmul"),
    "a dear activation": (lambda x, w: x @ weft.tanh(w), [X, W], "tanh matmul"),
    "cast": (lambda x, w: x @ w.astype(weft.float32), [X, (W[0], BF16)], "astype matmul"),
    "small integers": (
        lambda x, w, s: weft.relu(x @ (w.astype(weft.float32) * s) + s), [X, (W[0], I8), S],
        "astype multiply matmul add relu",
    ),
    "narrow floats": (
        lambda x, w: x @ (w * 0.5), [(X[0], BF16), (W[0], BF16)], "multiply matmul",
    ),
    "float64": (
        lambda x, w: x @ (w * 2.0), [(X[0], "float64"), (W[0], "float64")], "multiply matmul",
    ),
    "one matrix for a stack": (
        lambda x, w, s: x @ (w * s), [((3, 900, 130), F32), ((130, 200), F32), ((200,), F32)],
        "multiply matmul",
    ),
    "stacks": (
        lambda x, w, s: x @ (w * s), [((2, 900, 260), F32), ((2, 260, 200), F32), ((200,), F32)],
        "multiply matmul",
    ),
    "many rows": (
        lambda x, w, s: x @ (w * s), [((2000, 130), F32), ((130, 200), F32), ((200,), F32)],
        "multiply matmul",
    ),
    "a small stack": (
        lambda x, w, s: x @ (w * s),
        [((2, 70, 130), F32), ((2, 130, 200), F32), ((2, 1, 200), F32)],
        "multiply matmul",
    ),
    "many terms": (
        lambda x, w, s: x @ (w * s), [((70, 3000), F32), ((3000, 100), F32), S], "multiply matmul",
    ),
    "turned": (
        lambda x, w, s: x @ (w * s).T, [X, ((100, 130), F32), ((130,), F32)], "multiply matmul",
    ),
    "turned, whole panels": (
        lambda x, w, s: x @ (w * s).T, [X, ((192, 130), F32), ((130,), F32)], "multiply matmul",
    ),
    "turned, few terms": (
        lambda x, w: x @ (w * 2).T, [((600, 5), F32), ((300, 5), F32)], "multiply matmul",
    ),
    "turned, many terms": (
        lambda x, w: x @ (w * 0.01).T, [((70, 3001), F32), ((100, 3001), F32)], "multiply matmul",
    ),
    "turned small integers": (
        lambda x, w, s: x @ (w.astype(weft.float32) * s).T,
        [((70, 128), F32), ((96, 128), I8), ((96, 1), F32)], "astype multiply matmul",
    ),
    "turned narrow floats": (
        lambda x, w: x @ (w * 0.5).T, [(X[0], BF16), ((100, 130), BF16)], "multiply matmul",
    ),
    "turned stacks": (
        lambda x, w: x @ weft.matrix_transpose(w * 2),
        [((2, 70, 130), F32), ((2, 100, 130), F32)], "multiply matmul",
    ),
    "turned float64": (
        lambda x, w: x @ (w * 0.5).T, [(X[0], "float64"), ((100, 130), "float64")],
        "multiply matmul",
    ),
    "whole panels": (
        lambda x, w, s: x @ (w * s), [((70, 130), F32), ((130, 192), F32), ((192,), F32)],
        "multiply matmul",
    ),
    "left: scale": (lambda x, w, s: (x * s) @ w, [X, W, ((130,), F32)], "multiply matmul"),
    "left: of rows": (lambda x, w, s: (x * s) @ w, [X, W, ((70, 1), F32)], "multiply matmul"),
    "left: a gradient": (
        lambda h, g, w: weft.where(h > 0, g, 0.0) @ w.T, [X, X, ((40, 130), F32)],
        "greater where matmul",
    ),
    "left: a dear activation": (lambda x, w: weft.tanh(x) @ w, [X, W], "tanh matmul"),
    "left: small integers": (
        lambda x, w, s: (x.astype(weft.float32) * s) @ w, [(X[0], I8), W, ((130,), F32)],
        "astype multiply matmul",
    ),
    "left: narrow floats": (
        lambda x, w: (x * 0.5) @ w, [(X[0], BF16), (W[0], BF16)], "multiply matmul",
    ),
    "left: float64": (
        lambda x, w: (x * 2.0) @ w, [(X[0], "float64"), (W[0], "float64")], "multiply matmul",
    ),
    "left: few columns": (lambda x, w: (x * 2) @ w, [X, ((130, 2), F32)], "multiply matmul"),
    "left: few terms": (
        lambda x, w: (x * 2) @ w, [((600, 2), F32), ((2, 30), F32)], "multiply matmul",
    ),
    "left: many terms": (
        lambda x, w: (x * 0.01) @ w, [((70, 1501), F32), ((1501, 30), F32)], "multiply matmul",
    ),
    "left: many rows": (
        lambda x, w: (x * 2) @ w, [((3000, 64), F32), ((64, 100), F32)], "multiply matmul",
    ),
    "left: one matrix for a stack": (
        lambda x, w, s: (x * s) @ w, [((3, 50, 130), F32), W, ((50, 1), F32)], "multiply matmul",
    ),
    "left: stacks": (
        lambda x, w, s: (x * s) @ w, [((3, 50, 130), F32), ((3, 130, 20), F32), ((130,), F32)],
        "multiply matmul",
    ),
    "left: turned, shared": (
        lambda x, w, s: (x * s).T @ w, [((256, 1024), F32), ((256, 256), F32), ((1024,), F32)],
        "multiply matmul",
    ),
    "left: turned, shared stacks": (
        lambda x, w: (x * 2).mT @ w, [((2, 256, 1024), F32), ((2, 256, 256), F32)],
        "multiply matmul",
    ),
    "both": (
        lambda x, w, s: weft.relu(x) @ (w * s), [X, W, S], "relu multiply matmul",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BEFORE)
def test_what_is_packed_once_is_computed_there(name: str) -> None:
    function, shapes, ops = BEFORE[name]
    program, inputs = _program(function, shapes)
    assert _steps(program) == [f"product: {ops}"]
    _check(program, inputs, rtol=3e-2 if shapes[0][1] == BF16 else 1e-4)


NOT: dict[str, tuple[Callable[..., Any], Shapes]] = {
    "read where it lies": (lambda x, w, s: x @ (w * s), [((2, 130), F32), W, S]),
    "left, of many panels": (
        lambda x, w: (x * 2) @ w, [((70, 600), F32), ((600, 300), F32)],
    ),
    "left, of more terms": (
        lambda x, w: (x * 0.01) @ w, [((70, 9001), F32), ((9001, 4), F32)],
    ),
    "left, turned": (lambda x, w: (x * 2).T @ w, [((130, 70), F32), W]),
    "left, for each of a stack": (
        lambda x, w: (x * 2) @ w, [X, ((3, 130, 20), F32)],
    ),
    "left, a vector": (lambda x, w: (x * 2) @ w, [((130,), F32), W]),
    "left and right": (lambda x: (x * 2) @ (x * 2).T, [((70, 70), F32)]),
    "a vector": (lambda x, w, s: x @ (w * s), [X, ((130,), F32), ((130,), F32)]),
    "dear, and used twice": (
        lambda x, w: (x @ weft.tanh(w), weft.tanh(w).sum()), [X, W],
    ),
    "integers": (lambda x, w: x @ (w * 2), [(X[0], "int32"), (W[0], "int32")]),
}  # fmt: skip


@pytest.mark.parametrize("name", NOT)
def test_what_would_be_computed_again_is_written_first(name: str) -> None:
    function, shapes = NOT[name]
    program, inputs = _program(function, shapes)
    steps = _steps(program)
    assert any(step.startswith("loop: ") for step in steps)
    assert "product: matmul" in steps
    _check(program, inputs)


def test_nan_and_infinity_come_through() -> None:
    program, (x, w, s) = _program(*BEFORE["scale"][:2])
    bad = w.numpy().copy()
    bad[3, 99], bad[129, 0], bad[7, 7] = np.inf, np.nan, -0.0
    _check(program, [x, weft.asarray(bad), s])


@pytest.mark.parametrize("left", [False, True])
def test_an_operand_that_is_updated_is_not_written_while_it_is_packed(left: bool) -> None:
    w = weft.asarray(np.random.default_rng(0).standard_normal((96, 96), np.float32) / 10)
    x = weft.asarray(np.random.default_rng(1).standard_normal((96, 96), np.float32))

    def step(w: Any, x: Any) -> Any:
        return w - ((w * 0.5) @ x if left else x @ (w * 0.5))

    program = NativeProgram(weft.make_graph(step, weft.spec(w.shape), weft.spec(x.shape)), {0: 0})
    assert program.in_place == []
    _check(program, [w, x])


@pytest.mark.parametrize("name", ["left: many rows", "left: many terms", "left: turned, shared"])
def test_left_operands_are_the_same_for_any_number_of_threads(name: str) -> None:
    program, inputs = _program(*BEFORE[name][:2])
    before = weft.get_num_threads()
    found = []
    try:
        for threads in (1, 3):
            weft.set_num_threads(threads)
            found.append(program(inputs)[0].numpy().tobytes())
    finally:
        weft.set_num_threads(before)
    assert found[0] == found[1]


WHY: list[tuple[Callable[..., Any], int, str]] = [
    (lambda x, w, s: x @ (w * s), 70, "packed"),
    (lambda x, w, s: x @ (w * s), 2, "unpacked"),
    (lambda x, w, s: weft.relu(x) @ w, 70, "packed"),
    (lambda x, w, s: weft.relu(x).T @ w, 130, "unpacked"),
]


@pytest.mark.parametrize(("function", "rows", "reason"), WHY)
def test_the_plan_can_say_why(function: Callable[..., Any], rows: int, reason: str) -> None:
    specs = [weft.spec((rows, 130)), weft.spec((130, 100)), weft.spec((100,))]
    graph = weft.make_graph(function, *specs)
    grouping = Grouping(graph, CpuTarget(host()))
    why = grouping.why[graph.nodes[0]]
    assert why == (reason, None)
    assert "product" in said(graph.nodes[0], grouping.groups[-1], why)


# --- totals ---------------------------------------------------------------------------------------


def _norm(x: Any, w: Any) -> Any:
    y = x @ w
    return y, (y * y).sum()


TOTALS: dict[str, tuple[Callable[..., Any], Shapes]] = {
    "a sum of squares": (lambda x, w: ((x @ w) ** 2).sum(), [A, B]),
    "beside the result": (_norm, [A, B]),
    "of many items": (_norm, [((500, 300), F32), ((300, 400), F32)]),
    "a loss": (lambda x, w, t: ((x @ w - t) ** 2).mean(), [A, B, M]),
    "several": (
        lambda x, w, t: ((x @ w).sum(), ((x @ w) * t).sum(), weft.tanh(x @ w)), [A, B, M],
    ),
    "one row": (lambda x, w: ((x @ w) ** 2).sum(), [((1, 48), F32), B]),
    "a vector": (lambda x, w: ((x @ w) ** 2).sum(), [((48,), F32), B]),
    "one column": (lambda x, w: ((x @ w) ** 2).sum(), [A, ((48, 1), F32)]),
    "a column": (lambda x, w: ((x @ w) ** 2).sum(), [A, ((48,), F32)]),
    "a number": (lambda x, w: ((x @ w) ** 2).sum(), [((48,), F32), ((48,), F32)]),
    "stacks": (lambda x, w: ((x @ w) ** 2).sum(), [((3, 7, 48), F32), ((3, 48, 9), F32)]),
    "axes kept": (lambda x, w: (x @ w).sum(axis=(0, 1), keepdims=True), [A, B]),
    "float64": (_norm, [(A[0], "float64"), (B[0], "float64")]),
    "narrow floats": (_norm, [(A[0], BF16), (B[0], BF16)]),
    "turned": (lambda x, w: ((x.T @ w) ** 2).sum(), [((48, 40), F32), B]),
    "a convolution": (
        lambda x, w: (F.relu(F.conv2d(x, w, padding=1)) ** 2).sum(),
        [((2, 3, 9, 9), F32), ((5, 3, 3, 3), F32)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TOTALS)
def test_totals_of_what_is_in_registers(name: str) -> None:
    function, shapes = TOTALS[name]
    program, inputs = _program(function, shapes)
    first = _steps(program)[0]
    assert first.startswith("product: ")
    assert "sum" in first
    _check(program, inputs, rtol=3e-2 if shapes[0][1] == BF16 else 1e-4)
    before = weft.get_num_threads()
    try:
        found = []
        for count in (1, 3):
            weft.set_num_threads(count)
            found.append([x.numpy().tobytes() for x in program(inputs)])
        assert found[0] == found[1]
    finally:
        weft.set_num_threads(before)


NO_TOTALS: dict[str, tuple[Callable[..., Any], Shapes]] = {
    "of rows": (lambda x, w: (x @ w).sum(axis=1), [A, B]),
    "the largest": (lambda x, w: (x @ w).max(), [A, B]),
    "integers": (lambda x, w: (x @ w).sum(), [(A[0], "int64"), (B[0], "int64")]),
    "of a part": (lambda x, w: (x @ w)[1:].sum(), [A, B]),
}


@pytest.mark.parametrize("name", NO_TOTALS)
def test_other_reductions_read_the_result(name: str) -> None:
    program, inputs = _program(*NO_TOTALS[name])
    assert _steps(program)[0] == "product: matmul"
    _check(program, inputs)


def test_totals_of_nan_and_infinity() -> None:
    program, (x, w) = _program(*TOTALS["a sum of squares"])
    for number in (np.nan, np.inf):
        bad = x.numpy().copy()
        bad[39, 0] = number
        _check(program, [weft.asarray(bad), w])
