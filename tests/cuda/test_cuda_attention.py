"""Attention on the device "cuda": one kernel, and two for its gradients, against NumPy in float64.

Without a GPU the kernels run on an emulated one, whose meaning of `mma` and such is that of the
table in `weft.codegen.cuda.primitives`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from cuda_device import REAL, cuda

import weft
import weft.nn.functional as F
from weft.codegen.cuda.builder import KernelBuilder
from weft.codegen.cuda.machine import GpuMachine
from weft.codegen.cuda.primitives import PRIMITIVES, Device
from weft.codegen.cuda.ptx import ptx
from weft.codegen.text import Module
from weft.passes.lowering.attention.cards import (
    ATTENTION,
    ATTENTION_GRAD,
    ATTENTION_GRAD_JOINED,
)
from weft.passes.lowering.biased_products import MATMUL_BIAS
from weft.runtime.cuda.program import CudaProgram

__all__ = ["cuda"]
pytestmark = pytest.mark.usefixtures("cuda")


@dataclass(frozen=True)
class Case:
    """`mask`: "", "bool", "row" (a bool for each key), "add", or "nowhere" (rows without a key)."""

    batch: tuple[int, ...] = (2, 2)
    queries: int = 72
    keys: int = 72
    features: int = 32
    values: int = 0
    causal: bool = False
    mask: str = ""
    scale: float | None = None
    dtype: str = "bfloat16"


CASES = {
    "plain": Case(),
    "causal": Case(queries=160, keys=160, features=64, causal=True, batch=(1,)),
    "tails": Case(queries=75, keys=83),
    "few queries": Case(queries=3, keys=300, batch=(19,)),
    "causal, more keys": Case(queries=70, keys=130, features=64, causal=True),
    "causal, fewer keys": Case(queries=150, keys=67, causal=True),
    "96 features": Case(features=96, batch=(4,), queries=65, keys=66),
    "128 features": Case(features=128, batch=(4,), queries=70, keys=67, causal=True),
    "padded features": Case(features=40, values=24, batch=(4,), queries=65, keys=66),
    "more values": Case(features=16, values=72, batch=(4,), queries=65, keys=66),
    "half": Case(dtype="float16", causal=True),
    "negative scale": Case(scale=-0.3, causal=True),
    "bool mask": Case(mask="bool", queries=70, keys=75),
    "mask of keys": Case(mask="row"),
    "added mask": Case(mask="add", queries=70, keys=75),
    "rows that look nowhere": Case(mask="nowhere"),
}


def inputs_of(case: Case) -> tuple[list[Any], Any]:
    """q, k, v and the gradient as arrays of the dtype, and the mask."""
    rng = np.random.default_rng(0)
    wide = case.values or case.features
    lengths = [(case.queries, case.features), (case.keys, case.features)]
    lengths += [(case.keys, wide), (case.queries, wide)]
    kind = getattr(weft, case.dtype).numpy
    given = [rng.standard_normal((*case.batch, *shape)).astype(kind) for shape in lengths]
    mask: Any = None
    if case.mask == "bool":
        mask = rng.random((case.queries, case.keys)) > 0.3
    elif case.mask == "row":
        mask = np.broadcast_to(rng.random(case.keys) > 0.3, (case.queries, case.keys))
    elif case.mask == "add":
        mask = rng.standard_normal((case.batch[0], 1, case.queries, case.keys)).astype(kind)
    elif case.mask == "nowhere":
        mask = rng.random((case.queries, case.keys)) > 0.3
        mask[5:9] = False
    return given, mask


def reference(case: Case, given: list[Any], mask: Any) -> list[Any]:
    """The result and the gradients of q, k and v, in float64."""
    q, k, v, g = (np.asarray(x, np.float64) for x in given)
    scale = case.scale if case.scale is not None else case.features**-0.5
    scores = q @ k.swapaxes(-1, -2) * scale
    if case.causal:
        scores = np.where(np.tri(case.queries, case.keys, dtype=bool), scores, -np.inf)
    elif mask is not None:
        added = np.asarray(mask, np.float64) if mask.dtype != bool else np.where(mask, 0, -np.inf)
        scores = scores + added
    top = scores.max(-1, keepdims=True)
    weights = np.exp(scores - np.where(np.isinf(top), 0, top))
    total = weights.sum(-1, keepdims=True)
    weights = weights / np.where(total == 0, 1, total)
    out = weights @ v
    slopes = weights * (g @ v.swapaxes(-1, -2) - (g * out).sum(-1, keepdims=True)) * scale
    return [out, slopes @ k, slopes.swapaxes(-1, -2) @ q, weights.swapaxes(-1, -2) @ g]


def attention(case: Case, mask: Any) -> Any:
    def run(q: Any, k: Any, v: Any, g: Any) -> Any:
        def looked(q: Any, k: Any, v: Any) -> Any:
            options = {"attn_mask": mask, "is_causal": case.causal, "scale": case.scale}
            return F.scaled_dot_product_attention(q, k, v, **options)

        out, pull = weft.vjp(looked, q, k, v)
        return out, *pull(g)

    return run


def kinds(compiled: Any) -> list[str]:
    """The kinds of the steps of a function's last program."""
    program = compiled.programs[-1].program
    assert isinstance(program, CudaProgram), program.reason
    assert not program.calls
    return [work.step.kind for work in program.work]


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name: str) -> None:
    case = CASES[name]
    given, mask = inputs_of(case)
    want = reference(case, given, mask)
    on_gpu = None if mask is None else weft.asarray(mask).cuda()
    compiled = weft.compile(attention(case, on_gpu), backend="native")
    tensors = [weft.asarray(x).cuda() for x in given]
    eps = 2.0**-8 if case.dtype == "bfloat16" else 2.0**-10
    first: list[Any] = []
    for _ in range(2):
        got = [x.numpy() for x in compiled(*tensors)]
        first = first or got
        for made, again, expected in zip(got, first, want, strict=True):
            assert made.tobytes() == again.tobytes()  # the same bits in every run
            found = made.astype(np.float64)
            # Weights and their gradients are rounded once, as operands of products.
            error = np.abs(found - expected).max() / np.abs(expected).max()
            assert error < 3 * eps, (name, error)
    assert {"attention", "attention_grad"} <= set(kinds(compiled))


@pytest.mark.skipif(REAL, reason="it is the driver's PTX there")
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_primitives_are_instructions(arch: str) -> None:
    """The table's intrinsics are those of LLVM's NVPTX target."""
    module = Module(GpuMachine(arch))
    builder = KernelBuilder(module, "all", 2)
    device = Device(builder)
    room = builder.shared("i8", 4096, align=16)
    for size in (16, 8):
        device.copy(room, builder.buffer(0, "i8"), size, size)
    device.wait_for_copies()
    sums = ["0.0"] * 4
    for dtype in (weft.bfloat16, weft.float16):
        left = device.tiles(room, turned=dtype is weft.float16)
        sums = device.multiply(dtype, left, left[:2], sums)
        packed = device.pack(dtype, sums[0], device.exp2(device.exchange(sums[1], 2)))
        builder.buffer(1, "i32").store(packed)
    builder.end(128)
    text = ptx(module.text(), module.machine)
    instructions = {
        "multiply.bfloat16": "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
        "multiply.float16": "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
        "tiles": "ldmatrix.sync.aligned.m8n8.x4.shared.b16",
        "tiles.turned": "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16",
        "copy.16": "cp.async.cg.shared.global",
        "copy.8": "cp.async.ca.shared.global",
        "wait for copies": "cp.async.wait_all",
        "exchange": "shfl.sync.bfly",
        "exp2": "ex2.approx.ftz.f32",
        "pack.bfloat16": "cvt.rn.bf16x2.f32",
        "pack.float16": "cvt.rn.f16x2.f32",
    }
    assert instructions.keys() == PRIMITIVES.keys()
    for instruction in instructions.values():
        assert instruction in text


def test_inputs_that_begin_anywhere_are_copied() -> None:
    """Rows are copied in pieces of 16 bytes: an array may begin between them."""
    case = CASES["plain"]
    given, _ = inputs_of(case)
    compiled = weft.compile(attention(case, None), backend="native")
    want = [x.numpy() for x in compiled(*[weft.asarray(x).cuda() for x in given])]
    shifted = []
    for x in given:
        room = weft.asarray(np.concatenate([np.zeros(1, x.dtype), x.reshape(-1)])).cuda()
        one = weft.zeros((1,), device="cuda")
        one._data = room._data[1:].reshape(x.shape)
        shifted.append(one)
    for _ in range(3):
        got = [x.numpy() for x in compiled(*shifted)]
        assert [x.tobytes() for x in got] == [x.tobytes() for x in want]


def _heads(dtype: Any) -> tuple[Any, list[Any]]:
    """Attention of two heads whose q, k and v are one product, with its gradients; its inputs."""

    def loss(x: Any, w: Any, b: Any) -> Any:
        parts = F.linear(x, w, b).reshape((2, 96, 3, 2, 32))
        q, k, v = (parts[:, :, i].swapaxes(1, 2) for i in range(3))
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return (seen.swapaxes(1, 2).reshape((2, 96, 64)).astype(weft.float32) ** 2).sum()

    def work(x: Any, w: Any, b: Any) -> Any:
        total, pull = weft.vjp(loss, x, w, b)
        return total, *pull(weft.ones_like(total))

    rng = np.random.default_rng(0)
    shapes = (2, 96, 64), (192, 64), (192,)
    return work, [weft.asarray(rng.standard_normal(s) * 0.3).astype(dtype) for s in shapes]


def test_what_surrounds_attention_is_done_by_its_kernels() -> None:
    """No copies: q is scaled in the kernel, gradients are written side by side, and a bias is added
    by the product."""
    work, given = _heads(weft.bfloat16)
    wide = [x.astype(weft.float32) for x in given]
    want = [np.asarray(x.numpy(), np.float64) for x in work(*wide)]
    compiled = weft.compile(work, backend="native")
    tensors = [x.cuda() for x in given]
    for _ in range(3):
        for made, expected in zip(compiled(*tensors), want, strict=True):
            error = np.abs(made.numpy().astype(np.float64) - expected).max()
            assert error < 0.02 * np.abs(expected).max()
    program = compiled.programs[-1].program
    names = [node.op.name for work in program.work for node in work.step.nodes]
    assert {"attention", "attention_grad_joined", "matmul_bias"} <= set(names)
    assert "concat" not in names
    loops = [work.step for work in program.work if work.step.kind == "loop"]
    assert not any(
        node.op.name == "multiply" and len(step.nodes) == 1 for step in loops for node in step.nodes
    )


def test_cards_of_what_surrounds_attention() -> None:
    """They say what the kernels do."""
    rng = np.random.default_rng(0)
    q, k, v, g = (rng.standard_normal((2, 3, 5, 4)).astype(np.float32) for _ in range(4))
    options = {"scale": 0.5, "causal": True, "blank": False}
    natural = (0, 1, 2, 3)
    out, lse = ATTENTION.eval(np, q, k, v, axes=natural, **options)
    grads = ATTENTION_GRAD.eval(np, q, k, v, out, g, lse, axes=(natural,) * 3, **options)
    strides = (180, 4, 36, 1)  # (2, 5, 3, 3, 4): rows, then the three gradients, then heads
    lies = tuple((12 * i, strides) for i in range(3))
    shape = (2, 5, 3, 3, 4)
    made = ATTENTION_GRAD_JOINED.eval(np, q, k, v, out, g, lse, shape=shape, lies=lies, **options)
    np.testing.assert_array_equal(made, np.stack(grads, 2).transpose(0, 3, 2, 1, 4))
    x, w, b = (rng.standard_normal(s).astype(np.float16) for s in ((3, 4), (4, 5), (5,)))
    wide = x.astype(np.float32) @ w.astype(np.float32) + b.astype(np.float32)
    np.testing.assert_array_equal(MATMUL_BIAS.eval(np, x, w, b), wide.astype(np.float16))


def _looked(x: Any) -> Any:
    q = x.reshape((2, 96, 2, 32)).swapaxes(1, 2)
    seen = F.scaled_dot_product_attention(q, q, q, is_causal=True)
    return seen.swapaxes(1, 2).reshape((2, 96, 64))


def _behind_rows(table: Any, rows: Any) -> Any:
    return _looked(F.embedding(rows, table))


def _in_loop(x: Any, count: Any) -> Any:
    while count > 0:
        x = x + _looked(x)
        count = count - 1
    return x


@pytest.mark.parametrize("name", ["behind rows", "in a loop"])
def test_kernels_in_programs_that_may_fail(name: str) -> None:
    """They get the program's flag: behind what fails they do nothing."""
    rng = np.random.default_rng(0)
    if name == "behind rows":
        table = weft.asarray(rng.standard_normal((50, 64))).astype(weft.bfloat16)
        rows = weft.asarray(rng.integers(0, 50, (2, 96)))
        compiled = weft.compile(_behind_rows, backend="native")
        want = _behind_rows(table.astype(weft.float32), rows).numpy()
        made = [compiled(table.cuda(), rows.cuda()) for _ in range(3)]
        with pytest.raises(IndexError, match="50"):
            compiled(table.cuda(), rows.cuda() + 1000)
    else:
        x = weft.asarray(rng.standard_normal((2, 96, 64))).astype(weft.bfloat16)
        compiled = weft.compile(_in_loop, backend="native")
        want = _in_loop(x.astype(weft.float32), weft.asarray(2)).numpy()
        made = [compiled(x.cuda(), weft.asarray(2).cuda()) for _ in range(3)]
    for out in made:
        assert np.abs(out.numpy().astype(np.float64) - want).max() < 0.02 * np.abs(want).max()
    steps = [part.step for work in compiled.programs[-1].program.work for part in work.all()]
    assert "attention" in [step.kind for step in steps]
