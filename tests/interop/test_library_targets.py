"""Libraries for other machines: WebAssembly under Node, ARM under qemu."""

from __future__ import annotations

import ctypes
import importlib.util
import json
import math
import shutil
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import libraries
import numpy as np
import pytest
from library_programs import ROWS, called, cnn, gradient, leaves, mlp, native, training

import weft
from weft.codegen.jit import build
from weft.codegen.machine import host
from weft.codegen.text import Module
from weft.interop.library.no_libm import add_fma, add_math
from weft.interop.library.targets import TARGETS

NODE = shutil.which("node")
TSC = shutil.which("tsc")
ZIG = importlib.util.find_spec("ziglang") is not None
needs_zig = pytest.mark.skipif(not ZIG, reason="there is no wheel ziglang")
needs_node = pytest.mark.skipif(NODE is None, reason="there is no Node")


# --- WebAssembly ----------------------------------------------------------------------------------

#: Calls programs one after the other; numbers go as text, which keeps float32 and float64 exact.
SCRIPT = """\
import { readFile, writeFile } from "node:fs/promises";
const rows = JSON.parse(await readFile("rows.json", "utf8"));
const found = [];
for (const [file, word, calls] of rows) {
  const { load } = await import(`./${file}.js`);
  const model = await load();
  for (const call of calls) {
    const given = call.map((x) => x.map((n) => typeof n === "string" ? BigInt(n) : n));
    const made = model[word](...given);
    found.push((ArrayBuffer.isView(made) ? [made] : made).map((x) => Array.from(x, String)));
  }
}
await writeFile("found.json", JSON.stringify(found));
"""


def as_json(array: Any) -> Any:
    flat = np.asarray(array).ravel().tolist()
    return [str(x) for x in flat] if np.asarray(array).dtype == np.int64 else flat


def node(folder: Path, script: str) -> str:
    (folder / "main.mjs").write_text(script)
    done = libraries.run([str(NODE), "main.mjs"], folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


@needs_zig
@needs_node
def test_programs_as_wasm(tmp_path: Path) -> None:
    todo: list[tuple[str, Any, list[Any]]] = list(ROWS)
    todo.append(("loop backward", gradient, [np.array([1.0, 1.5, 0.5], "f4")]))
    for make in (mlp, cnn, training):
        function, given = make()
        todo.append((make.__name__, function, list(given.values())))
    rows, wanted = [], []
    for number, (name, function, arguments) in enumerate(todo):
        compiled = native(function)
        compiled(*map(weft.tensor, arguments))
        built = weft.build_library(compiled, tmp_path / f"m{number}.wasm", stack_bytes=1 << 14)
        calls = [arguments, [np.roll(x, 1, axis=None) for x in arguments]]
        if name == "training":
            calls = [arguments] * 5
        rows.append(
            (
                f"m{number}",
                built.function.partition("_")[2],
                [[as_json(x) for x in c] for c in calls],
            )
        )
        wanted += [(name, leaves(compiled(*map(weft.tensor, c)))) for c in calls]
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    node(tmp_path, SCRIPT)
    found = json.loads((tmp_path / "found.json").read_text())
    for (name, arrays), made in zip(wanted, found, strict=True):
        assert len(made) == len(arrays), name
        for a, b in zip(made, arrays, strict=True):
            if b.dtype.kind == "f" and b.dtype.itemsize > 2:
                numbers = np.array([float(x) for x in a]).reshape(b.shape)
                np.testing.assert_allclose(numbers, b, rtol=2e-5, atol=2e-5, err_msg=name)
            else:
                bits = b if b.dtype.kind in "iub" else b.view(np.uint16)
                assert [int(x) for x in a] == bits.ravel().astype(int).tolist(), name


STATES = """\
import { load, STATE, LibraryError } from "./m.js";
import { writeFile } from "node:fs/promises";
const same = (a, b) => { if (String(a) !== String(b)) throw new Error(`${a} is not ${b}`); };
const fails = (f, part) => {
  try { f(); } catch (error) {
    if (!String(error).includes(part)) throw error;
    return;
  }
  throw new Error(`no error: ${part}`);
};
const x = Float32Array.from({ length: 320 }, (_, i) => Math.sin(i));
const y = Array.from({ length: 16 }, (_, i) => i % 7);
const one = await load(), two = await load(one.module);
const first = one.train_step(x, y)[0];
same(two.train_step(x, y), first);
const file = one.save();
const more = one.train_step(x, y)[0];
two.load(file);
same(two.train_step(x, y), more);
const three = await load(one.module);
three.load(file);
const four = await load(one.module);
for (const name of Object.keys(STATE)) four.setState(name, three.getState(name));
same(four.train_step(x, y), more);
fails(() => one.train_step(x), "y is missing");
fails(() => one.train_step([1], y), "1 elements, not 320");
fails(() => one.train_step(Float64Array.from(x), y), "of Float64Array: it takes a Float32Array");
fails(() => one.train_step("x".repeat(320), y), "1 elements");
fails(() => one.train_step(Array.from(x, String), y), "x[0] is of String, not a number");
fails(() => one.train_step(Array.from(x, (v) => [v]), y), "x[0] is of Array, not a number");
fails(() => one.train_step(x, y.map((v) => v + 0.5)), "y[0] is 0.5, which is no int64");
fails(() => one.train_step(x, y.map(() => 2n ** 63n)), "which is no int64");
fails(() => one.train_step(null, y), "1 elements");
fails(() => one.load("text"), "takes the bytes of a file, not String");
fails(() => one.train_step(x, y.map(() => 7)), "out of range");
fails(() => one.getState("none"), "no state");
fails(() => one.load(file.slice(1)), "cut off");
file[30] ^= 1;
fails(() => one.load(file), "does not hold the state");
await writeFile("state.safetensors", one.save());
// A buffer of the file's bytes; memory that grew meanwhile, and so lies elsewhere.
two.load(one.save().buffer);
two._c.memory.grow(1);
same(two.train_step(x, y), one.train_step(x, y));
const { load: other } = await import("./other.js");
const bits = await other();
same(bits.infer([true, 0, 1], Uint16Array.of(0x3c00, 0x4000, 0x4200))[1], "0,16384,0");
same(bits.infer([1, 0, 1], Uint16Array.of(0x3c00, 0x4000, 0x4200))[0], "0,1,0");
fails(() => bits.infer([2, 0, 1], Uint16Array.of(1, 2, 3)), "[0] is 2, which is no bool");
fails(() => bits.infer([1, 0, 1], [1, 2, 3]), "it takes a Uint16Array with the bits of float16");
// From its URL, and in a thread, from the compiled module.
same((await load(new URL("./m.wasm", import.meta.url))).train_step(x, y), first);
const { Worker } = await import("node:worker_threads");
const work = `import { load } from ${JSON.stringify(String(new URL("./m.js", import.meta.url)))};
import { parentPort, workerData } from "node:worker_threads";
const model = await load(workerData.module);
parentPort.postMessage(model.train_step(workerData.x, workerData.y));`;
const worker = new Worker(new URL(`data:text/javascript,${encodeURIComponent(work)}`), {
  workerData: { module: one.module, x, y } });
same(await new Promise((done) => worker.once("message", done)), first);
"""


@needs_zig
@needs_node
def test_state_in_javascript(tmp_path: Path) -> None:
    function, arguments = training()
    compiled = native(function)
    called(compiled, arguments)
    weft.build_library(compiled, tmp_path / "m.wasm")
    weft.export(
        lambda m, x: (~m, weft.where(m, 0, x)), weft.spec(3, "bool"), weft.spec(3, "float16")
    ).build(tmp_path / "other-name.wasm", name="other")
    node(tmp_path, STATES)
    held = weft.load(tmp_path / "state.safetensors")
    assert held["model.0.weight"].shape == (33, 20)
    types = (tmp_path / "m.d.ts").read_text()
    assert "train_step(x: Float32Array | readonly number[], y: " in types


TYPES = """\
import { load, STATE, ARGUMENTS } from "./m.js";
const model = await load();
const loss: Float32Array = model.infer(new Float32Array(3), [1, 2n], true);
const count: number = ARGUMENTS[0].name.length + model.getState("weight").length;
model.setState("weight", model.getState("weight"));
model.load(model.save());
// @ts-expect-error
model.infer(new Float64Array(3), [1, 2], true);
// @ts-expect-error
model.infer([1, 2, 3], [1, 2]);
// @ts-expect-error
model.getState("none");
"""


@needs_zig
@pytest.mark.skipif(TSC is None, reason="there is no TypeScript")
def test_types_of_typescript(tmp_path: Path) -> None:
    class Scaled(weft.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = weft.nn.Parameter(weft.ones(3))

        def forward(self, x: Any, i: Any, on: Any) -> Any:
            return x * self.weight * i.sum() * on

    specs = weft.spec(3), weft.spec(2, "int64"), weft.spec((), "bool")
    weft.export(Scaled(), *specs).build(tmp_path / "m.wasm")
    (tmp_path / "main.mts").write_text(TYPES)
    options = ["--noEmit", "--strict", "--target", "es2022", "--module", "nodenext"]
    done = libraries.run([str(TSC), *options, "--lib", "es2022,dom", "main.mts"], tmp_path)
    assert done.returncode == 0, done.stdout


# --- ARM ------------------------------------------------------------------------------------------

#: A program without any library, which starts itself and asks the system with `svc`. What the
#: compiler of a microcontroller brings for float64 is here done by a processor that has it.
BARE = """\
#include "m.h"

#ifdef __aarch64__
static long call(long number, long a, long b, long c) {
  register long x8 __asm__("x8") = number;
  register long x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c;
  __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
  return x0;
}
enum { WRITE = 64, EXIT = 93 };
void *memcpy(void *to, const void *from, size_t n) {
  for (size_t i = 0; i < n; i++) ((volatile char *)to)[i] = ((const char *)from)[i];
  return to;
}
#else
static long call(long number, long a, long b, long c) {
  register long r7 __asm__("r7") = number;
  register long r0 __asm__("r0") = a, r1 __asm__("r1") = b, r2 __asm__("r2") = c;
  __asm__ volatile("svc 0" : "+r"(r0) : "r"(r7), "r"(r1), "r"(r2) : "memory");
  return r0;
}
enum { WRITE = 4, EXIT = 1 };
#define SOFT __attribute__((pcs("aapcs")))
SOFT double __aeabi_dadd(double a, double b) { return a + b; }
SOFT double __aeabi_dsub(double a, double b) { return a - b; }
SOFT double __aeabi_dmul(double a, double b) { return a * b; }
SOFT double __aeabi_ddiv(double a, double b) { return a / b; }
SOFT int __aeabi_dcmpeq(double a, double b) { return a == b; }
SOFT int __aeabi_dcmplt(double a, double b) { return a < b; }
SOFT int __aeabi_dcmple(double a, double b) { return a <= b; }
SOFT int __aeabi_dcmpgt(double a, double b) { return a > b; }
SOFT int __aeabi_dcmpge(double a, double b) { return a >= b; }
SOFT int __aeabi_dcmpun(double a, double b) { return a != a || b != b; }
SOFT double __aeabi_f2d(float a) { return a; }
SOFT float __aeabi_d2f(double a) { return (float)a; }
SOFT double __aeabi_i2d(int a) { return a; }
SOFT double __aeabi_ui2d(unsigned a) { return a; }
SOFT double __aeabi_l2d(long long a) {
  return (double)(int)(a >> 32) * 4294967296.0 + (double)(unsigned)a;
}
typedef unsigned long long wide;
__attribute__((used)) wide divided(wide a, wide by, wide *rest) {
  wide found = 0, left = 0;
  for (int bit = 63; bit >= 0; bit--) {
    left = left << 1 | (a >> bit & 1);
    found = found << 1 | (left >= by);
    if (left >= by) left -= by;
  }
  *rest = left;
  return found;
}
/* The quotient in r0 and r1, the rest in r2 and r3. */
__attribute__((naked)) void __aeabi_uldivmod(void) {
  __asm__ volatile(
      "push {r6, lr}; sub sp, sp, #16; add r6, sp, #8; str r6, [sp]; bl divided;"
      "ldr r2, [sp, #8]; ldr r3, [sp, #12]; add sp, sp, #16; pop {r6, pc}");
}
#endif

static _Alignas(64) char memory[M_MEMORY_BYTES];
static float out[RESULT_COUNT];
%s

__attribute__((noreturn)) void _start(void) {
  m *made;
  int status = m_init(memory, sizeof memory, &made);
  for (int i = 0; !status && i < %d; i++) {
    status = m_%s(made%s, out, RESULT_COUNT);
    call(WRITE, 1, (long)out, sizeof out);
  }
  for (;;) call(EXIT, status, 0, 0);
}
"""
#: What compiles and runs for a target of a library.
ARM = {
    "cortex-m4": (["-target", "arm-freestanding-eabihf", "-mcpu=cortex_a9"], "qemu-arm"),
    "aarch64-linux": (["-target", "aarch64-freestanding"], "qemu-aarch64"),
}


def bare(
    folder: Path, target: str, word: str, arguments: dict[str, Any], rounds: int, first: str = ""
) -> bytes:
    """What a program without a system gets from calls of a library. `first`: what calls give
    before the arguments."""
    kinds = {"f": "float", "i": "int64_t"}
    data = [
        f"static const {kinds[x.dtype.kind]} {name}[] = "
        f"{{{', '.join(map(repr, x.ravel().tolist()))}}};"
        for name, x in arguments.items()
    ]
    given = first
    given += "".join(f", {name}, sizeof {name} / sizeof *{name}" for name in arguments)
    source = BARE.replace("RESULT_COUNT", "M_RESULT_COUNT")
    (folder / "main.c").write_text(source % ("\n".join(data), rounds, word, given))
    options, runs = ARM[target]
    command = [sys.executable, "-m", "ziglang", "cc", *options, "-O1", "-fomit-frame-pointer"]
    command += ["-fno-sanitize=all", "-ffreestanding", "-nostdlib", "-static"]
    done = libraries.run([*command, "-o", "main", "main.c", "m.o"], folder)
    assert done.returncode == 0, done.stderr
    ran = subprocess.run([runs, "./main"], cwd=folder, capture_output=True, check=False)
    assert ran.returncode == 0, (ran.returncode, ran.stderr)
    return ran.stdout


@needs_zig
@pytest.mark.parametrize("target", ARM)
def test_programs_on_arm(target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which(ARM[target][1]) is None:
        pytest.skip(f"there is no {ARM[target][1]}")
    alone = replace(TARGETS[target], files=False, threads=False)
    monkeypatch.setitem(TARGETS, target, alone)
    for make, word, rounds in ((mlp, "infer", 1), (cnn, "infer", 1), (training, "train_step", 4)):
        function, arguments = make()
        compiled = native(function)
        called(compiled, arguments)
        built = weft.build_library(compiled, tmp_path / "m.o", target=target)
        if target == "cortex-m4":
            assert built.path.stat().st_size - built.state < 100_000
        found = np.frombuffer(bare(tmp_path, target, word, arguments, rounds), "f4")
        wanted = [called(compiled, arguments).detach().numpy().ravel() for _ in range(rounds)]
        np.testing.assert_allclose(found, np.concatenate(wanted), rtol=1e-5, atol=1e-5)
    model, arguments = mlp()
    program = weft.export(model, weft.spec(("B", 20)))  # each call chooses B
    program.build(tmp_path / "m.o", target=target, max_sizes={"B": 5})
    found = np.frombuffer(bare(tmp_path, target, "infer", arguments, 1, ", M_B_MAX"), "f4")
    wanted = called(program, arguments).detach().numpy().ravel()
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


# --- what there is instead of libm ----------------------------------------------------------------


def test_functions_of_float64_without_libm() -> None:
    module = Module(host())
    add_fma(module)
    add_math(module)
    text = module.text()
    names = ["sqrt", "trunc", "fma"]
    for name in names:  # not those of the process
        text = text.replace(f"weak hidden double @{name}(", f"double @own_{name}(")
    text = text.replace("weak hidden", "internal")
    library = build(text, [f"own_{name}" for name in names])
    one = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)
    three = ctypes.CFUNCTYPE(ctypes.c_double, *[ctypes.c_double] * 3)
    root, cut = (one(library.address(f"own_{name}")) for name in names[:2])
    fma = three(library.address("own_fma"))
    random = np.random.default_rng(0)
    numbers = [float(x) for x in random.integers(0, 2**63, 3000).view("f8")]
    numbers += [0.0, -0.0, 1.0, -1.5, 0.5, 2.0, 5e-324, 2.2e-308, 1.8e308, math.inf, -math.inf]
    numbers += [float(x) for x in random.normal(size=1000) * 10.0 ** random.integers(0, 20, 1000)]
    with np.errstate(invalid="ignore"):
        for x in [*numbers, math.nan]:
            wanted = float(np.sqrt(x))
            assert root(x) == wanted or math.isnan(wanted), x
            assert math.copysign(1, root(-0.0)) == -1
            whole = float(np.trunc(x))
            got = cut(x)
            assert got == whole or math.isnan(whole), x
            assert math.copysign(1, got) == math.copysign(1, whole) or math.isnan(whole), x
    for x, y, z in random.normal(size=(2000, 3)):
        for third in (z, -x * y, -x * y * (1 + 2**-30), z * 1e-16):
            exact = Fraction(x) * Fraction(y) + Fraction(third)
            assert abs(Fraction(fma(x, y, third)) - exact) <= abs(exact) * Fraction(1, 2**52)
    assert fma(1e300, 1e300, -math.inf) == -math.inf
    assert fma(1e300, 1e300, 1.0) == math.inf
    assert math.isnan(fma(math.nan, 1.0, 1.0))
