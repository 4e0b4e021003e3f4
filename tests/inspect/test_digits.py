"""The last stop of the tour: training on the digits of scikit-learn."""

from __future__ import annotations

import importlib.util
import io
import sys

import pytest

import weft
from weft.inspect import digits

needs_digits = pytest.mark.skipif(
    importlib.util.find_spec("sklearn") is None,
    reason="scikit-learn, which has the digits, is not installed",
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@needs_digits
def test_the_digits_come_in_two_parts() -> None:
    found = digits.load()
    assert found is not None
    assert found.images.shape == (1438, 64)
    assert found.test_images.shape == (359, 64)
    assert (found.images.dtype, found.labels.dtype) == (weft.float32, weft.int64)
    assert float(found.images.max()) == 1
    again = digits.load()
    assert again is not None
    assert (again.test_labels == found.test_labels).all()


@needs_digits
@pytest.mark.parametrize("seed", [0, 1])
def test_a_few_epochs_are_enough(seed: int) -> None:
    found = digits.load()
    assert found is not None
    reports: list[tuple[int, float, float]] = []
    weft.manual_seed(seed)
    digits.train(found, 8, lambda *report: reports.append(report))
    assert [epoch for epoch, _, _ in reports] == list(range(1, 9))
    assert reports[-1][2] > 0.96
    assert reports[-1][1] < reports[0][1]


@needs_digits
def test_what_is_shown() -> None:
    out = io.StringIO()
    digits.show(7, out)
    lines = out.getvalue().splitlines()
    assert lines[0] == "7. A network learns to read handwritten digits."
    assert "    def train(digits: Digits, epochs: int, report: Report) -> nn.Module:" in lines
    epochs = [line for line in lines if line.startswith("    epoch ")]
    assert len(epochs) == digits.EPOCHS
    percent = float(lines[-2].rpartition("reads ")[2].partition("%")[0])
    assert percent > 97
    assert f"test accuracy {percent}%" in epochs[-1]


def test_a_terminal_has_one_line() -> None:
    out = Terminal()
    progress = digits.Progress(2, out)
    progress(1, 0.5, 0.25)
    progress(2, 0.25, 0.975)
    first, second = out.getvalue().removesuffix("\n").split("\r\x1b[K")[1:]
    assert "\n" not in first + second
    assert "epoch  1/2 " + "#" * 12 + "." * 12 + "  loss 0.5000  test accuracy 25.0%" in first
    assert "epoch  2/2 " + "#" * 24 + "  loss 0.2500  test accuracy 97.5%" in second


def test_without_scikit_learn_the_rest_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    out = io.StringIO()
    digits.show(3, out)
    assert out.getvalue().startswith("3. A network")
    assert "not installed" in out.getvalue()
    assert 'pip install "weft[demo]"' in out.getvalue()
