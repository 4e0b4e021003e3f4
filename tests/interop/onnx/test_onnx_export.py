"""`weft.onnx.export`: models, control flow, names, symbolic sizes, files, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx_runs
import pytest

import weft
import weft.nn.functional as F
from weft import nn
from weft.errors import CaptureError, DeviceError, DTypeError, GraphError, UnknownSizeError
from weft.interop.onnx import export as export_module
from weft.interop.onnx import library, table

onnx = pytest.importorskip("onnx", reason="pip install 'weft[onnx]'")
onnxruntime = pytest.importorskip("onnxruntime", reason="pip install onnxruntime")


def cnn() -> nn.Module:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, stride=2, groups=2), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(8, 10),
    )  # fmt: skip
    model(weft.randn(4, 3, 16, 16))  # running statistics that are not 0 and 1
    return model.eval()


def encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
    return nn.TransformerEncoder(layer, 2).eval()


#: Models, the types of their arguments with symbolic sizes, and the shapes of arguments.
MODELS: list[tuple[str, Callable[[], Any], Any, Any]] = [
    ("mlp", lambda: nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4)), ("B", 8), (5, 8)),
    ("cnn", cnn, ("B", 3, 16, 16), (2, 3, 16, 16)),
    ("encoder", encoder, ("B", "T", 16), (2, 6, 16)),
    ("lstm", lambda: nn.LSTM(4, 8, 2, batch_first=True, bidirectional=True),
     ("B", weft.dim("T", min=1), 4), (2, 5, 4)),
    ("gru", lambda: nn.GRU(4, 8, batch_first=True), (2, 5, 4), (2, 5, 4)),
    ("gru of no steps", lambda: nn.GRU(5, 7), ("T", "B", 5), (0, 2, 5)),
    ("transposed", lambda: nn.ConvTranspose2d(3, 4, 3, stride=2, padding=1, output_padding=1),
     ("B", 3, 5, 5), (2, 3, 5, 5)),
    ("norms", lambda: nn.Sequential(nn.GroupNorm(2, 4), nn.LayerNorm(5)), ("B", 4, 5), (2, 4, 5)),
]  # fmt: skip


@pytest.mark.parametrize("row", MODELS, ids=lambda row: row[0])
def test_models(row: Any) -> None:
    name, make, spec, shape = row
    weft.manual_seed(0)
    onnx_runs.check_model(name, make(), [weft.spec(spec)], [weft.randn(shape)], 256)


def while_loop(a: Any) -> Any:
    x = a
    while abs(x * x - a) > 1e-6 * a:
        x = (x + a / x) / 2
    return x


def branch(x: Any) -> Any:
    if x.sum() > 0:
        y, z = x * 2, x
    else:
        y, z = -x, x + 1
    return y, z


def parts(i: Any, x: Any) -> Any:
    sides = [lambda x: x, lambda x: x * 2, lambda x: weft.exp(x)]
    return weft.switch(i, sides, x)


def backwards(x: Any) -> Any:
    return weft.scan(lambda c, x: (c + x, c * x), weft.zeros(2), x, reverse=True)


def sums(x: Any) -> Any:
    return weft.scan(lambda c, r: (c + r, (c, r * 2)), x.sum(0), x, reverse=True)


def shifts(x: Any) -> Any:
    n = weft.arange(x.shape[0], dtype=x.dtype)
    return x // 4, x >> n, x << n, x >> (n + 60), x << (n + 60), x >> -n, x << -n, x * 8, x % 8


def nested(x: Any) -> Any:
    total = x.sum() * 0
    for row in x:
        if row.sum() > 0:
            total = total + row.sum()
    return total


def windows(x: Any) -> Any:
    n = x.shape[0]
    return x[1:, ::-1], x.reshape(n * 2, 2), weft.arange(n) * 2, x[: n // 2], weft.eye(3)


NUMBERS = {
    "int": [-(2**63), -(2**31), -128, -5, -1, 0, 1, 7, 100, 2**31 - 1, 2**63 - 1] * 7,
    "uint": [0, 1, 5, 127, 128, 200, 255] * 10,
}
FUNCTIONS: list[tuple[Any, list[Any], list[Any]]] = [
    (while_loop, [weft.spec(())], [np.float32(81)]),
    (branch, [weft.spec(2)], [np.array([1, 2], np.float32)]),
    (branch, [weft.spec(2)], [np.array([-1, -2], np.float32)]),
    *[(parts, [weft.spec((), weft.int64), weft.spec(3)], [np.int64(i), np.ones(3, np.float32)])
      for i in (-1, 0, 1, 2, 7)],
    (backwards, [weft.spec((4, 2))], [np.arange(8, dtype=np.float32).reshape(4, 2)]),
    (backwards, [weft.spec(("T", 2))], [np.arange(8, dtype=np.float32).reshape(4, 2)]),
    (nested, [weft.spec(("T", 2))], [np.arange(-4, 4, dtype=np.float32).reshape(4, 2)]),
    *[(sums, [weft.spec(("T", "B", 3))], [np.ones((n, 2, 3), np.float32)]) for n in (0, 1, 3)],
    *[(shifts, [weft.spec(("n",), dtype)], [np.array(NUMBERS[dtype.kind]).astype(dtype.numpy)])
      for dtype in (weft.int64, weft.int32, weft.int8, weft.uint8, weft.uint64)],
    *[(windows, [weft.spec(("n", 4))], [np.arange(n * 4, dtype=np.float32).reshape(n, 4)])
      for n in (0, 1, 2, 5)],
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(FUNCTIONS)))
def test_control_flow_and_symbolic_sizes(number: int) -> None:
    function, specs, arrays = FUNCTIONS[number]
    onnx_runs.check_model(function.__name__, function, specs, list(map(weft.asarray, arrays)), 8)


def own_sizes(x: Any) -> Any:
    """Windows as large as the input, along one axis."""
    return F.max_pool2d(x, (x.shape[2], 1)), F.avg_pool2d(x, x.shape[2:])


POOLING: list[Any] = [
    nn.MaxPool2d(2), nn.MaxPool2d(3, 2, 1), nn.MaxPool2d(3, 3, 1, 2), nn.MaxPool2d((2, 3), (3, 1)),
    nn.MaxPool2d(3, 2, 1, ceil_mode=True), nn.MaxPool2d(2, 3, ceil_mode=True),
    nn.AvgPool2d(2), nn.AvgPool2d(3, 2, 1), nn.AvgPool2d(3, 2, 1, count_include_pad=False),
    nn.AvgPool2d(3, 2, 1, ceil_mode=True), nn.AdaptiveAvgPool2d(1), nn.AdaptiveAvgPool2d((2, 3)),
    nn.AdaptiveAvgPool2d((None, 2)), nn.AdaptiveMaxPool2d(1), nn.AdaptiveMaxPool2d((3, 1)),
    own_sizes,
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(POOLING)))
def test_pooling_of_symbolic_sizes(number: int) -> None:
    pool = POOLING[number]
    model = weft.onnx.model(pool, weft.spec(("B", 2, "H", "W")))
    onnx.checker.check_model(model, full_check=True)
    for height, width in ((5, 6), (6, 7), (8, 5), (7, 11)):
        x = weft.randn(3, 2, height, width)
        want = onnx_runs.flat(pool(x))
        for mine, theirs in zip(want, onnx_runs.run(model, x.numpy()), strict=True):
            assert not onnx_runs.differs(mine.numpy(), theirs, 8), (height, width)


@pytest.mark.parametrize("pool", [nn.MaxPool1d(2), nn.AvgPool1d(3, 2, 1), nn.AdaptiveAvgPool1d(1)])
def test_pooling_of_one_axis(pool: Any) -> None:
    onnx_runs.check_model("1d", pool, [weft.spec((2, 3, "T"))], [weft.randn(2, 3, 9)], 8)


def test_names_come_from_the_signature(tmp_path: Path) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(4, 2)

        def forward(self, batch: Any, *, scale: Any) -> Any:
            return {"out": self.head(batch["x"]) * scale, "same": batch["x"], "none": None}

    path = tmp_path / "model.onnx"
    model = Model()
    batch = {"x": weft.spec(("B", 4))}
    weft.onnx.export(model, path, batch, scale=weft.spec(()))
    made = onnx.load(path)
    onnx.checker.check_model(made, full_check=True)
    assert (made.opset_import[0].version, made.ir_version) == (20, 10)
    assert [port.name for port in made.graph.input] == ["batch_x", "scale"]
    assert [port.name for port in made.graph.output] == ["result_out", "result_same"]
    size = made.graph.input[0].type.tensor_type.shape.dim
    assert (size[0].dim_param, size[1].dim_value) == ("B", 4)
    assert {"head.weight", "head.bias"} <= {t.name for t in made.graph.initializer}
    assert any("test_onnx_export.py" in node.doc_string for node in made.graph.node)
    x = np.ones((3, 4), np.float32)
    out, same = onnx_runs.run(made, x, np.array(2, np.float32))
    want = model({"x": weft.asarray(x)}, scale=2.0)["out"].detach()
    assert np.allclose(out, want.numpy())
    assert np.array_equal(same, x)


def test_a_program_is_exported_with_its_types(tmp_path: Path) -> None:
    program = weft.export(lambda x: x * 2, weft.spec(("n",), weft.int8))
    weft.onnx.export(program, tmp_path / "m.onnx")
    (out,) = onnx_runs.run(onnx.load(tmp_path / "m.onnx"), np.array([100, -128], np.int8))
    assert out.tolist() == [-56, 0]  # it wraps


def test_weights_beyond_the_limit_of_the_format_go_to_a_file_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export_module, "MOST_BYTES", 4096)
    model = nn.Sequential(nn.Linear(40, 40), nn.Linear(40, 3))
    path = tmp_path / "large.onnx"
    weft.onnx.export(model, path, weft.spec((2, 40)))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["large.onnx", "large.onnx.data"]
    assert path.stat().st_size < 4096
    x = weft.randn(2, 40)
    made = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (out,) = made.run(None, {made.get_inputs()[0].name: x.numpy()})
    assert np.allclose(out, model(x).detach().numpy(), atol=1e-6)


def collected(x: Any) -> Any:
    parts = [x[0]]
    while x.sum() < 9:
        x = x + 1
        parts.append(x[0])
    return weft.stack(parts)


REFUSED: list[tuple[Any, Any, type[Exception], str]] = [
    (lambda x: x + weft.randn(3), weft.spec(3), CaptureError, "draws random numbers"),
    (nn.BatchNorm1d(3), weft.spec((2, 3)), CaptureError, "num_batches_tracked a new value"),
    (lambda x: weft.view_as_complex(x) * 1j, weft.spec((3, 2)), GraphError, "complex has no"),
    (lambda x: x * 2, weft.spec(3, weft.complex64), DTypeError, "take no complex numbers"),
    (lambda x: None, weft.spec(3), CaptureError, "gives no tensor"),
    (lambda x: x**x, weft.spec(3, weft.int64), GraphError, "pow of integers"),
    (
        lambda x: F.max_pool2d(x, x.shape[2:], 1, 1),
        weft.spec((1, 2, "H", "W")),
        GraphError,
        r"max_pool with overlapping windows(.|\n)*test_onnx_export.py",
    ),
    (
        lambda x: F.conv2d(x, x[:1]),
        weft.spec((1, 2, weft.dim("H", min=1), 3)),
        UnknownSizeError,
        r"Conv of ONNX takes kernel_shape as numbers, not \[H, 3\](.|\n)*test_onnx_export.py",
    ),
    (collected, weft.spec(("T", 3)), GraphError, r"a list that grows(.|\n)*weft.scan"),
]


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_what_is_refused(number: int, tmp_path: Path) -> None:
    function, spec, error, said = REFUSED[number]
    with pytest.raises(error, match=said):
        weft.onnx.export(function, tmp_path / "m.onnx", spec)
    assert list(tmp_path.iterdir()) == []


def test_without_the_library_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(name: str) -> Any:
        raise ImportError("No module named 'onnx'")

    library.onnx_library.cache_clear()
    monkeypatch.setattr(library.importlib, "import_module", missing)
    try:
        with pytest.raises(DeviceError, match=r"pip install 'weft\[onnx\]'"):
            weft.onnx.model(lambda x: x, weft.spec(3))
    finally:
        monkeypatch.undo()
        library.onnx_library.cache_clear()


def test_a_custom_op_gets_a_row() -> None:
    @weft.custom_op("onnx_test_cube", infer=lambda x: x)
    def cube(xp: Any, x: Any) -> Any:
        return x * x * x

    with pytest.raises(GraphError, match="onnx_test_cube has no operator"):
        weft.onnx.model(lambda x: cube(x), weft.spec(3))

    @weft.onnx.row("onnx_test_cube")
    def write(w: Any, node: Any, x: str) -> str:
        return w.call("Mul", x, w.call("Mul", x, x))

    try:
        model = weft.onnx.model(lambda x: cube(x), weft.spec(3))
        (out,) = onnx_runs.run(model, np.array([1, 2, 3], np.float32))
        assert out.tolist() == [1, 8, 27]
    finally:
        del table.ROWS["onnx_test_cube"]
