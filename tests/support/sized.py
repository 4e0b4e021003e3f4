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
SIZES = (2, 1, 7, 0, 64, 1000)
_T = {0: 3, 1: 1, 2: 9, 7: 2, 33: 17, 64: 16, 1000: 33}


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
CASES = {**LOOPS, **VIEWS, **PRODUCTS}
