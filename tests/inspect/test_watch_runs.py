"""Looking on while compiled code runs: breakpoints, gradients that are printed, activations."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from weft import nn
from weft.base.errors import RangeError

MODES = ["eager", "interpret", "native"]


def made(mode: str, function: Any) -> Any:
    return function if mode == "eager" else weft.compile(function, backend=mode)


# --- breakpoint --------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["interpret", "native"])
@pytest.mark.parametrize("own", [True, False])
def test_a_breakpoint_opens_with_the_values_by_name(
    backend: str, own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def f(x: Any, label: str) -> Any:
        h = x * 2
        n = 0
        while h.sum() < 20:
            h = h * 2
            n = n + 1
            if own:
                weft.breakpoint()
            else:
                breakpoint()
        return h

    seen = []

    def hook() -> None:
        frame = sys._getframe(1)
        found = frame.f_locals
        seen.append(
            (frame.f_code.co_filename, frame.f_code.co_name, found["h"].numpy(), found["n"])
        )
        assert "label" not in found  # no guard holds it

    monkeypatch.setattr(sys, "breakpointhook", hook)
    run = weft.compile(f, backend=backend)
    for _ in range(2):
        seen.clear()
        run(weft.asarray([1.0, 2.0]), "a")
        assert [(file, name, n) for file, name, _, n in seen] == [
            (__file__, "f", 1),
            (__file__, "f", 2),
        ]
        assert np.array_equal(seen[1][2], [8, 16])
    assert len(run.recordings) == 1


@pytest.mark.parametrize("made", ["f", "weft.compile(f, backend='native')"])
def test_pdb_stands_at_the_users_line(made: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import weft\n"
        "def f(x):\n"
        "    h = x * 2\n"
        "    weft.breakpoint()\n"
        "    return h + 1\n"
        f"print({made}(weft.asarray([1.0, 2.0])))\n"
    )
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONBREAKPOINT"}
    done = subprocess.run(
        [sys.executable, str(script)],
        input="p h.sum()\nc\n",
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    line, text = (4, "weft.breakpoint()") if sys.version_info >= (3, 13) else (5, "return h + 1")
    assert f"{script}({line})f()" in done.stdout  # pdb stands where it is called from 3.13 on
    assert f"-> {text}" in done.stdout
    assert "tensor(6.)" in done.stdout
    assert "tensor([3., 5.])" in done.stdout


def test_no_breakpoint_where_they_are_off(monkeypatch: pytest.MonkeyPatch) -> None:
    def f(x: Any) -> Any:
        weft.breakpoint()
        return x + 1

    monkeypatch.setattr(sys, "breakpointhook", sys.__breakpointhook__)
    monkeypatch.setenv("PYTHONBREAKPOINT", "0")
    for run in (weft.compile(f, backend="native"), f):
        assert float(run(weft.asarray(1.0))) == 2.0


# --- gradients ---------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_the_gradient_that_arrives_is_printed(
    mode: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def inside(x: Any, w: Any) -> Any:
        h = x @ w
        weft.print_grad(h, "h")
        (h * h).sum().backward()
        return w.grad

    def outside(x: Any, w: Any) -> Any:
        h = x @ w
        weft.print_grad(h, "h")
        weft.print_grad(x, "nothing flows here")
        return (h * h).sum()

    x = weft.ones((1, 2))
    for function in (inside, outside):
        run = made(mode, function)
        for _ in range(2):
            w = weft.tensor([[1.0], [2.0]], requires_grad=True)
            out = run(x, w)
            if function is outside:
                out.backward()
            assert capsys.readouterr().out == "gradient of h: tensor([[6.]])\n"


@pytest.mark.parametrize("mode", MODES)
def test_print_in_a_gradient(mode: str, capsys: pytest.CaptureFixture[str]) -> None:
    class Shown(weft.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 1

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            weft.print("g is", g)
            return g

    run = made(mode, lambda x: (Shown.apply(x) * 3).sum())
    for _ in range(2):
        x = weft.tensor([1.0, 2.0], requires_grad=True)
        run(x).backward()
        assert capsys.readouterr().out == "g is tensor([3., 3.])\n"


# --- activations -------------------------------------------------------------------------------


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Sequential(nn.Linear(3, 3), nn.Tanh()) for _ in range(2)])
        self.head = nn.Linear(3, 1)

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        while x.sum() > 0.5:
            x = self.layers[0](x)
        return self.head(x)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("patterns", "paths"),
    [
        (["layers.*.0"], ["layers.0.0", "layers.1.0"]),
        (["head"], ["head"]),
        (["layers.*"], ["layers.0", "layers.1"]),
        (["**.1", "head"], ["layers.0.1", "layers.1", "layers.1.1", "head"]),
    ],
)
def test_activations_by_path(mode: str, patterns: list[str], paths: list[str]) -> None:
    weft.manual_seed(1)
    net = Net()
    x = weft.randn((4, 3))
    with weft.activations(net, *patterns) as wanted:
        net(x)
    run = made(mode, net)
    plain = run(x)
    for _ in range(2):
        with weft.activations(net, *patterns) as seen:
            out = run(x)
        assert sorted(seen) == sorted(paths)
        np.testing.assert_allclose(out.numpy(), plain.numpy(), rtol=1e-6)
        for path in paths:
            assert len(seen.calls[path]) == len(wanted.calls[path])
            np.testing.assert_allclose(
                seen[path].numpy(), wanted[path].numpy(), rtol=1e-5, atol=1e-6
            )
    run(x)
    assert sorted(seen) == sorted(paths)  # nobody writes to it any more
    assert all(len(seen.calls[path]) == len(wanted.calls[path]) for path in paths)


def test_no_such_module() -> None:
    seen = weft.activations(Net(), "layers.7")
    with pytest.raises(RangeError, match=r"no module is at layers\.7"):
        seen.__enter__()


@pytest.mark.parametrize("backend", ["interpret", "native"])
def test_what_a_called_function_keeps_stays_as_it_was(backend: str) -> None:
    kept: list[Any] = []

    def keep(value: Any) -> Any:
        kept.append(value)
        return value

    def f(x: Any) -> Any:
        for _ in range(5):
            x = weft.py_call(keep, weft.spec(64), x * 2) + 1
        return x

    weft.compile(f, backend=backend)(weft.ones(64))
    assert [float(value[0]) for value in kept] == [2.0, 6.0, 14.0, 30.0, 62.0]


@pytest.mark.parametrize("backend", ["interpret", "native"])
def test_a_hook_of_the_users_own_stores_what_it_sees(backend: str) -> None:
    weft.manual_seed(1)
    net = Net()
    seen: dict[str, Any] = {}
    net.layers[1].register_forward_hook(lambda module, args, out: seen.update(last=out))
    run = weft.compile(net, backend=backend)
    for k in (1.0, 2.0):
        x = weft.randn((4, 3)) * k
        run(x)
        found = seen["last"].numpy()
        net(x)
        np.testing.assert_allclose(found, seen["last"].numpy(), rtol=1e-5, atol=1e-6)
