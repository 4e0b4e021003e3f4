"""Tracing: values, gradients, guards, paths, state, errors and threads."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from graph_cases import same
from op_calls import flat, function, tensors
from samples import ROWS
from samples.table import Row

import weft
from weft.base.dtypes import DType, float32
from weft.capture.trace.captured import CaptureWarning
from weft.nn import functional as F

CASES = [
    pytest.param(row, dtype, id=f"{row.name}-{dtype.name}")
    for row in ROWS
    for dtype in row.dtypes()
    if dtype is float32 or float32 not in row.dtypes()
]


@pytest.mark.parametrize(("row", "dtype"), CASES)
def test_traced_is_eager(row: Row, dtype: DType) -> None:
    """Each public function, traced: when recorded and when replayed, the same bits."""
    call = function(row.name)
    for sample in list(row.samples(dtype))[:6]:
        args, kwargs = tensors(sample.args), tensors(sample.kwargs)
        want = call(*args, **kwargs)
        if not flat(want):
            continue
        traced = weft.trace(lambda *args, call=call, **kwargs: call(*args, **kwargs))
        for _ in range(2):
            same(traced(*args, **kwargs), want)


# --- gradients ---------------------------------------------------------------------------------


def leaf(*shape: int, seed: int = 0) -> weft.Tensor:
    generator = weft.Generator(seed)
    return weft.randn(*shape, generator=generator, dtype=weft.float64).requires_grad_()


GRADIENTS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "chain": (lambda x: weft.tanh(weft.exp(x) * 2).sum(), ((3,),)),
    "two inputs": (lambda x, y: (x @ y).sum() + (x**2).mean(), ((2, 3), (3, 4))),
    "branch": (lambda x: (x**2 if x.sum() > 0 else x**3).sum(), ((3,),)),
    "loop": (lambda x: repeated(x), ((3,),)),
    "unused": (lambda x, y: (x * 2).sum(), ((2,), (2,))),
    "twice": (lambda x: (x * x + x).sum(), ((2,),)),
    "several results": (lambda x: ((x * 2).sum(), x.exp().sum(), x.detach().sum()), ((2,),)),
    "no_grad inside": (lambda x: mixed(x), ((2,),)),
    "own Function": (lambda x: Square.apply(x).sum(), ((2,),)),
    "inner gradient": (lambda x: inner(x), ((2,),)),
    "in place": (lambda x: written(x), ((3,),)),
    "integer result": (lambda x: ((x**2).sum(), (x > 0).sum()), ((3,),)),
}


def repeated(x: Any) -> Any:
    while (x**2).sum() < 100:
        x = x * 1.5
    return x.sum()


def mixed(x: Any) -> Any:
    with weft.no_grad():
        scale = x * 3
    return (x * scale).sum()


def inner(x: Any) -> Any:
    (slope,) = weft.autograd.grad((x**3).sum(), x, create_graph=True)
    return (slope * x).sum()


def written(x: Any) -> Any:
    y = x * 2
    y[1:] = x[:-1] ** 2
    y += x
    return (y * y).sum()


class Square(weft.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        return 2 * x * g


@pytest.mark.parametrize("name", GRADIENTS)
@pytest.mark.parametrize("seed", [0, 1])
def test_gradients_of_first_and_second_order(name: str, seed: int) -> None:
    f, shapes = GRADIENTS[name]
    traced = weft.trace(f)
    for _ in range(2):
        results = []
        for call in (f, traced):
            xs = [leaf(*shape, seed=seed + i) for i, shape in enumerate(shapes)]
            out = [y for y in flat(call(*xs)) if y.requires_grad]
            first = weft.autograd.grad(out, xs, create_graph=True, allow_unused=True)
            kept = [g for g in first if g is not None]
            second: Any = ()
            total = sum(((g**2).sum() for g in kept), weft.zeros((), dtype=weft.float64))
            if total.requires_grad:
                second = weft.autograd.grad(total, xs, allow_unused=True)
            results.append((out, kept, [g for g in second if g is not None]))
            assert [g is None for g in first] == [False] * len(kept) + [True] * (
                len(first) - len(kept)
            )
        for want, got in zip(flat(results[0]), flat(results[1]), strict=True):
            np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-13)
    assert len(traced.recordings) <= 2


def test_a_call_is_one_node_of_the_dynamic_graph() -> None:
    traced = weft.trace(lambda x: weft.tanh(x * 2).sum())
    x = leaf(3)
    y = traced(x)
    assert y.grad_fn.name() == "LambdaBackward"
    y.backward(retain_graph=True)
    y.backward()
    with pytest.raises(weft.errors.GradientError, match="freed"):
        y.backward()
    want = leaf(3)
    (weft.tanh(want * 2).sum() * 2).backward()
    np.testing.assert_allclose(x.grad.numpy(), want.grad.numpy(), rtol=1e-14)


def test_gradients_flow_on_through_what_lies_before() -> None:
    """An argument that was computed from another argument is not differentiated twice."""
    traced = weft.trace(lambda x, y: (x * y).sum())
    x = leaf(2)
    y = x * 3
    traced(x, y).backward()
    np.testing.assert_allclose(x.grad.numpy(), 6 * x.detach().numpy(), rtol=1e-14)


# --- state -------------------------------------------------------------------------------------


def model(seed: int = 0) -> Any:
    weft.manual_seed(seed)
    return weft.nn.Sequential(
        weft.nn.Linear(4, 8, bias=False),  # a bias before normalization has no gradient but noise
        weft.nn.BatchNorm1d(8),
        weft.nn.ReLU(),
        weft.nn.Dropout(0.25),
        weft.nn.Linear(8, 3),
    )


OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "sgd": lambda ps: weft.optim.SGD(ps, lr=0.1),
    "momentum": lambda ps: weft.optim.SGD(ps, lr=0.1, momentum=0.9, nesterov=True),
    "adam": lambda ps: weft.optim.Adam(ps, lr=0.01),
    "adamw": lambda ps: weft.optim.AdamW(ps, lr=0.01),
    "rmsprop": lambda ps: weft.optim.RMSprop(ps, lr=0.01),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_training_step(name: str) -> None:
    """Forward, backward, optimizer, batch statistics and dropout: five steps."""
    x = weft.randn(16, 4, generator=weft.Generator(1))
    y = weft.randint(0, 3, (16,), generator=weft.Generator(2))
    states = []
    for wrap in (lambda f: f, weft.trace):
        net = model()
        optimizer = OPTIMIZERS[name](net.parameters())

        @wrap
        def step(x: Any, y: Any, net: Any = net, optimizer: Any = optimizer) -> Any:
            optimizer.zero_grad()
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
            return loss.detach()

        weft.manual_seed(7)
        losses = [step(x, y) for _ in range(5)]
        states.append([*losses, *net.state_dict().values(), *[p.grad for p in net.parameters()]])
    for got, want in zip(states[1], states[0], strict=True):
        # To rounding: eager updates are written in place, by other kernels than the card's own.
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-4, atol=1e-6)


def test_a_training_step_is_recorded_a_few_times_only() -> None:
    net = model()
    optimizer = weft.optim.SGD(net.parameters(), lr=0.1)

    @weft.trace
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        return loss

    x, y = weft.randn(8, 4), weft.randint(0, 3, (8,))
    for _ in range(10):
        step(x, y)
    assert len(step.recordings) <= 3, [str(r) for r in step.recordings]


def test_buffers_and_random_state_are_written_back() -> None:
    layer = weft.nn.BatchNorm1d(2)
    twin = weft.nn.BatchNorm1d(2)
    traced = weft.trace(layer)
    for i in range(3):
        x = weft.randn(4, 2, generator=weft.Generator(i))
        same(traced(x), twin(x))
        same(list(layer.state_dict().values()), list(twin.state_dict().values()))
    assert len(traced.recordings) == 1
    noisy = weft.trace(lambda x: x + weft.rand(2))
    weft.manual_seed(3)
    got = [noisy(weft.zeros(2)) for _ in range(3)]
    weft.manual_seed(3)
    same(got, [weft.rand(2) for _ in range(3)])
    assert len(noisy.recordings) == 1


def test_a_generator_as_an_argument() -> None:
    noisy = weft.trace(lambda x, generator: x + weft.rand(2, generator=generator))
    one, two = weft.Generator(1), weft.Generator(2)
    got = [noisy(weft.zeros(2), g) for g in (one, two, one, two)]
    one, two = weft.Generator(1), weft.Generator(2)
    same(got, [weft.rand(2, generator=g) for g in (one, two, one, two)])


def test_hidden_state_kept_on_an_object() -> None:
    class Counter:
        def __init__(self) -> None:
            self.h = weft.zeros(2)
            self.steps = 0

        def __call__(self, x: Any) -> Any:
            self.h = weft.tanh(self.h + x)
            self.steps += 1
            return self.h

    one, two = Counter(), Counter()
    traced = weft.trace(one)
    for i in range(4):
        x = weft.full((2,), float(i))
        same(traced(x), two(x))
        same(one.h, two.h)
        assert one.steps == two.steps == i + 1


class Counters:
    def __init__(self) -> None:
        self.steps = 0
        self.stats = {"calls": 0, "sum": 0.0}
        self.seen = [0]


def test_counting_does_not_record_again() -> None:
    """What is only counted up is no guard; what is read, in any way, is one."""
    counters = Counters()

    def f(x: Any, how: str = "") -> Any:
        counters.steps += 1
        counters.stats["calls"] += 2
        counters.stats["sum"] -= 0.5
        counters.seen[0] += 1
        counters.steps *= 2
        if how == "read":
            return x + counters.steps
        if how == "all":
            return x + sum(counters.stats.values())
        if how == "list":
            return x + len([n for n in counters.seen if n > 2])
        return x * 2

    traced = weft.trace(f)
    for _ in range(5):
        traced(weft.ones(1))
    assert vars(counters) == {"steps": 62, "stats": {"calls": 10, "sum": -2.5}, "seen": [5]}
    assert len(traced.recordings) == 1, [str(r) for r in traced.recordings]
    for how in ("read", "all", "list"):
        counters.__init__()  # type: ignore[misc]
        got = [traced(weft.ones(1), how).tolist() for _ in range(4)]
        state = vars(counters)
        counters.__init__()  # type: ignore[misc]
        assert got == [f(weft.ones(1), how).tolist() for _ in range(4)]
        assert state == vars(counters)
    counters.steps = 1.5  # of another class: not the same program
    traced(weft.ones(1))
    assert counters.steps == 5.0


def test_results_that_are_arguments_stay_themselves() -> None:
    traced = weft.trace(lambda x, y: {"x": x, "both": (y, y * 1), "n": 3, "none": None})
    x, y = weft.ones(2), weft.zeros(2)
    for _ in range(2):
        out = traced(x, y)
        assert out["x"] is x
        assert out["both"][0] is y
        assert out["both"][1] is not y
        assert (out["n"], out["none"]) == (3, None)


def test_one_tensor_given_twice() -> None:
    @weft.trace
    def f(a: Any, b: Any) -> Any:
        a += 1
        return a + b

    for _ in range(2):
        x, y = weft.zeros(1), weft.zeros(1)
        assert f(x, y).tolist() == [1]
        assert f(x, x).tolist() == [4]


def test_copies_share_memory_and_are_told_apart() -> None:
    f = weft.trace(lambda a, b: a * 10 + b)
    x = weft.tensor([1.0])
    assert f(x, x.clone()).tolist() == [11]
    assert f(x, weft.tensor([2.0])).tolist() == [12]
    assert len(f.recordings) == 1


def test_when_the_run_raises_nothing_is_written() -> None:
    state = weft.zeros(2)
    seen: list[int] = []

    @weft.trace
    def f(x: Any) -> Any:
        nonlocal state
        state += x
        seen.append(1)
        if x.sum() > 10:
            raise ValueError("too large")
        return state * 2

    assert f(weft.ones(2)).tolist() == [2, 2]
    for _ in range(2):
        with pytest.raises(ValueError, match="too large"):
            f(weft.full((2,), 10.0))
        assert state.tolist() == [1, 1]
        assert seen == [1]
    assert f(weft.ones(2)).tolist() == [4, 4]


def test_errors_at_replay_name_the_recorded_line() -> None:
    f = weft.trace(lambda x, i: x[i])
    assert f(weft.ones(3), weft.asarray([0, 2])).tolist() == [1, 1]
    with pytest.raises(IndexError) as caught:
        f(weft.ones(3), weft.asarray([0, 5]))
    assert "f = weft.trace(lambda x, i: x[i])" in str(caught.value)


# --- guards ------------------------------------------------------------------------------------


@dataclass
class Config:
    scale: float = 2.0
    layers: tuple[int, ...] = (1, 2)


def test_each_kind_of_input_is_guarded_by_type() -> None:
    f = weft.trace(lambda x: x * 2)
    for value in (
        weft.ones(2),
        weft.ones(3),
        weft.ones((2, 1)),
        weft.ones(2, dtype=weft.float64),
        weft.ones(2, dtype=weft.int64),
        leaf(2),
        weft.ones(2),
    ):
        same(f(value), value * 2)
    reasons = [recording.reason for recording in f.recordings]
    assert len(reasons) == 6
    assert "float32[2], now float32[3]" in reasons[1].replace("args[0] was ", "")


def test_config_objects_and_scalars() -> None:
    f = weft.trace(lambda x, config, k=1: x * config.scale * len(config.layers) + k)
    x = weft.ones(1)
    assert f(x, Config()).tolist() == [5]
    assert f(x, Config()).tolist() == [5]  # a fresh equal object fits
    assert len(f.recordings) == 1
    assert f(x, Config(scale=3.0)).tolist() == [7]
    assert f(x, Config(), k=4).tolist() == [8]
    assert f(x, Config(layers=(1,))).tolist() == [3]


def test_grad_mode_is_a_guard() -> None:
    f = weft.trace(lambda x: x * 2)
    x = leaf(2)
    assert f(x).requires_grad
    with weft.no_grad():
        assert not f(x).requires_grad
    assert f(x).requires_grad
    assert len(f.recordings) == 2


def test_modules_may_change() -> None:
    net = weft.nn.Sequential(weft.nn.Linear(2, 2), weft.nn.Tanh(), weft.nn.Dropout(0.0))
    f = weft.trace(lambda x: net(x))
    x = weft.ones((1, 2))

    def check(recordings: int) -> None:
        for _ in range(2):
            same(f(x), net(x))
        assert len(f.recordings) == recordings, [str(r) for r in f.recordings]

    check(1)
    with weft.no_grad():
        net[0].weight += 1
    check(1)  # a parameter is an input
    net.append(weft.nn.Linear(2, 3))
    check(2)
    net.eval()
    check(3)
    net[0] = weft.nn.Linear(2, 2)
    check(4)
    net[0].weight.requires_grad = False
    check(5)
    weft.nn.Linear(3, 3)  # modules elsewhere make no difference
    check(5)


SCALE = 2.0


def helper(x: Any) -> Any:
    return x * SCALE


def test_globals_of_functions_that_are_called() -> None:
    global SCALE
    f = weft.trace(lambda x: helper(x) + 1)
    assert f(weft.ones(1)).tolist() == [3]
    SCALE = 5.0
    try:
        assert f(weft.ones(1)).tolist() == [6]
    finally:
        SCALE = 2.0
    assert "SCALE" in f.recordings[1].reason


def test_default_arguments_and_code_may_change() -> None:
    def f(x: Any, k: float = 2.0) -> Any:
        return x * k

    traced = weft.trace(f)
    assert traced(weft.ones(1)).tolist() == [2]
    f.__defaults__ = (3.0,)
    assert traced(weft.ones(1)).tolist() == [3]

    def g(x: Any, k: float = 2.0) -> Any:
        return x - k

    f.__code__ = g.__code__
    assert traced(weft.ones(1)).tolist() == [-2]


def test_the_limit_stops_storms() -> None:
    f = weft.trace(lambda x, k: x * int(k), limit=3)
    x = weft.ones(1)
    for k in range(3):
        f(x, str(k))
    with pytest.warns(CaptureWarning, match="was recorded 3 times") as seen:
        assert f(x, "3").tolist() == [3]
    assert seen[0].filename == __file__
    assert f(x, "4").tolist() == [4]
    assert f(x, "1").tolist() == [1]
    assert len(f.recordings) == 3


@pytest.mark.parametrize("way", [weft.trace, weft.compile])
def test_a_function_that_keeps_recording_says_why_once(way: Any) -> None:
    @way
    def f(x: Any, k: str, n: int) -> Any:
        return x * int(k) if n else x.reshape(n + 1)

    for k in range(8):
        f(weft.ones(1), str(k), 1)
    with pytest.warns(CaptureWarning) as seen:
        f(weft.ones(1), "8", 1)
    [warning] = seen
    assert "f was recorded 8 times" in str(warning.message)
    assert f"k at {__file__}:" in str(warning.message)
    assert "(8 times): it is another text in each call" in str(warning.message)
    assert f"weft.{way.__name__}(limit=...)" in str(warning.message)
    assert warning.filename == __file__
    for k in range(9, 20):
        f(weft.ones(1), str(k), 1)  # no more warnings, which are errors here


def test_what_cannot_be_kept_runs_as_python() -> None:
    values = iter([1.0, 2.0, 3.0, 4.0])
    f = weft.trace(lambda x: x * next(values))
    with pytest.warns(CaptureWarning, match="cannot be kept") as seen:
        assert f(weft.ones(1)).tolist() == [1]
    assert seen[0].filename == __file__
    assert [f(weft.ones(1)).tolist() for _ in range(3)] == [[2], [3], [4]]


# --- paths -------------------------------------------------------------------------------------


def test_paths_share_their_beginning() -> None:
    @weft.trace
    def f(x: Any) -> Any:
        y = weft.exp(x).sum()
        if y > 10:
            y = y / 2
        if y > 4:
            return y * 2
        return y

    for value in (0.0, 1.0, 3.0, 2.0, 0.0):
        x = weft.full((2,), value)
        same(f(x), f.function(x))
    tree = f.tree()
    assert tree.count("recording") == 1
    assert tree.count("exp") == 1  # recorded once, run once, however many paths follow
    assert len(f.paths()) == 4 - 1  # y > 10 and y / 2 <= 4 cannot both be
    assert all(graph.verify() is None for graph in f.paths())


def test_a_long_loop_is_a_long_path() -> None:
    @weft.trace
    def count(x: Any) -> Any:
        n = 0
        while x > 0:
            x = x - 1
            n += 1
        return x + n

    for n in (3000, 5, 3000):
        assert count(weft.asarray(float(n))).item() == n
    assert "True" in count.tree()


def test_graphs_of_paths_can_be_printed_and_run() -> None:
    f = weft.trace(lambda x, w: weft.tanh(x @ w))
    x, w = weft.randn(2, 3), weft.randn(3, 1)
    f(x, w)
    (graph,) = f.paths()
    assert weft.parse_graph(str(graph)).equals(graph)
    same(graph(x, w), f(x, w))


# --- how it is used ----------------------------------------------------------------------------


def test_methods_modules_and_nesting() -> None:
    class Net(weft.nn.Module):
        def __init__(self, scale: float) -> None:
            super().__init__()
            self.scale = scale
            self.layer = weft.nn.Linear(2, 2)

        @weft.trace
        def forward(self, x: Any) -> Any:
            return self.layer(x) * self.scale

    one, two = Net(1.0), Net(2.0)
    x = weft.ones((1, 2))
    for net in (one, two, one):
        same(net(x), net.layer(x) * net.scale)
    outer = weft.trace(lambda x: one(x) + two(x))
    for _ in range(2):
        same(outer(x), one(x) + two(x))
    one.scale = 5.0
    same(outer(x), one.layer(x) * 5.0 + two(x))


def test_many_threads_record_once() -> None:
    f = weft.trace(lambda x: weft.tanh(x) * 2)
    x = weft.randn(10)
    want = weft.tanh(x) * 2
    got: list[Any] = []
    barrier = threading.Barrier(16)

    def run() -> None:
        barrier.wait()
        got.append(f(x))

    threads = [threading.Thread(target=run) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(f.recordings) == 1
    same(got, [want] * 16)


def test_warnings_stay_quiet_in_ordinary_use() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        f = weft.trace(lambda x: 1 / x)
        assert f(weft.zeros(1)).tolist() == [np.inf]
        assert f(weft.zeros(1)).tolist() == [np.inf]


class Counter:
    """A class of the user's that has names which Weft's own classes have, too."""

    captures = 3

    def __call__(self, x: Any) -> Any:
        return x * self.captures


@pytest.mark.parametrize("capture", [weft.trace, weft.compile])
def test_a_callable_with_an_attribute_named_captures(capture: Any) -> None:
    run = capture(Counter().__call__)
    held = Counter()
    through = capture(lambda x: held(x))
    for value in (1.0, 2.0):
        assert run(weft.asarray(value)).item() == through(weft.asarray(value)).item() == 3 * value
