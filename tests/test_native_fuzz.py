"""Random graphs of fusable ops as machine code: elementwise, views, reductions, products, joined in
ways that nobody thought of."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import weft
from weft.core.bind import bind
from weft.ir.graph import Graph
from weft.ir.interpret import interpret
from weft.passes.pipeline import optimize, passes
from weft.runtime.native import NativeProgram

SIZES = [1, 2, 3, 4, 5, 8, 17, 33]
SHORT = ["tanh", "sigmoid", "abs", "relu", "negative", "square"]


class Writer:
    """Makes tensors of tensors by random calls; all numbers stay small."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.dims = [self.rng.choice(SIZES) for _ in range(3)]
        self.dtype = self.rng.choice([weft.float64, weft.float64, weft.float32])

    def shape(self) -> tuple[int, ...]:
        count = self.rng.choice([0, 1, 2, 2, 3, 3])
        return tuple(self.rng.choice([*self.dims, 1]) for _ in range(count))

    def inputs(self) -> list[Any]:
        numbers = np.random.default_rng(self.rng.randrange(10**6))
        return [
            weft.asarray(numbers.standard_normal(self.shape()), dtype=self.dtype) for _ in range(4)
        ]

    def program(self, *inputs: Any) -> list[Any]:
        rng = random.Random(self.rng.random())  # the same each time it is recorded
        values = list(inputs)
        for _ in range(rng.randint(3, 18)):
            step = rng.choice(STEPS)
            made = step(rng, values)
            if made is not None and 0 < made.size <= 20_000:
                values.append(made)
        return [values[-1], *rng.sample(values, 3)]


def _pick(rng: random.Random, values: list[Any]) -> Any:
    return values[-1 - int(rng.random() ** 2 * len(values))]


def _unary(rng: random.Random, values: list[Any]) -> Any:
    return getattr(weft, rng.choice(SHORT))(_pick(rng, values) * 0.5)


def _binary(rng: random.Random, values: list[Any]) -> Any:
    x = _pick(rng, values)
    fits = [y for y in values if _broadcasts(x.shape, y.shape)]
    y = rng.choice(fits)
    kind = rng.randrange(5)
    if kind == 0:
        return weft.where(x > y, x, y * 0.5)
    if kind == 1:
        return weft.maximum(x, y)
    if kind == 2:
        return weft.tanh(x) * y
    return x + y if kind == 3 else (x - y) / (weft.abs(y) + 1)


def _broadcasts(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    return all(x == y or 1 in (x, y) for x, y in zip(a[::-1], b[::-1], strict=False))


def _reduce(rng: random.Random, values: list[Any]) -> Any:
    x = _pick(rng, values)
    axes = tuple(sorted(rng.sample(range(x.ndim), rng.randint(0, x.ndim))))
    if not axes:
        return None
    keep = rng.random() < 0.5
    if rng.random() < 0.3:
        return weft.max(x, axis=axes, keepdims=keep)
    return weft.mean(x, axis=axes, keepdims=keep)


def _rows(rng: random.Random, values: list[Any]) -> Any:
    x = _pick(rng, values)
    if not x.ndim:
        return None
    axis = rng.randrange(x.ndim)
    kind = rng.randrange(3)
    if kind == 0:
        return weft.softmax(x, axis=axis)
    if kind == 1:
        return weft.logsumexp(x, axis=axis)
    return x - weft.mean(x, axis=axis, keepdims=True)


def _permute(rng: random.Random, values: list[Any]) -> Any:
    x = _pick(rng, values)
    return weft.permute_dims(x, tuple(rng.sample(range(x.ndim), x.ndim))) if x.ndim > 1 else None


def _reshape(rng: random.Random, values: list[Any]) -> Any:
    x = _pick(rng, values)
    sizes, left = [], x.size
    while left > 1 and len(sizes) < 3:
        sizes.append(rng.choice([d for d in range(1, left + 1) if left % d == 0]))
        left //= sizes[-1]
    return weft.reshape(x, (*sizes, left))


def _slice(rng: random.Random, values: list[Any]) -> Any:
    x = _pick(rng, values)
    index: list[Any] = []
    for size in x.shape:
        first = rng.randrange(size)
        index.append(rng.choice([slice(None), slice(first, None), slice(None, None, -1), first]))
    return x[tuple(index)] if index else None


def _product(rng: random.Random, values: list[Any]) -> Any:
    x = _pick(rng, values)
    for y in rng.sample(values, len(values)):
        for one, two in ((x, y), (x, y.mT if y.ndim > 1 else y), (y, x)):
            if not (one.ndim and two.ndim) or one.shape[-1] != two.shape[-2:][0]:
                continue
            if _broadcasts(one.shape[:-2], two.shape[:-2]):
                return (one @ two) / one.shape[-1]
    return None


def _concat(rng: random.Random, values: list[Any]) -> Any:
    x = _pick(rng, values)
    return weft.concat([x, x * 0.5], axis=rng.randrange(x.ndim)) if x.ndim else None


STEPS = [_unary, _unary, _binary, _binary, _binary, _reduce, _reduce, _rows, _permute, _reshape]
STEPS += [_slice, _product, _product, _concat]


def check(seed: int) -> None:
    writer = Writer(seed)
    inputs = writer.inputs()
    state = writer.rng.getstate()

    def program(*given: Any) -> list[Any]:
        writer.rng.setstate(state)
        return writer.program(*given)

    graph: Graph = weft.make_graph(program, *inputs)
    if seed % 2:
        graph = optimize(graph, passes())
    run = NativeProgram(graph)
    want = interpret(graph, inputs, bind)
    for _ in range(2):
        for got, expected in zip(run(inputs), want, strict=True):
            assert got.type == expected.type
            near = 1e-9 if writer.dtype is weft.float64 else 2e-4
            np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=near, atol=near)


@pytest.mark.parametrize("seed", range(80))
def test_random_graphs(seed: int) -> None:
    check(seed)
