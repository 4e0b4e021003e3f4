"""Every sample of every card as machine code: what the interpreter gives, bit by bit if exact."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from graph_cases import CASES, NEED_NUMBERS
from op_calls import flat, function, tensors
from samples.table import Row

import weft
from weft.base.dtypes import DType
from weft.runtime.native import NativeProgram

#: How many samples of a card and dtype are compiled: each takes some milliseconds.
SAMPLES = 3


def near(got: Any, want: Any, name: str, sizes: int) -> None:
    assert got.type == want.type
    a, b = got.numpy(), want.numpy()
    if a.tobytes() == b.tobytes():
        return
    assert a.dtype.kind not in "biu", f"{name}: {a} for {b}"  # those are exact
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    a, b = a.astype(wide), b.astype(wide)
    eps = {"complex64": 2**-23, "complex128": 2**-52, "float16": 2**-10, "bfloat16": 2**-7}.get(
        want.dtype.name, 2**-23 if want.dtype.name == "float32" else 2**-52
    )
    scale = max(8, sizes) * eps
    finite = b[np.isfinite(b)]
    np.testing.assert_allclose(
        a, b, rtol=scale, atol=scale * np.abs(finite).max(initial=0.0) * 0.1, err_msg=name
    )


@pytest.mark.parametrize(("row", "dtype"), CASES)
def test_native_is_interpreted(row: Row, dtype: DType) -> None:
    """Some samples of each card and dtype, in one module; over all dtypes most have their turn."""
    call = function(row.name)
    if row.name in NEED_NUMBERS:
        return
    samples = list(row.samples(dtype))
    chosen = random.Random(f"{row.name} {dtype.name}").sample(samples, min(SAMPLES, len(samples)))
    given = [(tensors(sample.args), tensors(sample.kwargs)) for sample in chosen]
    want = flat([call(*args, **kwargs) for args, kwargs in given])
    if not want:
        return
    graph = weft.make_graph(lambda given: [call(*args, **kwargs) for args, kwargs in given], given)
    inputs = flat(given)
    program = NativeProgram(graph)
    size = max([8, *[x.size for x in inputs]])
    for got, expected in zip(program(inputs), want, strict=True):
        near(got, expected, row.name, size)
