"""Products of float32 from bfloat16 parts: as exact as float32's, whatever the numbers are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cuda_device import REAL, cuda

import weft
from weft.codegen.cuda.machine import GpuMachine
from weft.codegen.cuda.matrix import Gemm
from weft.codegen.cuda.parts import emit_product_of_parts, fits_parts
from weft.codegen.cuda.ptx import ptx
from weft.codegen.text import Module
from weft.passes.lowering.split_products import PRODUCT_OF_PARTS
from weft.runtime.cuda import opening

__all__ = ["cuda"]
pytestmark = pytest.mark.usefixtures("cuda")
ARCHES = ("sm_90", "sm_90a")  # by warps, by warpgroups


@pytest.fixture
def arch(request: pytest.FixtureRequest) -> Iterator[None]:
    """Code for a kind of GPU; a real one that has warpgroups runs both."""
    driver = opening.driver()
    before = driver.machine
    if REAL and before.arch != "sm_90a":
        pytest.skip("the GPU has no warpgroups")
    driver.machine = replace(before, arch=request.param)
    yield
    driver.machine = before


Array = np.ndarray[Any, Any]
#: Of a result: rows, columns, terms; of several blocks where it is not the emulation.
SIZES = (1016, 2040, 136) if REAL else (248, 120, 136)


def matmul(a: weft.Tensor, b: weft.Tensor) -> weft.Tensor:
    return a @ b


def of_parts(compiled: Any) -> int:
    """How many products the last program computes from parts."""
    works = compiled.programs[-1].program.work
    return sum(work.step.nodes[0].op is PRODUCT_OF_PARTS for work in works if work.step.nodes)


def on_gpu(function: Any, *arrays: Array) -> tuple[Array, int]:
    compiled = weft.compile(function, backend="native")
    given = [weft.asarray(array).cuda() for array in arrays]
    for _ in range(2):
        found = compiled(*given).numpy()
    return found, of_parts(compiled)


def _scaled(rng: np.random.Generator, shape: tuple[int, ...], most: int) -> Array:
    return np.exp2(rng.integers(-most, most, shape)).astype(np.float32)


def _cancelling(rng: np.random.Generator, rows: int, terms: int) -> Array:
    half = rng.standard_normal((rows, terms // 2), np.float32)
    return np.concatenate([half, -half * np.float32(1 + 1e-6)], axis=1)


#: Operands of n × k and k × m, by what makes them hard.
NUMBERS: dict[str, Any] = {
    "normal": lambda rng, n, m, k: (rng.standard_normal((n, k)), rng.standard_normal((k, m))),
    "positive": lambda rng, n, m, k: (rng.random((n, k)), rng.random((k, m))),
    "far apart": lambda rng, n, m, k: (_scaled(rng, (n, k), 20), _scaled(rng, (k, m), 20)),
    "rows far apart": lambda rng, n, m, k: (
        rng.standard_normal((n, k)) * _scaled(rng, (n, 1), 60),
        rng.standard_normal((k, m)) * _scaled(rng, (1, m), 60),
    ),
    "cancelling": lambda rng, n, m, k: (
        _cancelling(rng, n, k),
        np.concatenate([rng.standard_normal((k // 2, m))] * 2, axis=0),
    ),
    "tiny": lambda rng, n, m, k: (
        rng.standard_normal((n, k)) * 1e-40,
        rng.standard_normal((k, m)) * 8,
    ),
    "tiny times large": lambda rng, n, m, k: (
        rng.standard_normal((n, k)) * 1e-37,
        rng.standard_normal((k, m)) * 1e30,
    ),
    "large": lambda rng, n, m, k: (
        rng.standard_normal((n, k)) * 1e30,
        rng.standard_normal((k, m)) * 1e-20,
    ),
    "largest": lambda rng, n, m, k: (
        rng.standard_normal((n, k)) * 1e20,
        rng.standard_normal((k, m)) * 1e16,
    ),
}


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("arch", ARCHES[1:], indirect=True)
def test_the_error_is_that_of_float32(name: str, arch: None) -> None:
    n, m, k = SIZES
    a, b = (np.asarray(one, np.float32) for one in NUMBERS[name](np.random.default_rng(0), n, m, k))
    found, count = on_gpu(matmul, a, b)
    assert count == 1
    wide = a.astype(np.float64) @ b.astype(np.float64)
    bound = np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64)
    # Half a unit for each of the terms is what float32 may lose; it is less than a quarter of that.
    most = 2.0**-24 * k / 4 * bound + 2.0**-149
    assert (np.abs(found - wide) <= most).all()
    plain = np.abs((a @ b) - wide) / bound
    off = np.abs(found - wide) / bound
    assert np.sqrt((off**2).mean()) <= 1.5 * np.sqrt((plain**2).mean())


@pytest.mark.parametrize("turned", ["", "a", "b", "ab"])
@pytest.mark.parametrize("arch", ARCHES, indirect=True)
def test_what_is_not_finite(turned: str, arch: None) -> None:
    n, m, k = SIZES
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((n, k), np.float32), rng.standard_normal((k, m), np.float32)
    a[3, 5], a[7, 2], a[9, 1], b[4, 11] = np.inf, np.nan, 3e38, -np.inf
    b[1, 11] = 0.5  # no sum overflows in float32 alone
    a[11], b[:, 13] = 1e19, 1e19  # their product is finite, that of the scaled numbers is not

    def product(a: weft.Tensor, b: weft.Tensor) -> weft.Tensor:
        return (a.T if "a" in turned else a) @ (b.T if "b" in turned else b)

    given = (a.T.copy() if "a" in turned else a), (b.T.copy() if "b" in turned else b)
    found, count = on_gpu(product, *given)
    assert count == 1
    with np.errstate(all="ignore"):
        want = a.astype(np.float64) @ b.astype(np.float64)
        np.testing.assert_array_equal(np.isnan(found), np.isnan(want))
        np.testing.assert_array_equal(np.isinf(found), np.abs(want) > 3.4028235e38)
        rest = np.isfinite(found)
        bound = np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64)
        assert (np.abs(found - want) <= 2.0**-24 * k / 4 * bound)[rest].all()


def test_a_step_shares_parts() -> None:
    n = m = k = 1408 if REAL else 128
    rng = np.random.default_rng(2)
    x, w = rng.standard_normal((n, k), np.float32), rng.standard_normal((m, k), np.float32) / 8

    def loss(w: weft.Tensor, x: weft.Tensor) -> weft.Tensor:
        return weft.tanh(x @ w.T).square().sum()

    def grads(w: weft.Tensor, x: weft.Tensor) -> Any:
        return weft.grad(loss, argnums=(0, 1))(w, x)

    compiled = weft.compile(grads, backend="native")
    want = [one.numpy() for one in grads(weft.asarray(w), weft.asarray(x))]
    for _ in range(3):
        got = compiled(weft.asarray(w).cuda(), weft.asarray(x).cuda())
        for a, b in zip(want, got, strict=True):
            np.testing.assert_allclose(b.numpy(), a, rtol=2e-4, atol=4e-3)
    assert of_parts(compiled) == 3
    works = compiled.programs[-1].program.work
    split = sum(node.op.name == "astype" for work in works for node in work.step.nodes)
    assert split == 3 * 5  # of x, of w, of the gradient of their product


def test_stacks_of_rows_and_tf32() -> None:
    n, m, k = SIZES
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((2, n, k), np.float32), rng.standard_normal((k, m), np.float32)
    compiled = weft.compile(matmul, backend="native")
    given = weft.asarray(a).cuda(), weft.asarray(b).cuda()
    want = a.astype(np.float64) @ b
    try:
        for precision in ("highest", "high"):
            weft.set_float32_matmul_precision(precision)
            for _ in range(2):
                got = compiled(*given).numpy()
            assert of_parts(compiled) == 1
            np.testing.assert_allclose(
                got, want, rtol=0, atol=1e-4 if precision == "highest" else 0.1
            )
    finally:
        weft.set_float32_matmul_precision("highest")


@pytest.mark.parametrize(
    ("rows", "columns", "terms", "fits"),
    [
        (1024, 2048, 2048, True),
        (2048, 784, 1024, True),
        (1024, 10, 2048, False),  # few columns
        (1024, 2048, 64, False),  # few terms
        (1024, 2048, 2050, False),  # 16 bytes are copied at once
        (128 * 133, 128, 1024, False),  # one tile more than the GPU runs at once
    ],
)
def test_where_parts_are_worth_it(rows: int, columns: int, terms: int, fits: bool) -> None:
    call = Gemm(rows, columns, terms, 1, (False, terms), (False, columns), (0, 0, 0), (0, 0, 0))
    assert fits_parts(call, GpuMachine("sm_90")) == fits
    assert not fits_parts(call, GpuMachine("sm_75"))


@pytest.mark.parametrize("arch_name", ARCHES)
@pytest.mark.parametrize("turned", [(False, False), (True, True)])
def test_llvm_makes_ptx(arch_name: str, turned: tuple[bool, bool]) -> None:
    module = Module(GpuMachine(arch_name))
    left, right = (turned[0], 264), (turned[1], 264)
    call = Gemm(264, 264, 264, 1, left, right, (0, 0, 0), (0, 0, 0))
    launch = emit_product_of_parts(module, "product", call, call, gated=True)
    text = ptx(module.text(), module.machine)
    word = "wgmma.mma_async" if arch_name == "sm_90a" else "mma.sync"
    assert f".entry {launch.name}(" in text
    assert word in text
