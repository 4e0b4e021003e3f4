"""The call of a program in machine code beside the same in Python: results, places, references."""

from __future__ import annotations

import ctypes
import gc
import sys
import threading
import weakref
from typing import Any

import numpy as np
import pytest

import weft
from weft.codegen.contract import RUN, Status
from weft.core.tensor import Tensor, wrap
from weft.ir.graph import Graph
from weft.ir.op import OPS
from weft.ir.signature import OutputRouting
from weft.ir.types import StackType
from weft.ops.stacks import STACK_NEW, STACK_POP, STACK_PUSH, stack_attrs
from weft.runtime import native_call as room
from weft.runtime.executable import instrumented
from weft.runtime.native import NativeProgram


def program(function: Any, *examples: Any, written: dict[int, int] | None = None) -> NativeProgram:
    return NativeProgram(weft.make_graph(function, *examples), written)


def tensor(*shape: int, dtype: Any = np.float32, start: int = 0) -> Tensor:
    size = int(np.prod(shape))
    return wrap(np.arange(start, start + size).astype(dtype).reshape(shape))


def step(w: Tensor, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    g = x * 2
    return w - g, g, weft.sum(w * x)


SHAPES = [(), (0,), (1,), (3, 4), (2, 0, 3), (1, 1, 1, 5)]
DTYPES = [np.float32, np.float64, np.int8, np.uint64, np.bool_, weft.bfloat16.numpy]


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: np.dtype(dtype).name)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_outputs_are_those_of_python(shape: tuple[int, ...], dtype: Any) -> None:
    x = tensor(*shape, dtype=dtype)
    made = program(lambda x: (weft.where(x == x, x, x), weft.concat([x.reshape(-1)] * 2)), x)
    assert type(made.call).__name__ == "builtin_function_or_method"
    for got, want in zip(made.call([x]), made._in_python()([x]), strict=True):
        assert got.__class__ is Tensor
        assert got._node is None
        assert got.grad is None
        assert got._data.dtype == want._data.dtype
        assert got.shape == want.shape
        assert got.numpy().tobytes() == want.numpy().tobytes()
        assert got._data.flags.owndata
        assert got._data.flags.writeable


@pytest.mark.parametrize(
    "routing", [OutputRouting(), OutputRouting({0: 0}), OutputRouting({0: 0}, {1: 0})]
)
def test_outputs_go_where_they_belong(routing: OutputRouting) -> None:
    w, x = tensor(3, start=5), tensor(3)
    old = w._data.copy()
    made = program(step, w, x, written={0: 0})
    call = made.routed_call(routing)
    assert call is not None
    rest = call([w, x])
    assert len(rest) == 3 - len(routing.values) - len(routing.gradients)
    new = w if routing.values else rest.pop(0)
    grad = w.grad if routing.gradients else rest.pop(0)
    assert grad is not None
    np.testing.assert_array_equal(new.numpy(), old - 2 * x.numpy())
    np.testing.assert_array_equal(grad.numpy(), 2 * x.numpy())
    np.testing.assert_array_equal(rest[0].numpy(), (old * x.numpy()).sum())


def test_an_array_that_nobody_else_has_is_written() -> None:
    w, x = tensor(8), tensor(8)
    call = program(step, w, x, written={0: 0}).routed_call(OutputRouting({0: 0}, {1: 0}))
    assert call is not None
    at = w._data.ctypes.data
    call([w, x])
    assert w._data.ctypes.data == at
    held = w._data  # a view, a copy of the name, another tensor
    before = held.copy()
    call([w, x])
    assert w._data.ctypes.data != at
    np.testing.assert_array_equal(held, before)


def test_an_array_that_may_not_be_written_is_not() -> None:
    w, x = tensor(8), tensor(8)
    w._data.flags.writeable = False
    call = program(step, w, x, written={0: 0}).routed_call(OutputRouting({0: 0}))
    assert call is not None
    call([w, x])
    np.testing.assert_array_equal(w.numpy(), -np.arange(8))
    assert w._data.flags.writeable


def test_one_tensor_that_is_two_inputs_is_not_written_while_it_is_read() -> None:
    w = tensor(4)
    call = program(step, w, w, written={0: 0}).routed_call(OutputRouting({0: 0}))
    assert call is not None
    other = wrap(w._data)
    call([w, other])
    np.testing.assert_array_equal(w.numpy(), -np.arange(4))
    np.testing.assert_array_equal(other.numpy(), np.arange(4))


def test_references_are_counted() -> None:
    w, x = tensor(4), tensor(4)
    call = program(step, w, x, written={0: 0}).routed_call(OutputRouting({0: 0}, {1: 0}))
    assert call is not None
    call([w, x])
    things = [None, Tensor, w, x, x._data, np.dtype(np.float32)]
    gc.collect()
    blocks = sys.getallocatedblocks()
    counts = [sys.getrefcount(thing) for thing in things]
    for _ in range(1000):
        call([w, x])
    assert abs(sys.getallocatedblocks() - blocks) < 50
    for thing, count in zip(things, counts, strict=True):
        assert abs(sys.getrefcount(thing) - count) < 50, thing
    count = sys.getrefcount(w._data)  # its tensor, and the argument
    assert count == 2


def test_inputs_in_another_order_are_made_dense() -> None:
    x = wrap(np.arange(12, dtype=np.float32).reshape(3, 4).T)
    made = program(lambda x: x * 2, tensor(4, 3))
    np.testing.assert_array_equal(made.call([x])[0].numpy(), x.numpy() * 2)
    np.testing.assert_array_equal(made.call([x[::-1]])[0].numpy(), x.numpy()[::-1] * 2)


def test_a_call_inside_of_a_call_and_one_after_an_error() -> None:
    inner: list[Any] = []

    def look(x: Tensor) -> Tensor:
        if float(x[0]) == 1:
            inner.append(made.call([tensor(2, start=5)]))
        if float(x[0]) == 2:
            raise ValueError("two")
        return x

    made = program(lambda x: weft.py_call(look, weft.spec(2), x) + 1, tensor(2))
    np.testing.assert_array_equal(made.call([tensor(2, start=1)])[0].numpy(), [2, 3])
    np.testing.assert_array_equal(inner[0][0].numpy(), [6, 7])
    with pytest.raises(ValueError, match="two"):
        made.call([tensor(2, start=2)])
    np.testing.assert_array_equal(made.call([tensor(2, start=3)])[0].numpy(), [4, 5])


def test_many_threads() -> None:
    made = program(lambda x: weft.cumulative_sum(x * 2), tensor(1000))
    wrong: list[int] = []

    def work(number: int) -> None:
        x = tensor(1000, start=number)
        want = np.cumsum(x.numpy() * 2)
        found = [made.call([x])[0].numpy() for _ in range(50)]
        wrong.extend(number for y in found if not np.allclose(y, want))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_no_memory_is_an_error_and_nothing_is_lost() -> None:
    """The array of the second output cannot be had: the first is let go of."""
    made = program(lambda x: (x + 1, weft.broadcast_to(x[0] * 1.0, (4,))), tensor(4))
    kinds = made._outputs.kinds
    kinds[1] = ((1 << 44,), np.float64)
    call = made.routed_call(OutputRouting())
    assert call is not None
    first = np.dtype(np.float32)
    gc.collect()
    before = sys.getrefcount(first)
    for _ in range(100):
        with pytest.raises(MemoryError):
            call([tensor(4)])
    gc.collect()
    assert sys.getrefcount(first) - before < 20


def test_without_it_the_same_is_done_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "places", lambda: None)
    room._ready.cache_clear()
    try:
        w, x = tensor(3), tensor(3)
        assert program(step, w, x).routed_call(OutputRouting()) is None
        assert [y.shape for y in program(step, w, x).call([w, x])] == [(3,), (3,), ()]
    finally:
        room._ready.cache_clear()


def test_an_instrument_sees_all_outputs_and_they_arrive() -> None:
    model = weft.nn.Linear(3, 2)
    sgd = weft.optim.SGD(model.parameters(), lr=0.5)

    @weft.compile(backend="native")
    def train(x: Tensor) -> Tensor:
        sgd.zero_grad()
        loss = model(x).sum()
        loss.backward()
        sgd.step()
        return loss

    x = tensor(4, 3)
    train(x)
    train(x)
    before = model.weight.numpy().copy()
    seen: list[tuple[str, int]] = []

    def instrument(executable: Any, inputs: Any, proceed: Any) -> Any:
        outputs = proceed(inputs)
        seen.append((executable.name, len(outputs)))
        return outputs

    with instrumented(instrument):
        loss = train(x)
    assert seen == [("train", 5)]
    assert loss.shape == ()
    assert model.weight.grad is not None
    want = before - 0.5 * model.weight.grad.numpy()
    np.testing.assert_array_equal(model.weight.numpy(), want)
    train(x)
    assert len(seen) == 1
    assert len(train.recordings) == 1


def test_functions_outlive_what_made_them() -> None:
    """What a function points to stays: collecting garbage reads it. It was given back once."""
    made = [program(lambda x, i=i: x * (2.0 + i), tensor(4)) for i in range(3)]  # type: ignore[misc]
    room._ready.cache_clear()
    gc.collect()
    others = [(ctypes.c_ubyte * 32)(*[255] * 32) for _ in range(2000)]  # where it may have been
    gc.collect()
    assert made[2].call([tensor(4)])[0].tolist() == [0, 4, 8, 12]
    del made, others
    gc.collect()


# --- results that are used again -----------------------------------------------------------------


def _as_is(y: Tensor) -> Any:
    return y


#: How somebody still has a result when its own name is gone.
HOLDERS = {
    "the tensor": _as_is,
    "its array": lambda y: y._data,
    "a view": lambda y: y.numpy()[1:],
    "another tensor": lambda y: y.detach(),
    "dlpack": lambda y: np.from_dlpack(y),
    "memory": lambda y: memoryview(y.numpy()),
}


#: Elements of a result: small, and more than fits into a page or two.
SIZES = [4, 30_000]


@pytest.mark.parametrize("rung", ["machine", "ctypes"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("hold", HOLDERS.values(), ids=HOLDERS)
def test_a_result_that_somebody_has_is_not_written(
    hold: Any, size: int, rung: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_CALL", rung)
    made = program(lambda x: x * 2, tensor(size))
    held: list[Any] = []
    for i in range(6):
        held.append(hold(made.call([tensor(size, start=i)])[0]))
        made.call([tensor(size, start=100)])
    for i, thing in enumerate(held):
        want = np.arange(i, i + size, dtype=np.float32) * 2
        got = np.asarray(thing.numpy() if isinstance(thing, Tensor) else thing)
        np.testing.assert_array_equal(got, want[-got.size :])


def _taken(y: Tensor) -> Any:
    old, y._data = y._data, np.zeros(3, np.int8)
    return old


#: What somebody may do to a result before letting go of it.
CHANGES: dict[str, Any] = {
    "nothing": lambda y: None,
    "asks for its gradient": lambda y: y.requires_grad_(),
    "gives it one": lambda y: setattr(y, "grad", tensor(*y.shape)),
    "gives it numbers": lambda y: setattr(y, "_data", np.zeros(3, np.int8)),
    "takes its array": _taken,
    "points to it": lambda y: weakref.ref(y),
    "adds to it": lambda y: y.__iadd__(1.0),
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_result_that_was_let_go_of_may_be_used_again(change: Any, size: int) -> None:
    made = program(lambda x: (x * 2, weft.sum(x)), tensor(size))
    kept: list[Any] = []
    for i in range(8):
        x = tensor(size, start=i)
        y, total = made.call([x])
        assert y.__class__ is Tensor
        assert (y._node, y.grad, y.dtype) == (None, None, weft.float32)
        np.testing.assert_array_equal(y.numpy(), x.numpy() * 2)
        np.testing.assert_allclose(total.item(), x.numpy().sum(dtype=np.float64), rtol=1e-5)
        assert not any(isinstance(old, weakref.ref) and old() is y for old in kept)
        kept.append(change(y))
        del y, total
        gc.collect()
    for i, old in enumerate(kept):
        if isinstance(old, np.ndarray):
            np.testing.assert_array_equal(old, np.arange(i, i + size) * 2)


@pytest.mark.parametrize("rung", ["machine", "ctypes"])
@pytest.mark.parametrize("size", [*SIZES, 10_000, 1_000_000])
def test_what_is_used_again_is_what_nobody_has(
    size: int, rung: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One rule for results of any size, and machine code for all of them."""
    monkeypatch.setenv("WEFT_CALL", rung)
    x = tensor(size)
    made = program(lambda x: x * 2, x)
    assert (type(made.call).__name__ == "builtin_function_or_method") == (rung == "machine")
    [y] = made.call([x])
    seen = id(y._data)
    del y
    [y] = made.call([x])
    assert id(y._data) == seen
    [z] = made.call([x])
    assert z._data is not y._data
    arrays = {id(y._data), id(z._data)}
    y._data = np.zeros(3, np.int8)  # its array is free, though the tensor is not
    [again] = made.call([x])
    assert id(again._data) == seen
    np.testing.assert_array_equal(again.numpy(), x.numpy() * 2)
    np.testing.assert_array_equal(z.numpy(), x.numpy() * 2)
    for _ in range(4):
        again = None  # type: ignore[assignment]
        [again] = made.call([x])
        assert id(again._data) in arrays


def test_gradients_take_turns() -> None:
    made = program(step, tensor(3), tensor(3))
    call = made.routed_call(OutputRouting({0: 0}, {1: 0}))
    assert call is not None
    w, x = tensor(3, start=5), tensor(3)
    arrays = []
    for _ in range(6):
        call([w, x])
        assert w.grad is not None
        np.testing.assert_array_equal(w.grad.numpy(), x.numpy() * 2)
        arrays.append(id(w.grad._data))
    assert len(set(arrays)) == 2
    mine = w.grad
    assert mine is not None
    for i in range(1, 4):
        call([w, tensor(3, start=i)])
    np.testing.assert_array_equal(mine.numpy(), x.numpy() * 2)


@pytest.mark.parametrize("size", SIZES)
def test_values_that_are_not_written_in_place_take_turns(size: int) -> None:
    """Both new values need both old ones: neither can be written where it goes."""
    v, w = tensor(size, start=5), tensor(size)
    first, second = v.numpy().copy(), w.numpy().copy()
    made = program(lambda v, w: (w * 2, v + w), v, w)
    assert not made.in_place
    call = made.routed_call(OutputRouting({0: 0, 1: 1}))
    assert call is not None
    mine: list[Any] = []
    arrays = []
    for i in range(8):
        assert call([v, w]) == []
        first, second = second * 2, first + second
        np.testing.assert_array_equal(v.numpy(), first)
        np.testing.assert_array_equal(w.numpy(), second)
        arrays.append(id(v._data))
        if i == 5:
            mine = [v.detach(), v.numpy().copy()]
    assert len(set(arrays[:6])) == 2
    np.testing.assert_array_equal(mine[0].numpy(), mine[1])


@pytest.mark.parametrize("size", SIZES)
def test_what_is_kept_goes_with_the_program(size: int) -> None:
    made = program(lambda x: x * 2, tensor(size))
    [y] = made.call([tensor(size)])
    kept = weakref.ref(y)
    del y
    assert kept() is not None
    del made
    gc.collect()
    assert kept() is None


# --- what is given is checked ---------------------------------------------------------------------


class _OtherTensor(Tensor):
    __slots__ = ()


WRONG_INPUTS = {
    "a tuple": lambda x, y: (x, y),
    "too few": lambda x, _y: [x],
    "too many": lambda x, y: [x, y, x],
    "none": lambda _x, _y: [],
    "no list": lambda x, _y: x,
    "an array": lambda x, y: [x, y._data],
    "a number": lambda x, _y: [x, 1.0],
    "None": lambda x, _y: [x, None],
    "a tensor without an array": lambda x, _y: [x, Tensor()],
    "another kind of array": lambda x, _y: [x, wrap(memoryview(bytearray(12)))],
}


@pytest.mark.parametrize("wrong", WRONG_INPUTS)
def test_a_call_is_given_a_list_of_its_tensors(wrong: str) -> None:
    x, y = tensor(3), tensor(3)
    made = program(lambda x, y: x + y, x, y)
    for _ in range(3):  # the first one has no memory yet
        with pytest.raises(weft.errors.GraphError, match=r"takes f32\[3\], f32\[3\]"):
            made.call(WRONG_INPUTS[wrong](x, y))
        np.testing.assert_array_equal(made.call([x, y])[0].numpy(), [0, 2, 4])
    call: Any = made.call
    with pytest.raises(weft.errors.GraphError):
        call()
    with pytest.raises(weft.errors.GraphError):
        call([x, y], [x, y])


@pytest.mark.parametrize("rung", ["machine", "ctypes"])
@pytest.mark.parametrize("size", [3, 100_000])
def test_a_call_by_hand_is_given_its_tensors(
    size: int, rung: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_CALL", rung)
    x, y = tensor(size), tensor(size)
    made = program(lambda x, y: x + y, x, y)
    call = made._in_python()
    for wrong in WRONG_INPUTS.values():
        with pytest.raises(weft.errors.GraphError, match=r"takes f32\["):
            call(wrong(x, y))
        np.testing.assert_array_equal(call([x, y])[0].numpy()[:3], [0, 2, 4])


@pytest.mark.parametrize("rung", ["machine", "ctypes"])
def test_a_call_with_stacks_is_given_its_tensors_and_stacks(
    rung: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_CALL", rung)
    x, y = tensor(3), tensor(3)
    kind = StackType(x.type)
    push, pop = Graph("push"), Graph("pop")
    push.set_inputs([x.type, y.type])
    empty = push.add(STACK_NEW, **stack_attrs(kind)).out
    total = push.add(OPS["add"], *push.inputs).out
    push.outputs = (push.add(STACK_PUSH, empty, total).out,)
    pop.set_inputs([x.type, kind])
    pop.outputs = (
        pop.add(OPS["add"], pop.inputs[0], pop.add(STACK_POP, pop.inputs[1]).outputs[1]).out,
    )
    pushing, popping = NativeProgram(push), NativeProgram(pop)
    (stack,) = pushing.call([x, y])
    wrong = [each(x, y) for each in WRONG_INPUTS.values()]
    for given in (*wrong, [x, stack]):
        with pytest.raises(weft.errors.GraphError, match=r"@push takes"):
            pushing.call(given)
    for given in (*wrong, [x, y], [stack, stack], [wrap(memoryview(bytearray(12))), stack]):
        with pytest.raises(weft.errors.GraphError, match=r"@pop takes"):
            popping.call(given)
    np.testing.assert_array_equal(popping.call([x, stack])[0].numpy(), [0, 3, 6])


def test_tensors_of_other_classes_and_arrays_of_other_classes_are_good() -> None:
    x = tensor(3)
    made = program(lambda x, y: x + y, x, x)
    other = _OtherTensor()
    other._data, other._node = np.arange(3, dtype=np.float32).view(np.recarray), None
    for _ in range(2):
        np.testing.assert_array_equal(made.call([other, x])[0].numpy(), [0, 2, 4])
        np.testing.assert_array_equal(made._in_python()([other, x])[0].numpy(), [0, 2, 4])


def test_inputs_that_are_not_aligned_are_copied() -> None:
    made = program(lambda x: x * 2, tensor(3))
    bytes_ = np.zeros(13, np.uint8)
    odd = bytes_[1:].view(np.float32)
    odd[:] = [1, 2, 3]
    assert not odd.flags.aligned
    for call in (made.call, made._in_python()):
        np.testing.assert_array_equal(call([wrap(odd)])[0].numpy(), [2, 4, 6])


def test_an_input_that_no_node_reads() -> None:
    """What a graph reads is picked from what was recorded: a list, as calls take no tuples."""

    def f(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        if c.sum() > 0:
            debug = (a * 2).sum()  # noqa: F841
        return b + c

    compiled = weft.compile(f, backend="native")
    for k in (1.0, -2.0, 3.0):
        a, b, c = (weft.full((3,), value) for value in (k, 2 * k, k + 1))
        np.testing.assert_array_equal(compiled(a, b, c).numpy(), f(a, b, c).numpy())


def test_nothing_runs_between_the_claim_of_the_memory_and_the_run() -> None:
    """A result that is used again drops its history, which may run anything: here a call of the
    same program in another thread, which stays inside while this one goes on."""
    inside, go_on = threading.Event(), threading.Event()
    found: list[Any] = []

    def wait(x: Tensor) -> Tensor:
        if float(x[0]) == 200.0:
            inside.set()
            assert go_on.wait(30)
        return x

    def f(x: Tensor) -> Tensor:
        y = weft.cumulative_sum(x * 2)  # lies in the arena
        return weft.py_call(wait, weft.spec(8), x + 0) + y

    def want(value: float) -> Any:
        return value + np.cumsum(np.full(8, value * 2))

    made = program(f, tensor(8))

    def in_another_thread() -> None:
        found.append(made.call([weft.full((8,), 200.0)])[0].numpy().copy())

    class Dropped:
        def __del__(self) -> None:
            threads.append(threading.Thread(target=in_another_thread))
            threads[0].start()
            assert inside.wait(30)

    threads: list[threading.Thread] = []
    (first,) = made.call([weft.full((8,), 1.0)])
    first._node = Dropped()  # type: ignore[assignment]
    del first
    (second,) = made.call([weft.full((8,), 3.0)])
    go_on.set()
    assert threads, "nothing was dropped"
    threads[0].join()
    np.testing.assert_array_equal(second.numpy(), want(3.0))
    np.testing.assert_array_equal(found[0], want(200.0))


# --- statuses ------------------------------------------------------------------------------------

RAISES = {
    Status.OUT_OF_MEMORY: MemoryError,
    Status.NO_ROOM: MemoryError,
    Status.INPUTS: weft.errors.GraphError,
    Status.INTERRUPTED: KeyboardInterrupt,
}


@pytest.mark.parametrize("status", RAISES)
def test_a_status_has_one_meaning(status: Status) -> None:
    """A run is done once, whatever it gives back. (A loop that was out of memory ran twice.)"""
    runs = []

    def run(_arrays: int, _arena: int, _run: int) -> int:
        runs.append(status)
        return status

    address = ctypes.c_void_p
    as_code = ctypes.CFUNCTYPE(ctypes.c_int32, address, address, address)(run)
    made = program(lambda x: x * 2, tensor(3))
    made.call([tensor(3)])
    call: Any = made.call
    call.__self__[room.FIELDS.index("entry")] = ctypes.cast(as_code, address).value
    with pytest.raises(RAISES[status]):
        made.call([tensor(3)])
    assert runs == [status]


def test_no_two_statuses_are_one_number() -> None:
    assert len({int(status) for status in Status}) == len(Status.__members__)
    assert len(set(RUN)) == len(RUN)
