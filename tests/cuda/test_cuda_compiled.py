"""Compiled functions on the device "cuda": kernels of the CUDA target against eager on the CPU.

Without a GPU the kernels run on an emulated one (`support/emulated_gpu.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cuda_device import REAL, cuda
from cuda_samples import differs, normal, up
from op_calls import flat, function, tensors
from samples import ROWS
from samples.table import Row

import weft
import weft.nn.functional as F
from weft import nn
from weft.codegen.cuda.emitter import CudaEmitter
from weft.codegen.cuda.ptx import ptx
from weft.passes.lowering.lower import lowered
from weft.runtime.cuda.program import CudaProgram
from weft.schedule.planner import plan_program
from weft.schedule.verify import verify_plan

__all__ = ["cuda"]
pytestmark = pytest.mark.usefixtures("cuda")


def native(function: Any) -> Any:
    return weft.compile(function, backend="native")


def values(*shape: int, dtype: Any = weft.float32, seed: int = 0) -> weft.Tensor:
    rng = np.random.default_rng(seed)
    return weft.asarray(rng.standard_normal(shape)).astype(dtype)


def program(compiled: Any) -> CudaProgram:
    """The last program of a compiled function."""
    made = compiled.programs[-1].program
    assert isinstance(made, CudaProgram), made.reason
    return made


def _looped(x: weft.Tensor, w: weft.Tensor) -> weft.Tensor:
    for _ in range(10):
        x = weft.tanh(x * w + 0.5)
    return x.sum()


def _norm_gradients(x: weft.Tensor, w: weft.Tensor) -> Any:
    def loss(x: weft.Tensor, w: weft.Tensor) -> weft.Tensor:
        return (F.gelu(F.layer_norm(x, (48,), w)) * x).sum()

    _, pull = weft.vjp(loss, x, w)
    return pull(weft.ones_like(x.sum()))


#: Functions of tensors of these shapes, and how many kernels or products they take.
CASES: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "elementwise": (lambda x: weft.tanh(x * 2 + 1) / 3, [(5, 40)]),
    "broadcast": (lambda x, y: x * y + y, [(4, 1, 7), (3, 1)]),
    "transposed": (lambda x: weft.permute_dims(x, (2, 0, 1)) * 2, [(3, 4, 5)]),
    "strided": (lambda x: x[1:, ::3] - x[:-1, ::3], [(6, 10)]),
    "rows": (lambda x: x.sum(axis=1), [(5, 40)]),
    "long rows": (lambda x: x.max(axis=1), [(2, 1000)]),
    "columns": (lambda x: x.sum(axis=0), [(50, 7)]),
    "few columns, many rows": (lambda x: (x * x).sum(axis=0), [(1000, 2)]),
    "inner columns": (lambda x: (x * x).sum(axis=1), [(3, 9, 5)]),
    "total": (lambda x: (x * x).sum(), [(30, 11)]),
    "mean and var": (lambda x: (x.mean(), x.var()), [(30, 11)]),
    "softmax": (lambda x: weft.softmax(x, axis=-1), [(6, 33)]),
    "softmax of columns": (lambda x: weft.softmax(x, axis=0), [(6, 33)]),
    "several": (lambda x: (weft.softmax(x, axis=1), x.sum(axis=0), (x * x).sum()), [(6, 33)]),
    "layer norm": (lambda x, w: F.gelu(F.layer_norm(x, (24,), w)), [(5, 24), (24,)]),
    "kept rows": (lambda x, w: F.gelu(F.layer_norm(x, (48,), w)), [(5, 48), (48,)]),
    "kept rows, columns": (lambda x: (weft.softmax(x, axis=1) * x).sum(axis=0), [(17, 32)]),
    "kept rows, total": (lambda x: weft.logsumexp(x, axis=1).sum(), [(90, 48)]),
    "kept rows, total of all": (lambda x: (weft.softmax(x, axis=1) ** 2).sum(), [(90, 48)]),
    "kept rows of stacks": (lambda x: weft.softmax(x, axis=2).sum(axis=(0, 1)), [(3, 7, 16)]),
    "a loop": (_looped, [(4, 6), (6,)]),
    "gradient of layer norm": (_norm_gradients, [(9, 48), (48,)]),
    "product": (lambda x, w: F.relu(x @ w + 1), [(5, 8), (8, 3)]),
    "transposed product": (lambda x, y: (x.mT @ y).sum(axis=0), [(5, 8), (5, 4)]),
    "stack of products": (lambda x: x @ x.mT, [(2, 3, 4, 6)]),
    "one matrix for a stack": (lambda x, w: x @ w, [(2, 3, 4, 6), (6, 2)]),
    "concat": (lambda x, y: weft.concat([x, y * 2, x], axis=1), [(3, 4), (3, 2)]),
    "concat of unlike parts": (
        lambda x, y: weft.concat([x, y, y * 2, x[:, :5], weft.tanh(x)], axis=1),
        [(3, 90), (3, 1)],
    ),
    "concat of many": (lambda x: weft.concat([x + i for i in range(70)], axis=1), [(3, 4)]),
    "twice": (lambda x: (x + 1, x + 1, x), [(3,)]),
    "0-d": (lambda x: weft.exp(x) + 1, [()]),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_values(name: str, dtype: str) -> None:
    function, shapes = CASES[name]
    inputs = [values(*shape, dtype=dtype, seed=i) for i, shape in enumerate(shapes)]
    wide = weft.float64 if dtype == "float64" else weft.float32
    want = flat(function(*[x.astype(wide) for x in inputs]))
    compiled = native(function)
    eps = {"float32": 1e-5, "float64": 1e-13, "float16": 4e-3, "bfloat16": 3e-2}[dtype]
    for _ in range(3):  # single launches, a capture, another one as the results are held
        got = flat(compiled(*up(inputs)))
        for a, b in zip(want, got, strict=True):
            assert str(b.device) == "cuda"
            given, expected = (x.detach().numpy().astype(np.float64) for x in (b, a))
            np.testing.assert_allclose(given, expected, rtol=eps, atol=eps * 4)
    assert not program(compiled).calls


@pytest.mark.skipif(REAL, reason="tools/gpu_check.py compares ops on a GPU")
@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_samples(row: Row) -> None:
    """The first samples of each function, in float32, as one program."""
    for dtype in row.dtypes():
        if dtype is not weft.float32:
            continue
        done = 0
        for sample in row.samples(dtype):
            args, kwargs = (tensors(normal(given)) for given in (sample.args, sample.kwargs))
            if not flat((args, kwargs)) or max(x.size for x in flat((args, kwargs))) < 4:
                continue
            want = flat(function(row.name)(*args, **kwargs))
            compiled = native(lambda args, kwargs: function(row.name)(*args, **kwargs))
            got = flat(compiled(up(args), up(kwargs)))
            for a, b in zip(want, got, strict=True):
                assert differs(row, a, b, 4) == ""
            done += 1
            if done == 2:
                break


@pytest.mark.parametrize("shape", [(5, 9), (2, 3, 9), (9,), (0, 9)])
@pytest.mark.parametrize("name", ["bfloat16", "float16"])
def test_linear_of_narrow_floats_reads_them_as_they_are(shape: tuple[int, ...], name: str) -> None:
    """The product is summed and kept in float32, and rounded once, with the bias."""
    x, w, b = (values(*s, dtype=name, seed=i) for i, s in enumerate((shape, (7, 9), (7,))))
    compiled = native(F.linear)
    wide = x.numpy().astype(np.float32) @ w.numpy().astype(np.float32).T
    want = (wide + b.numpy().astype(np.float32)).astype(b.numpy().dtype)
    for _ in range(3):
        got = compiled(x.cuda(), w.cuda(), b.cuda()).numpy()
        eps = 2.0**-7 if name == "bfloat16" else 2.0**-10
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got.astype("f4"), want.astype("f4"), rtol=eps, atol=1e-6)
    products = [work.step.nodes[0] for work in program(compiled).work if work.kind == "product"]
    if 0 not in shape and REAL is False:
        np.testing.assert_array_equal(got, want)
        kinds = [[str(v.tensor_type.dtype) for v in (*n.inputs, n.out)] for n in products]
        assert kinds == [[f"weft.{name}", f"weft.{name}", "weft.float32"]]


def training(device: str, compiled: bool, name: str, steps: int = 8) -> list[float]:
    weft.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(12, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 5))).to(
        device
    )
    optimizer = getattr(weft.optim, name)(model.parameters(), lr=0.05)
    x, y = weft.randn((9, 12)).to(device), weft.randint(0, 5, (9,)).to(device)

    def step(x: weft.Tensor, y: weft.Tensor) -> weft.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    run = native(step) if compiled else step
    found = []
    for i in range(steps):
        if i == 4:
            optimizer.param_groups[0]["lr"] = 0.01
        found.append(run(x * 1 if i % 2 else x, y).item())
    if compiled:
        assert not program(run).calls
    return found


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop"])
def test_training(name: str) -> None:
    np.testing.assert_allclose(
        training("cuda", True, name), training("cpu", False, name), rtol=1e-4
    )


def test_a_held_parameter_is_not_overwritten() -> None:
    p = nn.Parameter(weft.asarray([1.0, 2.0], device="cuda"))
    optimizer = weft.optim.SGD([p], lr=0.5)

    @native
    def step() -> weft.Tensor:
        optimizer.zero_grad()
        loss = (p * p).sum()
        loss.backward()
        optimizer.step()
        return loss

    kept = []
    for _ in range(5):
        kept.append(p.detach())
        step()
        p = p
    assert [x.tolist() for x in kept[:2]] == [[1.0, 2.0], [0.0, 0.0]]
    losses = [step() for _ in range(4)]
    assert [x.item() for x in losses] == [0.0] * 4


def test_results_are_not_overwritten() -> None:
    double = native(lambda x: x * 2)
    kept = [double(weft.asarray([float(i)], device="cuda")) for i in range(8)]
    assert [x.item() for x in kept] == [2.0 * i for i in range(8)]


def test_who_keeps_all_results_gets_graphs_too() -> None:
    """Once there are graphs, nothing is launched kernel by kernel."""

    def work(x: weft.Tensor) -> Any:
        y = weft.sort(x * 2)
        return (y - 1).sum(), y

    compiled, kept = native(work), []
    x = values(40, 48).cuda()
    for number in range(9):
        x += 1
        kept.append((compiled(x), work(x)))
        if number == 4:
            program(compiled)._single = None
    for (total, y), (want, rows) in kept:
        assert total.item() == pytest.approx(want.item(), rel=1e-5)
        assert y.tolist() == rows.tolist()


def test_a_target_out_of_range() -> None:
    loss = native(lambda x, y: F.cross_entropy(x, y))
    x = values(4, 3).cuda()
    good = weft.asarray([0, 2, 1, -100], device="cuda")
    want = F.cross_entropy(x.cpu(), good.cpu()).item()
    for _ in range(2):
        assert loss(x, good).item() == pytest.approx(want, rel=1e-5)
        with pytest.raises(IndexError, match="the target 3 is none of the 3 classes"):
            loss(x, weft.asarray([0, 3, 1, 1], device="cuda"))
    with pytest.raises(IndexError, match="the target -1"):
        F.cross_entropy(x, weft.asarray([0, -1, 1, 1], device="cuda"))


def test_random_numbers_in_a_step() -> None:
    def losses(device: str, compiled: bool) -> list[float]:
        weft.manual_seed(3)
        model = nn.Sequential(nn.Embedding(7, 8), nn.Dropout(0.5), nn.Linear(8, 7)).to(device)
        optimizer = weft.optim.SGD(model.parameters(), lr=0.5)
        rows = weft.randint(0, 7, (3, 5)).to(device)

        def step(rows: weft.Tensor) -> weft.Tensor:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(rows).reshape((15, 7)), rows.reshape((15,)))
            loss.backward()
            optimizer.step()
            return loss

        run = native(step) if compiled else step
        found = [run(rows).item() for _ in range(5)]
        assert not compiled or "nll" not in program(run).reason
        return [*found, weft.rand((1,)).item()]  # the generator is where it is in eager

    np.testing.assert_allclose(losses("cuda", True), losses("cpu", False), rtol=1e-5)


def test_convolutions_in_a_step() -> None:
    def losses(device: str, compiled: bool) -> list[float]:
        weft.manual_seed(0)
        model = nn.Sequential(
            *(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Flatten(), nn.Linear(64, 3)),
        ).to(device)
        optimizer = weft.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        x, y = weft.randn((4, 1, 8, 8)).to(device), weft.randint(0, 3, (4,)).to(device)

        def step(x: weft.Tensor, y: weft.Tensor) -> weft.Tensor:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        run = native(step) if compiled else step
        return [run(x, y).item() for _ in range(5)]

    np.testing.assert_allclose(losses("cuda", True), losses("cpu", False), rtol=1e-4)


def test_what_is_called_between_kernels() -> None:
    def f(x: weft.Tensor) -> weft.Tensor:
        return weft.linalg.inv(x * 2) + weft.linalg.svdvals(x)

    compiled = native(f)
    x = values(4, 4)
    for _ in range(2):
        np.testing.assert_allclose(compiled(x.cuda()).numpy(), f(x).numpy(), rtol=1e-5)
    assert [node.op.name for node in program(compiled).calls] == ["svd"]


@pytest.mark.skipif(weft.cuda.device_count() == 1, reason="there is only one GPU")
def test_several_gpus() -> None:
    second = weft.ones((3,), device="cuda:1")
    compiled = native(lambda x: x * 2 + 1)
    assert compiled(second).tolist() == [3.0, 3.0, 3.0]
    assert str(compiled(second).device) == "cuda:1"
    assert compiled.programs[-1].program.reason == "there is code for the first GPU only"
    with weft.cuda.device(1):
        first = weft.ones((3,), device="cuda:0")
        for _ in range(3):
            assert str(compiled(first).device) == "cuda"
            assert compiled(first).tolist() == [3.0, 3.0, 3.0]


def test_large_switches_are_interpreted() -> None:
    @native
    def chosen(i: weft.Tensor, x: weft.Tensor) -> weft.Tensor:
        return weft.switch(i, [lambda: x, lambda: x * 2])

    x = weft.ones(100_000, device="cuda")
    assert chosen(weft.asarray(1).cuda(), x)[:2].tolist() == [2.0, 2.0]
    reasons = [made.program.reason for made in chosen.programs]
    assert reasons == ["this switch has no code for GPUs yet"]


def test_one_pass_over_rows_sums_columns_and_everything() -> None:
    """A total beside sums of rows and columns is summed by rows: nothing is stored for it."""

    def work(x: weft.Tensor) -> Any:
        y = weft.softmax(x, axis=1) * x
        return y.sum(), y.sum(axis=0), (y * y).sum(axis=0)

    compiled, x = native(work), values(40, 48)
    want, got = work(x), compiled(x.cuda())
    for a, b in zip(want, got, strict=True):
        np.testing.assert_allclose(b.numpy(), a.numpy(), rtol=1e-5)
    if program(compiled).kernels != ["whole"]:
        loops = [work.step.nodes for work in program(compiled).work if work.kind == "launch"]
        assert [len([n for n in nodes if n.op.name == "exp"]) for nodes in loops] == [1, 0]


def test_what_moves_more_bytes_is_computed_again() -> None:
    """A backward reads the operand of gelu, and not what its forward had in registers."""

    def work(x: weft.Tensor, w: weft.Tensor) -> Any:
        out, pull = weft.vjp(lambda x: F.gelu(x @ w), x)
        return out @ w, *pull(out @ w)

    compiled, x, w = native(work), values(200, 200), values(200, 200, seed=1) / 16
    want = [one.numpy() for one in work(x, w)]
    for _ in range(3):
        got = compiled(x.cuda(), w.cuda())
        for a, b in zip(want, got, strict=True):
            np.testing.assert_allclose(b.numpy(), a, rtol=1e-4, atol=1e-4)
    loops = [work.step for work in program(compiled).work if work.step.kind == "loop"]
    assert [len(step.group.outputs) for step in loops] == [1, 1]
    assert [sum(node.op.name == "erf" for node in step.nodes) for step in loops] == [1, 1]


@pytest.mark.parametrize("name", CASES)
def test_plans_are_right_and_llvm_makes_ptx(name: str) -> None:
    function, shapes = CASES[name]
    specs = [weft.spec(shape, device="cuda") for shape in shapes]
    emitter = CudaEmitter()
    plan = plan_program(lowered(weft.optimize(weft.make_graph(function, *specs))), emitter)
    verify_plan(plan, emitter.target)
    emitter.emit(plan)
    launches = [launch for work in emitter.work for launch in work.launches]
    assert all(launch.blocks >= 1 and 1 <= launch.threads <= 1024 for launch in launches)
    if launches:
        text = ptx(emitter.module.text(), emitter.machine)
        assert all(f".entry {launch.name}(" in text for launch in launches)
