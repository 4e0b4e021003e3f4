"""While one thread records a function, its tensors are for all other threads what they were."""

from __future__ import annotations

import copy
import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

import weft
from weft import nn
from weft.record.recorder import GraphRecorder


class Meanwhile:
    """Calls `work` in another thread at each op that the main thread records."""

    def __init__(self) -> None:
        self.work: Callable[[], Any] | None = None
        self.times = 0
        self.main = threading.get_ident()

    def __call__(self) -> None:
        if self.work is None or threading.get_ident() != self.main:
            return
        self.times += 1
        errors: list[BaseException] = []

        def run() -> None:
            try:
                assert self.work is not None
                self.work()
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        if errors:
            raise errors[0]


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Iterator[Meanwhile]:
    made, emit = Meanwhile(), GraphRecorder.emit

    def emit_and_work(self: Any, *args: Any) -> Any:
        made()
        out = emit(self, *args)
        made()
        return out

    monkeypatch.setattr(GraphRecorder, "emit", emit_and_work)
    yield made
    assert made.times, "nothing was recorded"


class Mine(weft.Tensor):
    """A class of tensors of the user's own."""

    __slots__ = ("note",)
    made: ClassVar[list[type]] = []

    def __init_subclass__(cls) -> None:
        Mine.made.append(cls)


def leaf(values: Any) -> weft.Tensor:
    return values.requires_grad_()


def mine(values: Any) -> weft.Tensor:
    tensor = Mine()
    tensor._data, tensor._node = values._data, None
    tensor.note = "mine"  # type: ignore[attr-defined]
    return tensor


#: Of which kind the tensor is that the function finds.
KINDS: dict[str, Callable[[Any], weft.Tensor]] = {
    "plain": lambda values: values,
    "leaf": leaf,
    "computed": lambda values: leaf(values) * 1,
    "parameter": nn.Parameter,
    "buffer": nn.Buffer,
    "class of the user": mine,
}

add_row = weft.compile(lambda t: t + t[0], backend="interpret")


def gradient_through(t: Any) -> Any:
    w = weft.ones(2, requires_grad=True)
    (t.detach() * w).sum().backward()
    return w.grad


def gradient_of(t: Any) -> Any:
    if not t.requires_grad:
        return None
    return weft.autograd.grad((t * weft.ones(2)).sum(), t)[0]


def recorded_here(t: Any) -> Any:
    return weft.compile(lambda: t * 2 + 1, backend="interpret", dynamic=True)()


#: What other threads do with the tensor.
USES: dict[str, Callable[[Any], Any]] = {
    "ops": lambda t: (t * 2 + t.sum(axis=0)).detach(),
    "facts": lambda t: (t.shape, len(t), t.ndim, t.size, t.dtype, t.requires_grad, t.is_leaf),
    "numbers": lambda t: (t.tolist(), float(t.sum()), bool((t > 0).all()), np.asarray(t.detach())),
    "text": lambda t: (str(t), repr(t)),
    "iteration": lambda t: [row.tolist() for row in t],
    "gradient through": gradient_through,
    "gradient of": gradient_of,
    "copies": lambda t: (copy.deepcopy(t.detach()), pickle.loads(pickle.dumps(t.detach()))),
    "class": lambda t: (t.__class__, isinstance(t, nn.Parameter), getattr(t, "note", None)),
    "replay": lambda t: add_row(t.detach()),
    "recording": recorded_here,
    "grad is None": lambda t: t.grad is None,
}


def same(a: Any, b: Any) -> bool:
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, (weft.Tensor, np.ndarray)):
        return a.__class__ is b.__class__ and bool((np.asarray(a) == np.asarray(b)).all())
    return bool(a == b)


@pytest.mark.parametrize("kind", KINDS)
def test_symbolic_sizes(kind: str, meanwhile: Meanwhile) -> None:
    """The sizes of what the function finds are symbolic; other threads use it meanwhile."""
    held = SimpleNamespace(cache=None)

    @weft.compile(backend="interpret", dynamic="auto")
    def f(x: Any) -> Any:
        assert type(held.cache) is held.cache.__class__
        return (held.cache * 2).sum() + (x * 3).sum() + (held.cache * x).sum(), held.cache[0] * x

    for rows in (3, 5, 6):
        values = weft.ones((rows, 2)) * 0.5
        held.cache = KINDS[kind](values)
        x = weft.ones((rows, 2))
        want = {name: use(held.cache) for name, use in USES.items()}

        def check(tensor: Any = held.cache, want: Any = want) -> None:
            for name, use in USES.items():
                assert same(want[name], use(tensor)), name

        meanwhile.work = check
        got = f(x)
        meanwhile.work = None
        assert float(got[0]) == rows * 2 * 4.5
        assert type(held.cache) is type(KINDS[kind](weft.ones(2)))
        check()
    if kind != "parameter":  # which keep their sizes
        assert len(f.recordings) == 2
    assert Mine.made == []


def test_training_step(meanwhile: Meanwhile) -> None:
    """Parameters that a step writes, with their gradients, and statistics of a module."""
    weft.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 1))
    optimizer = weft.optim.Adam(model.parameters(), lr=0.1)
    names = list(model.state_dict())

    @weft.compile(backend="interpret")
    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    for rows in (4, 6, 7):
        x = weft.ones((rows, 3)) * weft.arange(rows)[:, None]
        state = {name: t.detach().numpy(copy=True) for name, t in model.state_dict().items()}

        def check(state: Any = state, x: Any = x) -> None:
            for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
                np.testing.assert_array_equal(tensor.detach().numpy(), state[name])
            with weft.no_grad():
                y = nn.functional.linear(x, model[0].weight, model[0].bias)
            assert y.shape == (len(x), 4)
            assert bool((y == y).all())

        meanwhile.work = check
        step(x)
        meanwhile.work = None
        changed = [
            name
            for name, t in model.state_dict().items()
            if not np.array_equal(t.detach().numpy(), state[name])
        ]
        assert set(names) - set(changed) <= {"0.bias"}  # without effect, before a BatchNorm


def test_threads_record_with_the_same_tensor() -> None:
    """Each sees its own values of the graph."""
    shared = weft.ones((6, 2))
    errors: list[BaseException] = []
    barrier = threading.Barrier(4)

    def work() -> None:
        try:
            for _ in range(5):
                f = weft.compile(
                    lambda x: (shared * x).sum(axis=0) + shared.shape[0],
                    backend="interpret",
                    dynamic=True,
                )
                barrier.wait()
                assert f(shared).tolist() == [12.0, 12.0]
        except BaseException as error:
            errors.append(error)
            barrier.abort()

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.setswitchinterval(before)
    assert not errors, errors[0]
    assert type(shared) is weft.Tensor


def test_an_error_leaves_no_tensor_private() -> None:
    cache = weft.ones((3, 2))

    @weft.compile(backend="interpret", dynamic=True)
    def f(x: Any) -> Any:
        cache[0] = x[0]
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        f(cache)
    assert type(cache) is weft.Tensor
    assert cache.tolist() == [[1.0, 1.0]] * 3
