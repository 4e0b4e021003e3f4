"""Runs test_native_keys.py in a process of its own: what other tests register changes keys."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

FILE = Path(__file__).with_name("test_native_keys.py")


def test_native_keys_alone() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", str(FILE)],
        env={**os.environ, "WEFT_ALONE": "1"},
        cwd=FILE.parents[2],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "8 passed" in ran.stdout
