"""Functions and control flow that are handed views of all kinds give what eager gives.

Card by card, and operand by operand, see `test_views_into_consumers.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.nn.functional as F

Shape = tuple[int, ...]
Array = np.ndarray[Any, Any]


# --- views: from an operand of a shape to the base that it is a look at, and back -----------------


def _wider(shape: Shape, axis: int, more: int = 2) -> Shape:
    return tuple(size + more if i == axis else size for i, size in enumerate(shape))


def _turned(shape: Shape, axes: tuple[int, int]) -> Shape:
    sizes = list(shape)
    sizes[axes[0]], sizes[axes[1]] = sizes[axes[1]], sizes[axes[0]]
    return tuple(sizes)


#: name: (shape of the operand -> shape of its base, or None where there is no such view;
#: (base, shape of the operand) -> the operand)
VIEWS: dict[str, tuple[Callable[[Shape], Shape | None], Callable[[Any, Shape], Any]]] = {
    "turned": (
        lambda s: _turned(s, (0, -1)) if len(s) > 1 else None,
        lambda x, s: x.swapaxes(0, -1),
    ),
    "turned inside": (
        lambda s: _turned(s, (1, 2)) if len(s) > 2 else None,
        lambda x, s: x.swapaxes(1, 2),
    ),
    "sliced": (lambda s: _wider(s, len(s) - 1), lambda x, s: x[..., : s[-1]]),
    "sliced second": (
        lambda s: _wider(s, 1) if len(s) > 1 else None,
        lambda x, s: x[:, : s[1]],
    ),
    "strided": (
        lambda s: (*s[:-1], 2 * s[-1]),
        lambda x, s: x[..., ::2],
    ),
    "reversed": (lambda s: s, lambda x, s: x[::-1]),
    "reversed inside": (lambda s: s, lambda x, s: x[..., ::-1]),
    "offset": (lambda s: _wider(s, 0), lambda x, s: x[2:]),
    "one of many": (lambda s: (s[0], 3, *s[1:]), lambda x, s: x[:, 1]),
    "repeated": (lambda s: (1, *s[1:]), lambda x, s: weft.broadcast_to(x, s)),
    "reshaped copy": (
        lambda s: _turned((s[0], int(np.prod(s[1:]))), (0, 1)),
        lambda x, s: x.swapaxes(0, 1).reshape(s),
    ),
}


# --- consumers: of arrays of these shapes; "i" are integers below 3, "b" truths -------------------

CONSUMERS: dict[str, tuple[Callable[..., Any], tuple[tuple[str, Shape], ...]]] = {
    "matmul": (lambda a, b: a @ b, (("f", (4, 6)), ("f", (6, 3)))),
    "stacked matmul": (lambda a, b: a @ b, (("f", (2, 4, 6)), ("f", (2, 6, 3)))),
    "matrix vector": (lambda a, b: a @ b, (("f", (4, 6)), ("f", (6,)))),
    "conv1d": (lambda x, w: F.conv1d(x, w, padding=1), (("f", (2, 3, 7)), ("f", (4, 3, 3)))),
    "conv2d": (
        lambda x, w, b: F.conv2d(x, w, b),
        (("f", (2, 3, 6, 5)), ("f", (4, 3, 3, 2)), ("f", (4,))),
    ),
    "conv2d, relu": (
        lambda x, w: F.relu(F.conv2d(x, w, stride=2) * 2),
        (("f", (2, 3, 6, 5)), ("f", (4, 3, 3, 2))),
    ),
    "conv_transpose2d": (
        lambda x, w: F.conv_transpose2d(x, w, stride=2),
        (("f", (2, 3, 4, 3)), ("f", (3, 4, 2, 2))),
    ),
    "conv2d, max_pool2d": (
        lambda x, w: F.max_pool2d(F.conv2d(x, w), 2),
        (("f", (2, 3, 6, 6)), ("f", (4, 3, 3, 3))),
    ),
    "max_pool2d": (lambda x: F.max_pool2d(x, 2), (("f", (2, 3, 6, 4)),)),
    "avg_pool2d": (lambda x: F.avg_pool2d(x, 2), (("f", (2, 3, 6, 4)),)),
    "attention": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v),
        (("f", (2, 3, 5, 4)), ("f", (2, 3, 6, 4)), ("f", (2, 3, 6, 4))),
    ),
    "attention with a mask": (
        lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m),
        (("f", (2, 3, 5, 4)), ("f", (2, 3, 6, 4)), ("f", (2, 3, 6, 4)), ("f", (2, 1, 5, 6))),
    ),
    "sort": (lambda x: weft.sort(x, axis=-1), (("f", (4, 7)),)),
    "argsort": (lambda x: weft.argsort(x, axis=0), (("f", (4, 7)),)),
    "argmax": (lambda x: weft.argmax(x, axis=-1), (("f", (4, 7)),)),
    "cumulative_sum": (lambda x: weft.cumulative_sum(x, axis=1), (("f", (4, 7)),)),
    "searchsorted": (
        lambda x, v: weft.searchsorted(weft.sort(x), v),
        (("f", (7,)), ("f", (4,))),
    ),
    "take": (lambda x, i: weft.take(x, i, axis=0), (("f", (4, 5)), ("i", (6,)))),
    "take_along_axis": (
        lambda x, i: weft.take_along_axis(x, i, axis=1),
        (("f", (4, 5)), ("i", (4, 6))),
    ),
    "index": (lambda x, i: x[i], (("f", (4, 5)), ("i", (6, 2)))),
    "embedding": (lambda i, w: F.embedding(i, w), (("i", (4, 3)), ("f", (4, 5)))),
    "concat": (
        lambda x, y: weft.concat([x, y], axis=1),
        (("f", (4, 5)), ("f", (4, 3))),
    ),
    "where": (lambda c, x, y: weft.where(c, x, y), (("b", (4, 5)), ("f", (4, 5)), ("f", (5,)))),
    "one_hot": (lambda i: F.one_hot(i, 4), (("i", (4, 3)),)),
    "count_nonzero": (lambda c: weft.count_nonzero(c, axis=1), (("b", (4, 5)),)),
    "softmax": (lambda x: weft.softmax(x, axis=-1), (("f", (4, 7)),)),
    "layer_norm": (lambda x: F.layer_norm(x, (7,)), (("f", (4, 7)),)),
    "cross_entropy": (lambda x, i: F.cross_entropy(x, i), (("f", (4, 5)), ("i", (4,)))),
    "assigned": (lambda x, i, v: _assigned(x, i, v), (("f", (4, 5)), ("i", (2,)), ("f", (2, 5)))),
    "fft": (lambda x: weft.real(weft.fft.fft(x)), (("f", (4, 6)),)),
    "inv": (lambda x: weft.linalg.inv(x @ x.mT + weft.eye(4)), (("f", (4, 4)),)),
    "result": (lambda x: x, (("f", (4, 5)),)),
    "scanned": (lambda x, c: _scanned(x, c), (("f", (4, 5)), ("f", (5,)))),
    "branch": (lambda x: _branch(x), (("f", (4, 5)),)),
    "list": (lambda x: _listed(x), (("f", (4, 5)),)),
}


def _assigned(x: Any, i: Any, v: Any) -> Any:
    x = x * 1
    x[i] = v
    return x


def _scanned(x: Any, c: Any) -> Any:
    return weft.scan(lambda carry, row: (carry + row, carry * row), c, x)[1]


def _branch(x: Any) -> Any:
    if x.sum() > 0:
        return x * 2
    return weft.exp(x)


def _listed(x: Any) -> Any:
    rows = []
    for row in x:
        rows.append(row * 2)  # noqa: PERF401
    return weft.stack(rows)


def _numbers(rng: np.random.Generator, kind: str, shape: Shape) -> Array:
    if kind == "i":
        return rng.integers(0, 3, shape)
    if kind == "b":
        return rng.random(shape) > 0.5
    return rng.normal(size=shape).astype(np.float32)


# --- programs -------------------------------------------------------------------------------------

ROUNDS = 9  # more than are unrolled
Program = Callable[..., Any]


def _fused(body: Program, kinds: list[str]) -> Program:
    """What is looked at is computed: the copies are made where it is."""
    return lambda *given: body(
        *[weft.sin(x) if kind == "f" else x for kind, x in zip(kinds, given, strict=True)]
    )


def _looped(body: Program, kinds: list[str]) -> Program:
    """Slices of what is given, round by round of a loop."""

    def program(*given: Any) -> Any:
        first = body(*[x[0] for x in given])
        for t in range(ROUNDS):
            first = first + body(*[x[t] for x in given])
        return first

    return program


def _gradient(body: Program, kinds: list[str]) -> Program:
    """The gradients of all numbers, along a view of what is computed of them."""

    def program(*given: Any) -> Any:
        given = tuple(
            [x.detach().requires_grad_(k == "f") for x, k in zip(given, kinds, strict=True)]
        )
        out = body(*given)
        along = weft.cos(out.detach().swapaxes(0, -1)).swapaxes(0, -1) if out.ndim else None
        found = weft.autograd.grad(
            [out],
            [x for x, kind in zip(given, kinds, strict=True) if kind == "f"],
            None if along is None else [along],
        )
        return [out, *found]

    return program


MODES: dict[str, Callable[[Program, list[str]], Program]] = {
    "plain": lambda body, kinds: body,
    "fused": _fused,
    "loop": _looped,
    "gradient": _gradient,
}
#: Consumers without a gradient.
COUNTS = {"argsort", "argmax", "searchsorted", "one_hot", "count_nonzero"}


def _views(consumer: str, mode: str) -> list[str]:
    """A third of the views, another one for each consumer and mode."""
    turn = list(CONSUMERS).index(consumer) + list(MODES).index(mode)
    return list(VIEWS)[turn % 3 :: 3]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("consumer", CONSUMERS)
def test_every_view_of_every_operand(consumer: str, mode: str) -> None:
    if mode == "gradient" and consumer in COUNTS:
        return
    function, operands = CONSUMERS[consumer]
    kinds = [kind for kind, _ in operands]
    rng = np.random.default_rng(1)
    for name in _views(consumer, mode):
        base_of, look = VIEWS[name]
        bases = [base_of(shape) for _, shape in operands]

        def body(*given: Any, bases: Any = bases, look: Any = look) -> Any:
            looks = [
                x if base is None else look(x, shape)
                for (_, shape), base, x in zip(operands, bases, given, strict=True)
            ]
            return function(*looks)

        program = MODES[mode](body, kinds)
        compiled = weft.compile(program, backend="native")
        before = (ROUNDS,) if mode == "loop" else ()
        for _ in range(2):
            given = [
                weft.asarray(_numbers(rng, kind, (*before, *(shape if base is None else base))))
                for (kind, shape), base in zip(operands, bases, strict=True)
            ]
            wanted, found = program(*given), compiled(*given)
            if not isinstance(wanted, list):
                wanted, found = [wanted], [found]
            for a, b in zip(wanted, found, strict=True):
                np.testing.assert_allclose(
                    b.detach().numpy(), a.detach().numpy(), rtol=1e-3, atol=1e-4, err_msg=name
                )


def test_a_product_without_an_emitter() -> None:
    """A complex product is a call into Python, which is handed dense arrays."""
    compiled = weft.compile(lambda a, b: a.mT @ b[:, ::-1], backend="native")
    rng = np.random.default_rng(2)
    for _ in range(2):
        a, b = (
            (rng.normal(size=s) + 1j * rng.normal(size=s)).astype("complex64")
            for s in ((4, 3), (4, 5))
        )
        found = compiled(weft.asarray(a), weft.asarray(b)).numpy()
        np.testing.assert_allclose(found, a.T @ b[:, ::-1], rtol=1e-5)
