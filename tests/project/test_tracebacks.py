"""What Python prints for an uncaught error: the user's frames, no chains, a few lines."""

from __future__ import annotations

import os
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from weft import nn
from weft.base import tracebacks
from weft.base.errors import CaptureError, DTypeError, InternalError, WeftError

PROGRAM = """
import math
import numpy as np
import weft
from weft import nn

def layer(x):
    {body}

{how}(weft.ones((2, 3)))
"""
#: What stands in the function, and what the last lines hold.
BODIES = {
    "op": ("return x @ x", "ShapeError: matmul: the inner sizes differ: 3 and 2"),
    "numpy": ("return np.ones((4, 4)) @ x", "ShapeError: matmul"),
    "broadcast": ("return x.reshape(2, 3) + weft.ones(5)", "ShapeError: add: shapes"),
    "module": ("return nn.Linear(4, 2)(x)", "ShapeError: linear"),
    "index": ("return x[weft.asarray([7])]", "IndexError"),
    "key": ("return x * {{'a': 1}}['b']", "KeyError: 'b'"),
    "zero": ("return x * (1 / 0)", "ZeroDivisionError"),
    "name": ("return x.unsqueze(0)", "Did you mean: 'unsqueeze'"),
    "function": ("return weft.matmull(x, x)", "Did you mean: 'matmul'"),
    "conv": ("return nn.Conv2d(3, 4, 3)(weft.ones((1, 1, 8, 8)))", "ShapeError: conv"),
    "loss": ("return nn.functional.cross_entropy(x, weft.asarray([0, 7]))", "the target 7"),
    "backward": ("x.sum().backward()", "GradientError: backward: this tensor has no history"),
    "own": ("raise ValueError('mine')", "ValueError: mine"),
}


def printed(
    program: str, folder: Path, environment: dict[str, str] | None = None
) -> tuple[str, str]:
    script = folder / "train.py"
    script.write_text(program)
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "WEFT_BACKEND": "interpret", **(environment or {})},
    )
    return done.stdout, done.stderr


def test_an_uncaught_error_shows_the_frames_of_the_user(tmp_path: Path) -> None:
    rows = [
        (f"{how} {name}", how, body.format(), text)
        for name, (body, text) in BODIES.items()
        for how in ("layer", "weft.compile(layer)")
    ]
    cases = [(name, PROGRAM.format(body=body, how=how)) for name, how, body, _ in rows]
    # One process prints them all: each program is run as a script is.
    (tmp_path / "all.py").write_text(
        "import runpy, sys\nfor name in sys.argv[1:]:\n"
        "    print('===', file=sys.stderr)\n    try:\n"
        "        runpy.run_path(name, run_name='__main__')\n    except Exception as error:\n"
        "        sys.excepthook(type(error), error, error.__traceback__)\n"
    )
    files = []
    for i, (_, program) in enumerate(cases):
        files.append(str(tmp_path / f"case{i}.py"))
        Path(files[-1]).write_text(program)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "all.py"), *files],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "WEFT_BACKEND": "interpret"},
    )
    found = done.stderr.split("===\n")[1:]
    assert len(found) == len(rows)
    for (name, _, _, text), shown, file in zip(rows, found, files, strict=True):
        assert text in shown, f"{name}\n{shown}"
        frames = [line for line in shown.splitlines() if line.startswith('  File "')]
        ours = [line for line in frames if os.sep + "weft" + os.sep in line]
        assert not ours, f"{name}\n{shown}"
        named = [line for line in frames if file in line]
        assert [line.rpartition(" in ")[2] for line in named] == ["<module>", "layer"], name
        for word in ("During handling", "direct cause", "inside of Weft"):
            assert word not in shown, f"{name}\n{shown}"


def test_all_frames_can_be_shown(tmp_path: Path) -> None:
    program = PROGRAM.format(body="return x @ x", how="weft.compile(layer)")
    _, short = printed(program, tmp_path)
    _, full = printed(program, tmp_path, {"WEFT_TRACEBACK": "full"})
    assert short.count("  File ") == 2
    assert full.count("  File ") > 8
    assert short.splitlines()[-1] == full.splitlines()[-1]


def test_another_hook_is_left_alone(tmp_path: Path) -> None:
    first = "import sys\nsys.excepthook = lambda *a: print('mine')\n"
    shown, _ = printed(f"{first}import weft\nweft.ones(2) + weft.ones(3)\n", tmp_path)
    assert shown == "mine\n"


def test_recursion_on_a_tensor_takes_a_few_lines() -> None:
    def fact(n: Any) -> Any:
        if n <= 1:
            return n
        return n * fact(n - 1)

    with pytest.raises(CaptureError, match="calls itself") as caught:
        weft.compile(fact)(weft.asarray(5.0))
    lines = "".join(traceback.format_exception(caught.value)).splitlines()
    assert len(lines) < 20
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_a_bug_of_weft_can_be_reported() -> None:
    def broken() -> None:
        raise TypeError("a register is lost")

    broken.__code__ = broken.__code__.replace(co_filename=f"{tracebacks.PACKAGE}ops/broken.py")
    with pytest.raises(TypeError) as caught:
        broken()
    for _ in range(2):
        tracebacks.shorten(caught.value)
        assert caught.value.__notes__ == [tracebacks.NOTE]
    error = InternalError("a register is lost")
    tracebacks.shorten(error)
    assert error.__notes__ == [tracebacks.NOTE]


def _while_handling() -> None:
    try:
        raise KeyError("mine")
    except KeyError:
        weft.ones(2) + weft.ones(3)


def test_what_the_user_raised_stays_in_the_chain() -> None:
    with pytest.raises(WeftError) as caught:
        _while_handling()
    tracebacks.shorten(caught.value)
    assert isinstance(caught.value.__context__, KeyError)


def test_eager_errors_have_no_chain_of_numpy() -> None:
    mistakes = [
        lambda: weft.ones(2) + weft.ones(3),
        lambda: weft.ones((2, 3)) @ weft.ones((2, 3)),
        lambda: np.ones((4, 4)) @ weft.ones((2, 3)),
        lambda: weft.asarray([[1, 2], [3]]),
        lambda: weft.concat([weft.ones((2, 3)), weft.ones(4)]),
        lambda: weft.linalg.cholesky(-weft.ones((2, 2))),
        lambda: weft.ones(3)[5],
    ]
    for act in mistakes:
        with pytest.raises(WeftError) as caught:
            act()
        tracebacks.shorten(caught.value)
        assert caught.value.__cause__ is None
        assert caught.value.__context__ is None or caught.value.__suppress_context__


def test_a_notebook_shows_the_short_form() -> None:
    with pytest.raises(WeftError) as caught:
        weft.ones(2) + weft.ones(3)
    lines = caught.value._render_traceback_()  # type: ignore[attr-defined]
    assert not [line for line in lines if tracebacks.PACKAGE in line]
    assert any("do not broadcast" in line for line in lines)


# --- single messages ------------------------------------------------------------------------------


def test_only_functions_are_compiled() -> None:
    for given in (3, None.__class__, weft.ones(2), "f"):
        if callable(given):
            continue
        for make in (weft.compile, weft.trace):
            with pytest.raises(DTypeError, match="a function or a module is needed"):
                make(given)  # type: ignore[arg-type]


def test_functions_without_a_module_are_named() -> None:
    scipy = pytest.importorskip("scipy.special")
    expit = scipy.expit
    with pytest.raises(CaptureError) as caught:
        weft.compile(lambda x: expit(x))(weft.ones(2))
    assert str(caught.value).startswith("expit: ")
    assert "py_call(expit," in caught.value.hint


def test_the_limit_names_what_was_called() -> None:
    def f(x: Any, n: str) -> Any:
        return x + len(n)

    compiled = weft.compile(f, limit=1)
    compiled(weft.ones(2), "a")
    with pytest.warns(weft.CaptureWarning) as told:
        compiled(weft.ones(2), "ab")
    text = str(told[0].message)
    assert "weft.compile" in text
    assert "weft.trace" not in text
    assert "`f.recordings`" in text


def test_an_optimizer_is_given_parameters() -> None:
    with pytest.raises(DTypeError) as caught:
        weft.optim.Adam(nn.Linear(2, 2))  # type: ignore[arg-type]
    assert caught.value.hint == "pass model.parameters()"


@pytest.mark.skipif(weft.cuda.is_available(), reason="there is one")
def test_no_advice_to_go_to_a_device_that_is_not_there() -> None:
    with pytest.raises(CaptureError, match="different devices") as caught:
        weft.make_graph(lambda x: x + weft.ones(2), weft.spec((2,), device="cuda"))
    assert caught.value.hint == "there is no device cuda here, only cpu"
