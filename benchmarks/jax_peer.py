"""JAX as a peer of `benchmarks/distributed.py`: one device in each of two processes, with gloo.

Steps are one `jax.jit` of a function over the whole batch, which lies over both devices; parameters
are on both, and donated. JAX inserts the sums itself.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["Jax"]

HEADS = 4


class Jax:
    def __init__(self, rank: int, ranks: int) -> None:
        os.environ["XLA_FLAGS"] = (
            "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
        )
        self.jax: Any = __import__("jax")
        self.jax.config.update("jax_platforms", "cpu")
        self.jax.config.update("jax_cpu_collectives_implementation", "gloo")
        self.jax.distributed.initialize("127.0.0.1:29534", ranks, rank)
        sharding = self.jax.sharding
        self.mesh = sharding.Mesh(np.array(self.jax.devices()), ("data",))
        self.whole = sharding.NamedSharding(self.mesh, sharding.PartitionSpec())
        self.parts = sharding.NamedSharding(self.mesh, sharding.PartitionSpec("data"))

    def stop(self) -> None:
        self.jax.distributed.shutdown()

    def all_reduce(self, count: int) -> Callable[[], Any]:
        jax, spec = self.jax, self.parts.spec
        add = jax.jit(
            jax.shard_map(
                lambda x: jax.lax.psum(x, "data"), mesh=self.mesh, in_specs=spec, out_specs=spec
            )
        )
        x = self._lying(np.ones(count, np.float32))
        return lambda: add(x).block_until_ready()

    def _lying(self, mine: Any) -> Any:
        return self.jax.make_array_from_process_local_data(self.parts, mine)

    def step(self, name: str, batch: Any) -> Callable[[], Any]:
        jax, np_ = self.jax, self.jax.numpy
        weights, forward = (_mlp if name == "MLP" else _transformer)(jax)
        zeros = [np.zeros_like(w) for w in weights]
        state = jax.device_put((weights, zeros, zeros, np.zeros((), np.float32)), self.whole)
        data = [self._lying(array) for array in batch]

        def loss(weights: Any, x: Any, y: Any) -> Any:
            logits = jax.nn.log_softmax(forward(weights, x))
            return -np_.take_along_axis(logits, y[..., None], -1).mean()

        def adam(state: Any, x: Any, y: Any) -> Any:
            weights, first, second, count = state
            value, grads = jax.value_and_grad(loss)(weights, x, y)
            count = count + 1
            first = [0.9 * m + 0.1 * g for m, g in zip(first, grads, strict=True)]
            second = [0.999 * v + 0.001 * g * g for v, g in zip(second, grads, strict=True)]
            one, two = 1 - 0.9**count, 1 - 0.999**count
            new = [
                w - 1e-3 * (m / one) / (np_.sqrt(v / two) + 1e-8)
                for w, m, v in zip(weights, first, second, strict=True)
            ]
            return (new, first, second, count), value

        compiled = jax.jit(adam, donate_argnums=0, out_shardings=(self.whole, self.whole))
        kept = [state]

        def step() -> None:
            kept[0], value = compiled(kept[0], *data)
            value.block_until_ready()

        return step


def _drawn(shapes: Any) -> list[Any]:
    rng = np.random.default_rng(0)
    return [rng.normal(size=shape).astype(np.float32) / 10 for shape in shapes]


def _mlp(jax: Any) -> Any:
    def forward(w: Any, x: Any) -> Any:
        for i in (0, 2):
            x = jax.nn.relu(x @ w[i] + w[i + 1])
        return x @ w[4] + w[5]

    return _drawn([(784, 256), 256, (256, 256), 256, (256, 10), 10]), forward


def _transformer(jax: Any, vocabulary: int = 256, width: int = 128) -> Any:
    each = [(width, 3 * width), 3 * width, (width, width), width, width, width]
    each += [(width, 4 * width), 4 * width, (4 * width, width), width, width, width]

    def norm(x: Any, scale: Any, shift: Any) -> Any:
        x = x - x.mean(-1, keepdims=True)
        return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * scale + shift

    def layer(x: Any, w: Any) -> Any:
        b, t, c = x.shape
        q, k, v = (x @ w[0] + w[1]).reshape(b, t, 3, HEADS, c // HEADS).transpose(2, 0, 3, 1, 4)
        shares = jax.nn.softmax(q @ k.swapaxes(-1, -2) * (c // HEADS) ** -0.5)
        seen = (shares @ v).swapaxes(1, 2).reshape(b, t, c)
        x = norm(x + seen @ w[2] + w[3], w[4], w[5])
        inner = jax.nn.relu(x @ w[6] + w[7]) @ w[8] + w[9]
        return norm(x + inner, w[10], w[11])

    def forward(w: Any, tokens: Any) -> Any:
        x = w[0][tokens]
        for i in range(2):
            x = layer(x, w[1 + 12 * i : 13 + 12 * i])
        return x @ w[25] + w[26]

    return _drawn([(vocabulary, width), *each, *each, (width, vocabulary), vocabulary]), forward
