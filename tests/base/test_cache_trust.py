"""What is kept on disk is run: it is read only where nobody else can have written it."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

from weft.base import store
from weft.base.private_files import refusal
from weft.base.store import CacheWarning

pytestmark = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="users as POSIX knows them")
as_root = pytest.mark.skipif(getattr(os, "geteuid", lambda: 1)() != 0, reason="chown takes root")
NAME, OTHER = store.name_of(b"one"), store.name_of(b"other")


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path / "kept"))
    monkeypatch.delenv("WEFT_CACHE", raising=False)
    for known in ("_folders", "_trusted", "_refused"):
        monkeypatch.setattr(store, known, type(getattr(store, known))())
    return tmp_path / "kept" / "entries"


def check_refused(match: str) -> None:
    """Nothing is read and nothing is written, and one warning says why."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert store.read(NAME) is None
        store.write(OTHER, "kept", [b"code"])
        assert store.read(OTHER) is None
        assert store.folder() is None
        assert store.info()["folder"] is None
    (only,) = said
    assert only.category is CacheWarning
    assert re.search(match, str(only.message)), only.message


def kept() -> Any:
    store.write(NAME, "kept", [b"code"])
    return store.read(NAME)


def test_what_is_made_is_for_this_user_alone(place: Path) -> None:
    before = os.umask(0)
    try:
        assert kept() == ("kept", [b"code"])
    finally:
        os.umask(before)
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (place.parent, place)]
    assert modes == [0o700, 0o700]
    assert [stat.S_IMODE(path.stat().st_mode) for path in place.iterdir()] == [0o600]


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o1777, 0o722])
@pytest.mark.parametrize("which", ["entries", "kept"])
def test_a_folder_that_others_can_write(place: Path, mode: int, which: str) -> None:
    kept()
    store._trusted.clear()  # as in the next process
    folder = place if which == "entries" else place.parent
    folder.chmod(mode)
    if which == "kept" and mode == 0o1777:  # as /tmp: others cannot touch what is ours
        assert store.read(NAME) is not None
        return
    check_refused(rf"others can write to .*{which} \(its mode is {mode:04o}\): `chmod go-w")
    folder.chmod(0o755)
    store._refused.clear()
    assert store.read(NAME) is not None


@as_root
@pytest.mark.parametrize("which", ["entries", "kept"])
def test_a_folder_of_another_user(place: Path, which: str) -> None:
    kept()
    store._trusted.clear()
    os.chown(place if which == "entries" else place.parent, 12345, 12345)
    check_refused(rf"{which} belongs to another user \(its owner is 12345, you are 0\)")


def test_a_folder_that_another_made_meanwhile(place: Path) -> None:
    """It was not there when it was first looked at."""
    assert store.read(NAME) is None
    place.parent.mkdir(mode=0o777)
    place.mkdir()
    place.chmod(0o777)
    check_refused("others can write")


def test_functions_work_without_the_folder(place: Path, tmp_path: Path) -> None:
    place.mkdir(parents=True)
    place.chmod(0o777)
    code = (
        "import weft\n"
        "f = weft.compile(lambda x: x * 2, capture='trace', backend='native')\n"
        "print(f(weft.ones(3)), f(weft.ones(3) * 2))\n"
    )
    script = tmp_path / "script.py"
    script.write_text(code)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60)
    assert done.stdout == "tensor([2., 2., 2.]) tensor([4., 4., 4.])\n", done.stderr
    assert done.stderr.count("CacheWarning: Weft keeps no code on disk") == 1
    assert list(place.iterdir()) == []


# --- entries -------------------------------------------------------------------------------------


def planted(place: Path) -> Path:
    """A good entry, of another process."""
    kept()
    return place / f"{NAME}{store.SUFFIX}"


def made_anew(path: Path) -> None:
    """The entry counts as none, and the one who makes it takes its place."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert store.read(NAME) is None
        assert kept() == ("kept", [b"code"])
    assert path.is_file()
    assert not path.is_symlink()


@pytest.mark.parametrize("mode", [0o666, 0o620, 0o602])
def test_an_entry_that_others_can_write(place: Path, mode: int) -> None:
    path = planted(place)
    path.chmod(mode)
    made_anew(path)


@as_root
def test_an_entry_of_another_user(place: Path) -> None:
    path = planted(place)
    os.chown(path, 12345, 12345)
    made_anew(path)


def test_a_link(place: Path, tmp_path: Path) -> None:
    path = planted(place)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    made_anew(path)


@pytest.mark.parametrize("kind", ["pipe", "endless", "folder"])
def test_what_is_no_regular_file(place: Path, kind: str) -> None:
    path = planted(place)
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "endless":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()
        assert store.read(NAME) is None
        return
    made_anew(path)


def test_entries_that_changed_places(place: Path) -> None:
    path = planted(place)
    store.write(OTHER, "other", [b"other code"])
    other = place / f"{OTHER}{store.SUFFIX}"
    path.rename(place / "aside")
    other.rename(path)
    (place / "aside").rename(other)
    assert store.read(OTHER) is None
    made_anew(path)


def test_folders_above_up_to_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    below = tmp_path / "home" / "a" / "b"
    below.mkdir(parents=True)
    assert refusal(below) is None
    tmp_path.chmod(0o777)
    assert f"others can write to {tmp_path} " in str(refusal(below))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))  # what is above is not ours to judge
    assert refusal(below) is None
    (tmp_path / "home").chmod(0o775)
    assert "others can write" in str(refusal(below))
    with pytest.raises(FileNotFoundError):
        refusal(below / "none")
