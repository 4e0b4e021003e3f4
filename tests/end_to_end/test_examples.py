"""The programs in examples/ run, are short, and have their pictures in the gallery."""

from __future__ import annotations

import importlib
import math
import sys
from pathlib import Path

import pytest

import weft

ROOT = Path(__file__).resolve().parents[2]
#: The program that puts the pictures together; and one for several ranks, without a picture, that
#: `tests/distributed/test_mpi.py` runs.
OTHERS = ("gallery", "resume")
FILES = sorted(path for path in (ROOT / "examples").glob("*.py") if path.stem not in OTHERS)
PICTURES = ROOT / "docs" / "images" / "examples"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_example_runs(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(path.parent))
    state = weft.get_rng_state()
    try:
        result = importlib.import_module(path.stem).run(2)
    finally:
        weft.set_rng_state(state)
        sys.modules.pop(path.stem, None)
        sys.modules.pop("gallery", None)
    assert result["summary"]
    assert all(math.isfinite(loss) for loss in result.get("losses", ()))


def test_the_gallery_is_complete() -> None:
    assert len(FILES) == 13
    page = (ROOT / "docs" / "examples.md").read_text()
    for path in FILES:
        assert len(path.read_text().splitlines()) <= 120, path.stem
        assert f"(images/examples/{path.stem}.png)" in page
        assert f"(../examples/{path.name})" in page
    assert sum(picture.stat().st_size for picture in PICTURES.iterdir()) < 1_000_000
