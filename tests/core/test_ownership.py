"""Who holds a buffer: counts that are tried before they are believed, in every way they are asked.

Python 3.14 counts the argument of `getrefcount` otherwise than those before it. Here it is replaced
before Weft is loaded, by one that counts so and by some that count wrong: whatever it says, results
that somebody keeps stay as they are.
"""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from weft.core import ownership
from weft.core.ownership import alone_in_list, alone_in_tensor, proven
from weft.core.tensor import own, wrap
from weft.runtime import native_call, outputs
from weft.runtime.call_code import RESULT

#: What stands for `sys.getrefcount`, and whether Weft then knows who holds what.
COUNTS = {
    "as it is": ("lambda x: real(x) - 1", True),  # a function has its argument once more
    "3.14, where a name is borrowed": ("lambda x: real(x) - 2", True),
    "always alone": ("lambda x: 2", False),
    "two others are one": ("lambda x: min(real(x) - 1, 3)", False),
}

SCRIPT = """
import os, sys
real = sys.getrefcount
sys.getrefcount = {count}
import numpy as np
import weft
from weft.core import ownership, tensor
from weft.runtime import outputs

print(ownership.counts(), tensor._owns, outputs._counts_are_reliable())

def check(large):
    f = weft.compile(lambda x: x * 2, backend="native")
    kept = [f(weft.full((large,), float(k))) for k in range(5)]
    assert [float(y[0]) for y in kept] == [0, 2, 4, 6, 8], kept
    state = weft.zeros(large)

    @weft.compile(backend="native")
    def add(k):
        state[:] = state + k
        return state.sum()

    seen = []
    for k in range(5):
        add(weft.full((large,), float(k)))
        seen.append((state.detach(), state.numpy().copy()))
    for value, copy in seen:
        assert np.array_equal(value.numpy(), copy)
    x = weft.zeros(large)
    shared = x.detach()
    x[0] = 1.0
    x += 1.0
    assert float(shared[0]) == 0.0 and float(x[0]) == 2.0

for os.environ["WEFT_CALL"] in ("machine", "ctypes"):
    check(3)
    check(30_000)
print("right")
"""


@pytest.mark.parametrize("count", COUNTS)
def test_kept_results_stay_as_they_are(count: str, tmp_path: Path) -> None:
    said, known = COUNTS[count]
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.replace("{count}", said))
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=100)
    assert done.stdout == f"{known} {known} {known}\nright\n", done.stderr[-1500:]


def test_here_counts_are_known() -> None:
    assert ownership.counts() == ownership.is_known()
    if ownership.is_known():
        assert outputs._counts_are_reliable()
        assert native_call._counts_are_reliable()


@pytest.mark.skipif(not ownership.is_known(), reason="counts are not used")
def test_who_holds_an_array() -> None:
    tensor = wrap(np.zeros(2))
    assert alone_in_tensor(tensor)
    at = tensor._data.ctypes.data
    assert own(tensor).ctypes.data == at
    held = tensor._data
    assert not alone_in_tensor(tensor)
    assert own(tensor).ctypes.data != at
    del held
    items = [np.zeros(2)]
    assert alone_in_list(items, 0)
    view = items[0][:1]
    assert not alone_in_list(items, 0)
    assert alone_in_list(items, 0, 1)
    del view
    gc.collect()
    assert alone_in_list(items, 0)


@pytest.mark.parametrize(
    ("answers", "good"),
    [
        ((True, False, False), True),
        ((False, False, False), False),
        ((True, True, False), False),
        ((True, False, True), False),
    ],
)
def test_a_path_is_proven_by_three_answers(answers: tuple[bool, ...], good: bool) -> None:
    assert proven(lambda others: answers[others]) == (good and ownership.is_known())


@pytest.mark.parametrize(
    "path",
    [
        native_call._written_in_place,
        native_call._tensor_used_again,
        native_call._array_used_again,
        native_call._array_taken_out,
    ],
    ids=lambda path: path.__name__,
)
def test_a_call_that_is_not_proven_gives_fresh_results(
    path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What machine code reads of objects is tried as well."""
    monkeypatch.setattr(native_call, path.__name__, lambda _others: True)
    native_call._counts_are_reliable.cache_clear()
    try:
        f = weft.compile(lambda x: x + 1, backend="native")
        seen = {id(f(weft.full((3,), float(k)))._data) for k in range(3)}
        kept = [f(weft.full((3,), float(k))) for k in range(3)]
        assert [float(y[0]) for y in kept] == [1, 2, 3]
        call = f.programs[-1].call
        rows = call.__self__.kept[-2]
        again = RESULT.index("again")
        assert rows[again] == 0
        assert seen
    finally:
        native_call._counts_are_reliable.cache_clear()
