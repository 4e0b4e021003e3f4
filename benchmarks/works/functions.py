"""Works without a model, in the words that Weft and PyTorch share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from works.base import Array, Job, Kit, numpy_of


def gradient(function: Callable[..., Any], *arrays: Array) -> Callable[[Kit], Job]:
    """The gradients of function(library, *tensors), a scalar, for all its tensors."""

    def make(kit: Kit) -> Job:
        tensors = [kit.tensor(array, grad=True) for array in arrays]
        library = kit.library

        @kit.forward
        def forward(*tensors: Any) -> Any:
            return function(library, *tensors)

        @kit.step
        def step(*tensors: Any) -> Any:
            for tensor in tensors:
                tensor.grad = None
            out = forward(*tensors)
            out.backward()
            return out

        return Job(lambda: step(*tensors), lambda: [numpy_of(t.grad) for t in tensors], step)

    return make


def value(function: Callable[..., Any], *arrays: Array) -> Callable[[Kit], Job]:
    """function(library, *tensors), without gradients."""

    def make(kit: Kit) -> Job:
        tensors = [kit.tensor(array) for array in arrays]
        library = kit.library

        @kit.step
        @kit.forward
        def forward(*tensors: Any) -> Any:
            return function(library, *tensors)

        return Job(lambda: forward(*tensors), program=forward)

    return make


def chain(library: Any, z: Any, w: Any, x: Any) -> Any:
    for _ in range(10):
        z = library.tanh(z * w + x)
    return z.sum()


def gated_norm(library: Any, x: Any) -> Any:
    functional = library.nn.functional
    normed = functional.layer_norm(x, (x.shape[-1],))
    return (functional.gelu(normed) * library.sigmoid(x)).sum()


def until_small(library: Any, x: Any, w: Any) -> Any:
    while (x * x).sum() > 2e-5:  # 38 rounds
        x = 0.99 * library.tanh(x @ w)
    return (x * x).sum()


def product(library: Any, a: Any, b: Any) -> Any:
    return a @ b


def softmax(library: Any, x: Any) -> Any:
    return library.nn.functional.softmax(x, -1)


def logsumexp(library: Any, x: Any) -> Any:
    return library.logsumexp(x, axis=-1).sum()
