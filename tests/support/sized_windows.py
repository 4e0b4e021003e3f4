"""Convolutions and pooling of symbolic sizes, for `tests/runtime/test_sized.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import weft
import weft.nn.functional as F
from tests.support.sized import SizedCase

__all__ = ["WINDOW_CASES"]

_IMAGE, _FILTER = (2, 3, "T", "B"), (8, 3, 3, 3)


def _gradients(function: Callable[..., Any], count: int = 2) -> Callable[..., Any]:
    def total(*args: Any) -> Any:
        return (function(*args) ** 2).sum()

    return lambda *args: weft.grad(total, argnums=tuple(range(count)))(*args)


def _conv(**options: Any) -> Callable[..., Any]:
    return lambda x, w: F.conv2d(x, w, **options)


def _infinite(x: Any) -> Any:
    """Some elements are infinite: 0 · inf must be no term of a sum that has none there."""
    return weft.where(x > 1.5, float("inf"), x)


def _in_a_loop(x: Any, w: Any) -> Any:
    def step(c: Any, _: Any) -> Any:
        c = weft.tanh(F.conv2d(c, w, padding=1))
        return c, c.sum()

    return weft.scan(step, x, weft.arange(3))


CONVOLUTIONS = {
    "images": SizedCase(_conv(padding=1), [_IMAGE, _FILTER], rtol=1e-4),
    "images of any number": SizedCase(
        lambda x, w, b: F.relu(F.conv2d(x, w, b, padding=1)),
        [("B", 3, "T", "T"), _FILTER, (8,)],
        rtol=1e-4,
    ),
    "gradients of a convolution": SizedCase(
        _gradients(_conv(padding=1)), [_IMAGE, _FILTER], rtol=3e-4
    ),
    "strides and dilation": SizedCase(
        _gradients(_conv(stride=(2, 3), dilation=(1, 2), padding=(1, 2))),
        [_IMAGE, _FILTER],
        rtol=3e-4,
    ),
    "each channel alone": SizedCase(
        _gradients(_conv(padding=1, groups=3)), [_IMAGE, (3, 1, 3, 3)], rtol=3e-4
    ),
    "groups": SizedCase(_gradients(_conv(groups=2)), [(2, 4, "T", "B"), (6, 2, 1, 1)], rtol=3e-4),
    "many channels": SizedCase(
        _gradients(_conv(padding=1)), [(1, 300, 3, "B"), (20, 300, 3, 3)], rtol=1e-3
    ),
    "a long kernel": SizedCase(_conv(padding=(0, 40)), [_IMAGE, (2, 3, 1, 81)], rtol=1e-4),
    "a sequence": SizedCase(
        _gradients(lambda x, w: F.conv1d(x, w, padding=2)), [("T", 3, "B"), (20, 3, 5)], rtol=3e-4
    ),
    "volumes": SizedCase(
        _gradients(lambda x, w: F.conv3d(x, w, padding=1)),
        [(1, 2, 3, "T", "B"), (3, 2, 2, 3, 3)],
        rtol=1e-3,
    ),
    "a transposed convolution": SizedCase(
        _gradients(lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1)),
        [_IMAGE, (3, 8, 4, 4)],
        rtol=3e-4,
    ),
    "infinite elements": SizedCase(
        lambda x, w: F.conv_transpose2d(_infinite(x), w, stride=2),
        [_IMAGE, (3, 2, 3, 3)],
        rtol=1e-4,
    ),
    "infinite gradients": SizedCase(
        lambda x, w: _gradients(_conv(padding=1, groups=3))(_infinite(x), w),
        [_IMAGE, (3, 1, 3, 3)],
        rtol=1e-3,
    ),
    "channels last": SizedCase(
        lambda x, w: F.conv2d(weft.permute_dims(x, (0, 3, 1, 2))[:, :, ::-1], w, padding=1),
        [(2, "T", "B", 3), _FILTER],
        rtol=1e-4,
    ),
    "narrow images": SizedCase(
        lambda x, w: F.conv2d(x.astype(weft.bfloat16), w.astype(weft.bfloat16), padding=1),
        [_IMAGE, _FILTER],
        rtol=2e-2,
    ),
    "convolutions in a loop": SizedCase(_in_a_loop, [_IMAGE, (3, 3, 3, 3)], rtol=1e-3),
}
POOLING = {
    "the largest of windows": SizedCase(lambda x: F.max_pool2d(x, 2), [_IMAGE], exact=True),
    "gradient of the largest": SizedCase(
        _gradients(lambda x: F.max_pool2d(x, 3, stride=2, padding=1), 1), [_IMAGE]
    ),
    "gradient of the largest of four": SizedCase(
        lambda x: _gradients(lambda y: F.max_pool2d(y, 2), 1)(weft.floor(x * 2)),
        [_IMAGE],
        exact=True,
    ),
    "gradient of the larger": SizedCase(
        _gradients(lambda x: F.max_pool1d(x.astype(weft.bfloat16), 2), 1), [(2, "T", "B")]
    ),
    "tangents of the largest": SizedCase(
        lambda x: weft.jvp(lambda y: F.max_pool2d(y, 2), (x,), (x * 2,)), [_IMAGE], exact=True
    ),
    "places of the largest of four": SizedCase(
        lambda x: F.max_pool2d(x, 2, return_indices=True), [_IMAGE], exact=True
    ),
    "places of the largest": SizedCase(
        lambda x: F.max_pool2d(x, 3, stride=1, padding=1, return_indices=True), [_IMAGE], exact=True
    ),
    "means of windows": SizedCase(
        _gradients(lambda x: F.avg_pool2d(x, 3, stride=2, padding=1), 1), [_IMAGE]
    ),
    "long windows": SizedCase(
        _gradients(lambda x: F.max_pool1d(x, 20, padding=9), 1), [(2, "T", "B")]
    ),
    "the mean of all": SizedCase(_gradients(lambda x: F.adaptive_avg_pool2d(x, 1), 1), [_IMAGE]),
    "the largest of all": SizedCase(_gradients(lambda x: F.adaptive_max_pool2d(x, 1), 1), [_IMAGE]),
    "windows of any size": SizedCase(lambda x: F.adaptive_avg_pool2d(x, (2, 3)), [_IMAGE]),
    "zeros in sums": SizedCase(lambda x: F.avg_pool1d(x * -0.0, 2), [(2, "T", "B")], exact=True),
    "a convolution and the largest": SizedCase(
        lambda x, w: F.max_pool2d(F.relu(F.conv2d(x, w, padding=1)), 2),
        [_IMAGE, _FILTER],
        rtol=1e-4,
    ),
    "twice as large": SizedCase(
        _gradients(lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), 1),
        [_IMAGE],
        rtol=1e-4,
    ),
    "patches": SizedCase(_gradients(lambda x: F.unfold(x, 3, padding=1), 1), [_IMAGE], rtol=1e-4),
}
WINDOW_CASES = {**CONVOLUTIONS, **POOLING}
