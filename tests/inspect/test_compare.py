"""`weft.compare`: all modes on one state, and the first op where one leaves the others."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from weft import nn
from weft.base.errors import CaptureError, RangeError
from weft.inspect.compare.close import Tolerance
from weft.ir.graph import Builder
from weft.ir.op import OPS
from weft.passes import pipeline

MODES = ["eager", "trace", "source", "interpret", "native"]
HERE = Path(__file__).name


def line_of(text: str) -> int:
    lines = Path(__file__).read_text().splitlines()
    found = [number for number, line in enumerate(lines, 1) if line.endswith(f"# {text}")]
    assert len(found) == 1, (text, found)
    return found[0]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 4, bias=False)
        self.norm = nn.BatchNorm1d(4)
        self.drop = nn.Dropout(0.5)
        self.last = nn.Linear(4, 1)

    def forward(self, x: Any) -> tuple[Any, Any]:
        h = self.norm(self.first(x))
        if h.max() > 1:
            h = h * 2
        z = h.tanh()  # tanh
        n = 0
        while z.sum() > 0.5:
            z = z / 2
            n = n + 1
        return self.last(self.drop(z)), n


def training() -> tuple[Net, Any, Any, Any]:
    weft.manual_seed(0)
    net = Net()
    optimizer = weft.optim.Adam(net.parameters(), lr=0.1)
    steps = []

    def train(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        pred, n = net(x)
        loss = ((pred - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        steps.append(n)
        return loss, n

    return net, train, weft.randn((5, 3)), weft.randn((5, 1))


def test_all_modes_agree_and_leave_the_state_alone() -> None:
    net, train, x, y = training()
    before = {name: value.numpy().copy() for name, value in net.state_dict().items()}
    state = weft.get_rng_state().numpy().copy()
    report = weft.compare(train, x, y)
    assert report
    assert report.same
    assert report.first is None
    assert [row.mode for row in report.rows] == MODES
    assert [row.status for row in report.rows] == ["reference", *["same"] * 4]
    for name, value in net.state_dict().items():
        assert np.array_equal(value.numpy(), before[name]), name
    assert all(p.grad is None for p in net.parameters())
    assert np.array_equal(weft.get_rng_state().numpy(), state)
    assert train.__closure__ is not None
    assert [] in [cell.cell_contents for cell in train.__closure__ if cell.cell_contents == []]
    shown = str(report)
    assert all(mode in shown for mode in MODES)
    assert "largest difference" in shown


def test_a_compiled_function_is_taken_for_its_own() -> None:
    compiled = weft.compile(lambda x: x.sin() * 2, backend="native")
    assert weft.compare(compiled, weft.ones(3), backends=("eager", "native"))
    assert not compiled.recordings


# --- what differs ------------------------------------------------------------------------------


@pytest.fixture
def wrong_pass() -> Iterator[Any]:
    @weft.graph_pass
    def sin_for_tanh(graph: Any) -> Any:
        """Not what it should be."""
        if not any(node.op.name == "tanh" for node in graph.nodes):
            return graph
        builder = Builder(graph)
        for node in graph.nodes:
            if node.op.name == "tanh":
                builder.forward(
                    node.outputs, [builder.add(OPS["sin"], *builder.inputs_of(node), like=node)]
                )
            else:
                builder.copy(node)
        return builder.finish()

    pipeline.register(sin_for_tanh)
    yield sin_for_tanh
    pipeline.unregister(sin_for_tanh)


@pytest.mark.usefixtures("wrong_pass")
def test_a_wrong_pass_is_named_with_the_line() -> None:
    _, train, x, y = training()
    report = weft.compare(train, x, y)
    status = {row.mode: row.status for row in report.rows}
    assert status == {
        "eager": "reference",
        "trace": "differs",
        "source": "same",
        "interpret": "differs",
        "native": "differs",
    }
    for row in report.rows:
        if row.status == "differs":
            assert row.finding is not None
            assert row.finding.layer == "passes"
            assert row.finding.location is not None
            assert row.finding.location.line == line_of("tanh")
            assert "sin_for_tanh" in row.finding.note
    assert f"{HERE}:{line_of('tanh')}" in str(report)


@pytest.fixture
def wrong_code(monkeypatch: pytest.MonkeyPatch) -> None:
    table = importlib.import_module("weft.codegen.math.call").FUNCTIONS
    monkeypatch.setitem(table, "cos", table["sin"])
    monkeypatch.setenv("WEFT_CACHE", "0")


@pytest.mark.usefixtures("wrong_code")
def test_wrong_code_is_named_with_the_line_and_the_iteration() -> None:
    def f(x: Any) -> Any:
        h = x * 3.25
        n = 0
        while n < 3:
            h = h + 1
            if n == h.sum() * 0 + 1:
                h = h + (h * 1.625).cos()  # cosine
            n = n + 1
        return h

    report = weft.compare(f, weft.asarray([0.3, 0.6, 0.9]))
    assert [row.status for row in report.rows] == ["reference", *["same"] * 3, "differs"]
    found = report.first
    assert found is not None
    assert (found.layer, found.op) == ("code", "cos")
    assert found.location is not None
    assert found.location.line == line_of("cosine")


@pytest.mark.usefixtures("wrong_code")
def test_wrong_code_in_a_backward_names_the_forward_line() -> None:
    def f(x: Any) -> Any:
        h = (x * 1.375).sin()  # sine
        h.sum().backward()
        return x.grad

    x = weft.tensor([0.25, 0.5], requires_grad=True)
    report = weft.compare(f, x, backends=("eager", "native"))
    found = report.first
    assert found is not None
    assert (found.layer, found.op) == ("code", "cos")
    assert found.location is not None
    assert found.location.forward is not None
    assert found.location.forward.line == line_of("sine")
    assert x.grad is None


def test_a_function_that_is_not_the_same_twice() -> None:
    hidden = itertools.count(1)  # its state is in no attribute

    def noisy(x: Any) -> Any:
        return x.numpy() + next(hidden)

    def f(x: Any) -> Any:
        h = x * 2
        h = weft.py_call(noisy, weft.spec(3), h)
        return h.exp()  # after the noise

    report = weft.compare(f, weft.zeros(3), backends=("eager", "source"))
    assert not report
    found = report.first
    assert found is not None
    assert found.layer == "capture"
    assert found.location is not None
    assert found.location.line == line_of("after the noise")


def test_another_gradient_than_eagerly() -> None:
    hidden = itertools.count(1)

    class Noisy(weft.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 1

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            def noisy(g: Any) -> Any:
                return g.numpy() * next(hidden)

            return weft.py_call(noisy, weft.spec(2), g)

    def f(w: Any) -> Any:
        h = w.exp()  # gets another gradient
        Noisy.apply(h).sum().backward()
        return w.grad

    w = weft.tensor([0.5, 1.0], requires_grad=True)
    report = weft.compare(f, w, backends=("eager", "source"))
    found = report.first
    assert found is not None
    assert "gradient" in found.text
    assert (found.op, found.location.line) == ("exp", line_of("gets another gradient"))  # type: ignore[union-attr]


def test_an_error_of_one_mode_is_a_row() -> None:
    scope: dict[str, Any] = {}
    exec("def without_source(x): return x * 2", scope)
    without_source = scope["without_source"]
    report = weft.compare(lambda x: without_source(x), weft.ones(2), backends=("eager", "source"))
    assert not report
    assert report.rows[1].status == "error"
    assert isinstance(report.rows[1].error, CaptureError)
    assert "source raises CaptureError: without_source cannot be converted" in str(report)


def test_errors_that_all_raise_are_no_difference() -> None:
    def f(x: Any) -> Any:
        return x.reshape((7,))

    report = weft.compare(f, weft.ones(3))
    assert report
    assert report.rows[0].error is not None


def test_modes_that_are_not_there() -> None:
    with pytest.raises(RangeError, match="not two known modes"):
        weft.compare(lambda x: x, weft.ones(1), backends=("eager", "magic"))
    with pytest.raises(RangeError, match="not two known modes"):
        weft.compare(lambda x: x, weft.ones(1), backends=("eager",))


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        (np.float32([1, 2]), np.float32([1, 2.0000002]), True),
        (np.float32([1, 2]), np.float32([1, 2.1]), False),
        (np.float32([np.nan, np.inf]), np.float32([np.nan, np.inf]), True),
        (np.float32([np.inf]), np.float32([-np.inf]), False),
        (np.float32([1e9, 0]), np.float32([1e9, 1e-3]), True),
        (np.int64([1, 2]), np.int64([1, 3]), False),
        (np.float32([1]), np.float64([1]), False),
        (np.float32([1]), np.float32([[1]]), False),
        (np.float32([]), np.float32([]), True),
        (np.array(True), np.array(True), True),
        (np.complex64([1 + 1j]), np.complex64([1 - 1j]), False),
    ],
)
def test_when_arrays_are_the_same(a: Any, b: Any, same: bool) -> None:
    assert (Tolerance().difference(a, b) is None) == same


# --- objects with slots ---------------------------------------------------------------------------


class Slotted:
    __slots__ = ("__calls", "held", "later")

    def __init__(self) -> None:
        self.__calls = 0
        self.held = [1.0]

    def called(self) -> int:
        self.__calls += 1
        return self.__calls


class Both(Slotted):
    """Slots of a base, a slot of its own, and a dictionary."""

    __slots__ = ("__dict__", "own")

    def __init__(self) -> None:
        super().__init__()
        self.own = weft.ones(2)
        self.plain = 3


@pytest.mark.parametrize("kind", [Slotted, Both])
def test_what_is_in_slots_is_put_back(kind: type[Slotted]) -> None:
    thing: Any = kind()

    def change(x: Any) -> Any:
        calls = thing.called()
        thing.held.append(2.0)
        thing.later = calls
        if kind is Both:
            thing.own = thing.own + 1
            thing.plain += 1
            del thing.held
            return x.numpy() * calls + thing.own.numpy() + thing.plain
        thing.held = [*thing.held, 3.0]
        return x.numpy() * calls + len(thing.held)

    def f(x: Any) -> Any:
        return weft.py_call(change, weft.spec(2), x) * 2

    held = thing.held
    report = weft.compare(f, weft.ones(2), backends=("eager", "source", "native"))
    assert report, str(report)
    assert thing.held is held
    assert held == [1.0]
    assert not hasattr(thing, "later")
    assert thing.called() == 1
    if kind is Both:
        assert thing.own.tolist() == [1.0, 1.0]
        assert thing.plain == 3
