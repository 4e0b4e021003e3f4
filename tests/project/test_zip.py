"""Weft from a zip file, as a zipapp has it: what reads files of its own works there, too."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import weft

PACKAGE = Path(weft.__file__).parent

SCRIPT = """
import weft
from weft.base import store

assert ".zip" in weft.__file__, weft.__file__
x = weft.tensor([1.0, 2.0], requires_grad=True)
page = weft.view((x * x).sum(), "page.html")
assert "<script>" in page.html
page.save("page.svg")

@weft.compile(backend="{backend}")
def f(x):
    while x.sum() < 9:
        x = x * 2
    return x

assert f(weft.ones(3)).tolist() == [4.0] * 3
weft.view(f, "f.html")
f.explain().html()
with weft.profile(roofline=False) as p:
    f(weft.ones(3))
p.view("profile.html")
print(store.sources("codegen", "runtime").hex())
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    path = tmp_path / "weft.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted(PACKAGE.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                archive.write(file, file.relative_to(PACKAGE.parent))
    return path


def run(package: Path, script: str, folder: Path) -> str:
    """What a script prints that imports Weft from a zip."""
    path = folder / "script.py"
    path.write_text(script)
    done = subprocess.run(
        [sys.executable, str(path)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(package)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_from_a_zip(package: Path, tmp_path: Path) -> None:
    """Pages are written, and what is kept on disk is not for a zip with other contents."""
    kept = run(package, SCRIPT.format(backend="interpret"), tmp_path)
    with zipfile.ZipFile(package, "a") as archive:
        archive.writestr("weft/codegen/more.py", "changed = True")
    assert run(package, SCRIPT.format(backend="native"), tmp_path) != kept
    names = {"page.html", "page.svg", "f.html", "profile.html"}
    assert {file.name for file in tmp_path.iterdir()} >= names
