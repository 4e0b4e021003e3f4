"""`weft.compile` where people type: the prompt, `python -c`, `exec`; and debuggers in it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

import weft

ABS = "def f(x):\n    if x.sum() > 0:\n        return x * 2\n    return -x\n"
SHOW = "print(f(weft.ones(2)).tolist(), f(-weft.ones(2)).tolist(), len(f.recordings))\n"


def python(*arguments: str, typed: str = "") -> subprocess.CompletedProcess[str]:
    """Run another Python; warnings are shown, not raised."""
    return subprocess.run(
        [sys.executable, "-W", "always", *arguments],
        input=typed,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "WEFT_BACKEND": "interpret"},
    )


def test_python_c_is_compiled_from_its_text() -> None:
    done = python("-c", f"import weft\n@weft.compile\n{ABS}{SHOW}")
    assert done.stdout == "[2.0, 2.0] [1.0, 1.0] 1\n", done.stderr
    assert done.stderr == ""


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="there are no terminals to type at")
def test_what_is_typed_at_the_prompt_is_compiled(tmp_path: Path) -> None:
    pytest.importorskip("readline")
    typed = f"import weft\ndef f(x):\n    return 1\n\n@weft.compile\n{ABS}\n{SHOW}"
    typed += "g = weft.compile(lambda x: x + 1)\nprint('g', g(weft.ones(2)).tolist(), g)\nexit()\n"
    keyboard, screen = os.openpty()
    with subprocess.Popen(
        [sys.executable, "-q", "-W", "always"],
        stdin=screen,
        stdout=screen,
        stderr=screen,
        env={**os.environ, "WEFT_BACKEND": "interpret", "TERM": "dumb", "HOME": str(tmp_path)},
    ):
        os.close(screen)
        os.write(keyboard, typed.encode())
        shown = b""
        with contextlib.suppress(OSError):  # the other end is closed
            while part := os.read(keyboard, 4096):
                shown += part
    os.close(keyboard)
    text = shown.decode()
    assert "[2.0, 2.0] [1.0, 1.0] 1\r\n" in text, text
    assert "g [2.0, 2.0] <compiled <lambda>: 1 recordings>" in text
    assert "Warning" not in text


def test_without_a_source_one_line_says_so_and_the_answers_are_right() -> None:
    scope: dict[str, Any] = {}
    exec(ABS, scope)
    f = weft.compile(scope["f"])
    with pytest.warns(weft.CaptureWarning) as told:
        assert f(weft.ones(2)).tolist() == [2, 2]
    assert len(told) == 1
    (text,) = (str(warning.message) for warning in told)
    assert text.startswith("f has no source (<string>)")
    assert "\n" not in text
    assert "runs as plain Python" in text
    assert "weft.trace" not in text
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert f(-weft.ones(2)).tolist() == [1, 1]
        assert f(weft.zeros(2)).tolist() == [0, 0]


def test_stdin_says_it_once() -> None:
    done = python("-", typed=f"import weft\n@weft.compile\n{ABS}{SHOW}")
    assert done.stdout.startswith("[2.0, 2.0] [1.0, 1.0]"), done.stderr
    assert done.stderr.count("CaptureWarning") == 1
    assert "f has no source (<stdin>)" in done.stderr


def test_gradients_without_a_source() -> None:
    scope: dict[str, Any] = {}
    exec("def f(x):\n    return (x * x).sum()\n", scope)
    f = weft.compile(scope["f"])
    x = weft.tensor([1.0, 2.0], requires_grad=True)
    with pytest.warns(weft.CaptureWarning, match="has no source"):
        f(x).backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2, 4]


def test_a_doctest_is_compiled(tmp_path: Path) -> None:
    body = "".join(f"... {line}\n" for line in ABS.splitlines())
    text = f'"""\n>>> import weft\n>>> @weft.compile\n{body}>>> f(-weft.ones(2))\n'
    (tmp_path / "shown.py").write_text(
        f"{text}tensor([1., 1.])\n>>> len(f.recordings)\n1\n" + '"""\n'
    )
    done = python("-m", "doctest", str(tmp_path / "shown.py"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# --- debuggers ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "stop",
    ["breakpoint()", "import pdb; pdb.set_trace()", "pdb.set_trace()", "set_trace()"],
)
def test_a_debugger_stops_at_the_line(stop: str, tmp_path: Path) -> None:
    script = tmp_path / "stopped.py"
    script.write_text(
        "import weft, pdb\nfrom pdb import set_trace\n@weft.compile\ndef f(x):\n"
        f"    y = x * 3\n    {stop}\n    return y + 1\n"
        "print(f(weft.ones(2)))\nprint(f(weft.ones(2) * 2))\n"
    )
    done = python(str(script), typed="p y\nc\np y\nc\n")
    assert done.stderr == ""
    assert done.stdout.count("stopped.py(7)f()\n-> return y + 1\n") == 2, done.stdout
    for value in ("[3., 3.]", "[4., 4.]", "[6., 6.]", "[7., 7.]"):
        assert done.stdout.count(value) == 1
