"""Rewritten code that is kept on disk is what rewriting gives, whatever happens to it."""

from __future__ import annotations

import importlib.util
import inspect
import linecache
import marshal
import os
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft.nn.functional
import weft.optim
from weft.base import dataclass, store
from weft.base.errors import ShapeError
from weft.capture.watch import guard_code
from weft.convert import convert as conversion
from weft.convert import kept as keeping
from weft.convert.convert import NoSource, convert

MODULE = '''
"""A user's file."""

import weft

OFFSET = 10.0


def scaled(by):
    def scale(x, *, shift=1.0):
        return x * by + shift

    return scale


class Model:
    __rate = 0.5

    def step(self, x):
        if x.sum() > 0:
            y = x * self.__rate
        else:
            y = x - OFFSET
        total = y
        for i in range(3):
            total = total + scaled(i)(y)
        while abs(total).sum() < 100:
            total = total * 2
        return total, [part for part in (lambda: (x, y))()]


def fails(x):
    y = x * 2
    return y.reshape(5, 5)
'''


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path / "kept"))
    monkeypatch.delenv("WEFT_CACHE", raising=False)
    monkeypatch.setattr(keeping, "_texts", {})
    return tmp_path / "kept" / "entries"


@pytest.fixture
def rewritten(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The functions that are rewritten, in order."""
    names: list[str] = []
    really = conversion.transformed

    def noted(function: types.FunctionType) -> Any:
        names.append(function.__name__)
        return really(function)

    monkeypatch.setattr(conversion, "transformed", noted)
    return names


def afresh(function: types.FunctionType) -> Any:
    """As a new process would do it."""
    conversion._converted.clear()
    conversion._originals.clear()
    return convert(function)


def imported(path: Path, text: str = MODULE) -> Any:
    path.write_text(text)
    linecache.checkcache(str(path))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def exact(code: types.CodeType) -> bytes:
    """All that is in code: instructions, constants, names, lines and columns."""
    return marshal.dumps(code, 2)


def functions(module: Any) -> list[types.FunctionType]:
    """The functions of a module and of its classes, without wrappers that are generated."""
    found = [*vars(module).values()]
    for cls in [part for part in found if isinstance(part, type)]:
        found += vars(cls).values()
    return [
        part
        for part in map(inspect.unwrap, found)
        if isinstance(part, types.FunctionType)
        and os.path.isfile(part.__code__.co_filename)
        and part.__code__.co_filename != dataclass.__file__  # it makes methods of dataclasses
    ]


MODULES = (weft.nn.module, weft.nn.functional, weft.optim)
OWN = {part.__code__: part for module in MODULES for part in functions(module)[:60]}


def test_what_is_kept_is_what_rewriting_gives(tmp_path: Path, rewritten: list[str]) -> None:
    known = [*OWN.values(), *functions(imported(tmp_path / "user.py"))]
    first = [exact(afresh(function)) for function in known]
    assert len(rewritten) == len(known) > 90
    assert [exact(afresh(function)) for function in known] == first
    assert len(rewritten) == len(known)


def test_functions_are_told_apart(tmp_path: Path, rewritten: list[str]) -> None:
    same = "def f(x):\n    return x + 1\n"
    here, there = imported(tmp_path / "a.py", same), imported(tmp_path / "b.py", same)
    lower = imported(tmp_path / "c.py", f"\n{same}")
    for module in (here, there, lower, here):
        assert afresh(module.f).co_filename == module.__file__
    assert len(rewritten) == 3


@pytest.mark.parametrize(
    "change",
    [
        lambda patch: patch.setattr(store, "sources", lambda *_: b"another Weft"),
        lambda patch: patch.setattr(keeping, "PYTHON", b"another Python"),
    ],
)
def test_other_versions_rewrite_anew(
    change: Callable[[pytest.MonkeyPatch], None],
    tmp_path: Path,
    rewritten: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = imported(tmp_path / "user.py")
    for _ in range(2):
        afresh(module.fails)
    change(monkeypatch)
    afresh(module.fails)
    assert rewritten == ["fails"] * 2


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[: len(data) // 2],
        lambda data: data + b"x",
        lambda data: data[:-20] + bytes([data[-20] ^ 1]) + data[-19:],
    ],
)
def test_a_damaged_entry_is_made_anew(
    damage: Callable[[bytes], bytes], tmp_path: Path, place: Path, rewritten: list[str]
) -> None:
    module = imported(tmp_path / "user.py")
    first = exact(afresh(module.fails))
    (path,) = place.glob("*.weft")
    good = path.read_bytes()
    path.write_bytes(damage(good))
    assert exact(afresh(module.fails)) == first
    assert (len(rewritten), path.read_bytes()) == (2, good)


@pytest.mark.parametrize("blocks", [[], [b""], [b"nonsense"], [marshal.dumps("no code")]])
def test_an_entry_that_is_no_code_is_made_anew(
    blocks: list[bytes], tmp_path: Path, place: Path, rewritten: list[str]
) -> None:
    module = imported(tmp_path / "user.py")
    first = exact(afresh(module.fails))
    (path,) = place.glob("*.weft")
    store.write(path.stem, "fails", blocks)
    assert exact(afresh(module.fails)) == first
    assert len(rewritten) == 2


def test_an_edited_file_is_read_anew(tmp_path: Path, rewritten: list[str]) -> None:
    path = tmp_path / "user.py"
    old = imported(path)
    afresh(old.fails)
    before = path.stat()
    new = imported(path, MODULE.replace("x * 2", "x * 3"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # nothing but the text says it
    assert 3 in afresh(new.fails).co_consts
    assert len(rewritten) == 2
    with pytest.raises(NoSource, match="has changed since"):
        afresh(old.fails)


def test_what_is_typed_is_not_kept(place: Path) -> None:
    file = "<a cell>"
    text = "def f(x):\n    return x\n"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    space: dict[str, Any] = {}
    exec(compile(text, file, "exec"), space)
    afresh(space["f"])
    assert not place.exists()


def test_it_can_be_turned_off(
    tmp_path: Path, place: Path, rewritten: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_CACHE", "0")
    module = imported(tmp_path / "user.py")
    assert exact(afresh(module.fails)) == exact(afresh(module.fails))
    assert len(rewritten) == 2
    assert not place.exists()


# --- processes -----------------------------------------------------------------------------------

PROGRAM = """
import sys, traceback
import user, weft
from weft.convert import convert
from weft.passes import pipeline

rewritten, optimized = [], []
really, passes = convert.transformed, pipeline._run_all
convert.transformed = lambda f: rewritten.append(f.__name__) or really(f)
pipeline._run_all = lambda *args: optimized.append(args[1].name) or passes(*args)

step = weft.compile(user.Model().step, backend="native")
for x in (weft.tensor([1.0, 2.0]), weft.tensor([-3.0, 2.0])):
    total, pair = step(x)
    print(total.numpy().tolist(), [part.numpy().tolist() for part in pair])
try:
    weft.compile(user.fails, backend="native")(weft.ones(4))
except weft.errors.WeftError as error:
    print(type(error).__name__, error)
    print([frame.lineno for frame in traceback.extract_tb(error.__traceback__)
           if frame.filename == user.__file__])
print(len(step.recordings), file=sys.stderr)
print(len(rewritten), len(optimized), file=sys.stderr)
"""


def test_guards_are_compiled_once(
    tmp_path: Path, rewritten: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The text of guards says which values they compare by name: other values, the same code."""
    compiled: list[str] = []

    def noted(text: str, *rest: Any) -> Any:
        compiled.append(text)
        return compile(text, *rest)

    monkeypatch.setattr(guard_code, "compile", noted, raising=False)
    for size in (3, 4):
        net = weft.nn.Sequential(*[weft.nn.Linear(size, size) for _ in range(8)])
        traced = weft.trace(net.forward)
        x = weft.ones((2, size))
        np.testing.assert_allclose(traced(x).numpy(), net(x).numpy())
        assert traced(x).shape == (2, size)
        net[3].bias = weft.nn.Parameter(weft.ones((size,)))
        np.testing.assert_allclose(traced(x).numpy(), net(x).numpy())
        with pytest.raises(ShapeError):
            traced(weft.ones((2, size + 1)))
    long = [text for text in compiled if len(text) >= guard_code.LONG]
    assert len(long) == len(set(long)) > 0
    shown = next(traced.segments()).enter.__doc__
    assert shown
    assert any(text.endswith(shown) for text in long)


def test_a_recording_reads_one_entry(
    tmp_path: Path, rewritten: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it used the last time comes together; what is new is found by itself, and joins it."""
    files: list[str] = []
    really = store._read

    def noted(name: str) -> Any:
        files.append(name)
        return really(name)

    monkeypatch.setattr(store, "_read", noted)
    text = """
import weft

OPTIMIZERS = [weft.optim.SGD, weft.optim.Adam]


def step(net, x, optimizer):
    net(x).sum().backward()
    optimizer.step()
"""
    module = imported(tmp_path / "user.py", text)

    def recorded(optimizer: Any) -> tuple[int, int]:
        """How many entries are read, and how many functions rewritten, in a new process."""
        conversion._converted.clear()
        conversion._originals.clear()
        files.clear()
        rewritten.clear()
        net = weft.nn.Sequential(weft.nn.Linear(3, 3), weft.nn.Tanh(), weft.nn.Linear(3, 1))
        compiled = weft.compile(module.step, backend="interpret")
        compiled(net, weft.ones((2, 3)), optimizer(net.parameters()))
        assert store.use.used is None
        return len(files), len(rewritten)

    sgd, adam = module.OPTIMIZERS
    read, made = recorded(sgd)
    assert min(read, made) > 8
    assert recorded(sgd) == (1, 0)
    read, made = recorded(adam)
    assert 1 < read < 12
    assert 0 < made < 8
    assert recorded(adam) == (1, 0)
    assert recorded(sgd) == (1, 0)
    for file in (tmp_path / "kept" / "entries").iterdir():
        file.write_bytes(file.read_bytes()[:-1])
    assert recorded(sgd)[1] > 8
    assert recorded(sgd) == (1, 0)


def started(tmp_path: Path, **environment: str) -> subprocess.Popen[str]:
    main = tmp_path / "main.py"
    if not main.exists():  # another process may be about to read it
        main.write_text(PROGRAM)
    root = Path(weft.__file__).parents[1]
    return subprocess.Popen(
        [sys.executable, "main.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(root), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finished(process: subprocess.Popen[str]) -> tuple[str, list[int]]:
    """What a process says, and how much it rewrote and optimized."""
    try:
        said, noted = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0, noted
    return said, [int(word) for word in noted.split()[-2:]]


def test_processes_say_the_same(tmp_path: Path) -> None:
    (tmp_path / "user.py").write_text(MODULE)
    plain, made = finished(started(tmp_path, WEFT_CACHE="0"))
    assert not (tmp_path / "kept").exists()
    assert "user.py:34 in fails" in plain
    assert min(made) > 0
    at_once = [started(tmp_path) for _ in range(2)]
    assert [finished(process)[0] for process in at_once] == [plain] * 2
    assert not list((tmp_path / "kept" / "entries").glob("*.part"))
    assert finished(started(tmp_path)) == (plain, [0, 0])
    (tmp_path / "user.py").write_text(MODULE.replace("x - OFFSET", "x + OFFSET"))
    edited, made_anew = finished(started(tmp_path))
    assert edited != plain
    assert made_anew[0] == made[0]
    assert finished(started(tmp_path, WEFT_CACHE="0"))[0] == edited
