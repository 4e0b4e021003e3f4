"""`weft.compare(f, by="kernel")`: the first kernel that is off by more than rounding explains."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
import weft.nn.functional as F
from weft import nn
from weft.base.errors import RangeError
from weft.codegen.kernel import PARAMS, Kernel, argument
from weft.codegen.loops import columns
from weft.codegen.tables import KERNELS
from weft.codegen.text import Module
from weft.inspect.compare.kernels import KernelComparison
from weft.schedule import planner

HERE = Path(__file__).name


def line_of(text: str) -> int:
    lines = Path(__file__).read_text().splitlines()
    (found,) = [number for number, line in enumerate(lines, 1) if line.endswith(f"# {text}")]
    return found


def by_kernel(function: Any, *args: Any) -> KernelComparison:
    return weft.compare(function, *args, by="kernel")


# --- planted faults ------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_CACHE", "0")


def plant(monkeypatch: pytest.MonkeyPatch, op: str, change: str) -> None:
    """The kernels of an op, and one more that changes a float32 of the result: "fadd … 0.01"."""
    original = KERNELS[op]

    def emit(module: Module, name: str, node: Any) -> list[Kernel]:
        made = list(original(module, name, node))
        f = module.function(f"{name}.planted", "i32", PARAMS)
        at = argument(f, len(node.inputs), "float") + 3
        at.store(f(change.replace("…", at.load())))
        f.do("ret i32 0")
        return [*made, Kernel(f.name, 1, 1.0, made[-1].scratch)]

    monkeypatch.setitem(KERNELS, op, emit)


def cumulated(x: Any) -> Any:
    y = weft.sin(x) + 2
    z = weft.cumulative_sum(y, axis=1)  # the wrong kernel
    return (z * z).sum(axis=0)


def test_a_wrong_kernel_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    x = weft.randn((5, 7))
    assert by_kernel(cumulated, x)
    plant(monkeypatch, "cumulative_sum", "fadd float …, 0x3F847AE140000000")  # 0.01
    report = by_kernel(cumulated, x)
    assert not report
    assert [row.status for row in report.rows].count("wrong") == 1
    found = report.first
    assert found is not None
    assert (found.op, found.location.line) == ("cumulative_sum", line_of("the wrong kernel"))
    assert "kernel kernel.cumulative_sum" in found.note
    assert "1 of 35 elements" in found.text
    assert "at [0, 3]" in found.text
    assert f"{HERE}:{line_of('the wrong kernel')}" in str(report)


def summed_in_another_order(x: Any) -> Any:
    y = weft.permute_dims(weft.tanh(x), (1, 2, 0, 3))
    return weft.sum(y, axis=0)  # the sum that starts elsewhere


def test_a_sum_that_starts_elsewhere_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The verifier of plans does not see where an emitter puts the first terms of its sums."""
    x = weft.randn((2, 3, 4, 5))
    assert by_kernel(summed_in_another_order, x)
    monkeypatch.setattr(columns, "_is_one_block", lambda _: True)
    report = by_kernel(summed_in_another_order, x)
    found = report.first
    assert found is not None
    assert found.location.line == line_of("the sum that starts elsewhere")


def test_a_rounding_is_not_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, "cumulative_sum", "fmul float …, 0x3FF0000020000000")  # one unit more
    report = by_kernel(cumulated, weft.randn((5, 7)))
    assert report, report
    assert 0 < max(row.ratio for row in report.rows) < 1


def test_in_a_loop_with_its_iteration(monkeypatch: pytest.MonkeyPatch) -> None:
    table = importlib.import_module("weft.codegen.math.call").FUNCTIONS
    monkeypatch.setitem(table, "cos", table["sin"])

    def f(x: Any) -> Any:
        n = 0
        while x.sum() < 50:
            x = x * 1.5
            if n == x.sum() * 0 + 2:
                x = x + (x * 0.5).cos() + 1  # a wrong cosine
            n = n + 1
        return x

    report = by_kernel(f, weft.asarray([0.5, 0.75, 1.0]))
    found = report.first
    assert found is not None
    assert found.location is not None
    assert found.location.line == line_of("a wrong cosine")
    assert "iteration 2" in found.note
    wrong = [row for row in report.rows if row.status == "wrong"]
    assert len(wrong) == 1
    assert "." in wrong[0].number
    assert max(row.runs for row in report.rows) > 5


def test_in_the_backward(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, "max_pool_input", "fadd float …, 0x3F847AE140000000")
    w = weft.randn((4, 2, 3, 3)).requires_grad_()

    def step(x: Any) -> Any:
        y = F.max_pool2d(F.conv2d(x, w), 2)
        loss = (y * y).sum()
        loss.backward()
        return loss

    report = by_kernel(step, weft.randn((2, 2, 6, 6)))
    assert report.first is not None
    assert report.first.op == "max_pool_input"
    assert w.grad is None  # the state is put back


def test_what_is_wrong_between_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """All lie at one place: each kernel is right, and the program is not."""
    original = planner.planned

    def planned(*given: Any) -> Any:
        made = original(*given)
        made.offsets = dict.fromkeys(made.offsets, 0)
        return made

    monkeypatch.setattr(planner, "planned", planned)
    monkeypatch.setattr("weft.runtime.generate.verify_plan", lambda *_: None)

    def f(x: Any) -> Any:
        a, b = weft.cumulative_sum(x), weft.flip(x * 3)
        return weft.cumulative_sum(b) + a

    report = by_kernel(f, weft.randn((40,)))
    assert report.first is not None
    assert "each kernel by itself is right" in report.first.note
    assert all(row.status == "right" for row in report.rows)


# --- no false alarms -----------------------------------------------------------------------------


def block() -> tuple[Any, tuple[Any, ...]]:
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1)

    def step(x: Any) -> Any:
        y = layer(layer(x))
        loss = (y * y[:, :1]).mean()
        loss.backward()
        return loss

    return step, (weft.randn((2, 7, 16)),)


def convolutions() -> tuple[Any, tuple[Any, ...]]:
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64, 10),
    )
    optimizer = weft.optim.Adam(net.parameters(), lr=1e-3)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step, (weft.randn((8, 1, 8, 8)), weft.arange(8))


def newton() -> tuple[Any, tuple[Any, ...]]:
    def root(a: Any) -> Any:
        x = a
        while abs(x * x - a).max() > 1e-4:
            x = (x + a / x) / 2
        return x, weft.grad(lambda v: (v * v * v).sum())(x)

    return root, (weft.asarray([2.0, 3.0, 1e4]),)


def recurrence() -> tuple[Any, tuple[Any, ...]]:
    w = weft.randn((9, 9)).requires_grad_()

    def scan(x: Any) -> Any:
        def step(h: Any, row: Any) -> Any:
            h = weft.tanh(h @ w + row)
            return h, h

        _, rows = weft.scan(step, weft.zeros((64, 9)), x)
        loss = (rows * rows).sum()
        loss.backward()
        return loss, rows

    return scan, (weft.randn((12, 64, 9)),)


def chaos() -> tuple[Any, tuple[Any, ...]]:
    """Roundings grow to differences of the whole size of the numbers."""

    def f(x: Any, w: Any) -> Any:
        n = 0
        while n < weft.asarray(80):
            x = 4 * x * (1 - x) * (w @ w.T).sum() / (w * w.sum(axis=0)).sum()
            n = n + 1
        return x

    return f, (weft.asarray([0.3, 0.6, 0.7], dtype=weft.float32), weft.rand((5, 40)))


def narrow(dtype: Any) -> Callable[[], tuple[Any, tuple[Any, ...]]]:
    def made() -> tuple[Any, tuple[Any, ...]]:
        def f(x: Any, w: Any) -> Any:
            h = F.gelu(F.layer_norm(x @ w, (24,)))
            return F.softmax(h, dim=-1).sum(axis=0), (h * h).mean(), h.max(axis=1) - h.std(axis=1)

        return f, (weft.randn((9, 40)).astype(dtype), weft.randn((40, 24)).astype(dtype))

    return made


def indices() -> tuple[Any, tuple[Any, ...]]:
    def f(x: Any, i: Any) -> Any:
        order = weft.argsort(x * 2, axis=1)
        rows = weft.take(weft.sort(x, axis=1), i, axis=0)
        return weft.take_along_axis(x, order, axis=1), rows, weft.argmax(x, axis=1)

    return f, (weft.randn((6, 35)), weft.asarray([4, 0, 0, 5]))


def narrow_inside() -> tuple[Any, tuple[Any, ...]]:
    """Results of float64 that are as exact as float32 inside."""

    def f(x: Any, w: Any) -> Any:
        return ((x @ w).astype(weft.float32).exp().sum(axis=0)).astype(weft.float64) * 2

    return f, tuple(weft.randn(shape, dtype=weft.float64) for shape in ((40, 50), (50, 3)))


def equal_values() -> tuple[Any, tuple[Any, ...]]:
    """An average of equal numbers is one of them, to rounding."""

    def f(q: Any, k: Any) -> Any:
        v = weft.broadcast_to(q[:, :, :1] / 3, (1, 2, 9, 8))
        return F.scaled_dot_product_attention(q, k, v)

    return f, (weft.randn((1, 2, 9, 8)), weft.randn((1, 2, 9, 8)))


def narrow_attention() -> tuple[Any, tuple[Any, ...]]:
    """Products of bfloat16 that add up to almost nothing, in float32."""

    def f(q: Any, k: Any, v: Any) -> Any:
        both = weft.concat([v, -v], axis=2)
        found = F.scaled_dot_product_attention(q * 1e-2, weft.concat([k, k], axis=2), both)
        return found, found.astype(weft.float32) * 3

    given = [weft.randn((3, 2, n, 8)).astype(weft.bfloat16) for n in (9, 40, 40)]
    return f, tuple(given)


def computed_again() -> tuple[Any, tuple[Any, ...]]:
    """A kernel reads a value from memory and computes it once more itself."""

    def total(x: Any, v: Any, q: Any) -> Any:
        a, b, w, p = x * 0.8, v.sum(), v * 0.5, q * 0.5
        for row, other in zip(v, p, strict=True):
            b = (b + row * other.sum()) * 0.8
            p = weft.where(p.mT > 0, p.mT, w)
        weights = [weft.cos(weft.arange(y.size)).reshape(y.shape) for y in (a, b, w, p)]
        return sum((y * z).sum() for y, z in zip((a, b, w, p), weights, strict=True))

    def f(x: Any, v: Any, q: Any) -> Any:
        return weft.value_and_grad(total, argnums=(0, 1, 2))(x, v, q)

    return f, (weft.asarray(0.3), weft.asarray([0.3]), weft.asarray([[0.3]]))


RIGHT: dict[str, Callable[[], tuple[Any, tuple[Any, ...]]]] = {
    "transformer block": block,
    "convolutions": convolutions,
    "while": newton,
    "scan": recurrence,
    "chaos": chaos,
    "bfloat16": narrow(weft.bfloat16),
    "float16": narrow(weft.float16),
    "float64": narrow(weft.float64),
    "indices": indices,
    "computed again": computed_again,
    "narrow inside": narrow_inside,
    "equal values": equal_values,
    "narrow attention": narrow_attention,
}


@pytest.mark.parametrize("name", RIGHT)
def test_no_false_alarms(name: str) -> None:
    weft.manual_seed(0)
    function, args = RIGHT[name]()
    report = by_kernel(function, *args)
    assert report.same, report
    assert report.rows
    assert any(row.runs for row in report.rows)
    assert max(row.ratio for row in report.rows) < 0.5, report


# --- the report ----------------------------------------------------------------------------------


def test_what_is_said() -> None:
    report = by_kernel(lambda x: (x @ x).tanh(), weft.randn((4, 4)))
    (row,) = report.rows
    assert (row.number, row.status, row.runs, row.ops) == ("0", "right", 1, "matmul tanh")
    assert "error / bound" in str(report)
    assert repr(report) == "<comparison of lambda: 1 kernels, 0 wrong>"
    interpreted = by_kernel(lambda x: weft.unique_values(x), weft.tensor([2.0, 1.0, 2.0]))
    assert any("its sizes depend on data" in note for note in interpreted.notes)
    with pytest.raises(RangeError, match="cannot compare by 'op'"):
        weft.compare(lambda x: x, weft.ones(1), by="op")  # type: ignore[call-overload]
    with pytest.raises(ZeroDivisionError):
        by_kernel(lambda x: x + 1 // 0, weft.ones(1))
    assert np.isfinite(row.ratio)
