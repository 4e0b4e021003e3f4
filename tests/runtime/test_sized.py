"""One program for all sizes: its results are those of the interpreter, for sizes in any order."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import numpy as np
import pytest

import weft
import weft.nn.functional as F
from tests.support.sized import CASES, SIZES, inputs_of, specs_of
from tests.support.sized_kernels import ATTENTION, KERNEL_CASES
from tests.support.sized_windows import WINDOW_CASES
from weft.codegen.contract import NotNative
from weft.compile import run_passes
from weft.core.bind import bind
from weft.ir.interpret import interpret
from weft.ir.signature import OutputRouting
from weft.passes.pipeline import optimize
from weft.runtime import sized
from weft.runtime.interpreted import InterpretedProgram
from weft.runtime.native import NativeProgram, native
from weft.runtime.sized import SizedProgram
from weft.runtime.specialized import SpecializedProgram

_CASES = {**CASES, **KERNEL_CASES, **WINDOW_CASES}


@pytest.mark.parametrize("check", [False, True], ids=["plain", "checked"])
@pytest.mark.parametrize("name", _CASES)
def test_as_the_interpreter(name: str, check: bool) -> None:
    case = _CASES[name]
    graph = weft.make_graph(case.function, *specs_of(case))
    if name in KERNEL_CASES:  # as `weft.compile` has it: attention is found in such graphs
        graph = optimize(graph, run_passes())
    program = native(graph, check=check)
    assert isinstance(program, SizedProgram), program.why
    assert not program.native.calls
    if name in ATTENTION:
        assert any("attention" in kernel for kernel in program.native.kernels)
    ran = 0
    for seed, n in enumerate(SIZES if not check else (7, 1, 33)):
        inputs = inputs_of(case, n, seed)
        for state in graph.inputs[len(inputs) :]:  # of a generator
            assert state.tensor_type.shape == (2,)
            inputs.append(weft.asarray(np.array([7, seed], np.uint64)))
        try:
            wanted = interpret(graph, list(inputs), bind)
        except weft.errors.WeftError as error:
            with pytest.raises(type(error)):
                program(list(inputs))
            continue
        ran += 1
        for got, want in zip(program(list(inputs)), wanted, strict=True):
            assert got.type == want.type
            if case.exact:
                np.testing.assert_array_equal(got.numpy(), want.numpy())
            else:
                a, b = (x.numpy().astype(np.float64) for x in (got, want))
                np.testing.assert_allclose(a, b, rtol=case.rtol, atol=case.rtol * _scale(b))
    assert ran > 1


def _scale(array: Any) -> float:
    """Sums in another order differ by rounding of their largest terms."""
    return float(max(1.0, np.abs(array).max(initial=0.0)))


def test_one_code_serves_all_sizes() -> None:
    program = native(weft.make_graph(lambda x: weft.tanh(x).sum(axis=0), weft.spec(("B", 3))))
    assert isinstance(program, SizedProgram)
    for n in (4, 1, 9):
        program([weft.ones((n, 3))])
    assert program.sizes == [{"B": 4}, {"B": 1}, {"B": 9}]
    libraries = {id(part.library) for part in program.programs if isinstance(part, NativeProgram)}
    assert libraries == {id(program.native.library)}


def test_plans_of_any_size_are_printed() -> None:
    specs = [weft.spec(("B", 512)), weft.spec((512, 512))]
    program = native(weft.make_graph(lambda x, w: x @ w, *specs))
    assert isinstance(program, SizedProgram)
    assert "f32[B,512] as output 0, let_3 bytes of its own" in program.native.plan()


def test_memory_is_planned_for_the_sizes() -> None:
    """As well as in a program that is made for them alone."""

    def f(x: Any) -> Any:
        for _ in range(4):
            x = weft.exp(x - weft.sort(x, axis=0) * x.mean())
        return x

    graph = weft.make_graph(lambda x: (x - x.mean()) / (x * x).mean(), weft.spec(("B", 5)))
    program = native(graph)
    assert isinstance(program, SizedProgram)
    for n in (10, 100_000):
        x = weft.ones((n, 5))
        program([x])
        (alone,) = (weft.make_graph(lambda x: (x - x.mean()) / (x * x).mean(), x.type),)
        part = program.latest()
        fixed = NativeProgram(alone)
        assert isinstance(part, NativeProgram)
        assert part.arena <= fixed.arena + 4096  # a total of few elements needs no parts


def test_calls_into_python_get_the_sizes_of_the_run() -> None:
    graph = weft.make_graph(
        lambda x: weft.fft.irfft(weft.fft.rfft(x * 2, axis=0), axis=0) + 1, weft.spec(("B", 3))
    )
    program = native(graph)
    assert isinstance(program, SizedProgram)
    assert len(program.native.calls) == 2
    for n in (4, 10, 2):
        x = weft.asarray(np.arange(3 * n, dtype=np.float32).reshape(n, 3))
        np.testing.assert_allclose(program([x])[0].numpy(), x.numpy() * 2 + 1, rtol=1e-4)


def test_new_values_are_written_where_the_old_ones_lie() -> None:
    """A state of any size, and a parameter of a known one."""

    def f(state: Any, w: Any, x: Any) -> Any:
        return state * 0.9 + x, w - 0.1 * (state * x).sum(axis=0)

    graph = weft.make_graph(f, *map(weft.spec, (("B", 4), (4,), ("B", 4))))
    program = native(graph, {0: 0, 1: 1})
    assert isinstance(program, SizedProgram)
    call = program.routed_call(OutputRouting(values={0: 0, 1: 1}))
    assert call is not None
    for n in (3, 50, 3):
        state, w, x = weft.ones((n, 4)), weft.ones((4,)), weft.ones((n, 4)) * 2
        places = [id(state._data), id(w._data)]
        want = [y.numpy() for y in f(state, w, x)]
        assert call([state, w, x]) == []
        np.testing.assert_allclose(state.numpy(), want[0], rtol=1e-6)
        np.testing.assert_allclose(w.numpy(), want[1], rtol=1e-6)
        assert [id(state._data), id(w._data)] == places


def test_tools_look_at_the_program_for_the_last_sizes() -> None:
    program = native(weft.make_graph(lambda x: (x - x.mean()) * 2, weft.spec(("B", 3))))
    assert isinstance(program, SizedProgram)
    program([weft.ones((5, 3))])
    code = program.latest().machine_code()
    assert code is not None
    assert [value.type.shape for value in code.plan.graph.inputs] == [(5, 3)]
    name = code.plan.kernels[0]
    assert f"@{name}(" in code.llvm(name)
    x = weft.asarray(np.arange(15, dtype=np.float32).reshape(5, 3))
    outputs, raw, _ = code.timed().profiled([x])
    assert outputs[0].tolist() == program([x])[0].tolist()
    assert raw


def test_empty_tensors_are_interpreted() -> None:
    program = native(weft.make_graph(lambda x: (x.max(axis=1), x.sum()), weft.spec(("B", 3))))
    assert isinstance(program, SizedProgram)
    first, second = program([weft.zeros((0, 3))])
    assert (first.shape, second.tolist()) == ((0,), 0.0)
    assert isinstance(program.latest(), InterpretedProgram)


def test_any_order_of_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls are found by their sizes: of two inputs, where slots collide, and after some are
    forgotten; by machine code, and where there is none."""
    monkeypatch.setattr(sized, "MOST", 40)
    graph = weft.make_graph(
        lambda x, y: (x.sum(), y * 2 + x.shape[0]), weft.spec(("B", "T")), weft.spec(("T", 2))
    )
    program = native(graph)
    assert isinstance(program, SizedProgram)
    rng = np.random.default_rng(0)
    for _ in range(400):
        b, t = (int(n) for n in rng.integers(0, 8, 2))
        total, doubled = program.call([weft.ones((b, t)), weft.ones((t, 2))])
        assert total.item() == b * t
        assert doubled.tolist() == [[2.0 + b] * 2] * t
        assert program.sizes[-1] == {"B": b, "T": t}
    assert len(program.sizes) <= 40


class Own(weft.Tensor):
    """A class of tensors that is not Weft's."""


def test_what_is_no_list_of_tensors_is_left_to_python() -> None:
    program = native(weft.make_graph(lambda x: x * 2, weft.spec(("B",))))
    for size in (3, 4, 3, 4):
        program.call([weft.ones(size)])
    x = weft.asarray(np.arange(12.0, dtype=np.float32)[::4])  # not dense
    assert program.call([x])[0].tolist() == [0.0, 8.0, 16.0]
    own = Own()
    own._data = np.ones(4, np.float32)
    assert program.call([own])[0].tolist() == [2.0] * 4
    calls: Any = program.call
    for wrong in ((), ([],), ((weft.ones(3),),), ([None],), ([weft.ones(3)], 1)):
        with pytest.raises((weft.errors.WeftError, TypeError, AttributeError, IndexError)):
            calls(*wrong)
    assert program.call([weft.ones(3)])[0].tolist() == [2.0] * 3


def test_programs_and_their_calls_are_freed() -> None:
    program: Any = native(weft.make_graph(lambda x: x * 2, weft.spec(("B",))))
    for size in (3, 4, 3):
        program.call([weft.ones(size)])
    gone = weakref.ref(program), weakref.ref(program.native.library)
    del program
    gc.collect()
    assert [ref() for ref in gone] == [None, None]


def test_bugs_are_no_reason_for_a_program_per_set_of_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the error that says that sizes must be known is one."""
    graph = weft.make_graph(lambda x: x * 2, weft.spec(("B",)))
    errors: list[tuple[Exception, type]] = [
        (weft.errors.UnknownSizeError("a reason"), SpecializedProgram),
        (NotNative("a reason"), InterpretedProgram),
        (weft.errors.ShapeError("a bug"), Exception),
        (TypeError("a bug"), Exception),
    ]
    for error, becomes in errors:

        def generate(*_args: Any, error: Exception = error) -> Any:
            raise error

        with monkeypatch.context() as patched:
            patched.setattr(NativeProgram, "generate", generate)
            patched.setattr("weft.codegen.cache._from_disk", lambda *_args: None)
            if becomes is Exception:
                with pytest.raises(type(error), match="a bug"):
                    native(graph)
                continue
            program: Any = native(graph)
            assert type(program) is becomes
            assert "a reason" in (program.why if becomes is SpecializedProgram else program.reason)


def test_the_oldest_sizes_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sized, "MOST", 3)
    program = native(weft.make_graph(lambda x: x + 1, weft.spec(("B",))))
    assert isinstance(program, SizedProgram)
    for size in (1, 2, 3, 4, 1, 5, 6, 7, 1):
        assert program([weft.zeros(size)])[0].tolist() == [1.0] * size
    assert len(program.sizes) == 3
    assert program.sizes[-1] == {"B": 1}


def test_sizes_that_need_much_memory_go_earlier(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sized, "LEAST", 2)
    monkeypatch.setattr(sized, "ROOM", 1 << 16)

    def f(x: Any) -> Any:
        y = weft.exp(x - x.mean())
        return (y / y.mean()).mean(axis=0)

    program = native(weft.make_graph(f, weft.spec(("B", 4))))
    assert isinstance(program, SizedProgram)
    for size in range(1, 9):
        program([weft.ones((size, 4))])
    assert len(program.sizes) == 8
    for size in (1 << 16, 1 << 17, 1 << 18, 1 << 17):
        assert program([weft.ones((size, 4))])[0].tolist() == [1.0] * 4
    assert len(program.sizes) < 8
    assert program.sizes[-1] == {"B": 1 << 17}


ERRORS: list[tuple[list[tuple[int, ...]], str]] = [
    ([(3, 4), (2, 4)], "axis 0 has size 2, but B is 3 here"),
    ([(3, 5), (3, 4)], "axis 1 has size 5, not 4"),
    ([(3, 4)], "takes f32"),
    ([(3, 4), (3, 4, 1)], "takes f32"),
]


@pytest.mark.parametrize(("shapes", "words"), ERRORS)
def test_wrong_sizes(shapes: list[tuple[int, ...]], words: str) -> None:
    specs = [weft.spec(("B", 4)), weft.spec(("B", 4))]
    program = native(weft.make_graph(lambda x, y: x + y, *specs))
    assert program([weft.ones((2, 4)), weft.ones((2, 4))])[0].tolist() == [[2.0] * 4] * 2
    with pytest.raises(weft.errors.WeftError, match=words):
        program([weft.ones(shape) for shape in shapes])


def test_an_index_out_of_range_for_some_sizes() -> None:
    program = native(weft.make_graph(lambda x: x[4] * 2, weft.spec(("B",))))
    assert isinstance(program, SizedProgram)
    assert program([weft.arange(5, dtype=weft.float32)])[0].item() == 8
    with pytest.raises(weft.errors.IndexError, match="out of range"):
        program([weft.ones(3)])
    assert program([weft.arange(6, dtype=weft.float32)])[0].item() == 8


def test_from_many_threads() -> None:
    program = native(weft.make_graph(lambda x: (x - x.mean()) * 2, weft.spec(("B",))))
    assert isinstance(program, SizedProgram)
    bad: list[int] = []

    def work(first: int) -> None:
        for size in range(first, first + 50):
            x = np.arange(size % 7 + 1, dtype=np.float32)
            if not np.allclose(program([weft.asarray(x)])[0].numpy(), (x - x.mean()) * 2):
                bad.append(size)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not bad


def test_names_that_generated_names_could_meet() -> None:
    for name in ("at_0_0", "let_0", "max", "arena_0"):
        graph = weft.make_graph(lambda x: (x * x).sum() + x, weft.spec((weft.dim(name),)))
        program = native(graph)
        assert not isinstance(program, SizedProgram)
        assert program([weft.ones(3)])[0].tolist() == [4.0, 4.0, 4.0]


@pytest.mark.parametrize("name", ["q", "c", "n", "rows", "r"])
def test_names_that_variables_of_expressions_could_meet(name: str) -> None:
    graph = weft.make_graph(lambda x, w: x @ w, weft.spec((name, 32)), weft.spec((32, 48)))
    program = native(graph)
    assert isinstance(program, SizedProgram)
    rng = np.random.default_rng(0)
    w = rng.standard_normal((32, 48)).astype(np.float32)
    for rows in (3, 1, 9, 30, 200):
        x = rng.standard_normal((rows, 32)).astype(np.float32)
        made = program([weft.asarray(x), weft.asarray(w)])[0].numpy()
        np.testing.assert_allclose(made, x @ w, rtol=1e-4, atol=1e-4)


def test_a_second_process_generates_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("WEFT_CACHE", "1")

    def made() -> Any:
        return native(weft.make_graph(lambda x: (x - x.mean()) * 3, weft.spec(("B", 7))))

    first = made()
    assert isinstance(first, SizedProgram)
    assert first.native.seconds["text"] > 0
    again = made()
    assert again.native.seconds["text"] == 0.0
    x = weft.asarray(np.arange(21, dtype=np.float32).reshape(3, 7))
    assert again([x])[0].tolist() == first([x])[0].tolist()


@pytest.mark.parametrize("dtype", [weft.float32, weft.float64, weft.bfloat16])
@pytest.mark.parametrize("product", [lambda x: x @ x.T, lambda x: x.T @ x], ids=["xxT", "xTx"])
def test_products_of_any_number_of_terms(product: Any, dtype: Any) -> None:
    program = native(weft.make_graph(product, weft.spec((3, "B"), dtype)))
    assert isinstance(program, SizedProgram), program.why
    for terms in range(35):  # between a block that is transposed and a vector, too
        x = weft.asarray(np.random.default_rng(terms).integers(-3, 4, (3, terms))).astype(dtype)
        np.testing.assert_array_equal(program([x])[0].numpy(), product(x).numpy())


@pytest.mark.parametrize("score", [2.0, float("inf"), float("-inf"), float("nan"), 1e30])
@pytest.mark.parametrize("dtype", [weft.float32, weft.float64])
def test_attention_to_one_key(dtype: Any, score: float) -> None:
    def attended(q: Any, k: Any, v: Any) -> Any:
        def loss(q: Any, k: Any, v: Any) -> Any:
            out = F.scaled_dot_product_attention(q, k, v)
            return (out * out).sum(), out

        return weft.grad(loss, argnums=(0, 1, 2), has_aux=True)(q, k, v)

    shapes = [(2, "T", 8), (2, "T", 8), (2, "T", 8)]
    graph = optimize(
        weft.make_graph(attended, *(weft.spec(shape, dtype) for shape in shapes)), run_passes()
    )
    program = native(graph)
    assert isinstance(program, SizedProgram), program.why
    assert any("attention_grad" in kernel for kernel in program.native.kernels)
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((2, 1, 8)) for _ in range(3))
    q[0, 0], k[0, 0] = 0, 0
    q[0, 0, 3], k[0, 0, 3] = score, 1.0
    given = [weft.asarray(array).astype(dtype) for array in (q, k, v)]
    for got, want in zip(program(given), interpret(graph, given, bind), strict=True):
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-5, atol=1e-5)
