"""Without CuPy, or without a GPU: which of the two is missing."""

from __future__ import annotations

import subprocess
import sys
import types
from typing import Any

import pytest

import weft
from weft.errors import DeviceError
from weft.runtime.cuda import opening


@pytest.fixture
def nothing_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening._Found, "cupy", None)
    monkeypatch.setattr(opening._Found, "reason", None)


def without(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(name: str) -> Any:
        if what == "CuPy":
            raise ImportError("No module named 'cupy'")

        def count() -> int:
            raise RuntimeError("cudaErrorInsufficientDriver: CUDA driver version is insufficient")

        runtime = types.SimpleNamespace(getDeviceCount=count)
        cuda = types.SimpleNamespace(runtime=runtime)
        return types.SimpleNamespace(__version__="14.2.0", cuda=cuda)

    monkeypatch.setattr(opening, "_import", load)


@pytest.mark.usefixtures("nothing_found")
@pytest.mark.parametrize(
    ("what", "message", "fix"),
    [
        ("CuPy", "needs CuPy, which cannot be imported", r"weft\[cuda\]"),
        ("GPU", "CuPy 14.2.0 is installed, but there is no usable GPU: cudaError", "nvidia-smi"),
    ],
)
def test_what_is_missing(
    what: str, message: str, fix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    without(what, monkeypatch)
    assert not weft.cuda.is_available()
    assert weft.cuda.device_count() == weft.cuda.memory_allocated() == 0
    weft.cuda.empty_cache()
    if ("cuda", "dense") in weft.ir.dispatch.FAMILIES:
        pytest.skip("the device is registered already")
    for wrong in (
        lambda: weft.ones((2,), device="cuda"),
        lambda: weft.ones((2,)).cuda(),
        lambda: weft.nn.Linear(1, 1).to("cuda"),
        lambda: weft.cuda.synchronize(),
    ):
        with pytest.raises(DeviceError, match=message) as caught:
            wrong()
        assert caught.match(fix)


def test_cupy_is_not_loaded_before_it_is_needed() -> None:
    code = (
        "import sys, weft; x = weft.ones(3) + 1; weft.compile(lambda x: x * 2)(x); "
        "assert 'cupy' not in sys.modules and 'weft.runtime.cuda.api' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
