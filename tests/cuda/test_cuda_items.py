"""Indexing, random numbers, sorting and pooling in compiled functions on the device "cuda": the
kernels of CPUs, a thread for each item. They give the bits of the CPU, in one CUDA graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cuda_device import REAL, cuda
from cuda_samples import up
from op_calls import flat

import weft
import weft.nn.functional as F
from weft import nn
from weft.codegen.cuda.emitter import CudaEmitter
from weft.codegen.cuda.ptx import ptx
from weft.core.tensor import wrap
from weft.passes.lowering.lower import lowered
from weft.runtime.cuda import opening
from weft.runtime.cuda.program import CudaProgram
from weft.schedule.planner import plan_program
from weft.schedule.verify import verify_plan

__all__ = ["cuda"]
pytestmark = pytest.mark.usefixtures("cuda")

ROWS = weft.asarray([[3, 0, 3], [5, -1, 2]])
CLASSES = weft.asarray([3, 0, 3, 5])


def values(*shape: int, seed: int = 0) -> weft.Tensor:
    return weft.asarray(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def gradient(function: Callable[[Any], Any]) -> Callable[..., Any]:
    def run(x: weft.Tensor, *more: weft.Tensor) -> Any:
        out, pull = weft.vjp(lambda x: (function(x, *more) ** 2).sum(), x)  # type: ignore[call-arg]
        return pull(weft.ones_like(out))

    return run


def written(x: weft.Tensor, rows: weft.Tensor) -> weft.Tensor:
    y = x + 0
    y[rows[0]] = 7.0  # a row is written twice
    y[:, 1] = y[:, 2] * 2
    return y


def added(x: weft.Tensor, rows: weft.Tensor) -> weft.Tensor:
    return weft.index_add(x, 0, rows, x[rows] * 2)


#: Functions, and their inputs.
CASES: dict[str, tuple[Callable[..., Any], list[weft.Tensor]]] = {
    "embedding": (lambda w, rows: F.embedding(rows.abs(), w), [values(6, 10), ROWS]),
    "gradient of embedding": (
        gradient(lambda w, rows: F.embedding(rows.abs(), w)),
        [values(6, 10), ROWS],
    ),
    "gather": (lambda x, rows: x[rows] * 2, [values(6, 10), ROWS]),
    "gather of pairs": (lambda x, rows: x[rows[0], rows[1]], [values(6, 6), ROWS]),
    "gradient of gather": (gradient(lambda x, rows: x[:, rows]), [values(4, 6), ROWS]),
    "take": (lambda x, rows: weft.take(x, rows[0], axis=1), [values(4, 6), ROWS]),
    "take_along_axis": (
        lambda x, rows: weft.take_along_axis(x, rows, axis=1),
        [values(2, 6), ROWS],
    ),
    "gradient of take_along_axis": (
        gradient(lambda x, rows: weft.take_along_axis(x, rows, axis=1)),
        [values(2, 6), ROWS],
    ),
    "setitem": (written, [values(6, 10), ROWS]),
    "index_add": (added, [values(6, 4), CLASSES]),
    "where and pad": (lambda x: F.pad(weft.where(x > 0, x, -1.0), (1, 2)), [values(3, 5)]),
    "split and stack": (lambda x: weft.stack(weft.split(x, 2, axis=0)[::-1]), [values(4, 5)]),
    "creation": (
        lambda x: x * weft.eye(5, device=x.device) + weft.arange(5, device=x.device),
        [values(5, 5)],
    ),
    "targets that are computed": (
        lambda x, classes: F.cross_entropy(x, classes - 0 * classes),
        [values(4, 6), CLASSES],
    ),
    "dropout": (lambda x: F.dropout(x, 0.4) + 1, [values(40, 33)]),
    "uniform and normal": (
        lambda x: x + weft.rand(x.shape, device=x.device) * weft.randn(x.shape, device=x.device),
        [values(7, 5)],
    ),
    "integers": (
        lambda x: x + weft.randint(-5, 100, x.shape, device=x.device),
        [values(3, 5)],
    ),
    "bernoulli": (lambda x: weft.bernoulli(weft.sigmoid(x)), [values(30)]),
    "cumulative sum": (lambda x: weft.cumulative_sum(x, axis=1), [values(3, 70)]),
    "cumulative sum of columns": (lambda x: weft.cumulative_sum(x, axis=0), [values(9, 7)]),
    "gradient of cumulative product": (
        gradient(lambda x: weft.cumulative_prod(x, axis=1)),
        [values(3, 6)],
    ),
    "sort": (lambda x: weft.sort(x, axis=0, descending=True), [values(60, 3)]),
    "argsort": (lambda x: weft.argsort(x, axis=1), [values(3, 20)]),
    "topk": (lambda x: weft.topk(x, 3), [values(4, 20)]),
    "gradient of topk": (gradient(lambda x: weft.topk(x, 3)[0]), [values(4, 20)]),
    "extremes": (lambda x: (weft.argmax(x, axis=1), weft.argmin(x, axis=0)), [values(5, 20)]),
    "searchsorted": (
        lambda x, y: weft.searchsorted(weft.sort(x), y),
        [values(9), values(5, seed=1)],
    ),
    "max_pool2d": (lambda x: F.max_pool2d(x, 2), [values(2, 3, 8, 8)]),
    "gradient of max_pool2d": (
        gradient(lambda x: F.max_pool2d(x, 3, 2, 1)),
        [values(2, 3, 9, 9)],
    ),
    "gradient of avg_pool2d": (gradient(lambda x: F.avg_pool2d(x, 3, 2)), [values(2, 3, 9, 9)]),
    "attention": (
        lambda q: F.scaled_dot_product_attention(q, q * 2, q + 1, is_causal=True),
        [values(2, 2, 8, 4)],
    ),
}  # fmt: skip


def program(compiled: Any) -> CudaProgram:
    made = compiled.programs[-1].program
    assert isinstance(made, CudaProgram), made.reason
    return made


@pytest.mark.parametrize("name", CASES)
def test_values(name: str) -> None:
    function, inputs = CASES[name]
    compiled = weft.compile(function, backend="native")
    for _ in range(3):  # single launches, a capture, another one as the results are held
        weft.manual_seed(5)
        want = flat(function(*inputs))
        weft.manual_seed(5)
        got = flat(compiled(*up(inputs)))
        for a, b in zip(want, got, strict=True):
            assert (str(b.device), b.type.dtype, b.shape) == ("cuda", a.dtype, a.shape)
            np.testing.assert_allclose(b.numpy(), a.numpy(), rtol=1e-5, atol=1e-5)
    assert not program(compiled).calls


@pytest.mark.parametrize("name", CASES)
def test_plans_are_right_and_llvm_makes_ptx(name: str) -> None:
    if REAL:
        pytest.skip("programs are made and loaded")
    function, inputs = CASES[name]
    specs = [weft.spec(x.shape, x.dtype, device="cuda") for x in inputs]
    emitter = CudaEmitter()
    graph = weft.optimize(weft.make_graph(function, *specs))
    plan = plan_program(lowered(graph, lambda _: False), emitter)
    verify_plan(plan, emitter.target)
    emitter.emit(plan)
    launches = [launch for work in emitter.work for launch in work.launches]
    text = ptx(emitter.module.text(), emitter.machine)
    assert all(f".entry {launch.name}(" in text for launch in launches)
    assert "call.uni" not in text  # all of it is in registers


def test_an_index_out_of_range_changes_nothing() -> None:
    layer = nn.Embedding(6, 4).to("cuda")
    optimizer = weft.optim.SGD(layer.parameters(), lr=0.1)

    def step(rows: weft.Tensor) -> weft.Tensor:
        optimizer.zero_grad()
        loss = (layer(rows) ** 2).sum()
        loss.backward()
        optimizer.step()
        return loss

    run = weft.compile(step, backend="native")
    good = weft.asarray([1, 2, 5], device="cuda")
    for _ in range(3):
        run(good)
    before = layer.weight.detach().cpu().numpy().copy()
    for _ in range(2):
        with pytest.raises(IndexError, match="there is no row 6 in a weight of 6 rows"):
            run(weft.asarray([1, 6, 5], device="cuda"))
        np.testing.assert_array_equal(layer.weight.detach().cpu().numpy(), before)
    run(good)
    assert not np.array_equal(layer.weight.detach().cpu().numpy(), before)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("shape", "size"), [((5, 9), 6), ((1,), 3), ((7, 53), 200), ((8, 16), 3)])
def test_gradients_of_embeddings_have_the_bits_of_the_cpu(
    shape: tuple[int, ...], size: int, dtype: str
) -> None:
    rows = weft.asarray(np.random.default_rng(1).integers(0, size, shape))
    weight = weft.asarray(np.random.default_rng(2).standard_normal((size, 35))).astype(dtype)

    def gradients(weight: weft.Tensor, rows: weft.Tensor) -> Any:
        def loss(weight: weft.Tensor) -> weft.Tensor:
            return (F.embedding(rows, weight, padding_idx=2).astype(weft.float32) ** 3).sum()

        return weft.grad(loss)(weight)

    want = weft.compile(gradients, backend="native")(weight, rows)
    got = weft.compile(gradients, backend="native")(weight.cuda(), rows.cuda())
    np.testing.assert_array_equal(got.numpy(), want.numpy())


def test_long_rows_are_left_to_cupy() -> None:
    compiled = weft.compile(lambda x: weft.sort(x) * 2, backend="native")
    x = values(100_000)
    np.testing.assert_array_equal(compiled(x.cuda()).numpy(), np.sort(x.numpy()) * 2)
    assert [node.op.name for node in program(compiled).calls] == ["sort"]


def test_inputs_may_lie_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are moved in pieces of 16 bytes; those that lie between such are copied before."""
    driver, launched = opening.driver(), []
    launch = driver.launch

    def noted(function: Any, blocks: int, threads: int, addresses: Any, shared: int) -> None:
        launched.append(addresses[0])
        launch(function, blocks, threads, addresses, shared)

    monkeypatch.setattr(driver, "launch", noted)
    read = weft.compile(lambda table, rows: F.embedding(rows, table), backend="native")
    lies = set()
    memory, rows = np.arange(40, dtype=np.float32), weft.asarray([[3, 0], [1, 3]])
    for start in range(4):
        part = memory[start : start + 32].reshape((4, 8))
        table = wrap(opening.cupy().asarray(memory)[start : start + 32].reshape((4, 8)))
        lies.add(driver.address(table._data) % 16)
        for _ in range(3):
            found = read(table, rows.cuda()).numpy()
            np.testing.assert_array_equal(found, F.embedding(rows, weft.asarray(part)).numpy())
    assert lies == {0, 4, 8, 12}
    assert {address % 16 for address in launched} == {0}
