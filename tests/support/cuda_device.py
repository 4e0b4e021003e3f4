"""The device "cuda" for tests: the GPU where there is one, else CuPy's stand-in over NumPy."""

from __future__ import annotations

import os
from collections.abc import Iterator

import fake_cupy
import pytest
from emulated_gpu import EmulatedDriver

from weft.ir.dispatch import unregister_device
from weft.runtime.cuda import opening
from weft.runtime.cuda.family import register

REAL = opening.missing() is None
if REAL and os.environ.get("WEFT_TESTS_WITHOUT_CUDA_GRAPHS"):
    opening.driver().capture = lambda _run: None  # then kernels are launched one by one


@pytest.fixture(scope="module")
def cuda() -> Iterator[bool]:
    """Whether it is a real GPU."""
    if REAL:
        yield True
        return
    module, extension = fake_cupy.fake_cupy(), fake_cupy.fake_cupyx()
    fake_cupy.settings.count = 2
    before = opening._Found.cupy, opening._Found.reason
    register(module, extension)
    opening._Found.cupy, opening._Found.reason = module, None
    opening._Found.driver = EmulatedDriver()
    yield False
    opening._Found.cupy, opening._Found.reason = before
    opening._Found.driver = None
    unregister_device("cuda")
    fake_cupy.settings.current = 0
