"""Check mode (`WEFT_CHECK=1`, `weft.compile(check=True)`): faults that are planted in a kernel are
found, with the kernel, the op and the line; programs that are right run as they do without it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from native_runs import check_program
from programs import PROGRAMS
from programs.table import Program

import weft
import weft.nn.functional as F
from weft.base import config
from weft.base.errors import InternalError
from weft.codegen.checks.instructions import alignment, called, size_of, type_of
from weft.codegen.kernel import PARAMS, Kernel, argument
from weft.codegen.loops import columns
from weft.codegen.tables import KERNELS
from weft.codegen.text import Function, Module
from weft.runtime.checked import CheckedProgram
from weft.runtime.executable import instrumented
from weft.runtime.native import NativeProgram

HERE = Path(__file__).name
N = 40


def line_of(text: str) -> int:
    lines = Path(__file__).read_text().splitlines()
    (found,) = [number for number, line in enumerate(lines, 1) if line.endswith(f"# {text}")]
    return found


def checked(function: Any) -> Any:
    return weft.compile(function, backend="native", check=True)


# --- planted faults ------------------------------------------------------------------------------
# Each takes the place of the kernel of cumulative_sum over N float32: (f, address of x, of the
# result, of its own memory).

Body = Callable[[Function, str, str, str], None]


def _at(f: Function, base: str, place: int | str, kind: str = "float") -> str:
    return f(f"getelementptr {kind}, ptr {base}, i64 {place}")


def _copy(f: Function, x: str, out: str, shift: int, to: int = 0) -> None:
    """out[i + to] = x[i + shift]"""
    with f.loop("0", str(N)) as i:
        value = f(f"load float, ptr {_at(f, x, f(f'add i64 {i}, {shift}'))}, align 4")
        f.do(f"store float {value}, ptr {_at(f, out, f(f'add i64 {i}, {to}'))}, align 4")


def one_too_far(f: Function, x: str, out: str, _own: str) -> None:
    _copy(f, x, out, 1)


def into_another_buffer(f: Function, x: str, out: str, _own: str) -> None:
    """The result lies 256 bytes behind the operand."""
    _copy(f, x, out, 0)
    value = f(f"load float, ptr {_at(f, x, 64 + 5)}, align 4")
    f.do(f"store float {value}, ptr {out}, align 4")


def one_before(f: Function, x: str, out: str, _own: str) -> None:
    _copy(f, x, out, -1)


def writes_beyond(f: Function, x: str, out: str, _own: str) -> None:
    _copy(f, x, out, 0, 1)


def vector_beyond(f: Function, x: str, out: str, _own: str) -> None:
    _copy(f, x, out, 0)
    value = f(f"load <8 x float>, ptr {_at(f, x, N - 4)}, align 4")
    f.do(f"store <8 x float> {value}, ptr {_at(f, out, N - 8)}, align 4")


def masked_beyond(f: Function, x: str, out: str, _own: str) -> None:
    _copy(f, x, out, 0)
    name = f.module.declare(
        "<8 x float>", "llvm.masked.load.v8f32.p0", "ptr, <8 x i1>, <8 x float>"
    )
    lanes = ", ".join(["i1 true"] * 5 + ["i1 false"] * 3)
    given = f"ptr align 4 {_at(f, x, N - 4)}, <8 x i1> <{lanes}>, <8 x float> zeroinitializer"
    value = f(f"call <8 x float> @{name}({given})")
    f.do(f"store <8 x float> {value}, ptr {_at(f, out, 0)}, align 4")


def gather_beyond(f: Function, x: str, out: str, _own: str) -> None:
    _copy(f, x, out, 0)
    name = f.module.declare(
        "<2 x float>", "llvm.masked.gather.v2f32.v2p0", "<2 x ptr>, <2 x i1>, <2 x float>"
    )
    places = f(f"getelementptr float, ptr {x}, <2 x i64> <i64 3, i64 {N + 100}>")
    on = "<2 x i1> <i1 true, i1 true>"
    value = f(
        f"call <2 x float> @{name}(<2 x ptr> align 4 {places}, {on}, <2 x float> zeroinitializer)"
    )
    f.do(f"store <2 x float> {value}, ptr {out}, align 4")


def copies_beyond(f: Function, x: str, out: str, _own: str) -> None:
    name = f.module.declare("void", "llvm.memcpy.p0.p0.i64", "ptr, ptr, i64, i1 immarg")
    f.do(f"call void @{name}(ptr {out}, ptr {x}, i64 {4 * N + 4}, i1 false)")


def clears_beyond(f: Function, x: str, out: str, _own: str) -> None:
    _copy(f, x, out, 0)
    name = f.module.declare("void", "llvm.memset.p0.i64", "ptr, i8, i64, i1 immarg")
    f.do(f"call void @{name}(ptr {_at(f, out, 1)}, i8 0, i64 {4 * N}, i1 false)")


def beyond_its_own(f: Function, x: str, out: str, own: str) -> None:
    _copy(f, x, out, 0)
    f.do(f"store double 0.0, ptr {_at(f, own, 16, 'double')}, align 8")


def beyond_the_stack(f: Function, x: str, out: str, _own: str) -> None:
    _copy(f, x, out, 0)
    room = f.var("float", count=8, align=16)
    f.do(f"store float 0.0, ptr {_at(f, room, '%end')}")
    f.do(f"store float 0.0, ptr {_at(f, room, f('add i64 %end, 7'))}")


def into_another_array(f: Function, x: str, out: str, _own: str) -> None:
    _copy(f, x, out, 0)
    rooms = [f.var("float", count=64, align=64) for _ in range(2)]
    for room in rooms:
        for place in ("%end", f("mul i64 %end, 80"), f("mul i64 %end, -16")):
            f.do(f"store float 0.0, ptr {_at(f, room, place)}")


def beyond_a_constant(f: Function, x: str, out: str, _own: str) -> None:
    _copy(f, x, out, 0)
    table = f.module.constant("[4 x i32]", "[i32 1, i32 2, i32 3, i32 4]")
    place = f("add i64 %end, 3")
    value = f(f"load i32, ptr {_at(f, table, place, 'i32')}")
    f.do(f"store i32 {value}, ptr {out}, align 4")


def in_a_function_of_its_own(f: Function, x: str, out: str, _own: str) -> None:
    _copy(f, x, out, 0)
    g = f.module.function("planted", "float", [("ptr", "p"), ("i64", "i")], "nounwind readonly")
    place = _at(g, "%p", "%i")
    g.do(f"ret float {g(f'load float, ptr {place}')}")
    value = f(f"call float @planted(ptr {x}, i64 {N})")
    f.do(f"store float {value}, ptr {out}, align 4")


def writes_what_it_reads(f: Function, x: str, out: str, _own: str) -> None:
    _copy(f, x, out, 0)
    f.do(f"store float 0.0, ptr {x}, align 4")


def misaligned(f: Function, x: str, out: str, _own: str) -> None:
    _copy(f, x, out, 0)
    value = f(f"load <2 x float>, ptr {_at(f, x, 1)}, align 16")
    value = f(f"fadd <2 x float> {value}, {f(f'load <2 x float>, ptr {_at(f, x, 2)}, align 16')}")
    f.do(f"store <2 x float> {value}, ptr {out}, align 4")


def writes_nothing(f: Function, x: str, out: str, _own: str) -> None:
    pass


def leaves_one_out(f: Function, x: str, out: str, _own: str) -> None:
    with f.loop("0", str(N - 1)) as i:
        f.do(f"store float 1.0, ptr {_at(f, out, i)}, align 4")


def unknown_status(f: Function, x: str, out: str, _own: str) -> None:
    _copy(f, x, out, 0)
    f.do("ret i32 77")
    f.block(f.fresh("never"))


def fails_for_nothing(f: Function, x: str, out: str, _own: str) -> None:
    f.do("ret i32 1")
    f.block(f.fresh("never"))


#: What the error says of each.
FAULTS: dict[Body, str] = {
    one_too_far: r"reads 4 bytes outside .* at byte 160 of f32\[40\], which has 160 bytes",
    into_another_buffer: r"reads 4 bytes outside .* at byte 276 of f32\[40\], which has 160",
    one_before: r"reads 4 bytes outside .* at byte -4 of f32\[40\], which has 160 bytes",
    writes_beyond: r"writes 4 bytes outside .* at byte 160 of f32\[40\]",
    vector_beyond: r"reads 32 bytes outside .* at byte 144 of f32\[40\].* load <8 x float>",
    masked_beyond: r"reads 20 bytes outside .* at byte 144 of f32\[40\]",
    gather_beyond: r"reads 4 bytes outside",
    copies_beyond: r"writes 164 bytes outside .* at byte 0 of f32\[40\]",
    clears_beyond: r"writes 160 bytes outside .* at byte 4 of f32\[40\]",
    beyond_its_own: r"writes 8 bytes outside .* at byte 128 of its own memory, which has 128",
    beyond_the_stack: r"writes 4 bytes outside",
    into_another_array: r"writes 4 bytes outside .* an array of its function",
    beyond_a_constant: r"reads 4 bytes outside .* load i32",
    in_a_function_of_its_own: r"reads 4 bytes outside .* at byte 160 .* in planted: ",
    writes_what_it_reads: r"writes 4 bytes to a buffer that it may only read: at byte 0 of f32",
    misaligned: r"reads 8 bytes at an address that is not aligned",
    writes_nothing: r"has not written f32\[40\] at byte 0 of 160",
    leaves_one_out: r"has not written f32\[40\] at byte 156 of 160",
    unknown_status: r"returns an unknown status, 77",
    fails_for_nothing: r"reports a failure, but its op does not fail",
}


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Puts a fault into the kernel of cumulative_sum; `cost`: enough of it asks for threads."""
    monkeypatch.setenv("WEFT_CACHE", "0")

    def planted(body: Body, items: int = 1, cost: float = 1.0) -> None:
        def emit(module: Module, name: str, _node: Any) -> list[Kernel]:
            f = module.function(name, "i32", PARAMS)
            body(f, argument(f, 0), argument(f, 1), argument(f, 2))
            f.do("ret i32 0")
            return [Kernel(name, items, cost, scratch=128)]

        monkeypatch.setitem(KERNELS, "cumulative_sum", emit)

    return planted


def totals(x: Any) -> Any:
    y = x * 2
    return weft.cumulative_sum(y) + 1  # planted here


@pytest.mark.parametrize("body", FAULTS, ids=lambda body: body.__name__)
def test_a_planted_fault_is_named(plant: Callable[..., None], body: Body) -> None:
    plant(body)
    compiled = checked(totals)
    with pytest.raises(InternalError, match=FAULTS[body]) as found:
        compiled(weft.ones(N))
    error = found.value
    assert "kernel kernel.cumulative_sum." in str(error)
    assert error.op == "cumulative_sum"
    assert error.location is not None
    assert (Path(error.location.file).name, error.location.line) == (HERE, line_of("planted here"))


@pytest.mark.parametrize("body", [one_too_far, writes_beyond, writes_nothing])
def test_in_a_loop_and_on_threads(plant: Callable[..., None], body: Body) -> None:
    def f(x: Any) -> Any:
        while x.sum() < 1e3:
            x = weft.cumulative_sum(x)  # planted in a loop
        return x

    plant(body, items=4, cost=1e6)
    with pytest.raises(InternalError, match=FAULTS[body]) as found:
        checked(f)(weft.ones(N))
    assert found.value.location is not None
    assert found.value.location.line == line_of("planted in a loop")


def test_without_check_mode_nothing_is_in_the_code() -> None:
    graph = weft.make_graph(totals, weft.spec((N,)))
    plain, checked = NativeProgram(graph), CheckedProgram(graph)
    assert "check" not in plain.text
    assert "@check.access" in checked.text
    assert plain([weft.ones(N)])[0].numpy().tolist() == checked([weft.ones(N)])[0].numpy().tolist()
    assert len(plain.text) < len(checked.text)


def test_memory_that_was_not_written_is_found(plant: Callable[..., None]) -> None:
    """A kernel that reads its own memory before it writes it."""

    def reads_its_own(f: Function, x: str, out: str, own: str) -> None:
        _copy(f, x, out, 0)
        f.do(f"store float {f(f'load float, ptr {own}')}, ptr {out}, align 4")

    plant(reads_its_own)
    with pytest.raises(InternalError, match="of memory that it had not written"):
        checked(totals)(weft.ones(N))


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
def test_a_sum_that_starts_elsewhere_is_found(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first terms are put where the sums are not."""

    def f(x: Any) -> Any:
        y = weft.permute_dims(weft.tanh(x), (1, 2, 0, 3))  # the kernel begins here
        return -weft.sum(y, axis=0)

    monkeypatch.setenv("WEFT_CACHE", "0")
    x = weft.astype(weft.randn((2, 3, 4, 5)), dtype)
    found, want = (weft.astype(made(x), "float32").numpy() for made in (checked(f), f))
    np.testing.assert_allclose(found, want, rtol=2e-2, atol=2e-2)
    monkeypatch.setattr(columns, "_is_one_block", lambda _: True)
    with pytest.raises(InternalError, match="of memory that it had not written") as caught:
        checked(f)(x)
    assert caught.value.location is not None
    assert caught.value.location.line == line_of("the kernel begins here")


def test_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    def kind(**given: Any) -> type:
        made: list[type] = []

        def note(executable: Any, inputs: Any, proceed: Any) -> Any:
            made.append(type(executable.program))
            return proceed(inputs)

        with instrumented(note):
            weft.compile(lambda x: x + 1, backend="native", **given)(weft.ones(2))
        return made[0]

    monkeypatch.delenv("WEFT_CHECK", raising=False)
    assert kind() is NativeProgram
    assert kind(check=True) is CheckedProgram
    assert kind(check=True, capture="trace") is CheckedProgram
    monkeypatch.setenv("WEFT_CHECK", "1")
    assert config.check()
    assert kind() is CheckedProgram
    assert kind(check=False) is NativeProgram
    monkeypatch.setenv("WEFT_CHECK", "0")
    assert not config.check()


def test_the_text_of_instructions() -> None:
    call = called(
        "  %v = call <4 x float> @f(ptr align 4 %p, <4 x i1> <i1 1, i1 0>, i64 splat (i64 2)) x"
    )
    assert call is not None
    assert (call.name, len(call.arguments), call.tail) == ("f", 3, ") x")
    assert size_of("<3 x i1>") == 1
    assert size_of("[2 x [3 x double]]") == 48
    assert type_of("<2 x float> <float 1.0, float 2.0>") == "<2 x float>"
    assert alignment(", align 4", "<8 x float>") == 4
    assert alignment("", "[3 x ptr]") == 8


def test_several_threads_run_one_program() -> None:
    compiled = checked(lambda x: weft.cumulative_sum(x * 2) + x.sum())
    given = [weft.full((N,), float(i)) for i in range(8)]
    compiled(given[0])
    found: dict[int, Any] = {}

    def work(i: int) -> None:
        found[i] = compiled(given[i]).numpy()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i in range(8):
        assert np.allclose(found[i], np.cumsum(np.full(N, 2.0 * i)) + N * i)


# --- programs that are right --------------------------------------------------------------------


def _attention(x: Any, w: Any) -> Any:
    q = (x @ w).reshape(2, 7, 3, 4).swapaxes(1, 2)
    return (
        F.scaled_dot_product_attention(q, q * 0.5, q + 1)
        .swapaxes(1, 2)
        .reshape(2, 7, 12)
        .sum(axis=0)
    )


def _convolution(x: Any, w: Any) -> Any:
    y = F.max_pool2d(F.relu(F.conv2d(x[:, :2], w, padding=1)), 2)
    return (y * y).mean(axis=(0, 2, 3))


def _sorted(x: Any) -> Any:
    values, places = weft.sort(x, axis=-1), weft.argsort(x.swapaxes(0, 1), axis=0)
    return values.sum(axis=0), places, weft.take_along_axis(x, places.swapaxes(0, 1), axis=1)


def _normalized(x: Any, w: Any) -> Any:
    return F.gelu(F.layer_norm(x, (x.shape[-1],), w)).reshape(-1)[::3]


def _recurrent(x: Any, w: Any) -> Any:
    def step(h: Any, row: Any) -> Any:
        h = weft.tanh(h @ w + row)
        return h, h

    return weft.scan(step, weft.zeros((x.shape[1], w.shape[0])), x)


#: A function, the shapes of what it is given, and whether its gradient is run as well.
KERNEL_KINDS: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]], bool]] = {
    "attention": (_attention, [(2, 7, 5), (5, 12)], True),
    "convolution and pooling": (_convolution, [(8, 4, 9, 7), (5, 2, 3, 3)], True),
    "sorting and gathering": (_sorted, [(6, 35)], False),
    "norm, gelu, a strided view": (_normalized, [(5, 19), (19,)], True),
    "a scan": (_recurrent, [(6, 33, 9), (9, 9)], True),
    "large products on threads": (
        lambda x, w: weft.tanh(x @ w) @ w.T,
        [(130, 70), (70, 90)],
        False,
    ),
}


@pytest.mark.parametrize("name", KERNEL_KINDS)
def test_kinds_of_kernels(name: str) -> None:
    """Two calls with different numbers, each against eager."""
    function, shapes, has_gradient = KERNEL_KINDS[name]

    def whole(*inputs: Any) -> Any:
        found = weft.tree_leaves(function(*inputs))
        if not has_gradient:
            return found
        return found, weft.grad(
            lambda x: sum(y.sum() for y in weft.tree_leaves(function(x, *inputs[1:])))
        )(inputs[0])

    compiled = checked(whole)
    rng = np.random.default_rng(0)
    for _ in range(2):
        inputs = [weft.asarray(rng.standard_normal(shape).astype("f4")) for shape in shapes]
        for got, want in zip(
            weft.tree_leaves(compiled(*inputs)), weft.tree_leaves(whole(*inputs)), strict=True
        ):
            np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=2e-4, atol=2e-5)


_ALL = [p for p in PROGRAMS if "source" in p.supports]
#: A part of the table; WEFT_TEST_ALL=1 runs all of it.
_SOME = _ALL if os.environ.get("WEFT_TEST_ALL") else _ALL[::9]


@pytest.mark.parametrize("program", _SOME, ids=lambda p: p.name)
def test_programs(program: Program) -> None:
    """The table of programs, each call with other inputs than the one before."""
    check_program(program, checked)
