"""`import weft` pauses the garbage collector, and leaves it as it was."""

from __future__ import annotations

import subprocess
import sys

import pytest

#: before the import -> whether the collector is on afterwards
ROWS = {
    "on": ("", True),
    "off": ("gc.disable()", False),
    "a failed import": ("sys.modules['weft.ops.scatter'] = None", True),
}
PROGRAM = """
import gc, sys
runs = []
gc.callbacks.append(lambda phase, info: runs.append(info) if phase == "start" else None)
import numpy
{before}
del runs[:]
try:
    import weft
except ImportError:
    pass
print(gc.isenabled(), len(runs) < 10, gc.get_freeze_count())
"""


@pytest.mark.parametrize("name", ROWS)
def test_the_collector_is_as_before(name: str) -> None:
    before, enabled = ROWS[name]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(before=before)], capture_output=True, text=True
    )
    assert done.stdout.split() == [str(enabled), "True", "0"], done.stderr
