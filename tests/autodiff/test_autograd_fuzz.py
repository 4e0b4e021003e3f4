"""Random programs, with writes and several uses of each value: gradients to the second order."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import weft

Tensor = weft.Tensor


def _write(a: Tensor, b: Tensor) -> Tensor:
    a = a.clone()
    a[1:, ::2] = b[:2, 1:]
    return a


def _write_mask(a: Tensor, b: Tensor) -> Tensor:
    a = a.clone()
    a[weft.asarray([True, False, True])] = b[0] * 2
    return a


def _write_gather(a: Tensor, b: Tensor) -> Tensor:
    a = a.clone()
    a[weft.asarray([2, 0, 2])] = b  # a row twice: the last write stays
    return a


def _add_in_place(a: Tensor, b: Tensor) -> Tensor:
    a = a * 1
    kept = weft.sin(a)
    a += b
    a *= kept
    return a


#: Functions of two 3×3 tensors that give a 3×3 tensor, all smooth and of moderate size.
STEPS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "sub scalar": lambda a, b: 2.5 - a,
    "div": lambda a, b: a / (2 + b * b),
    "tanh": lambda a, b: weft.tanh(a + b),
    "sin": lambda a, b: weft.sin(a) * b,
    "exp": lambda a, b: weft.exp(-weft.square(a)),
    "matmul": lambda a, b: a @ b / 3,
    "matvec": lambda a, b: (a @ b[0])[:, None] * b,
    "transpose": lambda a, b: a.T,
    "sum": lambda a, b: a - b.sum(axis=0, keepdims=True) / 3,
    "mean": lambda a, b: a * b.mean(),
    "var": lambda a, b: a / (1 + b.var(axis=1, keepdims=True)),
    "slice": lambda a, b: weft.concat([a[1:], b[:1]], axis=0),
    "reverse": lambda a, b: a[::-1, :] * b[:, ::-1],
    "reshape": lambda a, b: a.reshape(9)[1:].reshape(2, 4)[:, :3].sum(axis=0) * b,
    "take": lambda a, b: weft.take(a, weft.asarray([0, 0, 2]), axis=1) + b,
    "gather": lambda a, b: a[weft.asarray([0, 1, 1]), weft.asarray([2, 2, 0])] * b,
    "where": lambda a, b: weft.where(weft.eye(3) > 0, a, b),
    "cumsum": lambda a, b: weft.cumulative_sum(a, axis=0) / 3,
    "roll": lambda a, b: weft.roll(a, 1, axis=1) - b,
    "triu": lambda a, b: weft.triu(a) + b,
    "softmax": lambda a, b: weft.softmax(a, axis=-1) * b,
    "write": _write,
    "write mask": _write_mask,
    "write gather": _write_gather,
    "in place": _add_in_place,
}

programs = st.lists(
    st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 20), st.integers(0, 20)),
    min_size=1,
    max_size=8,
)


@settings(max_examples=200)
@given(program=programs, seed=st.integers(0, 1000))
def test_gradients_of_random_programs(program: list[tuple[str, int, int]], seed: int) -> None:
    rng = np.random.default_rng(seed)
    args = [weft.asarray(rng.uniform(-1, 1, (3, 3))) for _ in range(2)]

    def run(x: Tensor, y: Tensor) -> Tensor:
        values = [x, y]
        for step, i, j in program:
            values.append(STEPS[step](values[i % len(values)], values[j % len(values)]))
        return weft.tanh(sum(values[2:], start=values[2]))

    weft.check_grads(run, args, order=2, eps=1e-5, rtol=1e-4, atol=1e-5)


def test_each_step_alone() -> None:
    rng = np.random.default_rng(0)
    for step in STEPS.values():
        args = [weft.asarray(rng.uniform(-1, 1, (3, 3))) for _ in range(2)]
        weft.check_grads(step, args, order=2, eps=1e-5, rtol=1e-4, atol=1e-5)
