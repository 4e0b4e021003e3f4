"""Attributes of every kind, for text and keys."""

from __future__ import annotations

import struct

import numpy as np

import weft
from weft.base.device import Device
from weft.base.dims import parse_dim
from weft.ir.literal import Literal
from weft.ir.types import TOKEN, TensorType

F32 = TensorType(weft.float32, (2, 3))


SIGNALLING = struct.unpack("<d", struct.pack("<Q", 0xFFF8000000000123))[0]


B = weft.dim("B", min=1)


ATTRIBUTES = [
    (None, "None"),
    (True, "True"),
    (1, "1"),
    (-(10**30), "-1" + "0" * 30),
    (1.0, "1.0"),
    (0.1, "0.1"),
    (1e300, "1e+300"),
    (-0.0, "-0.0"),
    (float("nan"), "nan"),
    (-float("nan"), "-nan"),
    (SIGNALLING, "nan(0xfff8000000000123)"),
    (-float("inf"), "-inf"),
    (complex(-0.0, float("nan")), "complex(-0.0, nan)"),
    ("left", "'left'"),
    ("it's \\ \n # ] \u2028", '"it\'s \\\\ \\n # ] \\u2028"'),
    (b"\x00a'", 'b"\\x00a\'"'),
    ((), "()"),
    ((1,), "(1,)"),
    ((1, (2.0, [True, None])), "(1, (2.0, [True, None]))"),
    ([], "[]"),
    ({}, "dict{}"),
    ({"a": 1, 2: slice(1, 2), (1,): {}}, "dict{'a': 1, 2: 1:2, (1,): dict{}}"),
    (..., "..."),
    (slice(None), ":"),
    (slice(1, None), "1:"),
    (slice(None, -1), ":-1"),
    (slice(None, None, -2), "::-2"),
    (slice(B, 2 * B, 3), "B:dim(2*B):3"),
    (slice("a", None, 1.5), "slice('a', None, 1.5)"),
    ((slice(None), ..., None, 0, slice(0, 2, 2)), "(:, ..., None, 0, 0:2:2)"),
    (weft.bfloat16, "bf16"),
    (Device("cuda", 2), "device('cuda:2')"),
    (B, "B"),
    (2 * B + 1, "dim(2*B+1)"),
    (parse_dim("max(B-3,0)//2"), None),
    (weft.dim("f32"), "dim(f32)"),
    (weft.dim("nan"), "dim(nan)"),
    ((B, 4), "(B, 4)"),
    (TOKEN, "token"),
    (F32, "f32[2,3]"),
    ((F32, TensorType(weft.int8, (), Device("cuda"), "coo")), "(f32[2,3], i8[]:coo@cuda)"),
    (Literal(np.array([1, 2], np.int8)), "i8[2]{1, 2}"),
    (Literal(np.zeros((0, 3), np.complex64)), "c64[0,3]{}"),
    (np.float32(0.1), "scalar(f32, 0.1)"),
    (np.int64(-3), "scalar(i64, -3)"),
    (np.bool_(True), "scalar(bool, True)"),
    (np.complex64(complex(1, -0.0)), "scalar(c64, complex(1.0, -0.0))"),
]
