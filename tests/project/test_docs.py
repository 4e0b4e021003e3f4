"""What the documents and docstrings show is what happens: all their examples are run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\]\(([^)#\s]*)(#[^)\s]+)?[^)]*\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
FENCED = re.compile(r"^```.*?^```[ \t]*$", re.MULTILINE | re.DOTALL)


#: Pages whose examples need an optional library.
NEEDS = {"docs/onnx.md": "onnxruntime", "docs/devices.md": "onnxruntime"}


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def anchors(path: Path) -> set[str]:
    """What links may name in a page: its headings, as GitHub and the site spell them."""
    headings = HEADING.findall(FENCED.sub("", path.read_text()))
    plain = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings]
    return {"#" + re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in plain}


def run(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-W",
        "error",
        str(ROOT / "tests" / "support" / "run_docs.py"),
        *arguments,
    ]
    as_users = {key: value for key, value in os.environ.items() if key != "WEFT_BACKEND"}
    return subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, check=False, env=as_users
    )


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_examples_of_a_document(path: Path) -> None:
    if name_of(path) in NEEDS:
        pytest.importorskip(NEEDS[name_of(path)])
    done = run(path.relative_to(ROOT).as_posix())
    assert done.returncode == 0, done.stdout + done.stderr


def test_examples_of_docstrings() -> None:
    done = run("--docstrings")
    assert done.returncode == 0, done.stdout + done.stderr
    assert not done.stdout.startswith("0 examples")


def test_the_readme_has_examples() -> None:
    assert not run("README.md").stdout.startswith("0 examples")


@pytest.mark.parametrize(
    ("text", "status", "shown"),
    [
        ("```python\n>>> 1 + 1\n2\n```\n", 0, "1 examples, 0 failures"),
        ("```python\n>>> 1 + 1\n3\n```\n", 1, "Got:\n    2"),
        ("```python\nx = 1\n```\ntext\n```python\n>>> x\n1\n```\n", 0, "2 examples, 0 failures"),
        ("text\n```python\nassert False\n```\n", 1, "line 3, in <module>\n    assert False"),
        (
            "```python\n>>> import weft\n>>> def f(x):\n...     return x if x > 0 else -x\n```\n"
            "```python\n>>> 1\n1\n>>> weft.compile(f)(weft.tensor(-2.0))\ntensor(2.)\n```\n",
            0,
            "2 examples, 0 failures",
        ),
        ("```text\n>>> 1 + 1\n3\n```\n", 0, "0 examples"),
    ],
)
def test_the_runner_itself(tmp_path: Path, text: str, status: int, shown: str) -> None:
    (tmp_path / "page.md").write_text(text)
    done = run("page.md", cwd=tmp_path)
    assert done.returncode == status, done.stdout + done.stderr
    assert shown in done.stdout


@pytest.mark.parametrize(
    "path", [*DOCUMENTS, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"], ids=name_of
)
def test_links_lead_somewhere(path: Path) -> None:
    missing = []
    for target, anchor in LINK.findall(FENCED.sub("", path.read_text())):
        if "://" in target:
            continue
        page = path.parent / target if target else path
        if not page.exists() or (anchor and page.suffix == ".md" and anchor not in anchors(page)):
            missing.append(target + anchor)
    assert not missing


@pytest.mark.parametrize("path", [*DOCUMENTS, ROOT / "CONTRIBUTING.md"], ids=name_of)
def test_files_that_are_named_exist(path: Path) -> None:
    named = re.findall(r"`((?:weft|tests|tools|benchmarks|docs)/[\w/.]+)`", path.read_text())
    missing = [name for name in named if not (ROOT / name).exists()]
    to_come = {"weft/interop/", "weft/distributed/"}  # rows of docs/layout.md that say so
    assert not set(missing) - to_come
