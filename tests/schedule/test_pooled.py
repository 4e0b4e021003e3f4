"""Pooling that is done with the convolution before it, image by image."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.nn.functional as F
from weft.codegen.cpu import CpuTarget
from weft.core.bind import bind
from weft.ir.interpret import interpret
from weft.passes.pipeline import optimize
from weft.runtime.native import NativeProgram

Shapes = list[tuple[int, ...]]
X, W, B = (9, 3, 11, 10), (5, 3, 3, 3), (5,)


def _program(function: Callable[..., Any], shapes: Shapes, dtype: str) -> NativeProgram:
    specs = [weft.spec(shape, dtype=dtype) for shape in shapes]
    return NativeProgram(optimize(weft.make_graph(function, *specs)))


def _inputs(shapes: Shapes, dtype: str) -> list[Any]:
    rng = np.random.default_rng(0)
    made = [weft.asarray(rng.standard_normal(shape).astype("f4")) for shape in shapes]
    return [x.astype(getattr(weft, dtype)) for x in made]


def _steps(program: NativeProgram) -> list[str]:
    return [line.partition(" →")[0] for line in program.plan().splitlines()[1:]]


def _relu(x: Any, w: Any, b: Any) -> Any:
    return F.relu(F.conv2d(x, w, b, padding=1))


def _two_layers(x: Any, w: Any, b: Any, v: Any) -> Any:
    return F.max_pool2d(F.relu(F.conv2d(F.max_pool2d(_relu(x, w, b), 2), v)), 2)


FUSED: dict[str, tuple[Callable[..., Any], Shapes, list[str]]] = {
    "max": (lambda x, w, b: F.max_pool2d(_relu(x, w, b), 2), [X, W, B],
            ["product: conv_bias relu max_pool"]),
    "sum": (lambda x, w, b: F.avg_pool2d(_relu(x, w, b), 2), [X, W, B],
            ["product: conv_bias relu sum_pool", "loop: multiply"]),
    "the result itself": (lambda x, w: F.max_pool2d(F.conv2d(x, w), 2), [X, W],
                          ["product: conv max_pool"]),
    "windows that overlap": (lambda x, w, b: F.max_pool2d(_relu(x, w, b), 3, stride=2, padding=1),
                             [X, W, B], ["product: conv_bias relu max_pool"]),
    "strides and groups": (
        lambda x, w: F.max_pool2d(F.conv2d(x, w, stride=2, groups=3), 2),
        [X, (6, 1, 3, 3)], ["product: conv max_pool"]),
    "a residual": (lambda x, w, b, r: F.max_pool2d(_relu(x, w, b) + r, 2),
                   [X, W, B, (9, 5, 11, 10)], ["product: conv_bias relu add max_pool"]),
    "one axis": (lambda x, w: F.max_pool1d(F.conv1d(x, w), 3), [(8, 2, 40), (4, 2, 5)],
                 ["product: conv max_pool"]),
    "what follows": (lambda x, w, b: weft.tanh(F.max_pool2d(_relu(x, w, b), 2)).sum(axis=0),
                     [X, W, B], ["product: conv_bias relu max_pool", "loop: tanh sum"]),
    "two of them": (_two_layers, [X, W, B, (4, 5, 3, 3)],
                    ["product: conv_bias relu max_pool", "product: conv relu max_pool"]),
    "one large window": (lambda x, w, b: F.max_pool2d(_relu(x, w, b), (11, 10)), [X, W, B],
                         ["product: conv_bias relu max_pool"]),
}  # fmt: skip


@pytest.mark.parametrize(("dtype", "threads"), [("float32", 3), ("bfloat16", 1)])
@pytest.mark.parametrize("name", FUSED)
def test_pooled_with_the_convolution(
    name: str, dtype: str, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    function, shapes, steps = FUSED[name]
    program, inputs = _program(function, shapes, dtype), _inputs(shapes, dtype)
    if dtype == "float32":
        assert _steps(program) == steps
    before = weft.get_num_threads()
    weft.set_num_threads(threads)
    try:
        (got,) = program(inputs)
        monkeypatch.setenv("WEFT_CACHE", "0")
        monkeypatch.setattr(CpuTarget, "pools", lambda *_: False)
        apart = _program(function, shapes, dtype)
        assert len(apart.kernels) > len(program.kernels)
        np.testing.assert_array_equal(got.numpy(), apart(inputs)[0].numpy())
    finally:
        weft.set_num_threads(before)
    (want,) = interpret(program.graph, inputs, bind)
    tight = {"float32": 1e-5, "bfloat16": 3e-2}[dtype]
    np.testing.assert_allclose(
        got.astype(weft.float64).numpy(), want.astype(weft.float64).numpy(), tight, tight
    )


def _also(x: Any, w: Any, b: Any) -> Any:
    y = _relu(x, w, b)
    return F.max_pool2d(y, 2), y.sum()


def _given_back(x: Any, w: Any, b: Any) -> Any:
    y = _relu(x, w, b)
    return F.max_pool2d(y, 2), y


APART: dict[str, tuple[Callable[..., Any], Shapes]] = {
    "used by others": (_also, [X, W, B]),
    "given back": (_given_back, [X, W, B]),
    "few images": (lambda x, w, b: F.max_pool2d(_relu(x, w, b), 2), [(2, *X[1:]), W, B]),
    "large images": (lambda x, w, b: F.max_pool2d(_relu(x, w, b), 2), [(8, 3, 180, 180), W, B]),
    "seen through a view": (
        lambda x, w: F.max_pool2d(F.conv2d(x, w).transpose(2, 3), 2), [X, W],
    ),
    "training": (
        weft.grad(lambda w, x, b: (F.max_pool2d(_relu(x, w, b), 2) ** 2).sum()), [W, X, B],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", APART)
def test_what_others_need_is_written(name: str) -> None:
    function, shapes = APART[name]
    program, inputs = _program(function, shapes, "float32"), _inputs(shapes, "float32")
    assert not any("relu max_pool" in step or "conv max_pool" in step for step in _steps(program))
    for got, want in zip(program(inputs), interpret(program.graph, inputs, bind), strict=True):
        np.testing.assert_allclose(got.numpy(), want.numpy(), 1e-4, 1e-4)


def test_nan_and_infinity() -> None:
    function, shapes, _ = FUSED["max"]
    x, w, b = _inputs(shapes, "float32")
    bad = x.numpy().copy()
    bad[0, 0, 5, 5], bad[3, 1, 2, 7], bad[8, 2, 9, 9] = np.nan, np.inf, -np.inf
    program = _program(function, shapes, "float32")
    given = [weft.asarray(bad), w, b]
    (want,) = interpret(program.graph, given, bind)
    np.testing.assert_allclose(program(given)[0].numpy(), want.numpy(), 1e-5, 1e-5)
