"""The samples table as models in ONNX, run by onnxruntime, against Weft.

`WEFT_TEST_ALL=1` takes all samples.
"""

from __future__ import annotations

import os

import onnx_runs
import pytest
from samples import ROWS
from samples.table import Row

import weft
from weft.errors import GraphError

pytest.importorskip("onnx", reason="pip install 'weft[onnx]'")
pytest.importorskip("onnxruntime", reason="pip install onnxruntime")

MOST = None if os.environ.get("WEFT_TEST_ALL") == "1" else 3
#: Ops without an operator in ONNX: an error says so.
WITHOUT = {
    "atan2", "bincount", "cholesky", "complex",
    "cumulative_prod", "det", "eig", "eigh", "erfc", "expm", "fft", "gammainc", "gammaincc", "gcd",
    "ifft", "imag", "inv", "irfft", "lcm", "logcumsumexp", "lu_factor", "nextafter", "pinv", "pow",
    "qr", "repeat", "rfft", "running_argmax", "slogdet", "solve", "solve_triangular",
    "svd", "unique_all", "unique_parts",
}  # fmt: skip
FLOATS = [row for row in ROWS if weft.float32 in row.dtypes()]
INTEGERS = [row for row in ROWS if weft.int64 in row.dtypes()]


@pytest.mark.parametrize("row", FLOATS, ids=lambda row: row.name)
def test_floats(row: Row) -> None:
    check(row, weft.float32, MOST)


@pytest.mark.parametrize("row", INTEGERS, ids=lambda row: row.name)
def test_integers(row: Row) -> None:
    check(row, weft.int64, MOST and 1)


def check(row: Row, dtype: weft.DType, most: int | None) -> None:
    compared, refused, found = onnx_runs.compared(row, dtype, most)
    assert found == []
    assert refused <= WITHOUT
    if not compared and not refused:
        pytest.skip("it takes no tensors, or complex numbers")


def test_an_op_without_an_operator_is_named_with_the_line_and_a_way_out() -> None:
    def spectrum(x: weft.Tensor) -> weft.Tensor:
        return weft.linalg.svd(x)[1]

    with pytest.raises(GraphError, match="svd has no operator in ONNX") as error:
        weft.onnx.model(spectrum, weft.spec((3, 3)))
    said = str(error.value)
    assert "test_onnx_rows.py" in said
    assert "in spectrum" in said
    assert '@weft.onnx.row("svd")' in said
