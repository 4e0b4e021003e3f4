"""Machine code as users meet it: errors, threads, layouts, interrupts, the cache, the interface."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
import weft.nn.functional as F
from weft import nn
from weft.core.bind import bind
from weft.ir.graph import extract
from weft.ir.interpret import Runner, interpret
from weft.runtime.native import NativeProgram


def native(function: Any) -> Any:
    return weft.compile(function, backend="native")


def program(function: Any, *args: Any) -> NativeProgram:
    return NativeProgram(weft.make_graph(function, *args))


def test_native_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WEFT_BACKEND")
    f = weft.compile(lambda x: weft.tanh(x) * 2)
    x = weft.randn(100)
    np.testing.assert_allclose(f(x).numpy(), np.tanh(x.numpy()) * 2, rtol=1e-6)


def test_unknown_backends_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(weft.errors.RangeError, match="no backend 'gpu'"):
        weft.compile(lambda x: x, backend="gpu")
    monkeypatch.setenv("WEFT_BACKEND", "nothing")
    with pytest.raises(weft.errors.RangeError, match="no backend 'nothing'"):
        weft.trace(lambda x: x)


# --- errors -------------------------------------------------------------------------------------

WRONG: list[tuple[str, Any, tuple[Any, ...]]] = [
    ("take", lambda x, i: weft.take(x, i, axis=0), (weft.ones((3, 2)), weft.tensor([0, 5]))),
    ("gather", lambda x, i: x[i], (weft.ones((3, 2)), weft.tensor([0, -4]))),
    ("embedding", lambda w, i: F.embedding(i, w), (weft.ones((3, 2)), weft.tensor([3]))),
    ("cross entropy", F.cross_entropy, (weft.ones((2, 3)), weft.tensor([0, 7]))),
    ("inverse", lambda x: weft.linalg.inv(x), (weft.zeros((2, 2)),)),
]


@pytest.mark.parametrize(("name", "function", "args"), WRONG, ids=[row[0] for row in WRONG])
def test_errors_are_those_of_eager(name: str, function: Any, args: tuple[Any, ...]) -> None:
    with pytest.raises(weft.errors.WeftError) as eager:
        function(*args)
    captured = native(function)
    for _ in range(2):
        with pytest.raises(type(eager.value)) as found:
            captured(*args)
        assert found.value.message == eager.value.message
    good = [x * 0 if x.dtype.kind == "int" else x + weft.eye(*x.shape[-2:]) for x in args]
    np.testing.assert_allclose(captured(*good).numpy(), function(*good).numpy(), rtol=1e-6)


def test_an_error_of_a_call_into_python_comes_through() -> None:
    def look(x: Any) -> Any:
        if float(x.sum()) < 0:
            raise ValueError("negative")
        return x * 2

    captured = native(lambda x: weft.py_call(look, weft.spec(2), x) + 1)
    assert captured(weft.ones(2)).tolist() == [3, 3]
    with pytest.raises(ValueError, match="negative"):
        captured(-weft.ones(2))
    assert captured(weft.ones(2)).tolist() == [3, 3]


# --- inputs and results -------------------------------------------------------------------------


def test_inputs_of_any_layout() -> None:
    base = np.arange(24, dtype=np.float32).reshape(4, 6)
    run = program(lambda x: x * 2, weft.ones((4, 6)))
    turned = np.asfortranarray(base)
    backward = np.ascontiguousarray(base[::-1])[::-1]
    apart = np.repeat(base, 2, axis=1)[:, ::2]
    for array in (base, turned, backward, apart):
        assert (run([weft.asarray(array, copy=False)])[0].numpy() == base * 2).all()


def test_results_are_not_written_again() -> None:
    run = program(lambda x: x + 1, weft.ones(100_000))
    results = [run([weft.full(100_000, float(i))])[0] for i in range(6)]
    parts = [run([weft.full(100_000, float(i))])[0][:10] for i in range(6)]
    for i in range(6):
        assert (results[i].numpy() == i + 1).all()
        assert (parts[i].numpy() == i + 1).all()


def test_a_free_result_is_used_again() -> None:
    run = program(lambda x: x + 1, weft.ones(100_000))
    x = weft.ones(100_000)
    seen = {run([x])[0].numpy().ctypes.data for _ in range(10)}
    assert len(seen) <= 2


def test_results_that_are_inputs_constants_or_equal() -> None:
    def f(x: Any) -> Any:
        y = x * 2
        return x, y, y, weft.full((2,), 3.0), weft.tensor(np.arange(5000.0)), x.T, y.T

    x = weft.randn(3, 4)
    for got, want in zip(program(f, x)([x]), f(x), strict=True):
        assert got.type == want.type
        assert (got.numpy() == want.numpy()).all()


def test_the_run_tells_sizes_that_depend_on_data() -> None:
    from weft.runtime.native import native as executable

    graph = weft.make_graph(lambda x: weft.unique_values(x), weft.spec(5))
    run = executable(graph)
    assert isinstance(run, NativeProgram)
    assert run.calls == []
    assert run([weft.tensor([3.0, 1.0, 3.0, 1.0, 2.0])])[0].tolist() == [1, 2, 3]


def test_wrong_inputs_are_refused() -> None:
    run = program(lambda x, y: x + y, weft.ones(2), weft.ones(2))
    for inputs in ([weft.ones(2)], [weft.ones(3)] * 2, [weft.ones(2, dtype=weft.float64)] * 2):
        with pytest.raises(weft.errors.GraphError, match="takes f32"):
            run(inputs)


# --- stacks that leave a run --------------------------------------------------------------------


def _halving(x: Any, w: Any) -> Any:
    while (x * x).sum() > 0.01:
        x = 0.9 * weft.tanh(x @ w)
    return x.sum()


def _slopes(function: Any, x: Any, w: Any, order: int) -> list[Any]:
    (slope,) = weft.autograd.grad(function(x, w), w, create_graph=order > 1)
    if order == 1:
        return [slope]
    return [slope, weft.autograd.grad((slope * slope).sum(), w)[0]]


@pytest.mark.parametrize("order", [1, 2])
def test_a_backward_outside_of_a_loop(order: int) -> None:
    draw = weft.Generator(0)
    x = weft.randn(4, 8, generator=draw, dtype=weft.float64)
    w = (weft.randn(8, 8, generator=draw, dtype=weft.float64) * 0.2).requires_grad_()
    captured = native(_halving)
    want = _slopes(_halving, x, w, order)
    for _ in range(3):
        for got, expected in zip(_slopes(captured, x, w, order), want, strict=True):
            np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=1e-9, atol=1e-12)
    loss = captured(x, w)
    for times in (1, 2):
        loss.backward(retain_graph=True)
        np.testing.assert_allclose(w.grad.numpy(), times * want[0].numpy(), rtol=1e-9, atol=1e-12)


def test_native_stacks_can_be_interpreted() -> None:
    """The forward as machine code, the backward op by op: its graph is given the stacks."""
    x = weft.ones((2, 3)) * 0.5

    def forward(x: Any) -> Any:
        return weft.while_loop(lambda v: (v * v).sum() < 1000, lambda v: v * v + v * 1.5, x)

    grown = weft.make_graph(lambda x: weft.vjp(forward, x)[1](weft.ones((2, 3))), x)
    loop = next(node for node in grown.nodes if node.op.name == "while")
    stack = next(v for v in loop.outputs if not hasattr(v.type, "dtype"))
    at = grown.nodes.index(loop) + 1
    first = extract("first", grown.inputs, grown.nodes[:at], [*loop.outputs])
    run = NativeProgram(first)
    found = run([x])
    popped = found[loop.outputs.index(stack)]
    want = interpret(first, [x], bind)[loop.outputs.index(stack)]
    here = Runner(bind, {})
    count = 0
    while want:
        want, expected = want
        popped, top = popped.popped(here)
        np.testing.assert_allclose(top.numpy(), expected.numpy(), rtol=1e-6)
        count += 1
    assert count > 2
    with pytest.raises(weft.errors.IndexError, match="the stack is empty"):
        popped.popped(here)


# --- threads ------------------------------------------------------------------------------------


def _work(x: Any, w: Any) -> Any:
    h = weft.tanh(x @ w)
    return (h.sum(), h.sum(axis=0), weft.softmax(h, axis=1), h.max(), weft.sort(h, axis=0))


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    x, w = weft.randn(300, 257), weft.randn(257, 193)
    run = program(_work, x, w)
    before = weft.get_num_threads()
    found: list[list[bytes]] = []
    try:
        for threads in (1, 2, 3, 7):
            weft.set_num_threads(threads)
            found.append([out.numpy().tobytes() for out in run([x, w])])
    finally:
        weft.set_num_threads(before)
    assert all(outs == found[0] for outs in found)


def test_many_python_threads_at_once() -> None:
    x, w = weft.randn(120, 64), weft.randn(64, 80)
    run = program(_work, x, w)
    want = [out.numpy().tobytes() for out in run([x, w])]
    with ThreadPoolExecutor(8) as pool:
        for outs in pool.map(lambda _: run([x, w]), range(64)):
            assert [out.numpy().tobytes() for out in outs] == want


def test_sixteen_first_calls_compile_once() -> None:
    f = native(lambda x: weft.tanh(x) * 2)
    x = weft.randn(10)
    barrier = threading.Barrier(16)

    def run(_: int) -> list[float]:
        barrier.wait()
        return f(x).tolist()  # type: ignore[no-any-return]

    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(run, range(16)))
    assert len(f.recordings) == 1
    assert all(out == found[0] for out in found)


# --- other processes ----------------------------------------------------------------------------


def _python(folder: Path, code: str, **variables: str) -> str:
    script = folder / "script.py"  # compiled functions need a source file
    script.write_text(code)
    environment = {**os.environ, "WEFT_BACKEND": "native", **variables}
    done = subprocess.run(
        [sys.executable, str(script)], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


SAME = """
import numpy as np, weft
from weft.runtime.native import NativeProgram
weft.manual_seed(1)
x, w = weft.randn(37, 50), weft.randn(50, 21)
def f(x, w):
    h = weft.softmax(weft.tanh(x @ w), axis=1)
    return h, weft.exp(h).sum(axis=0), (h.T @ x)[:, 3], weft.argsort(x, axis=1)
for got, want in zip(NativeProgram(weft.make_graph(f, x, w))([x, w]), f(x, w)):
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=2e-5, atol=1e-6)
print("same")
"""


@pytest.mark.parametrize("features", ["", "-avx512f", "-avx512f,-avx2"])
@pytest.mark.parametrize("threads", ["1", "2"])
def test_other_targets_and_threads(features: str, threads: str, tmp_path: Path) -> None:
    found = _python(tmp_path, SAME, WEFT_TARGET_FEATURES=features, WEFT_NUM_THREADS=threads)
    assert found == "same\n"


def test_the_second_process_finds_the_code(tmp_path: Path) -> None:
    code = SAME + "import weft.codegen.llvm as llvm, sys; print('llvmlite.binding' in sys.modules)"
    first = _python(tmp_path, code, WEFT_CACHE_DIR=str(tmp_path))
    second = _python(tmp_path, code, WEFT_CACHE_DIR=str(tmp_path))
    assert first == "same\nTrue\n"
    assert second == "same\nFalse\n"


def test_interrupts_end_a_long_run(tmp_path: Path) -> None:
    code = """
import os, signal, threading, time, weft
f = weft.compile(lambda x: weft.while_loop(lambda c: c > 0, lambda c: c * 0.5 + 0.5, x))
small = f(weft.tensor(-1.0))
threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
start = time.monotonic()
try:
    f(weft.tensor(1.0))
except KeyboardInterrupt:
    print("ended", time.monotonic() - start < 3, float(f(weft.tensor(-2.0))))
"""
    assert _python(tmp_path, code) == "ended True -2.0\n"


def test_after_a_fork(tmp_path: Path) -> None:
    code = """
import os, numpy as np, weft
x = weft.randn(400, 400)
f = weft.compile(lambda x: x @ x)
want = f(x).numpy()
child = os.fork()
if child == 0:
    os._exit(0 if (f(x).numpy() == want).all() else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), (f(x).numpy() == want).all())
"""
    assert _python(tmp_path, code) == "0 True\n"


# --- what is kept -------------------------------------------------------------------------------


def _trained(optimizer_class: Any, **options: Any) -> tuple[nn.Module, Any, Any]:
    weft.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 30), nn.Tanh(), nn.Linear(30, 4))
    optimizer = optimizer_class(model.parameters(), **options)

    @native
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return model, optimizer, step


def test_parameters_are_updated_where_they_lie() -> None:
    model, optimizer, step = _trained(weft.optim.Adam, lr=0.01)
    x, y = weft.randn(16, 20), weft.randint(0, 4, (16,))
    for _ in range(3):
        step(x, y)
    held = [*model.parameters(), *(t for s in optimizer.state.values() for t in s.values())]
    held = [t for t in held if isinstance(t, weft.Tensor) and t.size > 1]
    before = [t.numpy().ctypes.data for t in held]
    values = [t.numpy(copy=True) for t in held]
    step(x, y)
    assert [t.numpy().ctypes.data for t in held] == before
    assert all((t.numpy() != value).any() for t, value in zip(held, values, strict=True))


def test_what_others_hold_is_not_written() -> None:
    model, _, step = _trained(weft.optim.SGD, lr=0.1)
    x, y = weft.randn(16, 20), weft.randint(0, 4, (16,))
    for _ in range(3):
        step(x, y)
    weight = model[0].weight
    kept = weight.detach()  # a value of its own
    part = weight[3:5].detach()
    array = weight.detach().numpy()
    copies = [kept.numpy(copy=True), part.numpy(copy=True), array.copy()]
    for _ in range(3):
        step(x, y)
    assert (kept.numpy() == copies[0]).all()
    assert (part.numpy() == copies[1]).all()
    assert (array == copies[2]).all()
    assert (weight.detach().numpy() != copies[0]).any()


def test_values_that_are_exchanged() -> None:
    a, b = weft.ones(1000), weft.full(1000, 2.0)

    @native
    def exchange() -> None:
        first, second = b + 1, a * 2
        a[...] = first
        b[...] = second

    want = [1.0, 2.0]
    for _ in range(5):
        exchange()
        want = [want[1] + 1, want[0] * 2]
        assert [a.numpy()[0], a.numpy()[-1], b.numpy()[0]] == [want[0], want[0], want[1]]


def test_a_step_that_raises_writes_nothing() -> None:
    model, _, step = _trained(weft.optim.SGD, lr=0.1)
    x, y = weft.randn(16, 20), weft.randint(0, 4, (16,))
    for _ in range(3):
        step(x, y)
    before = [p.detach().numpy().copy() for p in model.parameters()]
    with pytest.raises(weft.errors.IndexError, match="none of the 4 classes"):
        step(x, y + 10)
    for p, value in zip(model.parameters(), before, strict=True):
        assert (p.detach().numpy() == value).all()


def test_no_call_into_python_in_a_training_step() -> None:
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(36, 5),
    )
    made: list[NativeProgram] = []

    class Kept(NativeProgram):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            made.append(self)

    import weft.runtime.native as room

    original, room.NativeProgram = room.NativeProgram, Kept  # type: ignore[misc]
    try:
        optimizer = weft.optim.Adam(model.parameters(), lr=0.01)

        @native
        def step(x: Any, y: Any) -> Any:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        x, y = weft.randn(6, 1, 8, 8), weft.tensor([0, 1, 2, 3, 4, 0])
        losses = [float(step(x, y)) for _ in range(20)]
    finally:
        room.NativeProgram = original  # type: ignore[misc]
    assert losses[-1] < losses[0]
    assert made
    assert all(not found.calls for found in made)
