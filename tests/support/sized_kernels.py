"""Functions whose graphs have symbolic sizes: attention, and what has kernels of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import weft
import weft.nn.functional as F
from tests.support.sized import SizedCase

__all__ = ["ATTENTION", "KERNEL_CASES"]

_attend = F.scaled_dot_product_attention


def _causal(q: Any, k: Any, v: Any) -> Any:
    return _attend(q, k, v, is_causal=True)


def _gradients(f: Callable[..., Any], count: int = 3) -> Callable[..., Any]:
    """The gradients of the first few arguments."""

    def made(*given: Any) -> Any:
        def loss(*some: Any) -> Any:
            return (f(*some, *given[count:]) * 0.5).square().sum()

        return weft.grad(loss, argnums=tuple(range(count)))(*given[:count])

    return made


def _as(dtype: Any) -> Callable[..., Any]:
    return lambda *given: _attend(*(weft.astype(x, dtype) for x in given))


def _split_heads(x: Any) -> Any:
    """Heads out of the features: (batch, length, 4·8) to (batch, 4, length, 8), as a view."""
    return weft.permute_dims(x.reshape((x.shape[0], x.shape[1], 4, 8)), (0, 2, 1, 3))


def _self_attention(x: Any) -> Any:
    q = _split_heads(x)
    made = weft.permute_dims(_causal(q, q, q), (0, 2, 1, 3))
    return made.reshape((x.shape[0], x.shape[1], 32))


_SELF = [("B", 2, "T", 16)] * 3
_LONG = [(2, "B", 16)] * 3
_CROSS = [("T", 16), ("B", 16), ("B", 24)]
_NARROW = [(2, 40, 19), (2, "B", 19), (2, "B", 21)]  # rows that are not whole vectors
ATTENTION = {
    "attention": SizedCase(_attend, _SELF),
    "long attention": SizedCase(_attend, _LONG),
    "many keys": SizedCase(_attend, _CROSS),
    "many queries": SizedCase(_attend, [("B", 16), ("T", 16), ("T", 24)]),
    "a query": SizedCase(_attend, [(2, 1, 16), (2, "B", 16), (2, "B", 16)]),
    "some keys": SizedCase(_attend, [("B", 16), (40, 16), (40, 16)]),
    "attention of narrow rows": SizedCase(_attend, _NARROW),
    "causal attention": SizedCase(_causal, _LONG),
    "bfloat16 attention": SizedCase(_as(weft.bfloat16), _SELF, rtol=2e-2),
    "float16 attention": SizedCase(_as(weft.float16), _LONG, rtol=4e-3),
    "a mask of bools": SizedCase(
        lambda q, k, v, m: _attend(q, k, v, attn_mask=m > -1), [*_CROSS, ("T", "B")]
    ),
    "a mask to add": SizedCase(
        lambda q, k, v, m: _attend(q, k, v, attn_mask=m), [*_SELF, ("B", 1, 1, "T")]
    ),
    "heads of attention": SizedCase(_self_attention, [("B", "T", 32)]),
    "gradients of attention": SizedCase(_gradients(_attend), _SELF, rtol=1e-4),
    "gradients of long attention": SizedCase(_gradients(_attend), _LONG, rtol=2e-4),
    "gradients of many keys": SizedCase(_gradients(_attend), _CROSS, rtol=2e-4),
    "gradients of some keys": SizedCase(
        _gradients(_attend), [("B", 16), (400, 16), (400, 16)], rtol=2e-4
    ),
    "gradients of narrow rows": SizedCase(_gradients(_attend), _NARROW, rtol=2e-4),
    "gradients of causal attention": SizedCase(_gradients(_causal), _LONG, rtol=2e-4),
    "gradients of heads": SizedCase(_gradients(_self_attention, 1), [("B", "T", 32)], rtol=3e-4),
    "gradients of a mask of bools": SizedCase(
        _gradients(lambda q, k, v, m: _attend(q, k, v, attn_mask=m > -1)),
        [*_CROSS, ("T", "B")],
        rtol=2e-4,
    ),
    "gradients with a mask to add": SizedCase(
        _gradients(lambda q, k, v, m: _attend(q, k, v, attn_mask=m)),
        [*_SELF, ("B", 1, 1, "T")],
        rtol=2e-4,
    ),
}


def _whole(x: Any, below: Any) -> Any:
    """Indices from 0 to `below` - 1, made of any numbers."""
    return weft.astype(weft.abs(x) * 1000, weft.int64) % below


def _embedding_gradient(w: Any, i: Any, g: Any) -> Any:
    return weft.grad(lambda w: (F.embedding(_whole(i, 50), w) * g).sum())(w)


def _cross_entropy(x: Any, t: Any) -> Any:
    return F.cross_entropy(x, _whole(t, x.shape[1]))


def _written(x: Any, i: Any, v: Any) -> Any:
    x = x * 1.0
    x[_whole(i, x.shape[0])] = v
    return x


def _written_parts(x: Any, v: Any) -> Any:
    x = x * 1.0
    x[1:, 2] = v[1:]
    x[0] = 3.0
    return x


def _written_fifth(x: Any, i: Any) -> Any:
    x = x * 1.0
    x[4] = 3.0
    return x[4, _whole(i, 3)] + x.sum()


_ROWS = [(50, 24), ("B", "T")]
_BLOCKS = weft.bfloat16
INDEXING = {
    "embedding of rows": SizedCase(lambda w, i: F.embedding(_whole(i, 50), w), _ROWS, exact=True),
    "embedding of Dims": SizedCase(
        lambda w, i: F.embedding(_whole(i, w.shape[0]), w), [("B", 3), ("T",)], exact=True
    ),
    "the gradient of an embedding": SizedCase(
        _embedding_gradient, [*_ROWS, ("B", "T", 24)], rtol=1e-4
    ),
    "the gradient of an embedding of Dims": SizedCase(
        lambda w, i: weft.grad(lambda w: (F.embedding(_whole(i, w.shape[0]), w) ** 2).sum())(w),
        [("B", 3), ("T",)],
    ),
    "take rows": SizedCase(
        lambda x, i: weft.take(x, _whole(i, x.shape[0]), axis=0), [("B", 5), ("T",)], exact=True
    ),
    "take T columns": SizedCase(
        lambda x, i: weft.take(x, _whole(i, x.shape[1]), axis=1), [(3, "B"), ("T",)], exact=True
    ),
    "gather along an inner axis": SizedCase(
        lambda x, i: x[:, _whole(i, x.shape[1])], [("T", "B", 3), ("T",)], exact=True
    ),
    "gather pairs": SizedCase(
        lambda x, i: x[_whole(i, x.shape[0]), _whole(i, x.shape[1])],
        [("T", "B"), ("B",)],
        exact=True,
    ),
    "gather of a slice": SizedCase(
        lambda x, i: x[1:, _whole(i, x.shape[1])], [("B", 4), ("T",)], exact=True
    ),
    "the gradient of a gather": SizedCase(
        lambda x, i: weft.grad(lambda x: (x[:, _whole(i, x.shape[1])] ** 2).sum())(x),
        [("T", "B", 3), ("T",)],
        rtol=1e-4,
    ),
    "take along an axis": SizedCase(
        lambda x, i: weft.take_along_axis(x, _whole(i, x.shape[1]), axis=1),
        [("B", 4), ("B", 2)],
        exact=True,
    ),
    "an assignment": SizedCase(_written, [("B", 4), ("T",), (4,)], exact=True),
    "assignments to parts": SizedCase(_written_parts, [("B", 4), ("B",)], exact=True),
    "as many rows": SizedCase(
        lambda w, x: (w[: x.shape[0]] * 2, w[1 : x.shape[0] + 1] * 2),
        [(2000, 3), ("B",)],
        exact=True,
    ),
    "the fifth": SizedCase(_written_fifth, [("B", 3), ("T",)]),
    "a slice's gradient": SizedCase(
        lambda x: weft.grad(lambda x: (x[1:] * x[:-1]).sum())(x), [("B", 3)], exact=True
    ),
    "narrow sums of rows": SizedCase(
        lambda w, i, g: weft.grad(
            lambda w: (F.embedding(_whole(i, 50), w) * weft.astype(g, _BLOCKS)).sum()
        )(weft.astype(w, _BLOCKS)),
        [*_ROWS, ("B", "T", 24)],
        rtol=2e-2,
    ),
    "cross entropy of classes": SizedCase(_cross_entropy, [("B", 10), ("B",)], rtol=1e-4),
    "cross entropy of Dims": SizedCase(_cross_entropy, [("B", "T"), ("B",)], rtol=1e-4),
    "cross entropy's gradient": SizedCase(
        lambda x, t: weft.grad(lambda x: _cross_entropy(x, t))(x), [("B", 10), ("B",)]
    ),
    "cross entropy of sequences": SizedCase(
        lambda x, t: weft.value_and_grad(
            lambda x: F.cross_entropy(x.reshape((-1, 30)), _whole(t, 30).reshape((-1,)))
        )(x),
        [("B", "T", 30), ("B", "T")],
        rtol=1e-4,
    ),
    "nll": SizedCase(
        lambda x, t: F.nll_loss(weft.log_softmax(x, axis=1), _whole(t, 10)),
        [("B", 10, "T"), ("B", "T")],
        rtol=1e-4,
    ),
}
ORDERED = {
    "running sums of rows": SizedCase(lambda x: weft.cumulative_sum(x, axis=1), [("B", 9)]),
    "running sums of T": SizedCase(
        lambda x: weft.cumulative_sum(x, axis=1), [("T", "B")], exact=True
    ),
    "running sums of columns": SizedCase(
        lambda x: weft.cumulative_sum(x, axis=0), [("B", "T")], exact=True
    ),
    "running sums of whole numbers": SizedCase(
        lambda x: weft.cumulative_sum(weft.astype(x * 99, weft.int64), axis=0),
        [("B", 3)],
        exact=True,
    ),
    "running products": SizedCase(
        lambda x: weft.cumulative_prod(weft.tanh(x) + 1, axis=1), [("T", "B", 3)]
    ),
    "running log-sums": SizedCase(lambda x: weft.logcumsumexp(x, axis=0), [("B", 5)]),
    "gradients of running sums": SizedCase(
        lambda x: weft.grad(lambda x: (weft.cumulative_sum(x, axis=0) ** 2).mean())(x),
        [("B", "T")],
        rtol=2e-4,
    ),
    "running maxima": SizedCase(lambda x: weft.cummax(x, axis=0), [("B", 3)], exact=True),
    "sorted": SizedCase(lambda x: weft.sort(x, axis=0), [("B",)], exact=True),
    "sorted rows": SizedCase(lambda x: weft.sort(x, axis=1), [("T", "B")], exact=True),
    "sorted columns": SizedCase(lambda x: weft.sort(x, axis=0), [("B", "T")], exact=True),
    "many rows sorted": SizedCase(lambda x: weft.sort(x, axis=1), [("B", 60)], exact=True),
    "order": SizedCase(lambda x: weft.argsort(x, axis=0), [("B", "T")], exact=True),
    "order of equal ones": SizedCase(
        lambda x: weft.argsort(weft.round(x), axis=0, descending=True), [("B",)], exact=True
    ),
    "order of float64": SizedCase(
        lambda x: weft.argsort(weft.astype(x, weft.float64), axis=0), [("B", 2)], exact=True
    ),
    "gradients of sorted": SizedCase(
        lambda x: weft.grad(lambda x: (weft.sort(x, axis=0)[: x.shape[0] // 2] ** 2).sum())(x),
        [("B", 3)],
    ),
    "the largest three": SizedCase(lambda x: weft.topk(x, 3, axis=1), [("B", 40)], exact=True),
    "the largest two of B": SizedCase(
        lambda x: weft.topk(weft.concat([x, x, x]), 2, axis=0), [("B", 3)], exact=True
    ),
    "the largest": SizedCase(lambda x: weft.argmax(x, axis=1), [("T", "B")], exact=True),
    "the largest of equal ones": SizedCase(
        lambda x: weft.argmax(weft.round(x), axis=1), [("T", "B")], exact=True
    ),
    "the smallest of columns": SizedCase(
        lambda x: weft.argmin(x, axis=0), [("B", "T")], exact=True
    ),
    "the largest of all": SizedCase(lambda x: weft.argmax(x), [("B", "T")], exact=True),
    "medians": SizedCase(lambda x: weft.median(x, axis=0), [("B", 3)], exact=True),
    "searched": SizedCase(
        lambda x, y: weft.searchsorted(weft.sort(x), y), [("B",), ("T", 3)], exact=True
    ),
    "searched in rows": SizedCase(
        lambda x, y: weft.searchsorted(weft.sort(x, axis=1), y, side="right"),
        [("T", "B"), ("T", 3)],
        exact=True,
    ),
}


def _drawn(draw: Callable[..., Any]) -> Callable[..., Any]:
    """Two draws of a generator, whose state is an input of the graph: the second one depends on
    the first."""

    def made(x: Any) -> Any:
        state = weft.Generator(7)
        return draw(x, state), draw(x, state)

    return made


DRAWS = {
    "uniform": SizedCase(
        _drawn(lambda x, g: weft.rand(*x.shape, generator=g) + x), [("B", 3)], exact=True
    ),
    "normal": SizedCase(
        _drawn(lambda x, g: weft.randn(*x.shape, generator=g)), [("B", "T")], rtol=1e-6
    ),
    "integers": SizedCase(
        _drawn(lambda x, g: weft.randint(0, 77, x.shape, generator=g)), [("B", 3)], exact=True
    ),
    "coins": SizedCase(
        _drawn(lambda x, g: weft.bernoulli(weft.sigmoid(x), generator=g)), [("B", "T")], exact=True
    ),
    "coins of rows": SizedCase(
        _drawn(
            lambda x, g: weft.bernoulli(
                weft.broadcast_to(weft.sigmoid(x), (x.shape[0], 5)), generator=g
            )
        ),
        [("B", 1)],
        exact=True,
    ),
}


def _conv(**options: Any) -> Callable[..., Any]:
    return lambda x, w: F.conv2d(x, w, **options)


def _cnn(x: Any, w: Any, b: Any, v: Any, t: Any) -> Any:
    """A step of a small network: convolution, pooling, convolution, classes."""

    def loss(p: Any) -> Any:
        hidden = F.max_pool2d(F.relu(F.conv2d(x, p[0], p[1], padding=1)), 2)
        hidden = F.avg_pool2d(F.relu(F.conv2d(hidden, p[2], padding=1)), 3)
        return F.cross_entropy(hidden.reshape((x.shape[0], -1)), _whole(t, 8))

    return weft.value_and_grad(loss)((w, b, v))


_IMAGES = [("B", 4, 9, 9), (8, 4, 3, 3)]
CONVOLUTIONS = {
    "convolution": SizedCase(_conv(padding=1), _IMAGES, rtol=1e-4),
    "convolution, strides": SizedCase(_conv(stride=2), _IMAGES, rtol=1e-4),
    "convolution, groups": SizedCase(_conv(groups=2), [("B", 4, 7, 7), (6, 2, 3, 3)], rtol=1e-4),
    "convolution, many channels": SizedCase(
        _conv(padding=1), [("B", 64, 6, 6), (64, 64, 3, 3)], rtol=3e-4
    ),
    "convolution, bfloat16": SizedCase(
        lambda x, w: F.conv2d(weft.astype(x, _BLOCKS), weft.astype(w, _BLOCKS)),
        _IMAGES,
        rtol=2e-2,
    ),
    "convolution and more": SizedCase(
        lambda x, w, b: F.relu(F.conv2d(x, w, b)) * 2, [*_IMAGES, (8,)], rtol=1e-4
    ),
    "convolution in 1 dimension": SizedCase(
        lambda x, w: F.conv1d(x, w, padding=2), [("B", 3, 30), (5, 3, 5)], rtol=1e-4
    ),
    "convolution and pooling": SizedCase(
        lambda x, w: F.max_pool2d(F.relu(F.conv2d(x, w)), 2), _IMAGES, rtol=1e-4
    ),
    "many channels and pooling": SizedCase(
        lambda x, w: F.max_pool2d(F.relu(F.conv2d(x, w, padding=1)), 2),
        [("B", 32, 16, 16), (128, 32, 3, 3)],
        rtol=3e-4,
    ),
    "gradients of a convolution": SizedCase(_gradients(_conv(padding=1), 2), _IMAGES, rtol=2e-3),
    "gradients of strides": SizedCase(
        _gradients(_conv(stride=2, padding=1), 2), _IMAGES, rtol=2e-3
    ),
    "gradients of groups": SizedCase(
        _gradients(_conv(groups=4), 2), [("B", 4, 7, 7), (4, 1, 3, 3)], rtol=2e-3
    ),
    "transposed convolution": SizedCase(
        lambda x, w: F.conv_transpose2d(x, w, stride=2), [("B", 4, 5, 5), (4, 6, 3, 3)], rtol=1e-4
    ),
    "largest of windows": SizedCase(lambda x: F.max_pool2d(x, 2), [("B", 3, 8, 8)], exact=True),
    "means of windows": SizedCase(
        lambda x: F.avg_pool2d(x, 3, stride=1, padding=1), [("B", 3, 8, 8)]
    ),
    "means of planes": SizedCase(lambda x: F.adaptive_avg_pool2d(x, 1), [("B", 3, 8, 8)]),
    "gradients of the largest of windows": SizedCase(
        _gradients(lambda x: F.max_pool2d(x, 3, stride=2), 1), [("B", 3, 9, 9)], rtol=1e-4
    ),
    "gradients of means of windows": SizedCase(
        _gradients(lambda x: F.avg_pool2d(x, 2), 1), [("B", 3, 8, 8)], rtol=1e-4
    ),
    "a step of a network": SizedCase(
        _cnn, [("B", 3, 12, 12), (8, 3, 3, 3), (8,), (2, 8, 3, 3), ("B",)], rtol=2e-3
    ),
}


def _scattered(how: str) -> Callable[..., Any]:
    """Numbers of rows joined into 9 others, in the order that an index gives."""

    def made(x: Any, y: Any) -> Any:
        places = _whole(y, 9)[:, None] + weft.zeros((1, 3), dtype=weft.int64)
        return weft.scatter_reduce(weft.ones((9, 3)), 0, places, x, how)

    return made


def _tangent(x: Any, v: Any) -> Any:
    """The derivative of pooling in a direction."""
    return weft.jvp(lambda x: F.max_pool2d(x, 2), (x,), (v,))[1]


REST = {
    "scattered sums": SizedCase(_scattered("sum"), [("B", 3), ("B",)], rtol=1e-4),
    "scattered products": SizedCase(_scattered("prod"), [("B", 3), ("B",)], rtol=1e-4),
    "scattered maxima": SizedCase(_scattered("amax"), [("B", 3), ("B",)], exact=True),
    "scattered minima": SizedCase(_scattered("amin"), [("B", 3), ("B",)], exact=True),
    "added rows": SizedCase(
        lambda x, i: weft.index_add(x, 0, _whole(i, x.shape[0]), weft.ones((i.shape[0], 3))),
        [("B", 3), ("T",)],
    ),
    "where windows are largest": SizedCase(
        lambda x: F.max_pool2d_with_indices(x, 2)[1], [("B", 3, 8, 8)], exact=True
    ),
    "pooling in a direction": SizedCase(_tangent, [("B", 3, 8, 8)] * 2, exact=True),
    "one of classes": SizedCase(lambda x: F.one_hot(_whole(x, 7), 7), [("B", 3)], exact=True),
    "weighted choices": SizedCase(
        _drawn(lambda x, g: weft.multinomial(weft.abs(x) + 1, 3, generator=g)),
        [("B", 6)],
        exact=True,
    ),
    "the parts below": SizedCase(lambda x: weft.tril(x, k=1), [("B", "T")], exact=True),
}
KERNEL_CASES = {**ATTENTION, **INDEXING, **ORDERED, **DRAWS, **CONVOLUTIONS, **REST}
