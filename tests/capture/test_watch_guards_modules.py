"""Guards on modules, their parameters and optimizers, and where a tensor was found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from guarded import failure, watched

import weft
from weft import nn
from weft.capture.hooks import run_watched
from weft.capture.watch.guard_code import compile_guards
from weft.capture.watch.watch import Watch


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.layers = nn.ModuleList([nn.Linear(3, 3), nn.ReLU()])
        self.scale = 2.0
        self.sizes = [1, 2]
        self.register_buffer("mean", weft.zeros(3))
        self.unread = 1

    def forward(self, x: Any) -> Any:
        x = self.first(x)
        for layer in self.layers:
            x = layer(x)
        if self.training:
            x = x + self.mean
        return x * self.scale + self.sizes[0]


MODULE_ROWS: list[tuple[str, Callable[[Any], Any], str | None]] = [
    ("nothing", lambda net: None, None),
    ("unread", lambda net: setattr(net, "unread", 5), None),
    ("values", lambda net: net.first.weight.copy_(weft.zeros((3, 3))), None),
    ("scale", lambda net: setattr(net, "scale", 3.0), "self.scale was 2.0, now 3.0"),
    ("eval", lambda net: net.eval(), "self.training was True, now False"),
    ("layer", lambda net: setattr(net, "first", nn.Linear(3, 3)), "self.first was a Linear"),
    ("list of layers", lambda net: net.layers.append(nn.ReLU()), "now ['0', '1', '2']"),
    ("weight", lambda net: setattr(net.first, "weight", nn.Parameter(weft.ones((3, 3)))), None),
    (
        "shape",
        lambda net: setattr(net.first, "weight", nn.Parameter(weft.ones((1, 3)))),
        "self.first.weight was",
    ),
    ("bias", lambda net: setattr(net.layers[0], "bias", None), "bias was Parameter float32[3]"),
    ("frozen", lambda net: net.first.requires_grad_(False), "self.first.weight was Parameter"),
    (
        "frozen one",
        lambda net: setattr(net.first.bias, "requires_grad", False),
        "self.first.bias was",
    ),
    (
        "hook",
        lambda net: net.first.register_forward_hook(lambda *a: None),
        "_module_hooks was None",
    ),
    ("dtype", lambda net: net.double(), "now Parameter float64"),
    (
        "assigned state",
        lambda net: net.load_state_dict(Net().double().state_dict(), assign=True),
        "now Parameter float64",
    ),
    ("buffer", lambda net: setattr(net, "mean", weft.zeros(1)), "self.mean was float32[3]"),
    ("a list", lambda net: net.sizes.__setitem__(0, 9), "self.sizes[0] was 1, now 9"),
    ("a list unread", lambda net: net.sizes.append(9), None),
    ("forward", lambda net: setattr(net, "forward", lambda x: x), "self.forward was missing"),
    (
        "tied",
        lambda net: setattr(net.layers[0], "weight", net.first.weight),
        "were different objects",
    ),
]


@pytest.mark.parametrize("row", MODULE_ROWS, ids=lambda row: row[0].replace(" ", "-"))
@pytest.mark.parametrize("as_argument", [False, True])
def test_a_guard_sees_of_a_module(row: Any, as_argument: bool) -> None:
    name, change, want = row
    if name == "layer" and as_argument:
        want = None  # another layer of the same class and shapes does as well
    net, x = Net(), weft.ones((2, 3))
    fn: Any = (lambda model, x: model(x)) if as_argument else net
    args = (net, x) if as_argument else (x,)
    with weft.no_grad():
        _, guards = watched(fn, args, {})
        check = compile_guards(guards)
        assert [check(args, {}) for _ in range(3)] == [-1] * 3
        change(net)
        number = check(args, {})
        if want is None:
            assert number == -1
        else:
            assert number >= 0
            found = guards[number].found(args, {})
            assert want.replace("self", "args[0]" if as_argument else "self") in found


def test_another_module_as_the_argument() -> None:
    net, x = Net(), weft.ones((2, 3))
    _, guards = watched(lambda model, x: model(x), (net, x), {})
    check = compile_guards(guards)
    other = Net()
    assert check((net, x), {}) == -1
    assert check((other, x), {}) == -1
    other.scale = 5.0
    assert check((net, x), {}) == -1
    assert guards[check((other, x), {})].found((other, x), {}) == "args[0].scale was 2.0, now 5.0"
    assert check((net, x), {}) == -1


def test_a_class_patch_is_seen_though_no_module_changed(monkeypatch: Any) -> None:
    net, x = Net(), weft.ones((2, 3))
    _, guards = watched(net, (x,), {})
    check = compile_guards(guards)
    assert check((x,), {}) == -1
    monkeypatch.setattr(nn.Linear, "forward", lambda self, x: x)
    assert "Linear.forward" in guards[check((x,), {})].description


# --- where a tensor is found ---------------------------------------------------------------------


def test_origins_of_tensors() -> None:
    net, x = Net(), weft.ones((2, 3))
    watch, _ = watched(net, (x,), {})
    assert watch.origin_of(x).text == "args[0]"
    assert watch.origin_of(net.first.weight).text == "self.first.weight"
    assert watch.origin_of(net.first.weight).evaluate((x,), {}) is net.first.weight
    assert watch.origin_of(net.layers[0].bias).text == "self.layers.0.bias"
    assert watch.origin_of(net.mean).text == "self.mean"
    assert watch.origin_of(weft.ones(1)) is None


def test_an_optimizer_step_is_watched() -> None:
    w = weft.tensor([1.0, 2.0], requires_grad=True)
    optimizer = weft.optim.Adam([w], lr=0.1)
    (w * w).sum().backward()
    watch = Watch()
    run_watched(watch, optimizer.step, (), {})
    guards = watch.take_guards()
    assert watch.uncacheable == []
    watch.rollback()
    assert failure(guards, (), {}) is None
    optimizer.param_groups[0]["lr"] = 0.2
    assert 'self.param_groups[0]["lr"] was 0.1, now 0.2' in str(failure(guards, (), {}))


def test_a_frozen_parameter_that_gets_a_history() -> None:
    net, x = Net(), weft.ones((2, 3))
    net.requires_grad_(False)
    _, guards = watched(net, (x,), {})
    check = compile_guards(guards)
    assert check((x,), {}) == -1
    net.first.weight *= weft.tensor(2.0, requires_grad=True)
    assert "self.first.weight was" in guards[check((x,), {})].found((x,), {})
