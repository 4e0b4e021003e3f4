"""Guards on arguments: plain values, tensors, arrays, and which of them are one object."""

from __future__ import annotations

import enum
import math

import numpy as np
import pytest
from guarded import Box, Row, check_row, loop, now, setting

import weft
from weft import nn

TENSOR = weft.ones(3)
ARRAY = np.arange(4.0)


class Mode(enum.Enum):
    FAST = 1
    SLOW = 2


ROWS: list[Row] = [
    # plain arguments
    ("int", lambda x: x + 1, (2,), now(3), "args[0] was 2, now 3"),
    ("int same", lambda x: x + 1, (2,), now(2), None),
    ("int is not bool", lambda x: x + 1, (1,), now(True), "args[0] was 1, now True"),
    ("int is not float", lambda x: x + 1, (1,), now(1.0), "args[0] was 1, now 1.0"),
    ("float", lambda x: x + 1, (0.5,), now(0.25), "args[0] was 0.5, now 0.25"),
    ("nan is nan", lambda x: x, (math.nan,), now(-math.nan * -1), None),
    ("zero has a sign", lambda x: x, (0.0,), now(-0.0), "args[0] was 0.0, now -0.0"),
    ("str", lambda x: x, ("a",), now("b"), "args[0] was 'a', now 'b'"),
    ("bytes", lambda x: x, (b"a",), now(b"b"), "args[0] was b'a', now b'b'"),
    ("None", lambda x: x is None, (None,), now(0), "args[0] was None, now 0"),
    ("complex", lambda x: x, (1j,), now(2j), "args[0] was 1j, now 2j"),
    ("ellipsis", lambda x: x, (...,), now(None), "args[0] was Ellipsis, now None"),
    ("slice", lambda x: x, (slice(1, 2),), now(slice(1, 3)), "args[0] was slice(1, 2, None), now"),
    ("slice same", lambda x: x, (slice(1, 2),), now(slice(1, 2)), None),
    ("range", lambda x: list(x), (range(3),), now(range(4)), "args[0] was range(0, 3), now range"),
    ("enum", lambda x: x is Mode.FAST, (Mode.FAST,), now(Mode.SLOW), "args[0] was <Mode.FAST: 1>"),
    ("dtype", lambda x: x, (weft.float32,), now(weft.float64), "args[0] was weft.float32, now"),
    ("class", lambda x: x, (int,), now(float), "args[0] was int, now float"),
    (
        "numpy scalar",
        lambda x: x + 1,
        (np.float32(1),),
        now(np.float32(2)),
        "args[0] was np.float32",
    ),
    ("numpy scalar same", lambda x: x + 1, (np.float32(1),), now(np.float32(1)), None),
    (
        "more arguments",
        lambda *x: x,
        (1,),
        now(1, 2),
        "the call was with 1 positional arguments, now",
    ),
    # tensors and arrays
    ("tensor value", lambda x: x * 2, (weft.ones(3),), now(weft.zeros(3)), None),
    (
        "tensor shape",
        lambda x: x,
        (weft.ones(3),),
        now(weft.ones(4)),
        "was float32[3], now float32[4]",
    ),
    ("tensor rank", lambda x: x, (weft.ones(3),), now(weft.ones((3, 1))), "now float32[3, 1]"),
    (
        "tensor dtype",
        lambda x: x,
        (weft.ones(1),),
        now(weft.ones(1, dtype=weft.int64)),
        "now int64[1]",
    ),
    (
        *("tensor gradient", lambda x: x, (weft.ones(3),)),
        *(now(weft.tensor([1.0, 2.0, 3.0], requires_grad=True)), "now float32[3] that requires"),
    ),
    ("tensor or None", lambda x: x, (None,), now(weft.ones(1)), "args[0] was None, now a tensor"),
    (
        "parameter",
        lambda x: x,
        (weft.ones(1),),
        now(nn.Parameter([1.0])),
        "now Parameter float32[1]",
    ),
    (
        "global tensor",
        lambda: TENSOR * 2,
        (),
        setting(globals(), "TENSOR", weft.ones(2)),
        "global TENSOR",
    ),
    (
        "global tensor value",
        lambda: TENSOR * 2,
        (),
        setting(globals(), "TENSOR", weft.zeros(3)),
        None,
    ),
    (
        "array shape",
        lambda x: x.shape,
        (np.ones(2),),
        now(np.ones(3)),
        "args[0] was an array float64[2]",
    ),
    (
        "array dtype",
        lambda x: x.dtype,
        (np.ones(2),),
        now(np.ones(2, int)),
        "now an array int64[2]",
    ),
    ("array unread", lambda x: x.shape, (np.ones(2),), now(np.zeros(2)), None),
    (
        "array summed",
        lambda x: np.sum(x),
        (np.ones(2),),
        now(np.zeros(2)),
        "args[0] was an array of",
    ),
    ("array method", lambda x: x.sum(), (np.ones(2),), now(np.zeros(2)), "args[0] was an array of"),
    ("array item", lambda x: x[0], (np.ones(2),), now(np.zeros(2)), "args[0] was an array of"),
    ("array loop", loop, (np.ones(2),), now(np.zeros(2)), "args[0] was an array of"),
    ("array operator", lambda x: x + 1, (np.ones(2),), now(np.zeros(2)), "args[0] was an array of"),
    (
        "large array",
        lambda x: x.max(),
        (np.ones(999),),
        now(np.zeros(999)),
        "args[0] was an array of",
    ),
    ("large array same", lambda x: x.max(), (np.ones(999),), now(np.ones(999)), None),
    ("array view", lambda x: x.T, (np.ones((2, 1)),), now(np.zeros((2, 1))), "an array of other"),
    ("global array", lambda: ARRAY[1], (), setting(globals(), "ARRAY", np.ones(4)), "global ARRAY"),
    # which objects are one
    (
        "one tensor twice",
        lambda x, y: x + y,
        (TENSOR, TENSOR),
        now(weft.ones(3), weft.ones(3)),
        "same object",
    ),
    (
        "two tensors",
        lambda x, y: x + y,
        (weft.ones(2), weft.ones(2)),
        now(*[weft.ones(2)] * 2),
        "different",
    ),
    ("one list twice", lambda x, y: x is y, ([1],) * 2, now([1], [1]), "same object as args[0]"),
    ("two lists", lambda x, y: len(x + y), ([1], [1]), now(*[[1]] * 2), "were different objects"),
    ("two boxes", lambda x, y: x is y, (Box(), Box()), now(*[Box()] * 2), "were different objects"),
    (
        "the global too",
        lambda x: x + TENSOR,
        (weft.ones(3),),
        lambda _p: (TENSOR,),
        "different objects",
    ),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0].replace(" ", "-"))
def test_a_guard_sees(row: Row, monkeypatch: pytest.MonkeyPatch) -> None:
    check_row(row, monkeypatch)
