"""Libraries: used from C, and against the program in this process."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import libraries
import numpy as np
import pytest
from library_programs import ROWS, called, cnn, gradient, leaves, mlp, native, training

import weft
from weft.codegen.jit import build, library_object
from weft.interop.library.archive import archive
from weft.interop.library.link import linkers
from weft.interop.library.targets import TARGETS, LibraryTarget

needs_cc = libraries.needs_cc


@needs_cc
@pytest.mark.parametrize(
    ("make", "word", "rounds"), [(mlp, "infer", 1), (cnn, "infer", 1), (training, "train_step", 6)]
)
def test_a_c_program_gets_the_same_bits(
    make: Callable[[], Any], word: str, rounds: int, tmp_path: Path
) -> None:
    function, arguments = make()
    compiled = native(function)
    called(compiled, arguments)
    built = weft.build_library(compiled, tmp_path / "libmodel.so", target="native", linker="cc")
    found = libraries.c_calls(tmp_path, built, word, arguments, 1, rounds)
    wanted = [called(compiled, arguments).detach().numpy().tobytes() for _ in range(rounds)]
    assert found == b"".join(wanted)
    state = weft.load(tmp_path / "state.safetensors")
    paths = compiled.signatures()[-1]
    places = [place for place in paths.places if not place.is_argument and place.type]
    assert {place.name for place in places} == set(state)


@needs_cc
def test_the_code_is_chosen_for_the_processor(tmp_path: Path) -> None:
    function, arguments = training()
    compiled = native(function)
    called(compiled, arguments)
    everywhere = weft.build_library(compiled, tmp_path / "libwhole.so", target="x86_64-linux")
    model = libraries.loaded(tmp_path / "whole.py").Model()
    assert model.code in [variant.name for variant in TARGETS["x86_64-linux"].variants]
    assert str(everywhere.memory) in (tmp_path / "whole.h").read_text()
    one = [model(*arguments.values()) for _ in range(3)]
    name = "x86_64-linux" if model.code == "x86-64" else f"{model.code.replace('-', '_', 1)}-linux"
    weft.build_library(compiled, tmp_path / "libpart.so", target=name)
    part = libraries.loaded(tmp_path / "part.py").Model()
    assert [x.tobytes() for x in one] == [part(*arguments.values()).tobytes() for _ in range(3)]
    wanted = [called(compiled, arguments).item() for _ in range(3)]
    np.testing.assert_allclose([x.item() for x in one], wanted, rtol=1e-5)


@needs_cc
@pytest.mark.skipif(shutil.which("qemu-x86_64") is None, reason="there is no qemu-x86_64")
def test_older_processors_run_older_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    function, arguments = training()
    compiled = native(function)
    called(compiled, arguments)
    whole = weft.build_library(compiled, tmp_path / "libmodel.so", target="x86_64-linux")
    best = libraries.c_calls(tmp_path, whole, "train_step", arguments, 1, 6)
    for cpu, variant in zip(("qemu64", "Haswell"), TARGETS["x86_64-linux"].variants, strict=False):
        done = libraries.run(["qemu-x86_64", "-cpu", cpu, tmp_path / "main"], tmp_path)
        assert done.returncode == 0, done.stderr
        found = (tmp_path / "out.bin").read_bytes()
        # The same bits as of this code alone, run by this processor; to rounding, those of others.
        (tmp_path / cpu).mkdir()
        monkeypatch.setitem(TARGETS, "one", LibraryTarget("one", (variant,)))
        one = weft.build_library(compiled, tmp_path / cpu / "libmodel.so", target="one")
        assert found == libraries.c_calls(tmp_path / cpu, one, "train_step", arguments, 1, 6)
        losses = [np.frombuffer(data, np.float32) for data in (found, best)]
        np.testing.assert_allclose(*losses, rtol=1e-5)
        if variant.level < 3:  # without fused products the code is another
            assert found != best


@needs_cc
@pytest.mark.parametrize("weights", ["inside", "file"])
def test_state(weights: str, tmp_path: Path) -> None:
    function, arguments = training()
    compiled = native(function)
    called(compiled, arguments)
    weft.build_library(compiled, tmp_path / "libm.so", target="native", weights=weights)
    module = libraries.loaded(tmp_path / "m.py")
    file = None if weights == "inside" else tmp_path / "m.safetensors"
    one, two = module.Model(file), module.Model(file)
    first = [one(*arguments.values()).item() for _ in range(3)]
    one.save(tmp_path / "after")
    more = one(*arguments.values()).item()
    assert [two(*arguments.values()).item() for _ in range(3)] == first  # they share nothing
    mapped, read = module.Model(tmp_path / "after"), module.Model(file)
    read.load(tmp_path / "after")
    again = module.Model(file)
    for name in module.STATE:
        again.set_state(name, mapped.get_state(name))
    for model in (mapped, read, again):
        assert model(*arguments.values()).item() == more
    assert module.Model(tmp_path / "after")(*arguments.values()).item() == more  # as it was
    if weights == "file":
        with pytest.raises(ValueError, match="weights are in a file"):
            module.Model()
    # Other programs read the file, too.
    held = weft.load(tmp_path / "after")
    for name, (shape, dtype) in module.STATE.items():
        assert held[name].shape == shape, name
        assert held[name].numpy().dtype == np.dtype(dtype)


# --- errors ---------------------------------------------------------------------------------------

ERRORS = r"""
#include "m.h"
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define IS(call, wanted) do { int got = (call); if (got != M_##wanted) { \
  printf("line %d: %s, not " #wanted "\n", __LINE__, m_error_text(got)); return 1; } } while (0)

static m *made;
static float x[M_X_COUNT];
static int64_t y[M_Y_COUNT];
static float loss;
static volatile int stop;

static void *busy(void *seen) {
  while (!stop) {
    int status = m_train_step(made, x, M_X_COUNT, y, M_Y_COUNT, &loss, 1);
    if (status == M_BUSY) *(int *)seen = 1;
    else if (status) exit(50);
  }
  return seen;
}

static void cut(const char *file, long size) {
  if (truncate(file, size)) exit(51);
}

int main(void) {
  IS(m_create(NULL), NULL);
  IS(m_create(&made), OK);
  IS(m_train_step(made, x, M_X_COUNT, y, M_Y_COUNT, &loss, 1), OK);
  float first = loss;
  IS(m_train_step(NULL, x, M_X_COUNT, y, M_Y_COUNT, &loss, 1), NULL);
  IS(m_train_step(made, NULL, M_X_COUNT, y, M_Y_COUNT, &loss, 1), NULL);
  IS(m_train_step(made, x, M_X_COUNT, y, M_Y_COUNT, NULL, 1), NULL);
  IS(m_train_step(made, x, M_X_COUNT - 1, y, M_Y_COUNT, &loss, 1), SIZE);
  IS(m_train_step(made, x, M_X_COUNT, y, (size_t)-1, &loss, 1), SIZE);
  IS(m_train_step(made, (float *)((char *)x + 1), M_X_COUNT, y, M_Y_COUNT, &loss, 1), ALIGNMENT);
  static char zeros[M_MEMORY_BYTES + 64];
  IS(m_train_step((m *)zeros, x, M_X_COUNT, y, M_Y_COUNT, &loss, 1), INSTANCE);

  /* A label out of range fails, and changes nothing. */
  static char before[M_STATE_FILE_BYTES], after[M_STATE_FILE_BYTES];
  IS(m_write_state(made, before, sizeof before), OK);
  y[3] = 1000;
  IS(m_train_step(made, x, M_X_COUNT, y, M_Y_COUNT, &loss, 1), FAILED);
  y[3] = 0;
  IS(m_write_state(made, after, sizeof after), OK);
  if (memcmp(before, after, sizeof before)) return 2;
  if (!strstr(m_error_text(M_FAILED), "library_programs.py")) return 3;
  if (strcmp(m_error_text(-1), m_error_text(99))) return 4;

  /* State. */
  double lr;
  const char *name = NULL;
  for (size_t i = 0; m_state_name(i); i++)
    if (strstr(m_state_name(i), "lr")) name = m_state_name(i);
  if (!name || m_state_bytes(name) != sizeof lr || m_state_name(M_STATE_COUNT)) return 5;
  IS(m_get_state(made, name, &lr, sizeof lr), OK);
  if (lr != 1e-2) return 6;
  IS(m_get_state(made, name, &lr, sizeof lr - 1), SIZE);
  IS(m_get_state(made, "lr", &lr, sizeof lr), NAME);
  IS(m_get_state(made, NULL, &lr, sizeof lr), NULL);
  IS(m_set_state(made, name, NULL, sizeof lr), NULL);
  IS(m_set_state(NULL, name, &lr, sizeof lr), NULL);
  if (m_state_bytes("lr") || m_state_bytes(NULL)) return 7;
  IS(m_read_state(made, before, sizeof before - 1), FORMAT);
  after[20] ^= 1;
  IS(m_read_state(made, after, sizeof after), FORMAT);

  /* Files. */
  m *other = (m *)zeros;
  IS(m_save(made, "good"), OK);
  IS(m_save(made, "cut"), OK);
  IS(m_save(made, "no/such/folder"), FILE);
  IS(m_save(made, NULL), NULL);
  IS(m_load(made, "none"), FILE);
  IS(m_create_from("none", &other), FILE);
  if (other) return 8;
  static char name_too_long[9000];
  memset(name_too_long, 'a', sizeof name_too_long - 1);
  IS(m_save(made, name_too_long), FILE);
  for (long size = M_STATE_FILE_BYTES + 1; size >= 0; size -= size > 300 ? 977 : 1) {
    if (size == M_STATE_FILE_BYTES) continue;
    cut("cut", size);
    IS(m_load(made, "cut"), FORMAT);
    IS(m_create_from("cut", &other), FORMAT);
  }
  IS(m_write_state(made, after, sizeof after), OK);
  if (memcmp(before, after, sizeof before)) return 9;
  IS(m_load(made, "good"), OK);

  /* Memory of the caller. */
  static _Alignas(64) char memory[M_MEMORY_BYTES];
  IS(m_init(memory + 1, M_MEMORY_BYTES, &other), ALIGNMENT);
  IS(m_init(memory, M_MEMORY_BYTES - 1, &other), SIZE);
  IS(m_init(NULL, M_MEMORY_BYTES, &other), NULL);
  IS(m_init(memory, M_MEMORY_BYTES, &other), OK);
  size_t used = mallinfo2().uordblks;
  IS(m_train_step(other, x, M_X_COUNT, y, M_Y_COUNT, &loss, 1), OK);
  IS(m_save(other, "good"), OK);
  IS(m_load(other, "good"), OK);
  if (mallinfo2().uordblks != used) return 10;
  if (loss != first) return 11;
  IS(m_destroy(other), OK);
  IS(m_destroy(other), INSTANCE);
  IS(m_destroy(NULL), OK);

  /* Two threads, one instance. */
  int seen[2] = {0, 0};
  pthread_t threads[2];
  for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, busy, &seen[i]);
  for (int i = 0; i < 2000 && !(seen[0] || seen[1]); i++) usleep(1000);
  stop = 1;
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
  if (!(seen[0] || seen[1])) return 12;
  IS(m_destroy(made), OK);
  return 0;
}
"""


@needs_cc
def test_mistakes_in_c_are_statuses(tmp_path: Path) -> None:
    function, arguments = training()
    compiled = native(function)
    called(compiled, arguments)
    built = weft.build_library(compiled, tmp_path / "libm.so")
    program = libraries.compiled(ERRORS, tmp_path, built.path, "-pthread")
    done = libraries.run([program], tmp_path)
    assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)


def chosen_rows(x: Any, i: Any) -> Any:
    return weft.linalg.svd(x[i])[1]


def test_what_needs_python_is_refused(tmp_path: Path) -> None:
    svd = weft.compile(lambda x: weft.linalg.svd(x * 2)[1])
    with pytest.raises(weft.errors.CaptureError, match="has not been called"):
        weft.build_library(svd, tmp_path / "libm.so")
    svd(weft.ones((3, 3)))
    with pytest.raises(weft.errors.GraphError, match=r"(?s)svd calls Python.*test_libraries"):
        weft.build_library(svd, tmp_path / "libm.so")
    counted = []
    counts = weft.compile(lambda x: counted.append(1) or x * 2)
    counts(weft.ones(3))
    with pytest.raises(weft.errors.CaptureError, match="changes Python objects"):
        weft.build_library(counts, tmp_path / "libm.so")
    asked = weft.trace(lambda x: x * 2 if x.sum() > 0 else x)
    asked(weft.ones(3))
    with pytest.raises(weft.errors.CaptureError, match="asks a tensor for its value"):
        weft.build_library(asked, tmp_path / "libm.so")
    named = weft.compile(lambda x: x * 2, dynamic=True)
    named(weft.ones(3))
    with pytest.raises(weft.errors.GraphError, match="sizes that are not known"):
        weft.build_library(named, tmp_path / "libm.so")
    for bad in ({"target": "z80"}, {"weights": "there"}, {"name": "1 2"}):
        with pytest.raises(weft.errors.RangeError):
            weft.build_library(named, tmp_path / "libm.so", **bad)
    with pytest.raises(weft.errors.RangeError):
        weft.build_library(named, tmp_path / "m.exe")
    huge = weft.export(lambda x: (x + 1, x - 1), weft.spec((1 << 30,)))
    with pytest.raises(weft.errors.RangeError, match="more than cortex-m4 can address"):
        huge.build(tmp_path / "m.o", target="cortex-m4")
    with pytest.raises(weft.errors.CaptureError, match="compiled function"):
        weft.build_library(len, tmp_path / "libm.so")  # type: ignore[arg-type]
    assert not [*tmp_path.iterdir()]


@needs_cc
def test_loops_get_as_much_memory_as_the_build_says(tmp_path: Path) -> None:
    compiled = native(gradient)
    x = np.array([1.0, 1.5, 0.5], "f4")
    wanted = compiled(weft.tensor(x)).numpy()
    with pytest.raises(weft.errors.GraphError, match=r"(?s)length is not known.*library_programs"):
        weft.build_library(compiled, tmp_path / "libm.so")
    for size, name in ((1 << 16, "much"), (128, "little")):
        weft.build_library(compiled, tmp_path / f"lib{name}.so", target="native", stack_bytes=size)
        model = libraries.loaded(tmp_path / f"{name}.py").Model()
        if name == "much":
            for _ in range(3):
                assert model(x).tobytes() == wanted.tobytes()
        else:
            with pytest.raises(RuntimeError, match="loops keep more values"):
                model(x)


@needs_cc
def test_kinds_of_programs(tmp_path: Path) -> None:
    for number, (name, function, arguments) in enumerate(ROWS):
        compiled = native(function)
        compiled(*map(weft.tensor, arguments))
        target = "native" if number % 3 else "x86_64-linux"
        weft.build_library(compiled, tmp_path / f"libm{number}.so", target=target)
        model = libraries.loaded(tmp_path / f"m{number}.py").Model()
        for again in arguments, [np.roll(x, 1, axis=None) for x in arguments]:
            given = [np.array(x) for x in again]
            found = model(*given)
            wanted = leaves(compiled(*map(weft.tensor, again)))
            made = list(found) if isinstance(found, tuple) else [found]
            assert len(made) == len(wanted)
            for a, b in zip(made, wanted, strict=True):
                if target == "native":
                    assert a.tobytes() == b.tobytes(), name
                else:
                    np.testing.assert_allclose(a.view(b.dtype), b, rtol=1e-5, atol=1e-5)


# --- headers, archives, linkers -------------------------------------------------------------------

CPP = """
#include "m.hpp"
#include <cstdio>
#include <vector>

int main() {
  m_library::Model model;
  std::vector<float> x(M_X_COUNT, 1.0f), result(M_RESULT_COUNT);
  model.infer(x.data(), result.data());
  try {
    model.get_state("nothing", x.data(), 4);
  } catch (const m_library::Error &error) {
    return error.status == M_NAME ? 0 : 1;
  }
  return 2;
}
"""


@needs_cc
def test_an_archive_and_the_header_for_cpp(tmp_path: Path) -> None:
    function, arguments = mlp()
    compiled = native(function)
    called(compiled, arguments)
    built = weft.build_library(compiled, tmp_path / "libm.a")
    assert built.path.read_bytes()[:8] == b"!<arch>\n"
    if shutil.which("c++") is None:
        pytest.skip("there is no C++ compiler")
    (tmp_path / "main.cpp").write_text(CPP)
    options = ["-std=c++11", "-Wall", "-Werror", "-pedantic", "-o", "main", "main.cpp", "libm.a"]
    done = libraries.run(["c++", *options, "-lm"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert libraries.run(["./main"], tmp_path).returncode == 0


def test_members_of_archives_begin_at_even_places() -> None:
    made = archive([("one.o", b"123", ["f", "g"]), ("two.o", b"4567", ["h"])])
    assert made.endswith(b"123\n" + made[-64:])
    assert len(made) % 2 == 0
    assert made.count(b"f\0g\0h\0") == 1


def test_a_library_linked_without_a_compiler(tmp_path: Path) -> None:
    if "zig" not in linkers(TARGETS["x86_64-linux"].variants[0].machine):
        pytest.skip("there is no wheel ziglang")
    function, arguments = mlp()
    compiled = native(function)
    called(compiled, arguments)
    weft.build_library(compiled, tmp_path / "libm.so", target="native", linker="zig")
    found = libraries.loaded(tmp_path / "m.py").Model()(*arguments.values())
    assert found.tobytes() == called(compiled, arguments).numpy().tobytes()


def test_object_code_of_all_targets() -> None:
    text = "define i32 @f(i32 %x) {\n  %y = add i32 %x, 1\n  ret i32 %y\n}\n"
    for target in TARGETS.values():
        for variant in target.variants:
            assert library_object(text, variant.machine)
    assert build(text, ["f"]).address("f")


def awkward(x: Any, X: Any, result: Any, state: Any, given: Any, x_count: Any, var: Any) -> Any:
    return x + 2 * X + 3 * result + 4 * state + 5 * given + 6 * x_count + 7 * var


@needs_cc
def test_names_of_arguments_that_mean_something_else(tmp_path: Path) -> None:
    arguments = [np.array([number, number], "f4") for number in range(1, 8)]
    compiled = native(awkward)
    wanted = compiled(*map(weft.tensor, arguments)).numpy()
    weft.build_library(compiled, tmp_path / "libm.so", target="native")
    found = libraries.loaded(tmp_path / "m.py").Model().awkward(*arguments)
    assert found.tolist() == wanted.tolist() == [140, 140]
    (tmp_path / "main.cpp").write_text('#include "m.hpp"\nint main() {}\n')
    (tmp_path / "main.c").write_text('#include "m.h"\nint main(void) { return 0; }\n')
    for command in (["cc", "-std=c99", "main.c"], ["c++", "-std=c++11", "main.cpp"]):
        if shutil.which(command[0]) is not None:
            done = libraries.run([*command, "-Wall", "-Werror", "-fsyntax-only"], tmp_path)
            assert done.returncode == 0, done.stderr
    if shutil.which("node") is not None and "zig" in linkers(TARGETS["wasm32"].variants[0].machine):
        weft.build_library(compiled, tmp_path / "m.wasm")
        given = ", ".join(f"[{n}, {n}]" for n in range(1, 8))
        call = f"console.log((await load()).awkward({given}).join());"
        (tmp_path / "main.mjs").write_text(f'import {{ load }} from "./m.js";\n{call}')
        done = libraries.run(["node", "main.mjs"], tmp_path)
        assert done.stdout.strip() == "140,140", done.stderr
