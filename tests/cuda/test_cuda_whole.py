"""Small programs as one kernel of one block: the cases of the other files once more."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import test_cuda_compiled as compiled_cases
import test_cuda_items as item_cases
from control_programs import PROGRAMS
from cuda_device import cuda
from cuda_samples import up
from op_calls import flat
from test_cuda_control import both, tensors

import weft
from weft.codegen.cuda import fits
from weft.runtime.cuda import opening
from weft.runtime.cuda.program import CudaProgram

__all__ = ["cuda"]


@pytest.fixture(autouse=True)
def whole(cuda: bool, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Programs of few steps are taken, too."""
    monkeypatch.setattr(fits, "STEPS", 0)
    driver = opening.driver()
    machine = driver.machine
    driver.machine = dataclasses.replace(machine, whole=True)
    yield
    driver.machine = machine


def is_one_kernel(compiled: Any) -> bool:
    made = compiled.programs[-1].program
    assert isinstance(made, CudaProgram), made.reason
    return [work.kind for work in made.work if work.kind != "call"] == ["launch"] and (
        made.kernels == ["whole"]
    )


@pytest.mark.parametrize("name", compiled_cases.CASES)
def test_cases(name: str) -> None:
    function, shapes = compiled_cases.CASES[name]
    for dtype in ("float32", "bfloat16"):
        inputs = [
            compiled_cases.values(*shape, dtype=dtype, seed=i) for i, shape in enumerate(shapes)
        ]
        want = flat(function(*[x.astype(weft.float32) for x in inputs]))
        compiled = weft.compile(function, backend="native")
        eps = 1e-5 if dtype == "float32" else 3e-2
        for _ in range(2):
            got = flat(compiled(*up(inputs)))
            for a, b in zip(want, got, strict=True):
                given, expected = (x.detach().numpy().astype(np.float64) for x in (b, a))
                np.testing.assert_allclose(given, expected, rtol=eps, atol=eps * 4)
        assert is_one_kernel(compiled)


@pytest.mark.parametrize("name", item_cases.CASES)
def test_items(name: str) -> None:
    function, inputs = item_cases.CASES[name]
    compiled = weft.compile(function, backend="native")
    for _ in range(2):
        weft.manual_seed(5)
        want = flat(function(*inputs))
        weft.manual_seed(5)
        got = flat(compiled(*up(inputs)))
        for a, b in zip(want, got, strict=True):
            np.testing.assert_allclose(b.numpy(), a.numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["several_carries", "while_in_scan", "gradient_inside", "choice"])
def test_control(name: str) -> None:
    function, inputs = PROGRAMS[name]
    work = both(function)
    expected, compiled = (weft.compile(work, backend=kind) for kind in ("interpret", "native"))
    for given in inputs:
        want = flat(expected(*tensors(given, "cpu")))
        for _ in range(2):
            got = flat(compiled(*tensors(given, "cuda")))
            for a, b in zip(want, got, strict=True):
                mine, theirs = (x.detach().numpy() for x in (b, a))
                np.testing.assert_allclose(mine, theirs, rtol=1e-10, atol=1e-12)
    assert is_one_kernel(compiled)


@pytest.mark.parametrize("name", ["SGD", "Adam"])
def test_training(name: str) -> None:
    np.testing.assert_allclose(
        compiled_cases.training("cuda", True, name),
        compiled_cases.training("cpu", False, name),
        rtol=1e-4,
    )


def test_what_another_file_says_of_errors() -> None:
    item_cases.test_an_index_out_of_range_changes_nothing()
    compiled_cases.test_a_target_out_of_range()
    compiled_cases.test_a_held_parameter_is_not_overwritten()
    compiled_cases.test_results_are_not_overwritten()


def test_more_tensors_than_a_kernel_has_parameters() -> None:
    compiled = weft.compile(lambda xs: [x * 2 for x in xs], backend="native")
    xs = [weft.asarray([float(i)]) for i in range(300)]
    assert [x.item() for x in compiled(up(xs))] == [2.0 * i for i in range(300)]
    assert "whole" not in compiled.programs[-1].program.kernels


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_products_of_narrow_floats_are_rounded_once(dtype: str) -> None:
    x, w = (compiled_cases.values(*s, dtype=dtype, seed=i) for i, s in enumerate([(5, 9), (7, 9)]))
    compiled = weft.compile(lambda x, w: (x @ w.mT, x @ (w.mT + 0)), backend="native")
    want = (x.numpy().astype(np.float32) @ w.numpy().astype(np.float32).T).astype(x.numpy().dtype)
    for got in compiled(*up([x, w])):
        np.testing.assert_array_equal(got.numpy(), want)
    assert is_one_kernel(compiled)
