"""The cache of machine code: what is found is what was made, whatever happens to it."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from weft.base import store
from weft.cli import main
from weft.codegen import cache, machine
from weft.codegen.cache import Code, cached
from weft.codegen.machine import host
from weft.errors import InternalError, RangeError

NUMBER = ctypes.CFUNCTYPE(ctypes.c_int32)


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the test's own, without what is kept about this machine."""
    host()
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path / "kept"))
    monkeypatch.delenv("WEFT_CACHE", raising=False)
    monkeypatch.delenv("WEFT_CACHE_SIZE", raising=False)
    monkeypatch.setattr(store, "_room", store._Room())
    monkeypatch.setattr(store, "_folders", {})
    monkeypatch.setattr(cache, "_waiting", {})
    return tmp_path / "kept" / "entries"


class Maker:
    """Describes a function that gives a number, and counts how often it was asked."""

    def __init__(self, number: int, meta: Any = None) -> None:
        self.number, self.meta, self.asked = number, meta, 0

    def __call__(self) -> Code:
        self.asked += 1
        text = f"define i32 @f() {{\n  ret i32 {self.number}\n}}\n"
        return Code(text, ["f"], self.meta)


def value(loaded: cache.Loaded) -> int:
    result: int = NUMBER(loaded.library.address("f"))()
    return result


def entries(place: Path) -> list[Path]:
    return sorted(place.glob("*.weft"), key=lambda path: path.stat().st_mtime_ns)


def test_what_a_key_brought_once_is_not_made_again(place: Path) -> None:
    make = Maker(7, {"arena": 64, "names": ["a", "b"]})
    for _ in range(3):
        loaded = cached(b"seven", make)
        assert value(loaded) == 7
        assert loaded.meta == {"arena": 64, "names": ["a", "b"]}
    assert make.asked == 1
    assert len(entries(place)) == 1
    assert not list(place.glob("*.part"))


def test_the_meta_is_as_json_gives_it_back_from_the_first_time_on() -> None:
    make = Maker(1, {"shape": (2, 3)})
    assert [cached(b"k", make).meta for _ in range(2)] == [{"shape": [2, 3]}] * 2


def test_what_is_wanted_next_is_made_at_once(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[int] = []
    really = cache.object_codes

    def noted(texts: Any, *rest: Any) -> Any:
        compiled.append(len(texts))
        return really(texts, *rest)

    monkeypatch.setattr(cache, "object_codes", noted)
    pool, calls, more = Maker(2), Maker(3), Maker(4)
    cached(b"calls", calls)  # on disk already
    requests = [(b"pool", pool), (b"calls", calls), (b"more", more)]
    for _ in range(2):
        cache.prepare(requests)
        assert compiled == [1, 2]
        assert len(entries(place)) == 3
    found = [value(cached(key, make)) for key, make in requests]
    assert found == [2, 3, 4]
    assert [value(cached(key, make)) for key, make in requests] == found  # from disk
    assert [make.asked for make in (pool, calls, more)] == [1, 1, 1]
    cache.prepare([])
    assert compiled == [1, 2]


def test_keys_are_told_apart() -> None:
    makers = {key: Maker(i) for i, key in enumerate((b"", b"a", b"b", b"ab"))}
    for _ in range(2):
        for i, (key, make) in enumerate(makers.items()):
            assert value(cached(key, make)) == i
    assert [make.asked for make in makers.values()] == [1] * 4


def test_without_a_key_the_text_is_the_key(place: Path) -> None:
    assert [value(cached(None, Maker(n))) for n in (1, 2, 1)] == [1, 2, 1]
    assert len(entries(place)) == 2
    cached(None, Maker(1, "another meta"))
    assert len(entries(place)) == 3


@pytest.mark.parametrize(
    "change",
    [
        lambda patch: patch.setattr(cache, "VERSION", 99),
        lambda patch: patch.setattr(cache.llvm, "version", lambda: "another"),
        lambda patch: patch.setattr(store, "sources", lambda *_: b"another Weft"),
    ],
)
def test_other_versions_make_their_own(
    change: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    make = Maker(5)
    cached(b"k", make)
    cache._build_key.cache_clear()
    change(monkeypatch)
    cached(b"k", make)
    cache._build_key.cache_clear()
    assert make.asked == 2


def test_other_machines_make_their_own() -> None:
    make = Maker(5)
    other = replace(host(), vector_bytes=8)
    for target in (host(), other, None):
        assert value(cached(b"k", make, target)) == 5
    assert make.asked == 2


def test_a_changed_source_file_is_another_weft(tmp_path: Path) -> None:
    first = store.sources.__wrapped__("codegen")
    assert first == store.sources.__wrapped__("codegen")
    names = [name for name, _ in store.files(Path(cache.__file__).parent, ".py")]
    assert cache.__file__ in names


def test_a_warm_start_does_not_load_llvm() -> None:
    make = "lambda: Code('define i32 @f() {\\n  ret i32 5\\n}\\n', ['f'])"
    code = (
        "import ctypes, sys\nfrom weft.codegen.cache import Code, cached\n"
        "from weft.runtime.threads import pool_address\n"
        f"loaded = cached(b'k', {make})\n"
        "pool_address()\n"
        "print(ctypes.CFUNCTYPE(ctypes.c_int32)(loaded.library.address('f'))(), "
        "'llvmlite.binding' in sys.modules)\n"
    )
    command = [sys.executable, "-c", code]
    runs = [subprocess.run(command, capture_output=True, text=True, check=True) for _ in range(2)]
    assert runs[0].stdout.split() == ["5", "True"]
    if sys.platform == "linux" and host().triple.startswith("x86_64"):
        assert runs[1].stdout.split() == ["5", "False"]


#: Compiles a function, and says what is loaded before it is called.
EXPECTED = """
import sys
import weft
from weft.codegen import cache

@weft.compile(backend="native")
def f(x):
    return x * 2 + {number}

def loaded():
    return [name for name in ("llvmlite.binding", "weft.codegen.program") if name in sys.modules]

before = loaded()
made = []
really = cache.object_codes
cache.object_codes = lambda texts, *rest: made.append(len(texts)) or really(texts, *rest)
assert f(weft.ones(3)).tolist() == [2.0 + {number}] * 3
print(before == loaded(), len(before), made)
"""


def test_the_first_call_does_not_wait_for_what_can_be_loaded_before(tmp_path: Path) -> None:
    def said(number: int) -> str:
        (tmp_path / "program.py").write_text(EXPECTED.format(number=number))
        command = [sys.executable, str(tmp_path / "program.py")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        return done.stdout.strip()

    assert said(1) == "True 2 [1]"  # the function alone is left to compile
    assert said(1) == "True 0 []"  # LLVM and the generators are not needed at all
    assert said(2) == "True 2 [1]"


def test_what_is_kept_about_a_machine_is_what_llvm_says(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_TARGET_FEATURES", "-avx512f")
    first, asked = host.__wrapped__(), machine._asked("-avx512f")
    assert len(entries(place)) == 1
    monkeypatch.setattr(machine, "_asked", lambda changes: pytest.fail("LLVM was asked"))
    assert host.__wrapped__() == first
    monkeypatch.setattr(machine, "_asked", lambda changes: asked)
    monkeypatch.setattr(machine, "_processor", lambda: b"another")
    host.__wrapped__()
    assert len(entries(place)) == 2
    monkeypatch.setattr(machine, "_processor", lambda: b"")  # a system that does not say
    assert host.__wrapped__() == first
    assert len(entries(place)) == 2


def test_a_processor_is_what_does_not_change(tmp_path: Path) -> None:
    text = "processor: 0\nmodel name\t: Some CPU\ncpu MHz\t: {}\nflags\t: fpu vme\n\nprocessor: 1\n"
    found = []
    for clock in ("1000", "2000"):
        (tmp_path / "cpuinfo").write_text(text.format(clock))
        found.append(machine._processor(tmp_path / "cpuinfo"))
    assert found[0] == found[1]
    assert found[0].splitlines()[1:] == [b"model name\t: Some CPU", b"flags\t: fpu vme"]
    assert machine._processor(tmp_path / "none") == b""


# --- what can happen to an entry -----------------------------------------------------------------


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:5],
        lambda data: data[: len(data) // 2],
        lambda data: data[:-1],
        lambda data: data + b"x",
        lambda data: data[:100] + bytes([data[100] ^ 1]) + data[101:],
        lambda data: b"another thing altogether" * 100,
        lambda data: data[:-200] + bytes(200),
    ],
)
def test_a_damaged_entry_is_made_anew(damage: Callable[[bytes], bytes], place: Path) -> None:
    make = Maker(3)
    cached(b"k", make)
    (path,) = entries(place)
    good = path.read_bytes()
    path.write_bytes(damage(good))
    assert value(cached(b"k", make)) == 3
    assert make.asked == 2
    assert path.read_bytes() == good
    cached(b"k", make)
    assert make.asked == 2


def test_an_entry_that_cannot_be_linked_is_made_anew(place: Path) -> None:
    make = Maker(3)
    cached(b"k", make)
    (path,) = entries(place)
    store.write(path.stem, {"exports": ["f"], "meta": None}, [b"\x7fELF and no more"])
    assert value(cached(b"k", make)) == 3
    assert make.asked == 2


def test_code_that_does_not_build_leaves_nothing(place: Path) -> None:
    def bad() -> Code:
        return Code("nonsense", ["f"])

    for _ in range(2):
        with pytest.raises(InternalError):
            cached(b"k", bad)
    assert entries(place) == []


# --- where nothing can be kept -------------------------------------------------------------------


@pytest.mark.parametrize("off", ["0", "off", "no", "False"])
def test_it_can_be_turned_off(off: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_CACHE", off)
    make = Maker(4, {"a": (1,)})
    for _ in range(2):
        loaded = cached(b"k", make)
        assert value(loaded) == 4
        assert loaded.meta == {"a": [1]}
    assert make.asked == 2
    assert not place.exists()
    assert store.clear() == 0
    assert store.info()["folder"] is None


def test_a_folder_that_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path / "file" / "below"))
    assert value(cached(b"k", Maker(4))) == 4
    assert store.info()["entries"] == 0


def test_a_folder_that_is_read_only(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_args: object) -> None:
        raise PermissionError("read-only")

    monkeypatch.setattr(store, "write_file", refused)  # as root, modes refuse nothing
    assert value(cached(b"k", Maker(4))) == 4
    assert entries(place) == []
    assert not list(place.glob("*.part"))


def test_no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WEFT_CACHE_DIR")

    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(store, "cache_dir", homeless)
    assert value(cached(b"k", Maker(4))) == 4


# --- how much is kept ----------------------------------------------------------------------------


def test_what_was_not_used_longest_goes(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cached(b"0", Maker(0))
    (first,) = entries(place)
    size = first.stat().st_size
    monkeypatch.setenv("WEFT_CACHE_SIZE", str(size * 11 // 2))  # five of them, and then some
    for i in range(1, 5):
        cached(str(i).encode(), Maker(i))
    assert len(entries(place)) == 5
    for age, path in enumerate(reversed(entries(place)), 1):
        then = time.time() - 100 * age
        os.utime(path, (then, then))
    again = Maker(0)
    cached(b"0", again)  # used now
    assert again.asked == 0
    store._room.left.clear()
    cached(b"new", Maker(9))
    assert len(entries(place)) == 4  # four fifths of the bound, when it is passed
    assert first in entries(place)
    again = Maker(1)
    cached(b"1", again)
    assert again.asked == 1


def test_the_bound_holds_in_one_process(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_CACHE_SIZE", "8 kB")
    for i in range(40):
        cached(str(i).encode(), Maker(i))
        assert sum(path.stat().st_size for path in entries(place)) <= 8000


def test_an_entry_larger_than_all_is_not_kept(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_CACHE_SIZE", "100")
    assert value(cached(b"k", Maker(4))) == 4
    assert entries(place) == []


def test_files_left_behind_go(place: Path) -> None:
    place.mkdir(parents=True)
    old, new = place / "a.1.0.part", place / "b.1.0.part"
    for path in (old, new):
        path.write_bytes(b"half")
    os.utime(old, (1, 1))
    cached(b"k", Maker(1))
    store._room.look_at_rest()  # when the process ends
    assert (old.exists(), new.exists()) == (False, True)


def test_a_process_that_writes_a_little_looks_when_it_ends(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached(b"0", Maker(0))
    (first,) = entries(place)
    size = first.stat().st_size
    for i in range(100):
        (place / f"{i}{first.suffix}").write_bytes(bytes(size))
        os.utime(place / f"{i}{first.suffix}", (i, i))
    monkeypatch.setenv("WEFT_CACHE_SIZE", str(100 * size))
    store._room.left.clear()
    cached(b"new", Maker(1))
    assert len(entries(place)) == 102
    program = "from weft.codegen.cache import Code, cached\ncached(b'k', lambda: Code('', []))"
    subprocess.run([sys.executable, "-c", program], check=True)
    assert len(entries(place)) <= 80
    assert first in entries(place)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("", 1 << 30),
        ("0", 0),
        ("12345", 12345),
        ("1.5 kB", 1500),
        ("500MB", 500 * 10**6),
        ("2 GiB", 2 << 30),
        (" 3mi ", 3 << 20),
        ("7 b", 7),
    ],
)
def test_sizes_are_read(text: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_CACHE_SIZE", text)
    assert store.info()["most bytes"] == size


@pytest.mark.parametrize("text", ["much", "-1", "1 TB", "1e9"])
def test_sizes_that_are_none(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_CACHE_SIZE", text)
    with pytest.raises(RangeError, match="WEFT_CACHE_SIZE is"):
        cached(b"k", Maker(1))


# --- many at once --------------------------------------------------------------------------------


PROGRAM = """
import ctypes, sys
from weft.codegen.cache import Code, cached
for i in range(30):
    make = lambda: Code(f"define i32 @f() {{\\n  ret i32 {i % 7}\\n}}\\n", ["f"], i % 7)
    loaded = cached(str(i % 7).encode(), make)
    assert ctypes.CFUNCTYPE(ctypes.c_int32)(loaded.library.address("f"))() == i % 7 == loaded.meta
"""


def test_many_processes(place: Path) -> None:
    environment = {**os.environ, "WEFT_CACHE_SIZE": "3 kB"}  # so that some remove what others read
    running = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM], env=environment, stderr=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    assert [(p.wait(timeout=60), p.communicate()[1]) for p in running] == [(0, "")] * 3
    assert not list(place.glob("*.part"))


def test_many_threads() -> None:
    found: list[int] = []

    def work() -> None:
        found.extend(value(cached(str(i % 5).encode(), Maker(i % 5))) - i % 5 for i in range(20))

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert found == [0] * 80


# --- the command ---------------------------------------------------------------------------------


def test_the_command(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache", "info"]) == 0
    shown = capsys.readouterr().out
    assert shown.splitlines() == [
        f"folder   {place}",
        "entries  0",
        "size     0 bytes of 1 GiB",
    ]
    for i in range(3):
        cached(str(i).encode(), Maker(i))
    assert main(["cache", "info", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    size = sum(path.stat().st_size for path in entries(place))
    assert found == {"folder": str(place), "entries": 3, "bytes": size, "most bytes": 1 << 30}
    assert main(["cache", "clear"]) == 0
    assert capsys.readouterr().out.startswith("removed 3 entries, ")
    assert entries(place) == []
    assert main(["cache", "clear"]) == 0
    assert capsys.readouterr().out == "removed 0 entries, 0 bytes\n"


def test_the_command_where_it_is_off(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_CACHE", "0")
    assert main(["cache", "info"]) == 0
    assert "none: WEFT_CACHE turns it off" in capsys.readouterr().out
