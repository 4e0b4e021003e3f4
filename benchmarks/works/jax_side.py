"""The works in JAX, as its users write them: pure functions, jit over all of a step."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from works.base import Array, Job, weights

Forward = Callable[[list[Any], Any], Any]


# --- functions ---------------------------------------------------------------------------------


def gradient(function: str, arrays: list[Array]) -> Job:
    given = [jnp.asarray(array) for array in arrays]
    step = jax.jit(jax.value_and_grad(FUNCTIONS[function], tuple(range(len(given)))))
    last: list[Any] = []

    def once() -> Any:
        out, gradients = step(*given)
        last[:] = gradients
        return out

    return Job(once, lambda: [np.asarray(g) for g in last])


def value(function: str, arrays: list[Array]) -> Job:
    given = [jnp.asarray(array) for array in arrays]
    step = jax.jit(FUNCTIONS[function])
    return Job(lambda: step(*given))


def _chain(z: Any, w: Any, x: Any) -> Any:
    for _ in range(10):
        z = jnp.tanh(z * w + x)
    return z.sum()


def _norm(x: Any, axis: int = -1) -> Any:
    mean = x.mean(axis, keepdims=True)
    return (x - mean) * lax.rsqrt(x.var(axis, keepdims=True) + 1e-5)


def _gated_norm(x: Any) -> Any:
    return (jax.nn.gelu(_norm(x), approximate=False) * jax.nn.sigmoid(x)).sum()


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "chain": _chain,
    "gated_norm": _gated_norm,
    "product": lambda a, b: a @ b,
    "softmax": lambda x: jax.nn.softmax(x, -1),
    "logsumexp": lambda x: jax.nn.logsumexp(x, -1).sum(),
}


# --- models: the shapes of PyTorch's parameters in its order, and the forward ------------------


def _mlp(sizes: tuple[int, ...]) -> tuple[list[tuple[int, ...]], Forward]:
    shapes: list[tuple[int, ...]] = []
    for size, following in itertools.pairwise(sizes):
        shapes += [(following, size), (following,)]

    def forward(params: list[Any], x: Any) -> Any:
        for at in range(0, len(params), 2):
            x = x @ params[at] + params[at + 1]
            x = jax.nn.relu(x) if at + 2 < len(params) else x
        return x

    return shapes, forward


def _cnn(normalized: bool = False) -> tuple[list[tuple[int, ...]], Forward]:
    shapes: list[tuple[int, ...]] = []
    for channels, following in ((1, 16), (16, 32)):
        shapes += [(following, channels, 3, 3), (following,)]
        shapes += [(following,), (following,)] if normalized else []
    shapes += [(10, 32 * 7 * 7), (10,)]
    each = 4 if normalized else 2

    def forward(params: list[Any], x: Any) -> Any:
        for at in (0, each):
            w, b = params[at : at + 2]
            x = lax.conv_general_dilated(
                x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
            )
            x = x + b
            if normalized:
                axes = (0, 1, 2)
                x = (x - x.mean(axes)) * lax.rsqrt(x.var(axes) + 1e-5)
                x = x * params[at + 2] + params[at + 3]
            x = jax.nn.relu(x)
            x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        x = x.transpose(0, 3, 1, 2).reshape(x.shape[0], -1)
        return x @ params[-2] + params[-1]

    return shapes, forward


def _transformer(width: int, heads: int, classes: int) -> tuple[list[tuple[int, ...]], Forward]:
    shapes: list[tuple[int, ...]] = [
        *((3 * width, width), (3 * width,), (width, width), (width,)),
        *((4 * width, width), (4 * width,), (width, 4 * width), (width,)),
        *((width,), (width,), (width,), (width,)),
        *((classes, width), (classes,)),
    ]

    def forward(params: list[Any], x: Any) -> Any:
        qkv, qkv_b, out, out_b, up, up_b, down, down_b, g1, b1, g2, b2, head, head_b = params
        batch, length, _ = x.shape
        h = _norm(x) * g1 + b1
        q, k, v = jnp.split((h @ qkv + qkv_b).reshape(batch, length, 3 * heads, -1), 3, axis=2)
        h = jax.nn.dot_product_attention(q, k, v).reshape(batch, length, width)
        x = x + h @ out + out_b
        h = _norm(x) * g2 + b2
        x = x + jax.nn.gelu(h @ up + up_b, approximate=False) @ down + down_b
        return (x @ head + head_b).reshape(batch * length, -1)

    return shapes, forward


def _lstm(inputs: int, hidden: int, classes: int) -> tuple[list[tuple[int, ...]], Forward]:
    shapes: list[tuple[int, ...]] = [
        *((4 * hidden, inputs), (4 * hidden, hidden), (4 * hidden,), (4 * hidden,)),
        *((classes, hidden), (classes,)),
    ]

    def forward(params: list[Any], x: Any) -> Any:
        w_in, w_hidden, b_in, b_hidden, head, head_b = params
        gates = jnp.swapaxes(x @ w_in + (b_in + b_hidden), 0, 1)

        def cell(state: Any, gate: Any) -> Any:
            h, c = state
            i, f, g, o = jnp.split(gate + h @ w_hidden, 4, axis=-1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), None

        zero = jnp.zeros((x.shape[0], hidden), x.dtype)
        (h, _), _ = lax.scan(cell, (zero, zero), gates)
        return h @ head + head_b

    return shapes, forward


def _embedding(words: int, width: int, classes: int) -> tuple[list[tuple[int, ...]], Forward]:
    def forward(params: list[Any], x: Any) -> Any:
        table, head, head_b = params
        return table[x].mean(1) @ head + head_b

    return [(words, width), (classes, width), (classes,)], forward


MODELS: dict[str, Callable[..., tuple[list[tuple[int, ...]], Forward]]] = {
    "mlp": _mlp,
    "cnn": _cnn,
    "transformer": _transformer,
    "lstm": _lstm,
    "embedding": _embedding,
}


def _to_jax(model: str, number: int, w: Array) -> Any:
    """A weight as JAX's users keep it: inputs first, channels last."""
    if w.ndim == 4:
        w = w.transpose(2, 3, 1, 0)
    elif w.ndim == 2 and not (model == "embedding" and number == 0):
        w = w.T
    return jnp.asarray(np.ascontiguousarray(w))


def _from_jax(model: str, number: int, w: Any) -> Array:
    found = np.asarray(w)
    if found.ndim == 4:
        return found.transpose(3, 2, 0, 1)
    return found.T if found.ndim == 2 and not (model == "embedding" and number == 0) else found


def _ready(model: str, options: dict[str, Any], x: Array) -> tuple[list[Any], Forward, Any]:
    jax.config.update("jax_enable_x64", x.dtype == np.float64)
    shapes, forward = MODELS[model](**options)
    dtype = x.dtype if x.dtype == np.float64 else np.float32
    params = [_to_jax(model, i, w) for i, w in enumerate(weights(shapes, dtype))]
    data = x.transpose(0, 2, 3, 1) if x.ndim == 4 else x  # images: channels last
    return params, forward, jnp.asarray(np.ascontiguousarray(data))


def training(
    model: str,
    options: dict[str, Any],
    x: Array,
    y: Array,
    optimizer: str = "SGD",
    lr: float = 0.01,
) -> Job:
    params, forward, data = _ready(model, options, x)
    labels = jnp.asarray(y)

    def loss_of(params: list[Any], x: Any, y: Any) -> Any:
        scores = jax.nn.log_softmax(forward(params, x))
        return -jnp.take_along_axis(scores, y[:, None], 1).mean()

    start, update = (_sgd if optimizer == "SGD" else _adam)(lr)

    def whole(params: list[Any], state: Any, x: Any, y: Any) -> Any:
        loss, gradients = jax.value_and_grad(loss_of)(params, x, y)
        return loss, *update(params, gradients, state)

    step = jax.jit(whole, donate_argnums=(0, 1))
    now = [params, start(params)]

    def once() -> Any:
        loss, now[0], now[1] = step(now[0], now[1], data, labels)
        return loss

    return Job(once, lambda: [_from_jax(model, i, w) for i, w in enumerate(now[0])])


def inference(model: str, options: dict[str, Any], x: Array) -> Job:
    params, forward, data = _ready(model, options, x)
    step = jax.jit(forward)
    return Job(lambda: step(params, data))


def _sgd(lr: float) -> tuple[Any, Any]:
    def update(params: list[Any], gradients: list[Any], state: Any) -> Any:
        return [p - lr * g for p, g in zip(params, gradients, strict=True)], state

    return (lambda params: ()), update


def _adam(lr: float) -> tuple[Any, Any]:
    def start(params: list[Any]) -> Any:
        zeros = [jnp.zeros_like(p) for p in params]
        return zeros, [jnp.zeros_like(p) for p in params], jnp.zeros((), jnp.int32)

    def update(params: list[Any], gradients: list[Any], state: Any) -> Any:
        first, second, count = state
        count = count + 1
        number = count.astype(params[0].dtype)
        first = [0.9 * m + 0.1 * g for m, g in zip(first, gradients, strict=True)]
        second = [0.999 * v + 0.001 * g * g for v, g in zip(second, gradients, strict=True)]
        rate, scale = lr / (1 - 0.9**number), jnp.sqrt(1 - 0.999**number)
        params = [
            p - rate * m / (jnp.sqrt(v) / scale + 1e-8)
            for p, m, v in zip(params, first, second, strict=True)
        ]
        return params, (first, second, count)

    return start, update
