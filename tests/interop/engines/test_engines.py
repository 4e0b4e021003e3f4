"""Segments run by ONNX Runtime and OpenVINO."""

from __future__ import annotations

import importlib
import importlib.util
import os
import signal
import threading
from typing import Any

import numpy as np
import onnx_runs
import pytest
import split_graphs as split
from samples import ROWS
from samples.table import Row

import weft
from weft import nn
from weft.errors import DeviceError
from weft.interop.engines import openvino as openvino_engine
from weft.interop.engines import ort as ort_engine
from weft.interop.engines.onnx_segments import MOST_CHANGES, Frozen
from weft.runtime.split.devices import engine

pytest.importorskip("onnx", reason="pip install 'weft[onnx]'")
NAMES = {"ort": "onnxruntime", "openvino": "openvino"}
ENGINES = [
    pytest.param(
        name,
        marks=pytest.mark.skipif(
            importlib.util.find_spec(module) is None, reason=f"pip install 'weft[{name}]'"
        ),
    )
    for name, module in NAMES.items()
]


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(),
        )  # fmt: skip
        self.head = nn.Linear(64, 3)

    def forward(self, x: Any) -> Any:
        return self.head(self.backbone(x))


def trained(backend: Any, freeze: bool) -> tuple[list[float], Any]:
    weft.manual_seed(0)
    model = Model()
    if freeze:
        model.backbone.eval()
        for parameter in model.backbone.parameters():
            parameter.requires_grad = False
    learns = [p for p in model.parameters() if p.requires_grad]
    optimizer = weft.optim.SGD(learns, lr=0.1)

    @weft.compile(backend=backend)
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    rng = np.random.default_rng(0)
    losses = []
    for n in (6, 6, 6, 4):
        x = weft.asarray(rng.normal(size=(n, 1, 8, 8)).astype(np.float32))
        losses.append(step(x, weft.asarray(rng.integers(0, 3, n))).item())
    return losses, step


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("freeze", [True, False])
def test_a_head_is_trained_behind_a_backbone_on_an_engine(name: str, freeze: bool) -> None:
    """Not frozen, too: what the backward reads of the segment are results of it."""
    want, _ = trained("native", freeze)
    got, step = trained(weft.Split({"backbone": name}), freeze)
    assert np.allclose(got, want, rtol=1e-4)
    placement = step.programs[-1].program.placement
    found = split.segments(placement.split(), name)
    ops = {node.op.name for segment in found for node in segment.graphs[0].nodes}
    assert {"conv_bias", "max_pool"} <= ops
    assert not freeze or len(found) == 1
    assert ("steps of the backward" in placement.explain()) is not freeze


@pytest.mark.parametrize("name", ENGINES)
def test_control_flow_and_symbolic_sizes_on_an_engine(name: str) -> None:
    def f(x: Any) -> Any:
        with weft.device(name):
            n = x.shape[0]
            y = x.reshape(n * 2, 2)
            while y.sum() < 50:
                y = y * 2 + 1
        return y[: n // 2]

    made = weft.compile(f, backend="split", dynamic=True)
    for n in (2, 3, 5):
        x = weft.ones((n, 4))
        assert np.allclose(made(x).numpy(), f(x).numpy())


@pytest.mark.parametrize("name", ENGINES)
def test_segments_without_elements_do_not_reach_an_engine(name: str) -> None:
    """Some do not survive them."""
    attention = nn.MultiheadAttention(4, 2, batch_first=True).eval()

    def whole(x: Any) -> Any:
        with weft.device(name):
            return attention(x, x, x)[0]

    def half(x: Any) -> Any:
        with weft.device(name):
            y = x[:, : x.shape[1] // 2]
            return attention(y, y, y)[0]

    def picked(x: Any) -> Any:
        with weft.device(name):
            y = x[x > 0].reshape(1, -1, 1) * weft.ones(4)
            return attention(y, y, y)[0]

    # OpenVINO refuses some sizes that are computed of others when it runs, with an error.
    functions = (whole, half, picked) if name == "ort" else (whole,)
    with weft.no_grad():
        for f in functions:
            made = weft.compile(f, backend="split", dynamic=True)
            for size in (4, 3, 0, 1, 5, 0):
                x = weft.randn(2, size, 4) * (size != 5)
                assert np.allclose(made(x).numpy(), f(x).numpy(), atol=1e-5)


def test_runs_of_other_inputs_than_before_do_not_see_old_ones() -> None:
    """Inputs that stay the same array become constants, and stop being that when they change."""
    graph = weft.make_graph(lambda x, w: x @ w, weft.spec((2, 2)), weft.spec((2, 2)))
    made: list[int] = []

    def session(model: bytes) -> Any:
        run = onnx_runs.onnx_session(model)
        made.append(len(run.names))
        return run

    pytest.importorskip("onnxruntime")
    frozen = Frozen(graph, session)
    rng = np.random.default_rng(0)
    for _ in range(MOST_CHANGES + 2):
        w = rng.normal(size=(2, 2)).astype(np.float32)
        for _ in range(3):
            x = rng.normal(size=(2, 2)).astype(np.float32)
            (out,) = frozen([x, w])
            assert np.allclose(out, x @ w, atol=1e-6)
    assert made.count(1) == MOST_CHANGES  # then nothing is taken for constant any more
    assert made.count(2) == 1


@pytest.mark.parametrize("name", ENGINES)
def test_what_engines_compute_otherwise_stays_on_the_cpu(name: str) -> None:
    whole = weft.make_graph(lambda x: x.sum() * 2, weft.spec(3, weft.int64))
    (total, *_) = whole.nodes
    placed = weft.place(whole, {"sum": name})
    if name == "ort":
        assert placed.devices[total] == "cpu"
        assert "adds up integers in floats" in placed.explain()
    narrow = weft.make_graph(lambda x: weft.exp(x), weft.spec(3, weft.bfloat16))
    assert "takes no arrays of bfloat16" in weft.place(narrow, {"exp": name}).explain()
    solved = weft.make_graph(lambda x: weft.linalg.inv(x), weft.spec((3, 3)))
    assert f"cpu, not {name}: inv " in weft.place(solved, {"inv": name}).explain()


#: A part of the table of samples: what the engines take, they compute as Weft does.
ROWS_OF_ENGINES = [row for row in ROWS if weft.float32 in row.dtypes()][::6]


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("row", ROWS_OF_ENGINES, ids=lambda row: row.name)
def test_samples(name: str, row: Row) -> None:
    found = onnx_runs.compared_on(engine(name), row, weft.float32, 2, finite=name == "openvino")
    assert found == []


@pytest.mark.parametrize(("name", "module"), [("ort", ort_engine), ("openvino", openvino_engine)])
def test_an_engine_that_is_not_installed_says_what_to_install(
    name: str, module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> Any:
        raise ImportError("there is no such module")

    monkeypatch.setattr(module.importlib, "import_module", missing)
    with pytest.raises(DeviceError, match=rf"pip install 'weft\[{name}\]'"):
        module.open_engine(name, "")


@pytest.mark.parametrize("name", ENGINES)
def test_a_provider_that_is_not_there_is_named(name: str) -> None:
    with pytest.raises(DeviceError, match=r"(provider|device) 'Nowhere' here"):
        weft.compile(lambda x: x, backend=weft.Split({"exp": f"{name}:Nowhere"}))


W = np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32)
K = np.random.default_rng(1).normal(size=(4, 4, 3, 3)).astype(np.float32)
SHARED = {
    "linear, then matmul": lambda x, w, _k: nn.functional.linear(x, w) @ w,
    "as it is and transposed": lambda x, w, _k: x @ w @ w.T,
    "side by side": lambda x, w, _k: x @ w + x @ w.T,
    "tied": lambda x, w, _k: weft.softmax(x @ w, axis=-1) @ w.T,
    "literals": lambda x, _w, _k: x @ weft.asarray(W) @ weft.asarray(W).T,
    "conv": lambda x, _w, k: nn.functional.conv_transpose2d(
        nn.functional.conv2d(x.reshape(1, 4, 8, 8), k), k
    ),
}


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("what", SHARED)
def test_weights_that_are_read_in_several_ways(name: str, what: str) -> None:
    """OpenVINO mixes up a square constant with its transpose: such weights stay inputs."""
    w, k = weft.asarray(W), weft.asarray(K)
    rng = np.random.default_rng(2)

    def f(x: Any) -> Any:
        return SHARED[what](x, w, k)

    with split.engines():
        made = weft.compile(f, backend=weft.Split({lambda _node: True: name}))
        for _ in range(3):
            x = rng.normal(size=(32, 8)).astype(np.float32)
            wanted = f(weft.asarray(x)).numpy()
            np.testing.assert_allclose(made(weft.asarray(x)).numpy(), wanted, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("what", ["relu", "exp", "softmax", "gelu", "max_pool2d", "tanh"])
def test_nan_and_inf_go_through_an_engine(name: str, what: str) -> None:
    def f(x: Any) -> Any:
        y = x * 1
        if what == "max_pool2d":
            return nn.functional.max_pool2d(y.reshape(1, 1, 2, 4), 2)
        return getattr(nn.functional, what, None)(y) if what != "exp" else weft.exp(y)

    def f_of(x: Any) -> Any:
        return weft.softmax(x * 1, axis=-1) if what == "softmax" else f(x)

    made = weft.compile(f_of, backend=weft.Split({lambda _node: True: name}))
    for first in (1.0, np.nan, np.inf, -np.inf, 2.0, np.nan):
        x = np.array([first, -1, 0.5, 3, np.inf, -2, 1, np.nan], np.float32)
        x = x if not np.isfinite(first) else np.arange(8, dtype=np.float32) * first
        got, wanted = made(weft.asarray(x)).numpy(), f_of(weft.asarray(x)).numpy()
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
def test_inputs_that_only_tell_sizes(name: str, mode: str) -> None:
    def f(x: Any) -> Any:
        return nn.functional.interpolate(x, scale_factor=2, mode=mode)

    made = weft.compile(f, backend=weft.Split({lambda _node: True: name}))
    for height, width in ((4, 4), (5, 3), (2, 6)):
        x = weft.randn(1, 1, height, width)
        np.testing.assert_allclose(made(x).numpy(), f(x).numpy(), rtol=1e-5, atol=1e-6)


def test_ctrl_c_ends_a_loop_of_onnxruntime() -> None:
    pytest.importorskip("onnxruntime")

    def f(x: Any) -> Any:
        i = weft.tensor(0)
        while i < 30_000_000:
            x = weft.tanh(x * 1.01)
            i = i + 1
        return x

    made = weft.compile(f, backend=weft.Split({"control flow": "ort", "elementwise": "ort"}))
    timer = threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        made(weft.ones(4))
    timer.join()
