"""Writes to modules, classes, dataclasses and optimizers: seen, undone, done again."""

from __future__ import annotations

import dataclasses
from typing import Any

from effect_objects import Box, same

import weft
from weft import nn
from weft.capture.hooks import run_watched
from weft.capture.watch.effects import replay
from weft.capture.watch.guard_code import compile_guards
from weft.capture.watch.watch import Watch


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.steps = 0
        self.register_buffer("last", weft.zeros(2))

    def forward(self, x: Any) -> Any:
        self.steps += 1
        self.last = x.sum(axis=0)
        return self.linear(x)


def test_a_module_that_counts() -> None:
    net, x = Counting(), weft.ones((3, 2))
    watch = Watch()
    run_watched(watch, net, (x,), {})
    assert (net.steps, net.last.tolist()) == (1, [3, 3])
    guards = watch.take_guards()
    watch.rollback()
    assert (net.steps, net.last.tolist()) == (0, [0, 0])
    check = compile_guards(guards)
    assert check((x,), {}) == -1
    replay(watch.effects, (x,), {}, same)
    assert (net.steps, net.last.tolist()) == (1, [3, 3])
    assert check((x,), {}) == -1  # a counter that is only counted up is no guard


def test_a_module_that_registers() -> None:
    net = nn.Sequential(nn.ReLU())

    def f(net: Any) -> Any:
        net.extra = 3
        net.register_buffer("more", weft.zeros(2))
        return list(net._buffers)

    watch = Watch()
    assert run_watched(watch, f, (net,), {}) == ["more"]
    assert watch.uncacheable == []
    watch.rollback()
    assert list(net._buffers) == []
    assert not hasattr(net, "extra")
    replay(watch.effects, (net,), {}, same)
    assert list(net._buffers) == ["more"]
    assert net.extra == 3


def test_batch_norm_and_dropout_in_training() -> None:
    net = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
    watch = Watch()
    weft.manual_seed(0)
    out = run_watched(watch, net, (weft.ones((3, 2)),), {})
    assert watch.uncacheable == []
    assert out.shape == (3, 4)


def test_class_attributes() -> None:
    def f() -> int:
        Box.limit = 5
        return Box.limit + Box().limit

    watch = Watch()
    assert run_watched(watch, f, (), {}) == 10
    watch.rollback()
    assert Box.limit == 1
    assert compile_guards(watch.take_guards())((), {}) == -1
    replay(watch.effects, (), {}, same)
    assert Box.limit == 5
    watch.rollback()
    Box.limit = 1


def test_a_dataclass_and_a_cached_property() -> None:
    import functools

    @dataclasses.dataclass
    class Settings:
        a: int = 1

        @functools.cached_property
        def slow(self) -> int:
            return self.a * 10

    def f(s: Any) -> Any:
        return s.slow + s.slow

    settings = Settings()
    watch = Watch()
    assert run_watched(watch, f, (settings,), {}) == 20
    guards = watch.take_guards()
    watch.rollback()
    assert "slow" not in vars(settings)
    assert compile_guards(guards)((settings,), {}) == -1
    replay(watch.effects, (settings,), {}, same)
    assert settings.slow == 10
    assert compile_guards(guards)((settings,), {}) >= 0


def test_the_learning_rate_is_a_guard_and_the_state_is_written() -> None:
    w = weft.tensor([1.0, 2.0], requires_grad=True)
    optimizer = weft.optim.SGD([w], lr=0.1, momentum=0.9)
    (w * w).sum().backward()
    watch = Watch()
    run_watched(watch, optimizer.step, (), {})
    assert watch.uncacheable == []
    assert optimizer.state[w]
    watch.rollback()
    assert w not in optimizer.state
