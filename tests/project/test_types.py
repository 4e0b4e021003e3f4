"""What editors and notebooks see: type checkers over user code, HTML, formats, pickles."""

from __future__ import annotations

import copy
import pickle
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import weft
from weft import nn

ROOT = Path(__file__).resolve().parents[2]
USER_CODE = ROOT / "tests" / "support" / "user_code.py"


def _marked() -> set[int]:
    lines = USER_CODE.read_text().splitlines()
    return {number for number, line in enumerate(lines, 1) if line.endswith("# error")}


def _check(command: list[str], pattern: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=600)
    found = {int(number) for number in re.findall(pattern, done.stdout, re.MULTILINE)}
    assert found == _marked(), done.stdout + done.stderr


def test_mypy() -> None:
    options = ["--strict", "--no-warn-return-any", "--follow-imports=silent"]
    command = [sys.executable, "-m", "mypy", *options, str(USER_CODE)]
    _check(command, r"user_code\.py:(\d+): error")


@pytest.mark.skipif(
    shutil.which("pyright") is None, reason="pyright is not on PATH; it needs Node and a download"
)
def test_pyright() -> None:
    command = ["pyright", "--pythonpath", sys.executable, str(USER_CODE)]
    _check(command, r"user_code\.py:(\d+):\d+ - error")


def test_a_misspelled_name_has_a_suggestion() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import weft; weft.compiel"], capture_output=True, text=True
    )
    assert "Did you mean: 'compile'?" in done.stderr


# --- formats --------------------------------------------------------------------------------------


def test_single_numbers_read_well() -> None:
    loss = weft.tensor(0.123456, requires_grad=True) * 1
    assert f"{loss:.3f}" == "0.123"
    assert (f"{loss}", str(loss), format(loss)) == ("0.123456",) * 3
    assert str(weft.asarray(3)) == "3"
    assert str(weft.asarray(True)) == "True"
    assert str(weft.asarray(1.5, dtype=weft.bfloat16)) == "1.5"
    assert repr(loss).startswith("tensor(0.123456, grad_fn=")
    assert str(weft.ones(2)) == "tensor([1., 1.])"


def test_tqdm_shows_the_number() -> None:
    """tqdm's set_postfix takes str() of what is no number."""
    tqdm = pytest.importorskip("tqdm")
    bar = tqdm.tqdm(total=1, disable=False, file=open("/dev/null", "w"))  # noqa: SIM115
    bar.set_postfix(loss=weft.tensor(0.5, requires_grad=True))
    assert bar.postfix == "loss=0.5"
    bar.close()


@pytest.mark.parametrize("backend", ["interpret", "native"])
def test_single_numbers_are_printed_alike(backend: str, capsys: pytest.CaptureFixture[str]) -> None:
    def shown(x: Any) -> Any:
        total = x.sum()
        print(total, f"{total}", f"{total:.2f}")
        return total

    compiled = weft.compile(shown, backend=backend)
    texts = []
    for function in (shown, compiled, compiled):
        function(weft.asarray([0.25, 0.5]))
        texts.append(capsys.readouterr().out)
    assert texts == ["0.75 0.75 0.75\n"] * 3


# --- notebooks ------------------------------------------------------------------------------------


def test_html() -> None:
    text = weft.asarray([[1.0, 2.0]], dtype=weft.float32)._repr_html_()
    assert "<code>f32[1,2]</code>" in text
    assert "<td>1</td><td>2</td>" in text
    assert "0, 0" in weft.zeros((3, 50), dtype=weft.int32)._repr_html_()
    assert "requires grad" in nn.Parameter(weft.ones(2))._repr_html_()
    model = nn.Sequential(nn.Linear(2, 3), nn.Tanh())
    assert "Sequential · 9 parameters" in model._repr_html_()
    compiled = weft.compile(lambda x: x * 2)
    assert "not called yet" in compiled._repr_html_()
    compiled(weft.ones(2))
    text = compiled._repr_html_()
    assert "the first call" in text
    assert "&lt;compiled" in text


# --- copies ---------------------------------------------------------------------------------------


@weft.compile
def doubled(x: Any) -> Any:
    return x * 2


def plain(x: Any) -> Any:
    return x * 3


def test_compiled_functions_pickle_by_their_function() -> None:
    doubled(weft.ones(2))
    assert pickle.loads(pickle.dumps(doubled)) is doubled
    assert copy.deepcopy(doubled) is doubled
    tripled = weft.compile(plain, backend="interpret", limit=3)
    tripled(weft.ones(2))
    for twin in (pickle.loads(pickle.dumps(tripled)), copy.deepcopy(tripled), copy.copy(tripled)):
        assert twin.function is plain
        assert twin.policy == tripled.policy
        assert twin.recordings == []
        assert twin(weft.ones(2)).tolist() == [3, 3]


def test_a_compiled_module_is_copied_with_its_parameters() -> None:
    model = nn.Linear(2, 2)
    run = weft.compile(model)
    x = weft.ones((1, 2))
    expected = run(x)
    for twin in (copy.deepcopy(run), pickle.loads(pickle.dumps(run))):
        assert twin.function is not model
        assert weft.all(twin(x) == expected)
        with weft.no_grad():
            twin.function.weight += 1
        assert weft.all(run(x) == expected)
        assert not weft.all(twin(x) == expected)
