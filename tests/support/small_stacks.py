"""Runs programs in a thread with a small stack, and compares with what the main thread gets.

python tests/small_stacks.py [name of a program …]
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

import weft
import weft.nn.functional as F

rng = np.random.default_rng(0)


def r(*shape: int) -> Any:
    return weft.asarray(rng.standard_normal(shape).astype("f"))


def grads(f: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any) -> Any:
        numbers = tuple(range(len(args)))
        return weft.grad(lambda *given: (f(*given) ** 2).sum(), argnums=numbers)(*args)

    return run


def conv(x: Any, w: Any) -> Any:
    return F.conv2d(x, w, padding=1)


def pooled(x: Any, w: Any) -> Any:
    return F.max_pool2d(F.relu(conv(x, w)), 2)


def listed(x: Any, n: Any) -> Any:
    ys, k = [], weft.tensor(0)
    while k < n:
        x = weft.sin(x) + 0.5
        ys.append(x)
        k = k + 1
    s, i = x * 0, weft.tensor(0)
    while i < n:
        s = s + ys[i] * ys[i]
        i = i + 1
    return s.sum()


ATTENTION = F.scaled_dot_product_attention
PROGRAMS: dict[str, tuple[Any, ...]] = {
    "product": (lambda a, b: a @ b, r(200, 200), r(200, 200)),
    "product, gradients": (grads(lambda a, b: F.gelu(a @ b)), r(130, 140), r(140, 70)),
    "convolution": (conv, r(2, 16, 20, 20), r(24, 16, 3, 3)),
    "convolution, gradients": (grads(conv), r(2, 16, 20, 20), r(24, 16, 3, 3)),
    "pooled": (pooled, r(4, 16, 20, 20), r(24, 16, 3, 3)),
    "attention": (ATTENTION, *[r(1, 2, 128, 64)] * 3),
    "attention, gradients": (grads(ATTENTION), *[r(1, 2, 128, 64)] * 3),
    "rows": (grads(lambda x: F.softmax(x * 2, -1)), r(8, 5000)),
    "sorted": (weft.sort, r(3, 20000)),
    "many inputs": (lambda *xs: weft.concat(list(xs)), *[r(2) for _ in range(3000)]),
    "a sum of many stacks": (weft.grad(listed), r(4), weft.tensor(900)),
}
KIB = {"many inputs": 128}


def flat(found: Any) -> list[Any]:
    parts = found if isinstance(found, (list, tuple)) else [found]
    return [part.numpy().copy() for part in parts]


def check(name: str) -> None:
    program, *args = PROGRAMS[name]
    compiled = weft.compile(program, backend="native")
    found: list[Any] = []
    want = flat(compiled(*args))
    thread = threading.Thread(target=lambda: found.append(flat(compiled(*args))))
    before = threading.stack_size(KIB.get(name, 64) << 10)
    thread.start()
    threading.stack_size(before)
    thread.join()
    assert all(np.array_equal(a, b) for a, b in zip(found[0], want, strict=True)), name
    print(name, flush=True)


if __name__ == "__main__":
    for name in sys.argv[1:] or PROGRAMS:
        check(name)
