"""State when a run raises, with threads, and when modules change; and what a steady state costs."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from state.table import World, equal, seen

import weft
from weft import nn
from weft.nn import functional as F

MODES = {"trace": weft.trace, "source": weft.compile}
by_mode = pytest.mark.parametrize("mode", MODES)
f64 = weft.float64


def vector(*numbers: float) -> Any:
    return weft.asarray(numbers, dtype=f64)


# --- nothing is written when the run raises -------------------------------------------------------


def world() -> World:
    w = World()
    w.h, w.steps, w.items = weft.zeros(2, dtype=f64), 0, [weft.ones(2, dtype=f64)]
    w.p = weft.tensor([1.0, 2.0], dtype=f64, requires_grad=True)
    w.optimizer = weft.optim.Adam([w.p], lr=0.1)
    w.layer = nn.BatchNorm1d(2).to(f64)
    w.index = weft.asarray([0, 1])
    return w


def writes(w: World, x: Any) -> Any:
    """All kinds of writes."""
    w.h += x
    w.steps += 1
    w.items.append(x * 2)
    w.noise = weft.rand(2, dtype=f64)
    y = w.layer(weft.stack([x, x * 2, -x]))
    w.optimizer.zero_grad()
    (w.p * y).sum().backward()
    w.optimizer.step()
    return y.detach()


def late_op(w: World, x: Any) -> Any:
    """An op that fails for the values it is given, after all writes."""
    y = writes(w, x)
    return y[0][w.index]


def late_raise(w: World, x: Any) -> Any:
    y = writes(w, x)
    if w.index.sum() > 5:
        raise ValueError("the index is too large")
    return y


def late_assert(w: World, x: Any) -> Any:
    y = writes(w, x)
    assert w.index.sum() < 5, "the index is too large"
    return y


def late_python(w: World, x: Any) -> Any:
    """Python itself fails, on a value that is a guard."""
    y = writes(w, x)
    return y / {2: 1.0}[len(w.index)]


def in_a_loop(w: World, x: Any) -> Any:
    y = writes(w, x)
    n = w.index.sum()
    while n > 0:
        y, n = y + y[0][w.index], n - 1
    return y


FAILING: dict[str, tuple[Callable[..., Any], Any]] = {
    "late op": (late_op, weft.asarray([0, 7])),
    "late raise": (late_raise, weft.asarray([0, 7])),
    "late assert": (late_assert, weft.asarray([0, 7])),
    "late Python": (late_python, weft.asarray([0, 1, 1])),
    "in a loop": (in_a_loop, weft.asarray([0, 7])),
}


@by_mode
@pytest.mark.parametrize("name", FAILING)
def test_nothing_is_written_when_the_run_raises(name: str, mode: str) -> None:
    """When it is recorded, when it is replayed, and afterwards all goes on as if nothing was."""
    function, bad = FAILING[name]
    good = weft.asarray([0, 1])
    x = vector(1, 2)
    weft.manual_seed(2)
    w, twin = world(), world()
    captured = MODES[mode](lambda x: function(w, x))

    def fails() -> None:
        before = seen([_seen(w), weft.get_rng_state()])
        w.index = bad
        with pytest.raises(Exception, match=r".") as caught:
            captured(x)
        assert not isinstance(caught.value, weft.errors.CaptureError)
        w.index = good
        assert equal(seen([_seen(w), weft.get_rng_state()]), before)

    fails()  # nothing is recorded yet
    fails()
    weft.manual_seed(3)
    for _ in range(3):
        captured(x)
        fails()
    got = seen(_seen(w)), seen(weft.get_rng_state())
    weft.manual_seed(3)
    for _ in range(3):
        function(twin, x)
    assert equal(got, (seen(_seen(twin)), seen(weft.get_rng_state())))


def _seen(w: World) -> Any:
    kept = {name: value for name, value in vars(w).items() if name not in ("optimizer", "index")}
    return kept, w.optimizer.state_dict()["state"]


# --- threads --------------------------------------------------------------------------------------


def at_once(count: int, work: Callable[[int], None]) -> None:
    """Run `work` in some threads that begin together; what one raises is raised here."""
    barrier, errors = threading.Barrier(count), []

    def run(number: int) -> None:
        barrier.wait()
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for error in errors:
        raise error


@by_mode
def test_threads_with_states_of_their_own(mode: str) -> None:
    """Sixteen first calls at once are one recording, and each thread finds its own state."""

    @MODES[mode]
    def step(state: Any, x: Any) -> Any:
        state["h"] = weft.tanh(state["h"] + x)
        state["total"] += state["h"]
        if state["h"].sum() > 0:
            state["total"] *= 2
        return state["h"] * 2

    def run(call: Any, number: int) -> Any:
        state = {"h": vector(0, 0), "total": vector(number, 1)}
        return [call(state, vector(number - 8, i)) for i in range(5)], state

    found: dict[int, Any] = {}
    at_once(16, lambda number: found.update({number: run(step, number)}))
    for number, got in found.items():
        assert equal(seen(got), seen(run(step.function, number))), number
    assert len(step.recordings) == {"trace": 2, "source": 1}[mode], step.recordings


@by_mode
def test_threads_that_share_a_state(mode: str) -> None:
    """Whoever holds the lock sees what the one before wrote."""
    w = World(total=vector(0, 0), calls=0)
    lock = threading.Lock()

    @MODES[mode]
    def add(x: Any) -> Any:
        w.total = w.total + x
        w.calls += 1
        return w.total.sum()

    def work(number: int) -> None:
        for _ in range(5):
            with lock:
                add(vector(number, 1))

    at_once(8, work)
    assert w.calls == 40
    assert w.total.tolist() == [5 * sum(range(8)), 40]
    assert len(add.recordings) == 1


# --- modules that change --------------------------------------------------------------------------


def deep(layers: int) -> Any:
    parts = [nn.Linear(3, 3), nn.Tanh(), nn.BatchNorm1d(3), nn.Dropout(0.2)]
    return nn.Sequential(
        *[nn.Sequential(*[type(p)(*_made(p)) for p in parts]) for _ in range(layers)]
    )


def _made(part: Any) -> tuple[Any, ...]:
    sizes = {nn.Linear: (3, 3), nn.BatchNorm1d: (3,), nn.Dropout: (0.2,)}
    return sizes.get(type(part), ())


def _set(name: str, value: Callable[[], Any]) -> Callable[[Any], None]:
    return lambda net: setattr(net[1][0], name, value())


#: What is done to a model, and how often it is recorded for that.
CHANGES: dict[str, tuple[Callable[[Any], Any], int]] = {
    "a layer more": (lambda net: net.append(nn.Linear(3, 3)), 1),
    "a layer less": (lambda net: net.pop(-1), 1),
    "another layer": (lambda net: net.__setitem__(0, nn.Linear(3, 3)), 1),
    "eval": (lambda net: net.eval(), 1),
    "eval of one layer": (lambda net: net[1].eval(), 1),
    "a parameter that learns no more": (
        _set("bias", lambda: nn.Parameter(weft.ones(3), requires_grad=False)),
        1,
    ),
    "no parameter": (_set("bias", lambda: None), 1),
    "another parameter, alike": (_set("weight", lambda: nn.Parameter(weft.ones((3, 3)))), 0),
    "a parameter frozen": (lambda net: net[0][0].weight.requires_grad_(False), 1),
    "all frozen": (lambda net: [p.requires_grad_(False) for p in net.parameters()], 1),
    "a number": (lambda net: setattr(net[0][3], "p", 0.5), 1),
    "a hook": (lambda net: net[0].register_forward_hook(lambda m, args, out: out * 2), 1),
    "another dtype": (lambda net: net.to(f64), 1),
    "new values": (lambda net: net.load_state_dict(deep(2).state_dict()), 0),
}


@by_mode
@pytest.mark.parametrize("name", CHANGES)
def test_a_change_of_a_module_records_at_most_once(name: str, mode: str) -> None:
    weft.manual_seed(0)
    net = deep(2)
    captured = MODES[mode](lambda x: net(x))
    x = weft.randn(4, 3)
    for _ in range(3):
        captured(x)
    assert len(captured.recordings) == 1
    change, recordings = CHANGES[name]
    change(net)
    x = x.astype(next(net.parameters()).dtype)
    for i in range(3):
        state, twin = weft.get_rng_state(), seen(net)
        got, after = captured(x), seen(net)
        again = weft.get_rng_state()
        weft.set_rng_state(state)
        _put_back(net, twin)
        want = net(x)
        assert equal(seen(got)[1], seen(want)[1]), i
        assert equal(after, seen(net))
        assert equal(seen(again), seen(weft.get_rng_state()))
    assert len(captured.recordings) == 1 + recordings, [str(r) for r in captured.recordings]


def _put_back(net: Any, state: Any) -> None:
    net.load_state_dict({name: weft.asarray(value[1]) for name, value in state[0]})


@by_mode
def test_a_buffer_that_gets_a_history(mode: str) -> None:
    """An in-place write changes no module, and yet what is computed now has a gradient."""
    net = deep(2).eval().requires_grad_(False)
    captured = MODES[mode](lambda x: net(x))
    x, w = weft.ones((2, 3)), weft.tensor([1.0, 2.0, 3.0], requires_grad=True)
    for _ in range(2):
        assert not captured(x).requires_grad
    net[1][2].running_mean += w
    for _ in range(2):
        (got,) = weft.autograd.grad(captured(x).sum(), w, retain_graph=True)
        (want,) = weft.autograd.grad(net(x).sum(), w, retain_graph=True)
        assert got.tolist() == want.tolist()
    assert len(captured.recordings) == 2
    assert "running_mean" in captured.recordings[1].reason


@by_mode
def test_a_change_between_training_steps_records_once(mode: str) -> None:
    net = deep(2)
    optimizer = weft.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

    @MODES[mode]
    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = (net(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    x = weft.randn(4, 3)

    def settles(recordings: int) -> None:
        for _ in range(4):
            step(x)
        assert len(step.recordings) == recordings, [str(r) for r in step.recordings]

    settles(1)
    net[0].eval()
    settles(2)
    net[1][0].bias.requires_grad_(False)
    net[1][0].bias.grad = None
    settles(3)
    optimizer.param_groups[0]["lr"] = 0.01  # an input
    settles(3)
    optimizer.param_groups[0]["momentum"] = 0.5
    settles(4)
    nn.Linear(2, 2).eval()  # modules elsewhere make no difference
    settles(4)


# --- what a steady state costs --------------------------------------------------------------------


def checks(captured: Any) -> list[str]:
    """The lines of the check that a call at a steady state goes through."""
    (root,) = captured._roots[-1:]
    return [line for line in root.enter.__doc__.splitlines() if line.startswith("        ")]


@by_mode
def test_guards_do_not_grow_with_the_layers(mode: str) -> None:
    """What modules hold is compared after one of them has changed, and is else one number."""
    counts, all_guards = [], []
    for layers in (2, 20):
        net = deep(layers)
        captured = MODES[mode](lambda x, net=net: F.relu(net(x)))
        for _ in range(2):
            captured(weft.ones((2, 3)))
        counts.append(len(checks(captured)))
        all_guards.append(len(captured.guards()))
    assert counts[0] == counts[1] < 75, counts
    assert all_guards[1] > 5 * all_guards[0]


@by_mode
def test_no_warning_at_a_steady_state(mode: str) -> None:
    net = deep(1)
    captured = MODES[mode](lambda x: net(x))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(100):
            captured(weft.ones((2, 3)))
    assert len(captured.recordings) == 1


@pytest.mark.parametrize("backend", ["interpret", "native"])
@by_mode
def test_a_function_may_seed(mode: str, backend: str) -> None:
    """The seed that a function sets itself decides what it draws, and what is drawn after it."""

    def seeded(x: Any, seed: int) -> Any:
        weft.manual_seed(seed)
        return x + weft.rand(3)

    captured = MODES[mode](seeded, backend=backend)
    x = weft.zeros(3)
    for seed in (3, 4, 3):
        want = [seeded(x, seed).tolist(), weft.rand(2).tolist()]
        for _ in range(2):
            assert [captured(x, seed).tolist(), weft.rand(2).tolist()] == want
