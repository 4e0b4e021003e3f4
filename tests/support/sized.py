"""Functions whose graphs have symbolic sizes, for tests of the programs that serve all sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import weft
import weft.nn.functional as F

__all__ = ["CASES", "SIZES", "SizedCase", "inputs_of", "specs_of"]

#: The size B of the runs, in this order; T goes along with it.
SIZES = (2, 1, 7, 0, 64, 12, 1000)
_T = {0: 3, 1: 1, 2: 9, 7: 2, 12: 11, 33: 17, 64: 16, 1000: 33}


@dataclass(frozen=True)
class SizedCase:
    """
    shapes  of the inputs, with names for symbolic sizes
    exact   whether results equal those of the interpreter bit by bit
    """

    function: Callable[..., Any]
    shapes: Sequence[tuple[Any, ...]]
    exact: bool = False
    rtol: float = 3e-5


def specs_of(case: SizedCase) -> list[Any]:
    return [weft.spec(shape) for shape in case.shapes]


def inputs_of(case: SizedCase, n: int, seed: int) -> list[Any]:
    rng = np.random.default_rng(seed)
    sizes = {"B": n, "T": _T[n]}
    shapes = [[sizes.get(size, size) for size in shape] for shape in case.shapes]
    return [weft.asarray(rng.standard_normal(shape).astype(np.float32)) for shape in shapes]


def _heads(x: Any) -> Any:
    return weft.permute_dims(x.reshape((x.shape[0], x.shape[1], 4, 8)), (0, 2, 1, 3)) * 1.0


LOOPS = {
    "elementwise": SizedCase(lambda x: x * 2 + 1, [("B", 4)], exact=True),
    "a vector": SizedCase(lambda x: weft.exp(x) * 2, [("B",)]),
    "a row for all": SizedCase(lambda x, y: x * y + 1, [("B", "T"), ("T",)], exact=True),
    "a column for all": SizedCase(lambda x, y: x * y + 1, [("B", "T"), ("B", 1)], exact=True),
    "two results": SizedCase(lambda x: (x, x + 1, x * 3), [("B", 3)], exact=True),
    "casts": SizedCase(lambda x: weft.astype(x * 10, weft.int32) // 3, [("B", 3)], exact=True),
    "narrow floats": SizedCase(
        lambda x: weft.astype(x, weft.bfloat16) * weft.astype(x, weft.bfloat16),
        [("B", 5)],
        exact=True,
    ),
    "float16 sums": SizedCase(
        lambda x: weft.astype(x, weft.float16).sum(axis=0), [("B", 3)], rtol=2e-3
    ),
    "columns": SizedCase(lambda x: x.sum(axis=0), [("B", 8)]),
    "wide columns": SizedCase(lambda x: (weft.tanh(x) * x).sum(axis=0), [("B", 300)]),
    "columns of T": SizedCase(lambda x: (x * 2).sum(axis=0), [("B", "T")]),
    "rows": SizedCase(lambda x: x.sum(axis=1), [("B", 8)]),
    "long rows": SizedCase(lambda x: x.sum(axis=1), [("B", 100)]),
    "rows that are never whole vectors": SizedCase(
        lambda x: weft.exp(weft.ones((3, 16 * x.shape[0] + 1)) * weft.tanh(x.sum())), [("B",)]
    ),
    "rows of T": SizedCase(lambda x: x.sum(axis=1), [("B", "T")]),
    "inner rows": SizedCase(lambda x: x.sum(axis=1), [("B", "T", 5)]),
    "both ends": SizedCase(lambda x: x.sum(axis=(0, 2)), [("B", "T", 5)]),
    "a total": SizedCase(lambda x: (x * x).sum(), [("B", "T")]),
    "means": SizedCase(lambda x: x.mean(axis=0), [("B", 5)]),
    "a variance": SizedCase(lambda x: ((x - x.mean()) ** 2).mean(), [("B", 5)]),
    "maxima": SizedCase(lambda x: x.max(axis=1), [("B", "T")], exact=True),
    "maxima of columns": SizedCase(lambda x: x.max(axis=0), [("B", 70)], exact=True),
    "any": SizedCase(lambda x: (x > 0.5).any(axis=1), [("B", "T")], exact=True),
    "all": SizedCase(lambda x: (x > -1.5).all(axis=0), [("B", "T")], exact=True),
    "layer norm": SizedCase(lambda x: F.layer_norm(x, (8,)), [("B", 8)]),
    "a wide layer norm": SizedCase(lambda x: F.layer_norm(x, (64,)), [("B", "T", 64)]),
    "softmax of T": SizedCase(lambda x: weft.softmax(x, axis=-1), [("B", "T")]),
    "softmax of columns": SizedCase(lambda x: weft.softmax(x, axis=0), [("B", "T")]),
    "a size as a number": SizedCase(lambda x: x * x.shape[0], [("B", 3)], exact=True),
    "full": SizedCase(lambda x: weft.full((x.shape[0], 2), 3.0) + x, [("B", 2)], exact=True),
    "a gradient": SizedCase(
        lambda x, w: weft.grad(lambda w: (weft.tanh(x * w) ** 2).mean())(w), [("B", 16), (16,)]
    ),
}
VIEWS = {
    "transposed": SizedCase(lambda x: x.T * 1.5, [("B", "T")], exact=True),
    "permuted": SizedCase(
        lambda x: weft.permute_dims(x, (1, 2, 0)) + 1, [("B", "T", 3)], exact=True
    ),
    "flat": SizedCase(lambda x: x.reshape((-1,)) * 2, [("B", "T")], exact=True),
    "split": SizedCase(lambda x: x.reshape((x.shape[0], 4, 16)).sum(axis=1), [("B", 64)]),
    "heads": SizedCase(_heads, [("B", "T", 32)], exact=True),
    "without the first": SizedCase(lambda x: x[1:] * 2, [("B", 4)], exact=True),
    "neighbours": SizedCase(lambda x: x[:-1] - x[1:], [("B",)], exact=True),
    "backwards": SizedCase(lambda x: x[::-1] + 0, [("B", 3)], exact=True),
    "the last": SizedCase(lambda x: x[-1] * 2, [("B", 3)], exact=True),
    "the third": SizedCase(lambda x: x[2] * 2, [("B", 3)], exact=True),
    "every second": SizedCase(lambda x: x[::2] + 1, [("B", 3)], exact=True),
    "half": SizedCase(lambda x: x[: x.shape[0] // 2] + 1, [("B", 3)], exact=True),
    "axes regrouped": SizedCase(
        lambda x: x.reshape((2, x.shape[1] * 2)) * 2 + 1, [(4, "T")], exact=True
    ),
    "a copy regrouped": SizedCase(
        lambda x: weft.sort(x, axis=1).reshape((2, x.shape[1] * 2)), [(4, "T")], exact=True
    ),
    "repeated": SizedCase(
        lambda x: weft.broadcast_to(x, (x.shape[0], 5)) * 2, [("B", 1)], exact=True
    ),
}


def _mlp_gradients(x: Any, w: Any, v: Any) -> Any:
    return weft.grad(lambda p: ((F.gelu(x @ p[0]) @ p[1]) ** 2).mean())((w, v))


def _narrow(dtype: Any) -> Callable[..., Any]:
    return lambda x, w: weft.astype(x, dtype) @ weft.astype(w, dtype)


PRODUCTS = {
    "rows of a product": SizedCase(lambda x, w: x @ w, [("B", 96), (96, 300)]),
    "times a transposed": SizedCase(lambda x, w: x @ w.T, [("B", 96), (300, 96)]),
    "rows together": SizedCase(lambda x, w: x @ w, [("B", "T", 64), (64, 256)], rtol=1e-4),
    "terms": SizedCase(lambda x, w: x.T @ w, [("B", 32), ("B", 48)], rtol=1e-4),
    "terms together": SizedCase(
        lambda x, w: x.reshape((-1, 32)).T @ w.reshape((-1, 48)),
        [("B", "T", 32), ("B", "T", 48)],
        rtol=3e-4,
    ),
    "columns of a product": SizedCase(lambda x, w: x @ w, [(20, 32), (32, "B")]),
    "short transposed terms": SizedCase(
        lambda x, w: weft.astype(x, weft.float64) @ weft.astype(w, weft.float64).T,
        [(3, "B"), (5, "B")],
        rtol=1e-6,
    ),
    "rows and columns": SizedCase(lambda x, w: x @ w.T, [("B", 32), ("T", 32)]),
    "all sizes": SizedCase(lambda x, w: x @ w, [("B", "T"), ("T", "B")], rtol=1e-4),
    "stacks": SizedCase(lambda x, w: x @ w, [("B", 20, 32), ("B", 32, 48)]),
    "scores": SizedCase(lambda x: x @ weft.permute_dims(x, (0, 2, 1)), [("B", "T", 16)]),
    "short terms": SizedCase(lambda x, w: x @ w, [("B", 4), (4, 64)]),
    "many terms": SizedCase(lambda x, w: x @ w, [("B", 3000), (3000, 40)], rtol=3e-4),
    "a matrix and a vector": SizedCase(lambda x, v: x @ v, [("B", 32), (32,)]),
    "long dots": SizedCase(lambda x, v: x @ v, [(20, "B"), ("B",)], rtol=1e-4),
    "a dot": SizedCase(lambda x, v: x @ v, [("B",), ("B",)], rtol=1e-4),
    "float16": SizedCase(_narrow(weft.float16), [("B", 32), (32, 48)], rtol=2e-3),
    "bfloat16": SizedCase(_narrow(weft.bfloat16), [("B", 32), (32, 48)], rtol=1e-2),
    "int8": SizedCase(
        lambda x, w: weft.astype(x * 9, weft.int8) @ weft.astype(w * 9, weft.int8),
        [("B", 32), (32, 48)],
        exact=True,
    ),
    "a layer": SizedCase(
        lambda x, w, b: F.relu(x @ w + b) + x, [("B", "T", 64), (64, 64), (64,)], rtol=1e-4
    ),
    "a total of a product": SizedCase(
        lambda x, w: ((x @ w) ** 2).sum(), [("B", 32), (32, 48)], rtol=1e-4
    ),
    "gradients of layers": SizedCase(
        _mlp_gradients, [("B", "T", 64), (64, 96), (96, 64)], rtol=3e-4
    ),
}


def _indices(x: Any, of: int) -> Any:
    """Indices from 0 to of - 1, made of the numbers in a tensor."""
    return weft.astype(weft.abs(x * 1000), weft.int64) % of


def _with_row(x: Any, y: Any) -> Any:
    x = x * 1.0
    x[0] = y
    return x


def _with_part(x: Any) -> Any:
    y = x * 2.0
    y[:, 1:] = x[:, 1:] * 3
    return y


def _embedding_gradient(w: Any, x: Any) -> Any:
    return weft.grad(lambda w: (F.embedding(_indices(x, 9), w) ** 2).sum())(w)


INDEXING = {
    "take": SizedCase(
        lambda x, i: weft.take(x, _indices(i, 5), axis=0), [(5, 8), ("B",)], exact=True
    ),
    "take of a size": SizedCase(
        lambda x, i: weft.take(x, _indices(i, x.shape[0]), axis=0), [("T", 8), ("B",)], exact=True
    ),
    "take columns": SizedCase(
        lambda x: weft.take(x, weft.tensor([2, 0, -1]), axis=1), [("B", 5)], exact=True
    ),
    "gather": SizedCase(
        lambda x, i: x[_indices(i, x.shape[0]), 1:], [("B", 4), ("T",)], exact=True
    ),
    "along an axis": SizedCase(
        lambda x: weft.take_along_axis(x, _indices(x, 5)[:, :2], axis=1), [("B", 5)], exact=True
    ),
    "embedding": SizedCase(
        lambda w, x: F.embedding(_indices(x, 9), w), [(9, 16), ("B", "T")], exact=True
    ),
    "gradient of an embedding": SizedCase(_embedding_gradient, [(9, 16), ("B", "T")], rtol=1e-4),
    "joined": SizedCase(
        lambda x, y: weft.concat([x, y, x], axis=0), [("B", 3), ("T", 3)], exact=True
    ),
    "joined columns": SizedCase(
        lambda x, y: weft.concat([x, y], axis=1), [("B", 3), ("B", "T")], exact=True
    ),
    "many joined": SizedCase(
        lambda x, y: weft.concat([x, y] * 6, axis=1), [("B", 3), ("B", "T")], exact=True
    ),
    "stacked": SizedCase(lambda x: weft.stack([x, x * 2], axis=1), [("B", 3)], exact=True),
    "a row written": SizedCase(_with_row, [("B", 3), (3,)], exact=True),
    "a part written": SizedCase(_with_part, [("B", "T", 3)], exact=True),
    "arange": SizedCase(lambda x: weft.arange(x.shape[0]) * 2 + 1, [("B", 2)], exact=True),
    "eye": SizedCase(lambda x: weft.eye(x.shape[0]) * 2, [("B",)], exact=True),
    "padded": SizedCase(lambda x: F.pad(x, (0, 1, 1, 2)), [("B", 3)], exact=True),
    "gradient of a slice": SizedCase(
        lambda x: weft.grad(lambda x: (x[1:] * x[:-1]).sum())(x), [("B", 3)]
    ),
    "cross entropy": SizedCase(
        lambda x: weft.grad(lambda x: F.cross_entropy(x, _indices(x[:, 0], 33)))(x), [("B", 33)]
    ),
    "cross entropy of T": SizedCase(
        lambda x: F.cross_entropy(x.reshape((-1, 33)), _indices(x[:, :, 0], 33).reshape((-1,))),
        [("B", "T", 33)],
    ),
}


def _scanned(x: Any, w: Any) -> Any:
    return weft.scan(
        lambda h, row: (weft.tanh(row @ w + h * 0.2), h.sum()), weft.zeros(w.shape[1]), x
    )


def _recurrent(x: Any, w: Any) -> Any:
    def step(h: Any, row: Any) -> Any:
        h = weft.tanh(row + h @ w * 0.2)
        return h, h

    return weft.scan(step, weft.zeros((x.shape[1], 8)), x)


def _long_recurrent(x: Any, w: Any) -> Any:
    """Long enough for parts of the rows, which threads take."""

    def step(h: Any, row: Any) -> Any:
        h = weft.tanh(row + h @ w * 0.1)
        return h, h.sum(axis=1)

    return weft.scan(step, weft.zeros((x.shape[1], 32)), x)


def _backwards(x: Any) -> Any:
    return weft.scan(lambda c, row: (c + row, c), weft.zeros(3), x, reverse=True)


def _recurrent_gradient(x: Any, w: Any) -> Any:
    return weft.grad(lambda w: (_recurrent(x, w)[1] ** 2).mean())(w)


def _halved(x: Any) -> Any:
    return weft.while_loop(lambda y: (y * y).sum() > 1.0, lambda y: y * 0.5, x)


def _halved_gradient(x: Any) -> Any:
    return weft.grad(lambda x: (_halved(x) * x).sum())(x)


def _either(x: Any) -> Any:
    return weft.cond(x.sum() > 0, lambda x: weft.exp(x) * 2, lambda x: x.sum(axis=0) - x, x)


def _nested(x: Any) -> Any:
    def outer(c: Any, row: Any) -> Any:
        inner = weft.scan(lambda a, item: (a * 0.5 + item, a), weft.zeros(()), row)
        return c + inner[0], inner[1]

    return weft.scan(outer, weft.zeros(()), x)


CONTROL = {
    "a scan over B": SizedCase(_scanned, [("B", 3), (3, 5)], rtol=1e-4),
    "a recurrent net": SizedCase(_recurrent, [("T", "B", 8), (8, 8)], rtol=1e-4),
    "a scan backwards": SizedCase(_backwards, [("B", 3)], rtol=1e-4),
    "a recurrent net of many rows": SizedCase(
        _long_recurrent, [(40, "B", 32), (32, 32)], rtol=1e-4
    ),
    "many rows and steps": SizedCase(_long_recurrent, [("T", "B", 32), (32, 32)], rtol=1e-4),
    "gradient of a recurrent net": SizedCase(
        _recurrent_gradient, [("T", "B", 8), (8, 8)], rtol=3e-4
    ),
    "a while loop": SizedCase(_halved, [("B", 2)], exact=True),
    "gradient of a while loop": SizedCase(_halved_gradient, [("B", 2)], rtol=1e-4),
    "a branch": SizedCase(_either, [("B", "T")], rtol=1e-4),
    "a scan in a scan": SizedCase(_nested, [("B", "T")], rtol=1e-4),
}
CASES = {**LOOPS, **VIEWS, **PRODUCTS, **INDEXING, **CONTROL}
