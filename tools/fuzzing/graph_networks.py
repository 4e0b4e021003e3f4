"""Products, convolutions, pooling, attention, normalization and loops that give a tensor of a
shape."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fuzzing.graph_ops import LOW, Step

if TYPE_CHECKING:
    from fuzzing.graphs import GraphWriter, Shape


# --- products ---------------------------------------------------------------------------------


def _product(w: GraphWriter, shape: Shape, dtype: str) -> str | None:
    k = w.some_size()
    if not shape or not w.fits(shape, max(k, 1)):
        return None
    scale = f" / {max(k, 1)}" if w.chance(0.6) else ""
    if len(shape) == 1:
        one, two = w.tensor((shape[0], k), dtype), w.tensor((k,), dtype)
        if w.chance(0.4):
            one, two = w.tensor((k,), dtype), w.tensor((k, shape[0]), dtype)
        return f"({one} @ {two}{scale})"
    batch = shape[:-2]
    left = right = batch
    if batch and w.chance(0.4):
        left, right = w.pick([(batch, ()), ((), batch), (batch, (1,) * len(batch))])
    one = w.tensor((*left, shape[-2], k), dtype)
    two = w.tensor((*right, k, shape[-1]), dtype)
    return f"({one} @ {two}{scale})"


def _linear(w: GraphWriter, shape: Shape, dtype: str) -> str | None:
    k = w.some_size()
    if len(shape) < 2 or not w.fits(shape, max(k, 1)):
        return None
    bias = f", {w.tensor(shape[-1:], dtype)}" if w.chance(0.6) else ""
    weight = w.tensor((shape[-1], k), dtype)
    return f"F.linear({w.tensor((*shape[:-1], k), dtype)}, {weight}{bias})"


def _dot(w: GraphWriter, shape: Shape, dtype: str) -> str | None:
    k = w.some_size()
    if not w.fits(shape, max(k, 1)):
        return None
    one, two = w.tensor((*shape, k), dtype), w.tensor((*shape, k), dtype)
    return f"weft.vecdot({one}, {two})"


def _outer(w: GraphWriter, shape: Shape, dtype: str) -> str | None:
    if len(shape) != 2:
        return None
    return f"weft.linalg.outer({w.tensor(shape[:1], dtype)}, {w.tensor(shape[1:], dtype)})"


def _tensordot(w: GraphWriter, shape: Shape, dtype: str) -> str | None:
    if len(shape) != 2 or not w.fits(shape, 6):
        return None
    one, two = w.tensor((shape[0], 2, 3), dtype), w.tensor((2, 3, shape[1]), dtype)
    return f"weft.tensordot({one}, {two})"


def _matrix(w: GraphWriter, shape: Shape, dtype: str) -> str | None:
    """Of square matrices that are far from singular."""
    if len(shape) < 2 or shape[-1] != shape[-2] or not 0 < shape[-1] <= 8 or dtype in LOW:
        return None
    n = shape[-1]
    x = f"({n + 1} * weft.eye({n}, dtype=weft.{dtype}) + weft.tanh({w.tensor(shape, dtype)}))"
    return w.pick(
        [
            f"weft.linalg.inv({x})",
            f"weft.linalg.solve({x}, {w.tensor(shape, dtype)})",
            f"weft.linalg.cholesky({x} + {x}.mT)",
            f"weft.linalg.matrix_power({x} / {n}, {w.pick([0, 2, 3])})",
        ]
    )


# --- windows ----------------------------------------------------------------------------------


def _window(w: GraphWriter, out: int) -> tuple[int, int, int, int, int] | None:
    """kernel, stride, padding, dilation, and the size they make this one of; None: none do."""
    kernel, stride = w.pick([1, 2, 3, 3]), w.pick([1, 1, 1, 2])
    padding, dilation = w.pick([0, 0, 1]), w.pick([1, 1, 1, 2])
    size = (out - 1) * stride + 1 + dilation * (kernel - 1) - 2 * padding
    if size < 1 or padding > kernel // 2:
        return None
    return kernel, stride, padding, dilation, size


def _conv(w: GraphWriter, shape: Shape, dtype: str) -> str | None:
    if len(shape) not in (3, 4) or 0 in shape:
        return None
    axes = len(shape) - 2
    windows = [_window(w, out) for out in shape[2:]]
    if None in windows:
        return None
    found = [window for window in windows if window is not None]
    groups = w.pick([1, 1, 1, 2, shape[1]])
    if shape[1] % groups:
        return None
    channels = groups * w.pick([1, 1, 2, 3])
    x = (shape[0], channels, *[window[4] for window in found])
    weight = (shape[1], channels // groups, *[window[0] for window in found])
    if not w.fits(x) or not w.fits(weight) or not w.fits(shape, 4):
        return None
    bias = f", {w.tensor(shape[1:2], dtype)}" if w.chance(0.5) else ""
    stride, padding, dilation = (tuple(window[i] for window in found) for i in (1, 2, 3))
    said = f", stride={stride}, padding={padding}, dilation={dilation}, groups={groups}"
    scale = f" * {round(1 / (weight[1] * 3), 3)}"
    return f"(F.conv{axes}d({w.tensor(x, dtype)}, {w.tensor(weight, dtype)}{bias}{said}){scale})"


def _conv_transpose(w: GraphWriter, shape: Shape, dtype: str) -> str | None:
    if len(shape) not in (3, 4) or 0 in shape:
        return None
    axes = len(shape) - 2
    kernel, stride = w.pick([1, 2, 3]), w.pick([1, 2, 2])
    if any(out < kernel or (out - kernel) % stride for out in shape[2:]):
        return None
    sizes = [(out - kernel) // stride + 1 for out in shape[2:]]
    channels = w.pick([1, 2, 3])
    x = w.tensor((shape[0], channels, *sizes), dtype)
    weight = w.tensor((channels, shape[1], *[kernel] * axes), dtype)
    return f"(F.conv_transpose{axes}d({x}, {weight}, stride={stride}) * {round(1 / channels, 3)})"


def _pool(w: GraphWriter, shape: Shape, dtype: str) -> str | None:
    if len(shape) not in (3, 4) or 0 in shape:
        return None
    axes = len(shape) - 2
    kernel, stride = w.pick([1, 2, 3]), w.pick([1, 2, 2])
    padding = w.pick([0, 0, 1]) if kernel > 1 else 0
    sizes = [(out - 1) * stride + kernel - 2 * padding for out in shape[2:]]
    if min(sizes) < 1 or not w.fits((*shape[:2], *sizes)):
        return None
    x = w.tensor((*shape[:2], *sizes), dtype)
    name = w.pick(["max_pool", "max_pool", "avg_pool"])
    return f"F.{name}{axes}d({x}, {kernel}, stride={stride}, padding={padding})"


def _adaptive(w: GraphWriter, shape: Shape, dtype: str) -> str | None:
    if len(shape) not in (3, 4) or 0 in shape or not w.fits(shape, 9):
        return None
    axes = len(shape) - 2
    sizes = [out * w.pick([1, 2]) + w.pick([0, 1]) for out in shape[2:]]
    out = shape[2] if axes == 1 else shape[2:]
    name = w.pick(["adaptive_avg_pool", "adaptive_max_pool"])
    return f"F.{name}{axes}d({w.tensor((*shape[:2], *sizes), dtype)}, {out})"


def _resized(w: GraphWriter, shape: Shape, dtype: str) -> str | None:
    if len(shape) != 4 or 0 in shape or shape[2] % 2 or shape[3] % 2:
        return None
    x = w.tensor((*shape[:2], shape[2] // 2, shape[3] // 2), dtype)
    mode = w.pick(["'nearest'", "'bilinear'"])
    return f"F.interpolate({x}, scale_factor=2, mode={mode})"


# --- attention, normalization, losses ---------------------------------------------------------


def _attention(w: GraphWriter, shape: Shape, dtype: str) -> str | None:
    if len(shape) < 2 or 0 in shape:
        return None
    if dtype == "float16" and w.values == "special":  # scores that overflow: docs/numerics.md
        return None
    keys, width = max(1, w.some_size()), max(1, w.some_size())
    batch, queries = shape[:-2], shape[-2]
    if not w.fits((*batch, queries, keys)) or not w.fits((*batch, keys, width)):
        return None
    query = w.tensor((*batch, queries, width), dtype)
    key = w.tensor((*batch, keys, width), dtype)
    value = w.tensor((*batch, keys, shape[-1]), dtype)
    mask = ""
    if w.chance(0.25):
        mask = f", attn_mask={w.tensor((queries, keys), dtype)}"
    elif w.chance(0.3) and w.values != "special":  # hidden infinities: docs/numerics.md
        mask = ", is_causal=True"
    return f"F.scaled_dot_product_attention({query}, {key}, {value}{mask})"


def _rows(w: GraphWriter, shape: Shape, dtype: str) -> str | None:
    if not shape or 0 in shape:
        return None
    axis = w.rng.randrange(len(shape))
    x = w.tensor(shape, dtype)
    options = [
        f"weft.softmax({x}, axis={axis})",
        f"weft.log_softmax({x}, axis={axis})",
        f"({x} - {x}.mean(axis={axis}, keepdims=True))",
        f"F.normalize({x}, dim={axis}, eps=0.1)",
        f"F.layer_norm({x}, {shape[-1:]}, eps=0.1)",
        f"F.rms_norm({x}, {shape[-1:]}, eps=0.1)",
    ]
    if w.chance(0.3):
        weight, bias = w.tensor(shape[-1:], dtype), w.tensor(shape[-1:], dtype)
        options = [f"F.layer_norm({x}, {shape[-1:]}, {weight}, {bias}, eps=0.1)"]
    return w.pick(options)


def _channels(w: GraphWriter, shape: Shape, dtype: str) -> str | None:
    if len(shape) < 2 or 0 in shape or shape[0] * shape[-1] < 2:
        return None
    x = w.tensor(shape, dtype)
    options = [f"F.prelu({x}, {w.tensor(shape[1:2], dtype)})"]
    if len(shape) > 2:
        groups = w.pick([g for g in (1, 2, shape[1]) if shape[1] % g == 0])
        options += [f"F.group_norm({x}, {groups}, eps=0.1)"] * 2
    if math.prod(shape) > shape[1]:  # one value for each channel has no variance
        options.append(f"F.batch_norm({x}, None, None, training=True, eps=0.1)")
    return w.pick(options)


def _glu(w: GraphWriter, shape: Shape, dtype: str) -> str | None:
    if not shape or not w.fits(shape, 2):
        return None
    return f"F.glu({w.tensor((*shape[:-1], 2 * shape[-1]), dtype)})"


def _similarity(w: GraphWriter, shape: Shape, dtype: str) -> str | None:
    k = max(1, w.some_size())
    if not w.fits(shape, k) or 0 in shape:
        return None
    axis = w.rng.randint(0, len(shape))
    whole = (*shape[:axis], k, *shape[axis:])
    one, two = w.tensor(whole, dtype), w.tensor(whole, dtype)
    return f"F.cosine_similarity({one}, {two}, dim={axis}, eps=0.1)"


def _loss(w: GraphWriter, shape: Shape, dtype: str) -> str | None:
    if shape:
        return None
    n, classes = max(1, w.some_size()), max(2, w.some_size())
    if not w.fits((n, classes)):
        return None
    x = w.tensor((n, classes), dtype)
    return w.pick(
        [
            f"F.cross_entropy({x}, {w.integers((n,), classes)})",
            f"F.mse_loss({x}, {w.tensor((n, classes), dtype)})",
            f"F.smooth_l1_loss({x}, {w.tensor((n, classes), dtype)})",
            f"F.nll_loss(weft.log_softmax({x}), {w.integers((n,), classes)})",
        ]
    )


def _embedding(w: GraphWriter, shape: Shape, dtype: str) -> str | None:
    if not shape:
        return None
    rows = max(1, w.some_size())
    places = w.argument(shape[:-1], "int64", below=rows)
    return f"F.embedding({places}, {w.tensor((rows, shape[-1]), dtype)})"


# --- loops ------------------------------------------------------------------------------------


def _scan(w: GraphWriter, shape: Shape, dtype: str) -> str | None:
    """A loop over rows: its last carry, or its rows."""
    if len(shape) > 2:
        return None
    if w.chance(0.5) and shape:
        start = w.tensor(shape[1:], dtype)
        body = w.pick(["c * 0.5 + r, weft.tanh(c) * r", "weft.tanh(c + r), c - r"])
        return f"weft.scan(lambda c, r: ({body}), {start}, {w.tensor(shape, dtype)})[1]"
    steps = w.pick([1, 2, 4])
    rows, start = w.tensor((steps, *shape), dtype), w.tensor(shape, dtype)
    body = w.pick(["weft.tanh(c * 0.5 + r)", "c * 0.7 + r", "weft.where(r > 0, c, r)"])
    return f"weft.scan(lambda c, r: ({body}, None), {start}, {rows})[0]"


def _carried_product(w: GraphWriter, shape: Shape, dtype: str) -> str | None:
    """A product in a loop, with a scalar beside it."""
    if len(shape) not in (1, 2) or not shape[0] or not w.fits((shape[0], shape[0])):
        return None
    matrix, start = w.tensor((shape[0], shape[0]), dtype), w.tensor(shape, dtype)
    scalar = w.tensor((), dtype)
    m = w.bind(f"{matrix} / {shape[0]}", (shape[0], shape[0]), dtype)
    body = w.pick([f"c[0] * c[1] + {m} @ c[1]", f"{m} @ (c[0] * c[1]) - c[1]", f"{m} @ c[1]"])
    step = f"lambda i, c: (c[0] * 0.9, weft.tanh({body}))"
    return f"weft.fori_loop(0, {w.pick([1, 2, 3])}, {step}, ({scalar}, {start}))[1]"


def _branch(w: GraphWriter, shape: Shape, dtype: str) -> str | None:
    x, y = w.tensor(shape, dtype), w.tensor(shape, dtype)
    one = w.pick(["lambda a, b: a * b", "lambda a, b: weft.tanh(a)"])
    return f"weft.cond({x}.sum() > 0, {one}, lambda a, b: a - b, {x}, {y})"


NETWORKS: dict[str, list[Step]] = {
    "products": [_product, _product, _product, _linear, _dot, _outer, _tensordot],
    "matrices": [_matrix, _product],
    "convolutions": [_conv, _conv, _conv, _conv_transpose],
    "pooling": [_pool, _pool, _adaptive, _resized],
    "attention": [_attention, _attention, _rows],
    "rows": [_rows, _rows, _channels, _glu, _similarity],
    "losses": [_loss, _embedding],
    "loops": [_scan, _carried_product, _branch],
}
