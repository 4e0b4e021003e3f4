"""Every sample of every card as machine code: what the interpreter gives, bit by bit if exact."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from samples import ROWS
from samples.table import Row
from test_make_graph import CASES, NEED_NUMBERS
from test_ops import flat, function, tensors

import weft
from weft.base.dtypes import DType
from weft.runtime.native import NativeProgram

#: How far results may be from those of NumPy: in units in the last place of the result's dtype.
ULPS = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}


def near(got: Any, want: Any, name: str, sizes: int) -> None:
    assert got.type == want.type
    a, b = got.numpy(), want.numpy()
    if a.tobytes() == b.tobytes():
        return
    assert a.dtype.kind not in "biu", f"{name}: {a} for {b}"
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
    for sample in row.samples(dtype):
        args, kwargs = tensors(sample.args), tensors(sample.kwargs)
        want = flat(function(row.name)(*args, **kwargs))
        if not want or row.name in NEED_NUMBERS:
            continue
        graph = weft.make_graph(function(row.name), *args, **kwargs)
        inputs = flat((args, kwargs))
        program = NativeProgram(graph)
        size = max([8, *[x.size for x in inputs]])
        for _ in range(2):
            for got, expected in zip(program(inputs), want, strict=True):
                near(got, expected, row.name, size)


__all__ = ["ROWS"]
