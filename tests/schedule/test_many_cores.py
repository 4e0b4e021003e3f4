"""What is generated for a machine of many cores: the same answers, the same bits on all threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import weft
import weft.nn.functional as F
from weft.codegen.cpu import CpuTarget
from weft.codegen.machine import Machine, host
from weft.errors import IndexError as WeftIndexError
from weft.runtime.generate import generated
from weft.runtime.native import NativeProgram
from weft.schedule.plan import GraphPlan
from weft.schedule.verify import verify_plan

THREADS = (1, 3, 16)
Array = np.ndarray[Any, Any]


@pytest.fixture(params=[2, 16])
def cores(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setenv("WEFT_TARGET_CORES", str(request.param))
    host.cache_clear()
    threads = weft.get_num_threads()
    yield request.param
    weft.set_num_threads(threads)
    monkeypatch.undo()
    host.cache_clear()


def _normal(*shape: int) -> Array:
    return np.random.default_rng(len(shape) + shape[0]).standard_normal(shape).astype(np.float32)


def _plan(function: Callable[..., Any], *arrays: Array) -> GraphPlan:
    graph = weft.make_graph(function, *[weft.spec(a.shape, str(a.dtype)) for a in arrays])
    program = generated(graph, False, None)[1]
    verify_plan(program, CpuTarget(host()))
    return program.root


# --- products ------------------------------------------------------------------------------------

#: Rows, columns, terms; whether operands are transposed; whether elements are computed in copies.
PRODUCTS = [
    (128, 512, 784, False, True, False),
    (512, 130, 300, True, False, False),  # terms are a page apart: tiles of a are copied
    (512, 130, 300, True, False, True),
    (300, 64, 520, False, False, True),
    (37, 65, 131, True, True, False),
    (1000, 10, 64, False, False, False),
    (10, 600, 129, True, False, False),
    (40, 40, 5000, True, True, False),
    (2, 700, 33, False, False, False),
]


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize(("m", "n", "k", "left", "right", "computed"), PRODUCTS)
def test_products(
    m: int, n: int, k: int, left: bool, right: bool, computed: bool, check: bool, cores: int
) -> None:
    def product(a: Any, b: Any) -> Any:
        a = weft.exp(a * 0.1) if computed else a
        b = weft.exp(b * 0.1) if computed else b
        return (
            weft.matrix_transpose(a) @ (weft.matrix_transpose(b) if right else b)
            if left
            else (a @ (weft.matrix_transpose(b) if right else b))
        )

    a, b = _normal(*((k, m) if left else (m, k))), _normal(*((n, k) if right else (k, n)))
    compiled = weft.compile(product, backend="native", check=check)
    found = []
    for count in THREADS:
        weft.set_num_threads(count)
        found.append(compiled(weft.tensor(a), weft.tensor(b)).numpy())
    x, y = a.astype(np.float64), b.astype(np.float64)
    if computed:
        x, y = np.exp(x * 0.1), np.exp(y * 0.1)
    right_one = (x.T if left else x) @ (y.T if right else y)
    error = 2e-6 * max(1.0, k / 1000) ** 0.5
    assert np.abs(found[0] - right_one).max() <= error * np.abs(right_one).max()
    assert all(np.array_equal(found[0], other) for other in found[1:])


# --- steps that run at the same time -------------------------------------------------------------


def _apart(x: Any, w: Any) -> Any:
    """Two chains that have nothing to do with each other."""
    return (weft.exp(x @ w) @ w, (weft.tanh(x) @ w).sum(axis=0), weft.softmax(x * 2, axis=1))


def test_steps_that_run_at_the_same_time_give_the_same(cores: int) -> None:
    x, w = _normal(256, 192), _normal(192, 192) * np.float32(0.05)
    plan = _plan(_apart, x, w)
    assert bool(plan.waves) == (cores == 16)
    compiled = weft.compile(_apart, backend="native")
    wanted = [
        np.asarray(a) for a in weft.compile(_apart, backend="interpret")(*map(weft.tensor, (x, w)))
    ]
    first: list[Array] = []
    for count in (*THREADS, *THREADS):
        weft.set_num_threads(count)
        for _ in range(10):
            found = [np.asarray(a) for a in compiled(weft.tensor(x), weft.tensor(w))]
            first = first or found
            for got, same, close in zip(found, first, wanted, strict=True):
                assert np.array_equal(got, same)
                np.testing.assert_allclose(got, close, rtol=2e-4, atol=2e-4)


def _losses(backend: str, count: int) -> tuple[list[float], list[Array]]:
    weft.set_num_threads(count)
    weft.manual_seed(0)
    nn = weft.nn
    model = nn.Sequential(
        nn.Linear(96, 256), nn.ReLU(), nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 7)
    )
    chosen = weft.optim.Adam(model.parameters(), lr=1e-3)
    x = weft.tensor(_normal(128, 96))
    y = weft.tensor(np.arange(128) % 7)

    def step(x: Any, y: Any) -> Any:
        chosen.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        chosen.step()
        return loss

    compiled = weft.compile(step, backend=backend)
    losses = [float(compiled(x, y)) for _ in range(4)]
    return losses, [p.detach().numpy() for p in model.parameters()]


def test_a_training_step_that_writes_in_place(cores: int) -> None:
    """Parameters are overwritten beside steps that read others."""
    losses, parameters = _losses("native", 16)
    for count in (1, 3):
        again, same = _losses("native", count)
        assert again == losses
        assert all(np.array_equal(a, b) for a, b in zip(parameters, same, strict=True))
    wanted, close = _losses("interpret", 1)
    np.testing.assert_allclose(losses, wanted, rtol=1e-4)
    for a, b in zip(parameters, close, strict=True):
        np.testing.assert_allclose(a, b, atol=2e-4)


def test_nothing_is_written_beside_a_step_that_fails(cores: int) -> None:
    w = weft.tensor(_normal(300, 300))
    before = w.numpy().copy()

    def step(i: Any) -> Any:
        nonlocal w
        rows = w[i]
        w -= 0.5
        return rows.sum()

    compiled = weft.compile(step, backend="native")
    compiled(weft.tensor(np.array([1, 2])))
    compiled(weft.tensor(np.array([1, 2])))
    before = w.numpy().copy()
    with pytest.raises(WeftIndexError):
        compiled(weft.tensor(np.array([1, 300])))
    assert np.array_equal(w.numpy(), before)


def test_small_programs_are_not_shared(cores: int) -> None:
    x = _normal(8, 8)
    graph = weft.make_graph(lambda x, w: (x @ w, weft.tanh(x)), *[weft.spec((8, 8))] * 2)
    assert _plan(lambda x, w: (x @ w, weft.tanh(x)), x, x).waves == []
    assert len(NativeProgram(graph).kernels) >= 2


@pytest.mark.parametrize("count", [1, 2, 7, 8, 64])
def test_a_machine_of_few_cores_is_cut_as_ever(count: int) -> None:
    machine = Machine("x86_64-unknown-linux-gnu", "generic", "", 32, cores=count)
    assert machine.parts(16) == (16 if count < 8 else 2 * count)
    assert machine.has_many_cores == (count >= 8)
