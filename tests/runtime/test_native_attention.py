"""Attention in graphs: one kernel for the forward and one for the backward, and no scores in
memory; where anybody looks at them, all is computed as written."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest

import weft
import weft.nn.functional as F
from weft import nn
from weft.core.bind import bind
from weft.ir.graph import Graph
from weft.ir.interpret import interpret
from weft.passes.lowering.decompose import decompose
from weft.passes.pipeline import optimize, passes
from weft.passes.stop_gradient import DropStopGradient
from weft.runtime.native import NativeProgram

#: Of narrow floats eager rounds scores and weights too: they differ by a few units.
NEAR = {weft.float32: 1e-5, weft.float64: 1e-12, weft.bfloat16: 2.0**-5, weft.float16: 2.0**-8}
NARROW = (weft.bfloat16, weft.float16)
attention = F.scaled_dot_product_attention


def optimized(function: Any, *given: Any) -> Graph:
    return optimize(weft.make_graph(function, *given), [DropStopGradient(), *passes()])


def drawn(seed: int, *shape: int, dtype: Any = weft.float32) -> Any:
    made = dtype if dtype not in NARROW else weft.float32
    return weft.randn(*shape, generator=weft.Generator(seed), dtype=made).astype(dtype)


def kinds(run: NativeProgram) -> list[str]:
    """What runs, group by group."""
    return [line.split(":")[0].strip() for line in run.plan().split("\n")[1:]]


def buffers(run: NativeProgram) -> set[tuple[int, ...]]:
    """The shapes of what is written to memory."""
    found = re.findall(r"\w+\[([\d,]*)\] (?:at|as)", run.plan())
    return {tuple(map(int, shape.split(","))) for shape in found if shape}


def check(function: Any, given: list[Any], *, near: float = 0.0) -> NativeProgram:
    """Native equals the interpreter; so does the graph with cards of attention in it."""
    graph = optimized(function, *given)
    wanted = interpret(graph, given, bind)
    run = NativeProgram(graph)
    near = near or NEAR[given[0].dtype]
    for found in (run(given), interpret(decompose(graph), given, bind)):
        for got, want in zip(map(array, found), map(array, wanted), strict=True):
            scale = np.abs(np.nan_to_num(want, posinf=0, neginf=0)).max(initial=1.0)
            np.testing.assert_allclose(got, want, rtol=near, atol=near * scale)
    return run


def array(x: Any) -> Any:
    return (x.astype(weft.float32) if x.dtype in NARROW else x).numpy()


def check_nearer(function: Any, given: list[Any], run: NativeProgram) -> None:
    """Of narrow floats native is nearer to what float64 gives than the interpreter is."""
    if given[0].dtype not in NARROW:
        return
    wide = [x if x.dtype is weft.bool else x.astype(weft.float64) for x in given]
    exact = interpret(optimized(function, *wide), wide, bind)
    eager = interpret(optimized(function, *given), given, bind)
    for got, other, want in zip(run(given), eager, exact, strict=True):
        if want.ndim:  # of one number it is a matter of luck
            far = [np.linalg.norm(array(x) - want.numpy()) for x in (got, other)]
            assert far[0] <= far[1]


# --- forward ------------------------------------------------------------------------------------

MASKS: list[Any] = [
    None,
    weft.rand(16, 24, generator=weft.Generator(1)) > 0.5,
    weft.rand(2, 1, 16, 24, generator=weft.Generator(2)) > 0.9,  # some queries look nowhere
    weft.rand(16, 1, generator=weft.Generator(3)) > 0.5,
    weft.randn(16, 24, generator=weft.Generator(4)),
    weft.randn(2, 4, 24, 16, generator=weft.Generator(5)).mT,
]


def in_floats(word: str, rows: list[Any], names: list[Any]) -> Any:
    """Each row in float32, in float64 and in one of the narrow floats, by turns."""
    return pytest.mark.parametrize(
        (word, "dtype"),
        [
            pytest.param(row, dtype, id=f"{name}-{dtype.name}")
            for i, (row, name) in enumerate(zip(rows, names, strict=True))
            for dtype in (weft.float32, weft.float64, NARROW[i % 2])
        ],
    )


MASKED = in_floats("mask", MASKS, list(range(len(MASKS))))


def masked(mask: Any, dtype: Any) -> list[Any]:
    """q, k, v and the mask, in one dtype."""
    shapes = ((2, 4, 16, 8), (2, 4, 24, 8), (2, 4, 24, 5))
    given = [drawn(i, *shape, dtype=dtype) for i, shape in enumerate(shapes)]
    if mask is None:
        return given
    return [*given, mask if mask.dtype is weft.bool else mask.astype(dtype)]


@MASKED
def test_forward_is_one_kernel(mask: Any, dtype: Any) -> None:
    run = check(lambda *given: weft.tanh(attention(*given)) + 1, masked(mask, dtype))
    cast = "astype " if dtype in NARROW else ""
    assert f"attention: attention {cast}tanh add" in run.plan()
    assert (2, 4, 16, 24) not in buffers(run)


def test_weights_that_are_seen_are_computed_as_written() -> None:
    def f(q: Any, k: Any) -> Any:
        weights = weft.softmax(q @ k.mT, axis=-1)
        return weights @ k, weights

    run = check(f, [drawn(0, 3, 5, 8), drawn(1, 3, 7, 8)])
    assert "attention" not in run.plan()


# --- backward -----------------------------------------------------------------------------------


def gradients(function: Any, *which: int) -> Any:
    """The value and the gradients of a weighted sum of what a function gives."""

    def f(g: Any, *given: Any) -> Any:
        def loss(*given: Any) -> Any:
            out = function(*given)
            return (out * g).sum(), out

        return weft.value_and_grad(loss, argnums=which or (0, 1, 2), has_aux=True)(*given)

    return f


def scaled_after(q: Any, k: Any, v: Any) -> Any:
    return weft.softmax((q @ k.mT) * 0.3, axis=-1) @ v


def divided_after(q: Any, k: Any, v: Any) -> Any:
    return weft.softmax(q @ k.mT / math.sqrt(3), axis=-1) @ v


def scaled_and_masked(q: Any, k: Any, v: Any) -> Any:
    scores = q @ k.mT / 3 + weft.tensor(np.arange(7, dtype="f4")).astype(q.dtype)
    return weft.softmax(scores, axis=-1) @ v


def bare(q: Any, k: Any, v: Any) -> Any:
    return weft.softmax(q @ k.mT, axis=-1) @ v


def keys_turned(q: Any, k_turned: Any, v: Any) -> Any:
    return weft.softmax(q @ k_turned, axis=-1) @ v


def heads(q: Any, k: Any, v: Any) -> Any:
    """Of (tokens, batch, heads, features) each."""
    turned = [weft.permute_dims(x, (1, 2, 0, 3)) for x in (q, k, v)]
    return weft.permute_dims(attention(*turned), (2, 0, 1, 3)).reshape(q.shape[0], -1, 1)


def causal(q: Any, k: Any, v: Any) -> Any:
    return attention(q, k, v, is_causal=True)


#: name, function, shapes of the gradient of the result, q, k and v.
PROGRAMS = [
    ("plain", attention, (2, 3, 9, 5), (2, 3, 9, 4), (2, 3, 7, 4), (2, 3, 7, 5)),
    ("matrices", attention, (33, 17), (33, 20), (40, 20), (40, 17)),
    ("many keys", attention, (2, 20, 33), (2, 20, 40), (2, 700, 40), (2, 700, 33)),
    ("many queries", attention, (1, 900, 8), (1, 900, 16), (1, 30, 16), (1, 30, 8)),
    ("wide", attention, (2, 10, 300), (2, 10, 511), (2, 12, 511), (2, 12, 300)),
    ("shared keys", attention, (2, 3, 9, 5), (2, 3, 9, 4), (2, 1, 7, 4), (1, 1, 7, 5)),
    ("causal", causal, (2, 3, 40, 8), (2, 3, 40, 8), (2, 3, 40, 8), (2, 3, 40, 8)),
    ("causal, fewer keys", causal, (2, 40, 8), (2, 40, 8), (2, 24, 8), (2, 24, 8)),
    ("causal, more keys", causal, (2, 24, 8), (2, 24, 8), (2, 40, 8), (2, 40, 8)),
    ("no scale", bare, (2, 9, 5), (2, 9, 4), (2, 7, 4), (2, 7, 5)),
    ("scaled after", scaled_after, (2, 9, 5), (2, 9, 4), (2, 7, 4), (2, 7, 5)),
    ("divided after", divided_after, (2, 9, 5), (2, 9, 4), (2, 7, 4), (2, 7, 5)),
    ("scaled, masked", scaled_and_masked, (2, 9, 5), (2, 9, 4), (2, 7, 4), (2, 7, 5)),
    ("keys turned", keys_turned, (2, 9, 5), (2, 9, 4), (2, 4, 7), (2, 7, 5)),
    ("heads", heads, (9, 72, 1), (9, 2, 3, 12), (7, 2, 3, 12), (7, 2, 3, 12)),
]


@in_floats("program", PROGRAMS, [program[0] for program in PROGRAMS])
def test_backward_is_one_kernel(program: Any, dtype: Any) -> None:
    _, function, *shapes = program
    given = [drawn(i, *shape, dtype=dtype) for i, shape in enumerate(shapes)]
    run = check(gradients(function), given)
    assert {"attention", "attention_grad"} <= set(kinds(run))
    assert not any(kind in ("product", "call") for kind in kinds(run))
    check_nearer(gradients(function), given, run)


def in_float32(q: Any, k: Any, v: Any) -> Any:
    return weft.softmax((q @ k.mT).astype(weft.float32) * 0.3, axis=-1).astype(q.dtype) @ v


def cast_after_scale(q: Any, k: Any, v: Any) -> Any:
    return F.softmax((q @ k.mT) * 0.25, dim=-1, dtype=weft.float32).astype(q.dtype) @ v


def masked_in_float32(q: Any, k: Any, v: Any) -> Any:
    scores = (q @ k.mT / 2).astype(weft.float32)
    past = weft.tril(weft.ones(scores.shape[-2:], dtype=weft.bool))
    scores = weft.where(past, scores, -weft.inf)
    return weft.softmax(scores, axis=-1).astype(q.dtype) @ v


def added_in_float32(q: Any, k: Any, v: Any) -> Any:
    mask = weft.tensor(np.arange(k.shape[-2], dtype="f4"))
    scores = (q @ k.mT).astype(weft.float32) + mask
    return weft.softmax(scores, axis=-1).astype(q.dtype) @ v


@pytest.mark.parametrize("dtype", NARROW, ids=str)
@pytest.mark.parametrize(
    "function", [in_float32, cast_after_scale, masked_in_float32, added_in_float32]
)
def test_softmax_of_narrow_floats_in_float32(function: Any, dtype: Any) -> None:
    shapes = ((2, 19, 5), (2, 19, 24), (2, 37, 24), (2, 37, 5))
    given = [drawn(i, *shape, dtype=dtype) for i, shape in enumerate(shapes)]
    run = check(gradients(function), given)
    assert {"attention", "attention_grad"} <= set(kinds(run))
    assert (2, 19, 37) not in buffers(run)
    check_nearer(gradients(function), given, run)


def test_a_mask_of_the_past_lies_nowhere() -> None:
    """Too large to be a constant of the graph, and not needed: the kernel knows it."""
    for queries, keys in ((70, 80), (80, 70)):
        shapes = ((queries, 8), (queries, 8), (keys, 8), (keys, 8))
        given = [drawn(i, 2, *shape) for i, shape in enumerate(shapes)]
        run = check(gradients(causal), given)
        assert {"attention", "attention_grad"} <= set(kinds(run))
        assert (queries, keys) not in buffers(run)


@pytest.mark.parametrize("sizes", [(1, 1, 1, 1), (5, 1, 4, 2), (1, 5, 4, 2), (5, 3, 1, 1)])
def test_sizes_of_one(sizes: tuple[int, ...]) -> None:
    queries, keys, features, values = sizes
    shapes = ((queries, values), (queries, features), (keys, features), (keys, values))
    for dtype in (weft.float32, weft.bfloat16):
        given = [drawn(i, 3, *shape, dtype=dtype) for i, shape in enumerate(shapes)]
        check(gradients(attention), given)


@MASKED
def test_backward_of_masks(mask: Any, dtype: Any) -> None:
    given = [drawn(9, 2, 4, 16, 5, dtype=dtype), *masked(mask, dtype)]
    run = check(gradients(attention), given)
    assert "attention_grad" in kinds(run)
    assert (2, 4, 16, 24) not in buffers(run)
    check_nearer(gradients(attention), given, run)


@pytest.mark.parametrize("which", [(0,), (1,), (2,), (0, 2), (1, 2)], ids=str)
def test_some_gradients(which: tuple[int, ...]) -> None:
    shapes = ((2, 3, 9, 5), (2, 3, 9, 4), (2, 3, 7, 4), (2, 3, 7, 5))
    run = check(gradients(attention, *which), [drawn(i, *s) for i, s in enumerate(shapes)])
    assert ("attention_grad" in kinds(run)) == (which != (2,))  # that of v alone is one product


def test_large_scores() -> None:
    shapes = ((2, 9, 5), (2, 9, 4), (2, 70, 4), (2, 70, 5))
    g, q, k, v = (drawn(i, *shape) for i, shape in enumerate(shapes))
    check(gradients(attention), [g, q * 20, k * 20, v], near=1e-3)


def test_queries_that_look_nowhere_give_nothing() -> None:
    one = np.eye(9, 7) > 0
    for mask in (weft.tensor(one), weft.tensor(np.where(one, 0.5, -np.inf).astype("f4"))):
        shapes = ((2, 3, 9, 5), (2, 3, 9, 4), (2, 3, 7, 4), (2, 3, 7, 5))
        given = [*(drawn(i, *shape) for i, shape in enumerate(shapes)), mask]
        run = check(gradients(attention), given)
        assert "attention_grad" in kinds(run)
        dq = run(given)[2].numpy()
        assert (dq[:, :, 7:] == 0).all()


def test_values_that_nobody_may_look_at_may_be_anything() -> None:
    """A key that is masked gets the gradient 0, whatever it holds."""
    mask = weft.tensor([True, True, False, True])
    g, q, k, v = drawn(0, 5, 3), drawn(1, 5, 3), drawn(2, 4, 3), drawn(3, 4, 3).numpy().copy()
    for bad in (np.inf, np.nan):
        v[2, 1] = bad
        given = [g, q, k, weft.tensor(v), mask]
        run = check(gradients(attention), given)
        assert "attention_grad" in kinds(run)


def test_scores_lie_nowhere_in_a_training_step() -> None:
    model = nn.TransformerEncoderLayer(32, 4, 48, dropout=0.0, batch_first=True)
    wanted, opt = weft.randn(2, 24, 32), weft.optim.SGD(model.parameters(), lr=0.1)
    names = dict(model.named_parameters())
    before = {name: value.numpy().copy() for name, value in names.items()}

    def step(x: Any) -> Any:
        opt.zero_grad()
        loss = ((model(x) - wanted) ** 2).mean()
        loss.backward()
        opt.step()
        return loss

    x = weft.randn(2, 24, 32)
    eager = step(x).numpy(), {name: value.numpy().copy() for name, value in names.items()}
    with weft.no_grad():
        for name, value in names.items():
            value[...] = weft.tensor(before[name])
    compiled = weft.compile(step, backend="native")
    np.testing.assert_allclose(compiled(x).numpy(), eager[0], rtol=1e-5)
    for name, value in names.items():
        np.testing.assert_allclose(
            value.numpy(), eager[1][name], rtol=1e-4, atol=1e-6, err_msg=name
        )
    plan = compiled.programs[-1].program.plan()
    assert "attention_grad" in plan
    assert "[2,4,24,24]" not in plan  # the shape of scores and of weights


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_a_compiled_step_of_narrow_floats(dtype: Any) -> None:
    """The same bits with one thread and with two, near those of eager."""
    q, k, v = (drawn(i, 2, 4, 70, 16, dtype=dtype) for i in range(3))

    def step(x: Any) -> Any:
        x = x.detach().requires_grad_()
        out = attention(x, k, v, is_causal=True)
        (out * out).sum().backward()
        return out, x.grad

    eager = [array(x) for x in step(q)]
    compiled, before = weft.compile(step, backend="native"), weft.get_num_threads()
    made = []
    try:
        for threads in (1, 2):
            weft.set_num_threads(threads)
            made.append([array(x) for x in compiled(q)])
    finally:
        weft.set_num_threads(before)
    assert "[2,4,70,70]" not in compiled.programs[-1].program.plan()
    for one, two, want in zip(*made, eager, strict=True):
        assert one.tobytes() == two.tobytes()
        np.testing.assert_allclose(one, want, rtol=0, atol=NEAR[dtype] * np.abs(want).max())


# --- what is computed as written ----------------------------------------------------------------


def learned_mask(q: Any, k: Any, v: Any, mask: Any) -> Any:
    return attention(q, k, v, mask)


def dropped(q: Any, k: Any, v: Any) -> Any:
    weights = weft.softmax(q @ k.mT, axis=-1)
    return (weights * (weights > 0.1)) @ v


def scaled_by_a_tensor(q: Any, k: Any, v: Any) -> Any:
    return weft.softmax((q @ k.mT) * v[:, :1, :1], axis=-1) @ v


def rounded(q: Any, k: Any, v: Any) -> Any:
    """Of wide floats a rounding is meant as it is written."""
    scores = (q @ k.mT).astype(weft.bfloat16).astype(q.dtype)
    return weft.softmax(scores, axis=-1) @ v


def seen(q: Any, k: Any, v: Any) -> Any:
    weights = weft.softmax(q @ k.mT, axis=-1)
    return weights @ v + weights.max()


SHAPES = ((2, 9, 5), (2, 9, 4), (2, 7, 4), (2, 7, 5), (9, 7))


@pytest.mark.parametrize(
    ("function", "which"),
    [
        (learned_mask, (0, 1, 2, 3)),
        (dropped, ()),
        (scaled_by_a_tensor, ()),
        (rounded, ()),
        (seen, ()),
    ],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_what_is_computed_as_written(function: Any, which: tuple[int, ...]) -> None:
    count = 5 if which else 4
    given = [drawn(i, *shape) for i, shape in enumerate(SHAPES[:count])]
    run = check(gradients(function, *which), given)
    assert not any("attention" in kind for kind in kinds(run))


def test_attentions_that_share_a_product() -> None:
    """The result of the first is the scores of the second: one of them is computed as written."""

    def twice(q: Any, k: Any, v: Any, values: Any) -> Any:
        return weft.softmax(attention(q, k, v), axis=-1) @ values

    given = [
        drawn(i, *shape) for i, shape in enumerate(((2, 3, 5), (2, 3, 5), (2, 3, 8), (2, 8, 1)))
    ]
    check(twice, given)
    check(lambda *given: weft.grad(lambda q: twice(q, *given[1:]).sum())(given[0]), given)


def test_second_derivatives_are_computed_as_written() -> None:
    def f(q: Any, k: Any, v: Any) -> Any:
        def inner(q: Any) -> Any:
            return weft.tanh(weft.grad(lambda q: (attention(q, k, v) ** 2).sum())(q)).sum()

        return weft.grad(inner)(q)

    check(f, [drawn(i, *shape) for i, shape in enumerate(SHAPES[1:4])], near=1e-4)


def test_too_wide_for_the_kernel_of_the_backward() -> None:
    shapes = ((1, 4, 600), (1, 4, 600), (1, 5, 600), (1, 5, 600))
    run = check(gradients(attention), [drawn(i, *shape) for i, shape in enumerate(shapes)])
    assert not any("attention" in kind or kind == "call" for kind in kinds(run))
