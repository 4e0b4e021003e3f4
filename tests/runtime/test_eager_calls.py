"""Eager calls on large arrays: what surrounds the kernels. Everything is large here."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import weft
import weft.nn.functional as F
from weft.autodiff.composite_node import CompositeNode
from weft.autodiff.node import LargeOpNode
from weft.base import config
from weft.core.large import large
from weft.ir.op import OPS
from weft.runtime.eager import kernels


@pytest.fixture(autouse=True)
def all_large(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before, large.start = large.start, 0
    yield
    large.start = before


def numpy_of(call: Callable[[], Any]) -> Any:
    """What a call gives by NumPy."""
    large.start, before = sys.maxsize, large.start
    try:
        return call()
    finally:
        large.start = before


def normal(*shape: int, seed: int = 0, dtype: str = "float32") -> weft.Tensor:
    numbers = np.random.default_rng(seed).standard_normal(shape)
    return weft.asarray(numbers).astype(dtype)


def ran(name: str) -> bool:
    """Whether some program of an op of this name was made."""
    return any(name in str(key[0]) for key in kernels._programs)


COMPOSITES: list[tuple[str, Callable[..., Any], int]] = [
    ("gelu", F.gelu, 1),
    ("gelu", lambda x: F.gelu(x, "tanh"), 1),
    ("silu", F.silu, 1),
    ("mish", F.mish, 1),
    ("elu", lambda x: F.elu(x, 0.5), 1),
    ("celu", lambda x: F.celu(x, 0.5), 1),
    ("selu", F.selu, 1),
    ("softplus", F.softplus, 1),
    ("logsigmoid", F.logsigmoid, 1),
    ("layer_norm", lambda x, w, b: F.layer_norm(x, (6,), w, b), 3),
    ("rms_norm", lambda x, w: F.rms_norm(x, (6,), w), 2),
    ("group_norm", lambda x: F.group_norm(x, 2), 1),
]


@pytest.mark.parametrize(("name", "function", "count"), COMPOSITES)
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_composites(name: str, function: Callable[..., Any], count: int, dtype: str) -> None:
    shapes = [(5, 4, 6), (6,), (6,)][:count]

    def run() -> list[Any]:
        given = [normal(*s, seed=i, dtype=dtype) for i, s in enumerate(shapes)]
        for x in given:
            x.requires_grad = True
        out = function(*given)
        weights = normal(*out.shape, seed=9, dtype=dtype)
        grads = weft.autograd.grad(out, given, weights)
        assert isinstance(out._node, CompositeNode) == (large.start == 0) or name == "selu"
        return [out.detach(), *grads]

    tolerance = {"float32": 3e-6, "float64": 1e-13, "bfloat16": 4e-2}[dtype]
    for got, want in zip(run(), numpy_of(run), strict=True):
        assert got.type == want.type
        a, b = got.numpy().astype(np.float64), want.numpy().astype(np.float64)
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * np.abs(b).max())


def test_gradients_of_gradients_of_composites() -> None:
    weft.check_grads(F.gelu, [normal(3, 4, dtype="float64")], order=2)
    given = [normal(3, 6, dtype="float64"), normal(6, seed=1, dtype="float64")]
    weft.check_grads(lambda x, w: F.layer_norm(x, (6,), w), given, order=2)


def test_histories() -> None:
    """A gradient needs its node only once, only some inputs, and a hook is called."""
    x = normal(4, 6)
    x.requires_grad = True
    y = F.gelu(x)
    assert y.grad_fn is not None
    assert y.grad_fn.name() == "GeluBackward"
    y.sum().backward()
    with pytest.raises(weft.errors.GradientError, match="freed"):
        y.sum().backward()
    seen: list[Any] = []
    y = F.gelu(x)
    y.register_hook(seen.append)
    y.sum().backward()
    assert len(seen) == 1
    w = normal(6, seed=1)
    w.requires_grad = True
    out = F.layer_norm(x, (6,), w)
    [only] = weft.autograd.grad(out.sum(), [w])
    want = numpy_of(lambda: weft.autograd.grad(F.layer_norm(x, (6,), w).sum(), [w])[0])
    np.testing.assert_allclose(only.numpy(), want.numpy(), rtol=1e-5)


def test_no_grad_and_transforms() -> None:
    x = normal(4, 6)
    x.requires_grad = True
    with weft.no_grad():
        assert F.gelu(x).grad_fn is None
    for transformed in (
        lambda: weft.vmap(F.gelu)(x),
        lambda: weft.jvp(F.gelu, (x,), (x,))[1],
        lambda: weft.grad(lambda x: F.gelu(x).sum())(x),
        lambda: weft.vmap(weft.grad(lambda x: F.gelu(x * 2).sum()))(x),
        lambda: weft.compile(F.gelu)(x),
    ):
        got, want = transformed(), numpy_of(transformed)
        np.testing.assert_allclose(
            got.detach().numpy(), want.detach().numpy(), rtol=1e-5, atol=1e-6
        )


def test_kernels_of_users_win() -> None:
    x = normal(4, 6)
    F.gelu(x), weft.erf(x)

    @weft.register_kernel("erf")
    def mine(x: Any) -> Any:
        return x * 0 + 3

    assert (weft.erf(x).numpy() == 3).all()
    np.testing.assert_allclose(F.gelu(x).numpy(), x.numpy() * 2, rtol=1e-6)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x @ x,
        lambda x: x + weft.ones((5, 5)),
        lambda x: weft.take(x, weft.asarray([99]), axis=0),
        lambda x: weft.concat([x, weft.ones((2, 2, 2))]),
        lambda x: F.layer_norm(x, (7,)),
    ],
)
def test_the_same_errors(call: Callable[..., Any]) -> None:
    x = normal(4, 6)
    with pytest.raises(weft.errors.WeftError) as mine:
        call(x)
    with pytest.raises(type(mine.value)) as theirs:
        numpy_of(lambda: call(x))
    assert str(mine.value).splitlines()[0] == str(theirs.value).splitlines()[0]
    weft.exp(x)  # a call after an error


def test_updates_in_place_write_to_nobody_elses_array() -> None:
    x = normal(8, 6)
    before = x.numpy(copy=True)
    alias, view, outside = x.detach(), x[2:], x.numpy()
    x += 1.0
    x *= normal(8, 6, seed=1)
    for other in (alias.numpy(), outside):
        np.testing.assert_array_equal(other, before)
    np.testing.assert_array_equal(view.numpy(), before[2:])
    rows = normal(8, 6)
    part = rows[2:5]
    kept = rows.numpy(copy=True)
    part += rows[3:6]
    np.testing.assert_array_equal(rows.numpy(), kept)
    np.testing.assert_array_equal(part.numpy(), kept[2:5] + kept[3:6])
    own = normal(8, 6)
    expected = own.numpy(copy=True)
    where = own._data.ctypes.data
    own += own
    np.testing.assert_array_equal(own.numpy(), expected + expected)
    own = normal(8, 6) * 1
    where = own._data.ctypes.data
    own += x
    assert own._data.ctypes.data == where


def test_outputs_that_are_inputs() -> None:
    """The gradient of an addition is the one that came: no kernel, and no shared buffer is
    written."""
    a, b = normal(4, 6), normal(6, seed=1)
    a.requires_grad = b.requires_grad = True
    g = normal(4, 6, seed=2)
    (a + b).backward(g)
    np.testing.assert_allclose(b.grad.numpy(), g.numpy().sum(0), rtol=1e-5)
    a.grad += 1
    assert not np.array_equal(a.grad.numpy(), g.numpy())


@pytest.mark.parametrize("name", ["Adam", "AdamW", "SGD", "RMSprop", "Adagrad", "NAdam", "RAdam"])
def test_optimizers(name: str) -> None:
    def train() -> list[Any]:
        p = weft.nn.Parameter(normal(7, 5))
        q = weft.nn.Parameter(normal(5, seed=1))
        more = {"momentum": 0.9} if name == "SGD" else {}
        optimizer = getattr(weft.optim, name)([p, q], lr=0.01, **more)
        for i in range(4):
            ((p * q).sin() * (i + 1)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        return [p.detach(), q.detach()]

    for got, want in zip(train(), numpy_of(train), strict=True):
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=2e-5, atol=1e-6)


def test_values_and_special_numbers() -> None:
    numbers = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, 3e38, -2.5]
    x = weft.asarray(np.array(numbers * 5, np.float32))
    for call in (
        weft.exp,
        weft.abs,
        weft.sign,
        weft.relu,
        weft.sqrt,
        lambda x: x / 0,
        lambda x: -x,
    ):
        got, want = call(x), numpy_of(lambda call=call: call(x))
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-6)
        assert (np.signbit(got.numpy()) == np.signbit(want.numpy()))[~np.isnan(want.numpy())].all()


def test_several_threads_at_once() -> None:
    inputs = [normal(64, 6, seed=i) for i in range(4)]
    want = [numpy_of(lambda x=x: weft.softmax(F.gelu(x) @ x.mT)).numpy() for x in inputs]
    wrong: list[int] = []

    def work(number: int) -> None:
        for _ in range(30):
            x = inputs[number]
            found = weft.softmax(F.gelu(x) @ x.mT).numpy()
            if not np.allclose(found, want[number], rtol=1e-4, atol=1e-6):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_after_fork() -> None:
    x = normal(40, 6)
    want = weft.exp(x).numpy()
    child = os.fork()
    if child == 0:
        same = np.array_equal(weft.exp(x).numpy(), want) and bool(weft.tanh(x).numpy().any())
        os._exit(0 if same else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_the_same_bits_again_and_for_any_number_of_threads() -> None:
    x = normal(300, 400)
    before = weft.get_num_threads()
    found = []
    for threads in (1, 2, before):
        weft.set_num_threads(threads)
        found.append([weft.softmax(x).numpy(), x.sum(axis=0).numpy(), (x @ x.mT).numpy()])
    for other in found[1:]:
        for a, b in zip(other, found[0], strict=True):
            np.testing.assert_array_equal(a, b)


def test_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for text, start in (("numpy", sys.maxsize), ("native", config.LARGE), ("7", 7)):
        monkeypatch.setenv("WEFT_EAGER", text)
        assert config.large_from() == start
    monkeypatch.setenv("WEFT_EAGER", "quick")
    with pytest.raises(weft.errors.RangeError, match="WEFT_EAGER"):
        config.large_from()
    before = config.LARGE
    x = normal(4, 6)
    x.requires_grad = True
    assert type((x * 2)._node) is LargeOpNode
    large.start = before
    assert type((x * 2)._node) is not LargeOpNode
    assert OPS["multiply"].kernels
