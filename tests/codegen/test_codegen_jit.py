"""Machine code: it runs, it is there as long as its library, and bad IR is named by its line."""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from weft.codegen import jit
from weft.codegen.elf import Image, NotLoaded
from weft.codegen.jit import Library, assembly, build, link, object_code, optimized
from weft.codegen.machine import Machine, host
from weft.codegen.split import split
from weft.codegen.text import Module
from weft.errors import InternalError

ADD = """
define i64 @add(i64 %a, i64 %b) {
  %sum = add i64 %a, %b
  ret i64 %sum
}
"""
TWO = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)


def called(library: Library, name: str, a: int, b: int) -> int:
    """The value of a function of two numbers; the library lives until it is there."""
    found: int = TWO(library.address(name))(a, b)
    return found


def test_a_function_can_be_called() -> None:
    assert called(build(ADD, ["add"]), "add", 40, 2) == 42


def test_symbols_of_the_process_are_there() -> None:
    text = """
    declare i64 @labs(i64)
    define i64 @size(i64 %a, i64 %b) {
      %r = call i64 @labs(i64 %a)
      ret i64 %r
    }"""
    assert called(build(text, ["size"]), "size", -7, 0) == 7


def test_many_libraries_with_the_same_names() -> None:
    texts = [ADD.replace("%a, %b\n", f"%a, {i}\n") for i in range(20)]
    libraries = [build(text, ["add"]) for text in texts]
    assert [called(lib, "add", 100, 0) for lib in libraries] == list(range(100, 120))
    del libraries[::2]  # the others stay
    gc.collect()
    assert [called(lib, "add", 100, 0) for lib in libraries] == list(range(101, 120, 2))


def test_a_collected_library_gives_its_memory_back() -> None:
    room = f"@room = global [{4 << 20} x i8] zeroinitializer"

    def resident() -> int:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[0])  # pages of address space

    if sys.platform != "linux":
        pytest.skip("only Linux says how much")
    for _ in range(3):
        build(ADD + room, ["add"])
    gc.collect()
    before = resident()
    for _ in range(10):
        build(ADD + room, ["add"])
    gc.collect()
    assert (resident() - before) * os.sysconf("SC_PAGESIZE") < 20 << 20


def test_many_threads_build_at_once() -> None:
    found: dict[int, int] = {}

    def make(i: int) -> None:
        library = build(ADD.replace("%a, %b\n", f"%a, {i}\n"), ["add"])
        found[i] = called(library, "add", 1000, 0)

    makers = [threading.Thread(target=make, args=(i,)) for i in range(8)]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join()
    assert found == {i: 1000 + i for i in range(8)}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_fork_while_others_compile() -> None:
    if not hasattr(os, "fork"):
        pytest.skip("there is no fork")
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            build(ADD, ["add"])

    worker = threading.Thread(target=work)
    worker.start()
    try:
        for _ in range(5):
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    status = int(called(build(ADD, ["add"]), "add", 1, 2) != 3)
                finally:
                    os._exit(status)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        stop.set()
        worker.join()


# --- what LLVM refuses ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        # A type that does not fit, in the second function: its line, and whose it is.
        (
            ADD + "define i32 @bad(i32 %x) {\n  %y = add i64 %x, 1\n  ret i32 %x\n}\n",
            ["cannot read", "defined with type 'i32' but expected 'i64'", ">     7   %y = add i64"],
        ),
        ("define i32 @bad() {\n  nonsense\n}\n", ["expected instruction", ">     2   nonsense"]),
        ("define i32 @bad() {\n  ret i32 %no\n}\n", ["undefined value '%no'", ">     2"]),
        (
            "define i32 @bad(i1 %c) {\n  br i1 %c, label %a, label %b\na:\n  %x = add i32 1, 2\n"
            "  br label %b\nb:\n  ret i32 %x\n}\n",
            ["finds the generated code wrong", "does not dominate", ">     4   %x = add"],
        ),
        ("", []),
    ],
)
def test_bad_text_is_named(text: str, said: list[str]) -> None:
    if not said:
        build(text, [])  # an empty module is fine
        return
    with pytest.raises(InternalError) as error:
        build(text, [])
    message = str(error.value)
    assert "in define i32 @bad" in message
    assert "mistake in Weft" in error.value.hint
    for part in said:
        assert part in message


def test_missing_functions_are_named(capfd: pytest.CaptureFixture[str]) -> None:
    name = "no_such_function_anywhere"
    with pytest.raises(InternalError, match=name):
        build(ADD, [name])
    calls = (
        f"declare i64 @{name}()\ndefine i64 @f() {{\n  %x = call i64 @{name}()\n  ret i64 %x\n}}"
    )
    with pytest.raises(InternalError, match="cannot link"):
        build(calls, ["f"])
    assert name in capfd.readouterr().err  # LLVM itself says which
    assert called(build(ADD, ["add"]), "add", 1, 2) == 3  # and all goes on


# --- passes and targets --------------------------------------------------------------------------


def test_variables_become_registers() -> None:
    module = Module(host())
    f = module.function("f", "i64", [("i64", "n")], linkage="")
    total = f.var("i64", 0)
    with f.loop(0, f.index("%n")) as i:
        total.store(total.load_index() + i)
    f.do(f"ret i64 {total.load()}")
    assert "alloca" in module.text()
    assert "alloca" not in optimized(module.text())
    assert called(build(module.text(), ["f"]), "f", 101, 0) == sum(range(101))


def test_small_functions_are_put_in_place_and_unused_ones_go() -> None:
    text = """
    define internal i64 @small(i64 %x) alwaysinline {
      %y = mul i64 %x, 3
      ret i64 %y
    }
    define internal i64 @unused(i64 %x) {
      ret i64 %x
    }
    define i64 @f(i64 %a, i64 %b) {
      %r = call i64 @small(i64 %a)
      ret i64 %r
    }"""
    shown = optimized(text)
    assert "@small" not in shown
    assert "@unused" not in shown


def test_the_option_of_code_generation_is_set_back() -> None:
    """LLVM's options belong to the process: others who use LLVM must find them as they were."""
    code = (
        "import llvmlite.binding as llvm\n"
        "from weft.codegen.jit import build, _Engine\n"
        "from weft.codegen.machine import host\n"
        "text = '''define void @f(ptr %p, i64 %n) {\nentry:\n  br label %l\nl:\n"
        "  %i = phi i64 [ 0, %entry ], [ %j, %l ]\n  %k = mul i64 %i, 24\n"
        "  %q = getelementptr i8, ptr %p, i64 %k\n  store i64 %i, ptr %q\n"
        "  %j = add i64 %i, 1\n  %c = icmp ult i64 %j, %n\n  br i1 %c, label %l, label %x\n"
        "x:\n  ret void\n}'''\n"
        "machine = _Engine.of(host()).machine(0)\n"
        "def shown(): return machine.emit_assembly(llvm.parse_assembly(text))\n"
        "before = shown(); build(text, ['f']); print(before == shown())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"


@pytest.mark.parametrize(
    ("taken", "width"), [("", None), ("-avx512f", 32), ("-avx512f,-avx2,-avx", 16)]
)
def test_features_can_be_taken_away(
    taken: str, width: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not host().triple.startswith("x86_64") or not host().has("avx2"):
        pytest.skip("names of x86")
    monkeypatch.setenv("WEFT_TARGET_FEATURES", taken)
    target = host.__wrapped__()
    assert isinstance(target, Machine)
    if width is not None:
        assert target.vector_bytes == width
        assert target.lanes(4) == width // 4
    lanes = target.lanes(4)
    kind = f"<{lanes} x float>"
    text = f"""
    define void @twice(ptr %x) {{
      %v = load {kind}, ptr %x, align 4
      %s = fadd {kind} %v, %v
      store {kind} %s, ptr %x, align 4
      ret void
    }}"""
    shown = assembly(text, target)
    registers = {64: "%zmm", 32: "%ymm", 16: "%xmm"}
    for size, name in registers.items():
        assert (name in shown) == (size == target.vector_bytes)
    values = (ctypes.c_float * lanes)(*range(lanes))
    library = build(text, ["twice"], target)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(library.address("twice"))(values)
    assert list(values) == [2.0 * i for i in range(lanes)]


def test_targets_are_told_apart() -> None:
    base = host()
    assert jit._Engine.of(base) is jit._Engine.of(replace(base))
    assert base.has("no-such-feature") is False


# --- modules in parts ----------------------------------------------------------------------------


PARTS = """@constant.0 = private unnamed_addr constant [2 x i64] [i64 10, i64 20], align 64
@table = private unnamed_addr constant [2 x ptr] [ptr @one, ptr @two], align 64
@state = internal global i64 5
@seen = global i64 77
declare i64 @labs(i64)

define internal i64 @unused(i64 %x) nounwind {
entry:
  ret i64 %x
}
define internal i64 @triple(i64 %x) nounwind alwaysinline {
entry:
  %y = call i64 @load(i64 %x) alwaysinline
  %z = mul i64 %y, 3
  ret i64 %z
}
define internal i64 @load(i64 %x) nounwind {
entry:
  %c = load i64, ptr @constant.0
  %y = add i64 %x, %c
  ret i64 %y
}
define internal i64 @one(i64 %x) nounwind {
entry:
  %y = call i64 @triple(i64 %x)
  ret i64 %y
}
define internal i64 @two(i64 %x) nounwind noinline {
entry:
  %y = call i64 @labs(i64 %x)
  %s = load i64, ptr @state
  %t = add i64 %s, 1
  store i64 %t, ptr @state
  %z = add i64 %y, %s
  ret i64 %z
}
define internal i64 @count(i64 %x) nounwind {
entry:
  %s = load i64, ptr @state
  ret i64 %s
}
define i64 @run(i64 %a, i64 %which) nounwind {
entry:
  %p = getelementptr ptr, ptr @table, i64 %which
  %f = load ptr, ptr %p
  %x = call i64 %f(i64 %a), !note !0
  %y = call i64 @one(i64 %x)
  %z = call i64 @count(i64 %y)
  %r = add i64 %y, %z
  ret i64 %r
}

!0 = !{!"metadata"}
"""


@pytest.mark.parametrize("parts", [0, 1, 2, 3, 4, 9])
def test_parts_are_what_the_whole_is(parts: int) -> None:
    texts = split(PARTS, parts)
    assert 1 <= len(texts) <= max(parts, 1)
    assert (len(texts) > 1) == (parts > 1)
    code = [image for text in texts for image in object_code(text)]
    library = link(code, ["run", "seen"])
    for _ in range(2):  # state begins with 5, and goes up with each call of @two
        assert called(library, "run", 4, 0) == ((4 + 10) * 3 + 10) * 3 + 5
    assert called(library, "run", -4, 1) == (4 + 5 + 10) * 3 + 6
    assert called(library, "run", -4, 1) == (4 + 6 + 10) * 3 + 7
    assert ctypes.c_int64.from_address(library.address("seen")).value == 77
    if len(texts) > 1:
        assert "@unused" not in "".join(texts)
    for text in texts:  # what is to be inlined is, in every part
        assert "@load" not in optimized(text)
        assert "@triple" not in optimized(text)


def test_long_texts_are_compiled_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit, "PART_SIZE", len(PARTS) // 3)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    assert len(object_code(PARTS)) == 3
    assert called(build(PARTS, ["run"]), "run", 4, 0) == ((4 + 10) * 3 + 10) * 3 + 5
    with pytest.raises(InternalError, match="expected instruction"):
        build(PARTS.replace("ret i64 %s", "nonsense"), ["run"])
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert len(object_code(PARTS)) == 1


# --- loading without LLVM ------------------------------------------------------------------------


@pytest.fixture
def loads_itself() -> None:
    if sys.platform != "linux" or not host().triple.startswith("x86_64"):
        pytest.skip("the loader knows object files of x86-64 Linux")


@pytest.mark.usefixtures("loads_itself")
def test_llvm_is_not_asked_to_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit, "_linked_by_llvm", lambda *_args: pytest.fail("LLVM was asked"))
    for text in (ADD, PARTS):
        build(text, [])


def test_llvm_loads_what_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object) -> None:
        raise NotLoaded("relocation 99")

    monkeypatch.setattr(jit, "Image", refuse)
    libraries = [build(PARTS, ["run", "seen"]) for _ in range(3)]
    del libraries[1]
    for library in libraries:
        assert called(library, "run", 4, 0) == ((4 + 10) * 3 + 10) * 3 + 5
    libraries[0].keep()


@pytest.mark.usefixtures("loads_itself")
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: b"", "no object file"),
        (lambda data: b"MZ" + data[2:], "no object file"),
        (lambda data: data[:18] + b"\xb7\x00" + data[20:], "no object file"),  # for aarch64
    ],
)
def test_other_files_are_left_to_llvm(change: Callable[[bytes], bytes], said: str) -> None:
    (data,) = object_code(ADD)
    with pytest.raises(NotLoaded, match=said):
        Image([change(data)], [])


@pytest.mark.usefixtures("loads_itself")
def test_code_cannot_be_written_and_data_cannot_be_run() -> None:
    library = build(PARTS, ["run", "seen"])
    with open("/proc/self/maps") as file:
        maps = [line.split() for line in file]
    for name, allowed in (("run", "r-xp"), ("seen", "rw-p")):
        at = library.address(name)
        ranges = [(*[int(end, 16) for end in m[0].split("-")], m[1]) for m in maps]
        assert [mode for start, end, mode in ranges if start <= at < end] == [allowed]


@pytest.mark.usefixtures("loads_itself")
def test_alignment_is_kept() -> None:
    text = (
        "@a = global i8 1, align 1\n@b = global i64 2, align 64\n@c = constant i8 3, align 4096\n"
    )
    library = build(text, ["a", "b", "c"])
    assert [library.address(name) % size for name, size in (("b", 64), ("c", 4096))] == [0, 0]
    for number, name in enumerate("abc", 1):
        assert ctypes.c_int8.from_address(library.address(name)).value == number


def test_code_stays_while_something_of_a_run_is_to_be_given_back(tmp_path: Path) -> None:
    """A program and the stacks of its runs may end together, in a cycle, the code first."""
    script = tmp_path / "script.py"
    script.write_text(
        "import gc, weft\n"
        "def grow(x):\n"
        "    while x.sum() < 100:\n"
        "        x = x * x.exp()\n"
        "    return x\n"
        "class Box: pass\n"
        "for i in range(3):\n"
        "    box = Box()\n"
        "    box.run = weft.compile(grow, backend='native')\n"
        "    box.y = box.run(weft.tensor([1.0, 2.0 + i], requires_grad=True))\n"
        "    box.run.__dict__['box'] = box\n"
        "    del box\n"
        "    gc.collect()\n"
        "print('alive')\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False
    )
    assert done.stdout == "alive\n", done.stderr


def test_code_for_wasm_leaves_native_code_as_it_was() -> None:
    """LLVM's WebAssembly target sets an option of the process: a switch of three became a table."""
    cases = " ".join(f"i32 {i}, label %c{i}" for i in range(3))
    arms = "\n".join(f"c{i}:\n  call void @f{i}()\n  ret void" for i in range(3))
    declared = "\n".join(f"declare void @f{i}()" for i in range(3))
    text = f"""{declared}
define void @choose(i32 %n) {{
  switch i32 %n, label %none [{cases}]
{arms}
none:
  ret void
}}
"""
    wasm = Machine("wasm32-unknown-unknown", "generic", "", 16, pointer_bytes=4, threads=False)
    before = jit.object_code(text)
    assert jit.library_object(text, wasm)[:4] == b"\0asm"
    assert jit.object_code(text) == before
