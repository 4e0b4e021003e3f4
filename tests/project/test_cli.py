"""`weft` on the command line: the tour, the doctor, the version."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import weft
from weft.base import config, store
from weft.cli import main
from weft.inspect import doctor, tour
from weft.inspect.tour import STEPS, Step, TourError

ROOT = Path(__file__).resolve().parents[2]


# --- the tour ----------------------------------------------------------------------------------


def test_demo_shows_every_step(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo"]) == 0
    shown = capsys.readouterr().out
    for number, step in enumerate(STEPS, 1):
        assert f"{number}. {step.title}" in shown
        for line in filter(None, step.code.splitlines()):
            assert line in shown
    assert "tensor([[1., 2., 3.],\n" in shown
    assert ">>> " in shown
    assert "... " in shown


def test_the_tour_is_the_same_every_time() -> None:
    assert list(tour.shown()) == list(tour.shown())


def test_every_step_is_checked() -> None:
    assert all(step.checks for step in STEPS)


def test_an_error_in_the_tour_shows_the_line_of_the_step() -> None:
    step = next(text for text in tour.shown() if "Errors name" in text)
    number = step.partition(".")[0]
    assert f"at <step {number}>:2 in layer: return inputs @ weights" in step


def test_a_step_shows_what_ran() -> None:
    step = Step("Title.", "x = [1,\n     2]  # two\nprint('hi')\nx\nNone\n", ("x == [1, 2]",))
    assert tour.run(step, {}).splitlines() == [
        "    >>> x = [1,",
        "    ...      2]  # two",
        "    >>> print('hi')",
        "    hi",
        "    >>> x",
        "    [1, 2]",
        "    >>> None",
    ]


def test_a_step_that_does_not_do_what_it_says_fails() -> None:
    with pytest.raises(TourError, match="Not true: 1 > 2"):
        tour.run(Step("Title.", "1\n", ("1 > 2",)), {})
    with pytest.raises(TourError, match="ValueError should be raised"):
        tour.run(Step("Title.", "1\n", ("True",), raises="ValueError"), {})
    with pytest.raises(ZeroDivisionError):
        tour.run(Step("Title.", "1 / 0\n", ("True",)), {})


# --- the doctor --------------------------------------------------------------------------------


def test_doctor_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found) == list(doctor.SECTIONS)
    assert not [name for name, section in found.items() if "error" in section]
    assert found["versions"]["weft"] == weft.__version__
    for package in ("numpy", "llvmlite", "ml_dtypes"):
        assert re.match(r"\d+\.\d+", found["versions"][package])
    assert found["cpu"]["cores"] >= found["cpu"]["cores usable"] >= 1
    assert re.match(r"\d+\.\d+", found["llvm"]["version"])
    assert "-" in found["llvm"]["host triple"]
    assert isinstance(found["gpu"]["cupy"], bool)
    assert isinstance(found["gpu"]["devices"], list)


def test_doctor_as_text(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "a.o").write_bytes(bytes(2048))
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("WEFT_SOMETHING", "yes")
    assert main(["doctor"]) == 0
    shown = capsys.readouterr().out
    for name in doctor.SECTIONS:
        assert f"{name}\n  " in shown
    assert re.search(rf"folder +{re.escape(str(tmp_path))}\n", shown)
    assert re.search(r"files +1\n +size +2 KiB\n", shown)
    assert re.search(r"WEFT_SOMETHING +yes", shown)


def test_doctor_reports_what_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llvmlite.binding", None)  # as if it were not installed
    found = doctor.report()
    assert "ModuleNotFoundError" in found["llvm"]["error"]
    assert "numpy" in found["versions"]


class Driver:
    """Stands in for NVIDIA's driver library: two devices, or one that does not start."""

    def __init__(self, status: int = 0) -> None:
        self.status = status

    def cuInit(self, _flags: int) -> int:
        return self.status

    def cuDriverGetVersion(self, version: object) -> None:
        version._obj.value = 13010  # type: ignore[attr-defined]

    def cuDeviceGetCount(self, count: object) -> None:
        count._obj.value = 2  # type: ignore[attr-defined]

    def cuDeviceGet(self, device: object, index: int) -> None:
        device._obj.value = index  # type: ignore[attr-defined]

    def cuDeviceGetName(self, name: object, _length: int, device: object) -> None:
        name.value = f"GPU {device.value}".encode()  # type: ignore[attr-defined]

    def cuDeviceGetAttribute(self, part: object, attribute: int, _device: object) -> None:
        part._obj.value = {75: 9, 76: 0}[attribute]  # type: ignore[attr-defined]


def test_doctor_asks_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.ctypes, "CDLL", lambda _name: Driver())
    found = doctor.gpu()
    assert found["nvidia driver"] == "supports CUDA 13.1"
    assert found["devices"] == [f"GPU {i} (compute capability 9.0)" for i in range(2)]
    monkeypatch.setattr(doctor.ctypes, "CDLL", lambda _name: Driver(status=100))
    assert doctor.gpu()["nvidia driver"] == "found, but cuInit returned error 100"

    def missing(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(doctor.ctypes, "CDLL", missing)
    assert doctor.gpu()["nvidia driver"] == "not found"


# --- settings ----------------------------------------------------------------------------------


#: system, environment (~ stands for the home folder), the folder in it
CACHE_FOLDERS = [
    ("linux", {}, ".cache/weft"),
    ("linux", {"XDG_CACHE_HOME": "relative/is/ignored"}, ".cache/weft"),
    ("linux", {"XDG_CACHE_HOME": "~/xdg"}, "xdg/weft"),
    ("linux", {"XDG_CACHE_HOME": "~/xdg", "WEFT_CACHE_DIR": "~/mine"}, "mine"),
    ("linux", {"LOCALAPPDATA": "~/Local"}, ".cache/weft"),
    ("darwin", {}, "Library/Caches/weft"),
    ("darwin", {"XDG_CACHE_HOME": "~/xdg"}, "xdg/weft"),
    ("darwin", {"WEFT_CACHE_DIR": "~/mine"}, "mine"),
    ("win32", {"LOCALAPPDATA": "~/Local"}, "Local/weft/Cache"),
    ("win32", {"LOCALAPPDATA": "~/Local", "XDG_CACHE_HOME": "~/xdg"}, "Local/weft/Cache"),
    ("win32", {}, "AppData/Local/weft/Cache"),
    ("win32", {"LOCALAPPDATA": "~/Local", "WEFT_CACHE_DIR": "~/mine"}, "mine"),
]


@pytest.mark.parametrize(("system", "environment", "folder"), CACHE_FOLDERS)
def test_cache_folder(
    system: str,
    environment: dict[str, str],
    folder: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    for name in ("WEFT_CACHE", "WEFT_CACHE_DIR", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(config.sys, "platform", system)
    for name, value in environment.items():
        given = value if name == "WEFT_CACHE_DIR" else value.replace("~", str(tmp_path))
        monkeypatch.setenv(name, given)
    assert config.cache_dir() == tmp_path / folder
    assert store.folder() == tmp_path / folder / "entries"


# --- the command itself ------------------------------------------------------------------------


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert capsys.readouterr().out == f"weft {project['version']}\n"
    assert weft.__version__ == project["version"]


def test_no_command_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main([])
    assert stop.value.code == 2
    assert "COMMAND" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["-m", "weft"], ["-m", "weft.cli"]])
def test_python_m(command: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", *command, "--version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"weft {weft.__version__}\n"


def test_debug_asks_for_a_script(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, text in (([], "weft debug train.py"), (["none.py"], "there is no file none.py")):
        with pytest.raises(SystemExit) as stop:
            main(["debug", *arguments])
        assert stop.value.code == 2
        assert text in capsys.readouterr().err


def test_debug_of_a_script_without_compiled_functions(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "plain.py").write_text("print('done')\n")
    assert main(["debug", str(tmp_path / "plain.py")]) == 0
    shown = capsys.readouterr().out
    assert "it called no compiled function" in shown
    assert "stands still" not in shown


VIEWED = """
import weft

@weft.compile
def first(x):
    return x * 2

@weft.compile
def second(x):
    return x + 1

print(first(weft.ones(2)), second(weft.ones(2)))
"""


def test_view_of_a_script_shows_its_compiled_functions(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    script, page = tmp_path / "train.py", tmp_path / "page.html"
    script.write_text(VIEWED)
    options = ["--no-serve", "-o", str(page)]
    assert main(["view", str(script), *options]) == 0
    assert "showing second; --function shows another: first, second" in capsys.readouterr().out
    assert "<title>second" in page.read_text()
    assert main(["view", str(script), "-f", "first", *options]) == 0
    assert "<title>first" in page.read_text()
    capsys.readouterr()
    assert main(["view", str(script), "-f", "third", *options]) == 1
    assert "one of first, second" in capsys.readouterr().err
    script.write_text("x = 1\n")
    assert main(["view", str(script), *options]) == 1
    assert "called no compiled function" in capsys.readouterr().err
    assert main(["view", str(tmp_path / "none.py"), *options]) == 1


def test_a_reader_that_has_seen_enough() -> None:
    command = f"{sys.executable} -m weft demo | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=300)
    assert done.stdout.startswith("1. ")
    assert done.stderr == ""


def test_clearing_the_cache_asks_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path))
    store.write("a" * 64, "said", [b"some bytes"])
    assert store.info()["entries"] == 1
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    asked: list[str] = []
    monkeypatch.setattr("builtins.input", lambda text: asked.append(text) or "n")
    assert main(["cache", "clear"]) == 1
    assert store.info()["entries"] == 1
    assert asked[0].startswith("remove 1 entries")
    assert main(["cache", "clear", "--yes"]) == 0
    assert store.info()["entries"] == 0
    assert len(asked) == 1


def test_the_citation_names_this_version() -> None:
    lines = (ROOT / "CITATION.cff").read_text().splitlines()
    assert f"version: {weft.__version__}" in lines


def test_programs_are_explained_and_viewed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "model.weft")
    weft.export(weft.nn.Linear(2, 1), weft.spec(("B", 2))).save(path)
    assert main(["explain", path]) == 0
    assert "compiled from a program" in capsys.readouterr().out
    assert main(["explain", path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["capture_by"] == "program"
    page = str(tmp_path / "page.html")
    assert main(["explain", path, "-o", page]) == 0
    assert main(["view", path, "--no-serve", "-o", page]) == 0
    capsys.readouterr()
    Path(path).write_bytes(Path(path).read_bytes()[:200])
    for command in ("explain", "view"):
        assert main([command, path]) == 1
        assert f"weft {command}: model.weft: it is a zip file that is cut off" in (
            capsys.readouterr().err
        )
        assert main([command, str(tmp_path / "none.weft")]) == 1
