"""The models of `models.py` in JAX, as its users write them: pure functions, jit over a whole step,
weights with inputs first, images with channels last.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from works.base import Array, Job

from large_works.models import drawn

Params = dict[str, Any]
Shapes = dict[str, tuple[int, ...]]
#: From parameters, statistics of normalizations and an input: scores, and the next statistics.
Forward = Callable[[Params, Params, Any], tuple[Any, Params]]
Model = tuple[Shapes, Forward, Params]


def _conv(x: Any, w: Any, stride: int, pad: int) -> Any:
    pads = ((pad, pad), (pad, pad))
    names = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(x, w, (stride, stride), pads, dimension_numbers=names)


def _layer_norm(p: Params, name: str, x: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    x = (x - mean) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)
    return x * p[f"{name}.weight"] + p[f"{name}.bias"]


def _linear(p: Params, name: str, x: Any) -> Any:
    return x @ p[f"{name}.weight"] + p[f"{name}.bias"]


# --- ResNet-18 -----------------------------------------------------------------------------------


def _resnet18(count: int, small: bool) -> Model:
    size = 3 if small else 7
    shapes: Shapes = {"conv1.weight": (64, 3, size, size)}
    norms: dict[str, int] = {}

    def norm(name: str, width: int) -> None:
        shapes[f"{name}.weight"] = shapes[f"{name}.bias"] = (width,)
        norms[name] = width

    norm("bn1", 64)
    blocks: list[tuple[str, int, bool]] = []
    width = 64
    for outputs, first in ((64, 1), (128, 2), (256, 2), (512, 2)):
        for stride in (first, 1):
            at = f"blocks.{len(blocks)}"
            shapes[f"{at}.conv1.weight"] = (outputs, width, 3, 3)
            norm(f"{at}.bn1", outputs)
            shapes[f"{at}.conv2.weight"] = (outputs, outputs, 3, 3)
            norm(f"{at}.bn2", outputs)
            short = stride != 1 or width != outputs
            if short:
                shapes[f"{at}.shortcut.0.weight"] = (outputs, width, 1, 1)
                norm(f"{at}.shortcut.1", outputs)
            blocks.append((at, stride, short))
            width = outputs
    shapes |= {"head.weight": (count, 512), "head.bias": (count,)}
    state = {f"{name}.mean": jnp.zeros(width) for name, width in norms.items()}
    state |= {f"{name}.var": jnp.ones(width) for name, width in norms.items()}

    def forward(p: Params, state: Params, x: Any) -> tuple[Any, Params]:
        after = {}

        def normed(name: str, x: Any) -> Any:
            mean, var = x.mean((0, 1, 2)), x.var((0, 1, 2))
            number = x.size / x.shape[-1]
            after[f"{name}.mean"] = 0.9 * state[f"{name}.mean"] + 0.1 * mean
            unbiased = var * (number / (number - 1))
            after[f"{name}.var"] = 0.9 * state[f"{name}.var"] + 0.1 * unbiased
            scale = p[f"{name}.weight"] * lax.rsqrt(var + 1e-5)
            return (x - mean) * scale + p[f"{name}.bias"]

        h = jax.nn.relu(normed("bn1", _conv(x, p["conv1.weight"], 1 if small else 2, size // 2)))
        if not small:
            pads = ((0, 0), (1, 1), (1, 1), (0, 0))
            h = lax.reduce_window(h, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), pads)
        for at, stride, short in blocks:
            inner = jax.nn.relu(normed(f"{at}.bn1", _conv(h, p[f"{at}.conv1.weight"], stride, 1)))
            inner = normed(f"{at}.bn2", _conv(inner, p[f"{at}.conv2.weight"], 1, 1))
            if short:
                h = normed(f"{at}.shortcut.1", _conv(h, p[f"{at}.shortcut.0.weight"], stride, 0))
            h = jax.nn.relu(inner + h)
        return _linear(p, "head", h.mean((1, 2))), after

    return shapes, forward, state


# --- transformers --------------------------------------------------------------------------------


def _vit(size: int, patch: int, width: int, heads: int, depth: int, count: int) -> Model:
    shapes: Shapes = {
        "token": (1, 1, width),
        "places": (1, (size // patch) ** 2 + 1, width),
        "patches.weight": (width, 3, patch, patch),
        "patches.bias": (width,),
    }
    for i in range(depth):
        shapes |= {
            f"blocks.{i}.self_attn.in_proj_weight": (3 * width, width),
            f"blocks.{i}.self_attn.in_proj_bias": (3 * width,),
            f"blocks.{i}.self_attn.out_proj.weight": (width, width),
            f"blocks.{i}.self_attn.out_proj.bias": (width,),
            f"blocks.{i}.linear1.weight": (4 * width, width),
            f"blocks.{i}.linear1.bias": (4 * width,),
            f"blocks.{i}.linear2.weight": (width, 4 * width),
            f"blocks.{i}.linear2.bias": (width,),
            f"blocks.{i}.norm1.weight": (width,),
            f"blocks.{i}.norm1.bias": (width,),
            f"blocks.{i}.norm2.weight": (width,),
            f"blocks.{i}.norm2.bias": (width,),
        }
    shapes |= {"norm.weight": (width,), "norm.bias": (width,)}
    shapes |= {"head.weight": (count, width), "head.bias": (count,)}

    def forward(p: Params, state: Params, x: Any) -> tuple[Any, Params]:
        x = lax.conv_general_dilated(
            x, p["patches.weight"], (patch, patch), "VALID",
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )  # fmt: skip
        rows = x.shape[0]
        x = x.reshape(rows, -1, width) + p["patches.bias"]
        x = jnp.concatenate([jnp.broadcast_to(p["token"], (rows, 1, width)), x], 1) + p["places"]
        for i in range(depth):
            at = f"blocks.{i}"
            h = _layer_norm(p, f"{at}.norm1", x)
            h = h @ p[f"{at}.self_attn.in_proj_weight"] + p[f"{at}.self_attn.in_proj_bias"]
            q, k, v = jnp.split(h.reshape(rows, x.shape[1], 3 * heads, -1), 3, axis=2)
            h = jax.nn.dot_product_attention(q, k, v).reshape(x.shape)
            x = x + _linear(p, f"{at}.self_attn.out_proj", h)
            h = jax.nn.gelu(
                _linear(p, f"{at}.linear1", _layer_norm(p, f"{at}.norm2", x)), approximate=False
            )
            x = x + _linear(p, f"{at}.linear2", h)
        return _linear(p, "head", _layer_norm(p, "norm", x[:, 0])), state

    return shapes, forward, {}


def _gpt(words: int, width: int, heads: int, length: int, depth: int) -> Model:
    shapes: Shapes = {"tokens.weight": (words, width), "places.weight": (length, width)}
    for i in range(depth):
        shapes |= {
            f"blocks.{i}.norm1.weight": (width,),
            f"blocks.{i}.norm1.bias": (width,),
            f"blocks.{i}.norm2.weight": (width,),
            f"blocks.{i}.norm2.bias": (width,),
        }
        for name, inputs, outputs in (
            ("qkv", width, 3 * width),
            ("out", width, width),
            ("up", width, 4 * width),
            ("down", 4 * width, width),
        ):
            shapes[f"blocks.{i}.{name}.weight"] = (outputs, inputs)
            shapes[f"blocks.{i}.{name}.bias"] = (outputs,)
    shapes |= {"norm.weight": (width,), "norm.bias": (width,), "head.weight": (words, width)}

    def forward(p: Params, state: Params, x: Any) -> tuple[Any, Params]:
        h = p["tokens.weight"][x] + p["places.weight"][: x.shape[1]]
        for i in range(depth):
            at = f"blocks.{i}"
            qkv = _linear(p, f"{at}.qkv", _layer_norm(p, f"{at}.norm1", h))
            q, k, v = jnp.split(qkv.reshape(*x.shape, 3 * heads, -1), 3, axis=2)
            mixed = jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(h.shape)
            h = h + _linear(p, f"{at}.out", mixed)
            inner = jax.nn.gelu(
                _linear(p, f"{at}.up", _layer_norm(p, f"{at}.norm2", h)), approximate=False
            )
            h = h + _linear(p, f"{at}.down", inner)
        return (_layer_norm(p, "norm", h) @ p["head.weight"]).reshape(-1, words), state

    return shapes, forward, {}


MODELS: dict[str, Callable[..., Model]] = {"resnet18": _resnet18, "vit": _vit, "gpt": _gpt}


# --- training ------------------------------------------------------------------------------------


def _is_table(name: str) -> bool:
    return name in ("tokens.weight", "places.weight")


def _to_jax(name: str, w: Array) -> Any:
    if w.ndim == 4:
        w = w.transpose(2, 3, 1, 0)
    elif w.ndim == 2 and not _is_table(name):
        w = w.T
    return jnp.asarray(np.ascontiguousarray(w))


def _from_jax(name: str, w: Any) -> Array:
    found = np.asarray(w)
    if found.ndim == 4:
        return found.transpose(3, 2, 0, 1)
    return found.T if found.ndim == 2 and not _is_table(name) else found


def _sgd(lr: float, momentum: float, weight_decay: float) -> tuple[Any, Any]:
    def start(params: Params) -> Any:
        return {name: jnp.zeros_like(p) for name, p in params.items()}

    def update(params: Params, gradients: Params, state: Any) -> Any:
        state = {
            name: momentum * state[name] + gradients[name] + weight_decay * params[name]
            for name in params
        }
        return {name: p - lr * state[name] for name, p in params.items()}, state

    return start, update


def _adamw(lr: float, weight_decay: float) -> tuple[Any, Any]:
    def start(params: Params) -> Any:
        zeros = {name: jnp.zeros_like(p) for name, p in params.items()}
        return zeros, dict(zeros), jnp.zeros((), jnp.int32)

    def update(params: Params, gradients: Params, state: Any) -> Any:
        first, second, count = state
        count = count + 1
        number = count.astype(jnp.float32)
        first = {n: 0.9 * first[n] + 0.1 * g for n, g in gradients.items()}
        second = {n: 0.999 * second[n] + 0.001 * g * g for n, g in gradients.items()}
        rate, scale = lr / (1 - 0.9**number), jnp.sqrt(1 - 0.999**number)
        params = {
            n: p * (1 - lr * weight_decay) - rate * first[n] / (jnp.sqrt(second[n]) / scale + 1e-8)
            for n, p in params.items()
        }
        return params, (first, second, count)

    return start, update


def training(
    model: str, options: dict[str, Any], x: Array, y: Array, optimizer: str, how: dict[str, Any]
) -> Job:
    shapes, forward, statistics = MODELS[model](**options)
    params = {name: _to_jax(name, w) for name, w in drawn(shapes).items()}
    data = jnp.asarray(np.ascontiguousarray(x.transpose(0, 2, 3, 1) if x.ndim == 4 else x))
    labels = jnp.asarray(y)
    start, update = {"SGD": _sgd, "AdamW": _adamw}[optimizer](**how)

    def loss_of(params: Params, statistics: Params, x: Any, y: Any) -> Any:
        scores, statistics = forward(params, statistics, x)
        scores = jax.nn.log_softmax(scores)
        return -jnp.take_along_axis(scores, y[:, None], 1).mean(), statistics

    def whole(params: Params, statistics: Params, state: Any, x: Any, y: Any) -> Any:
        graded = jax.value_and_grad(loss_of, has_aux=True)
        (loss, statistics), gradients = graded(params, statistics, x, y)
        return loss, statistics, *update(params, gradients, state)

    step = jax.jit(whole, donate_argnums=(0, 1, 2))
    now: list[Any] = [params, statistics, jax.tree.map(jnp.copy, start(params))]

    def once() -> Any:
        loss, now[1], now[0], now[2] = step(now[0], now[1], now[2], data, labels)
        return loss

    names = list(shapes)[-4:]
    return Job(once, lambda: [_from_jax(name, now[0][name]) for name in names])
