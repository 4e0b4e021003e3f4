"""Kernels of loops whose rows are short, against NumPy: lanes across rows, sums in registers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import weft
from weft.codegen.machine import host
from weft.runtime.native import NativeProgram

Array = np.ndarray[Any, Any]
TOLERANCE = {"float32": 3e-6, "float64": 1e-14, "float16": 2e-3}


@pytest.fixture(params=["", "-avx512f", "-avx512f,-avx2,-avx,-fma,-f16c"])
def width(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The machine at hand, then with narrower vectors."""
    monkeypatch.setenv("WEFT_TARGET_FEATURES", request.param)
    host.cache_clear()
    yield
    monkeypatch.undo()
    host.cache_clear()


def softmax(x: Array) -> Array:
    with np.errstate(invalid="ignore"):
        powers = np.exp(x - x.max(axis=-1, keepdims=True))
        found: Array = powers / powers.sum(axis=-1, keepdims=True)
    return found


def soft(x: weft.Tensor) -> weft.Tensor:
    return weft.nn.functional.softmax(x, -1)


def normed(xp: Any, x: Any) -> Any:
    away = x - xp.mean(x, axis=-1, keepdims=True)
    return away / xp.sqrt(xp.mean(away * away, axis=-1, keepdims=True) + 1.0)


#: name: the function, the same in NumPy (as float64), whether its rows can run fits_lanes.
ROWS: dict[str, tuple[Any, Any, bool]] = {
    "softmax": (soft, softmax, True),
    "rows far apart": (lambda x: soft(x[:, 1:]), lambda x: softmax(x[:, 1:]), True),
    "every other row": (lambda x: soft(x[::2]), lambda x: softmax(x[::2]), True),
    "normed": (lambda x: normed(weft, x), lambda x: normed(np, x), True),
    "turned": (lambda x: soft(x.T).T, lambda x: softmax(x.T).T, False),
    "stacks": (
        lambda x: soft(x.reshape((-1, 1, x.shape[1])) * 2),
        lambda x: softmax(x.reshape(-1, 1, x.shape[1]) * 2),
        True,
    ),
    "a number for each row and each column": (
        lambda x: x * weft.max(x, axis=1, keepdims=True) + x[:, :1] * x[0],
        lambda x: x * x.max(axis=1, keepdims=True) + x[:, :1] * x[0],
        False,  # rows begin at numbers that lie apart
    ),
    "reductions": (
        lambda x: weft.stack([x.sum(axis=1), x.min(axis=1), x.max(axis=1)]),
        lambda x: np.stack([x.sum(axis=1), x.min(axis=1), x.max(axis=1)]),
        False,
    ),
}
SIZES = [(16, 10), (33, 3), (40, 16), (17, 8), (21, 2), (64, 17), (5, 10), (1, 4)]


def checked(function: Any, oracle: Any, x: Array, message: str) -> NativeProgram:
    """That the native results are as near to the oracle as rounding allows; gives the program."""
    given = weft.tensor(x)
    made = NativeProgram(weft.make_graph(function, given))
    (found,) = made([given])
    tolerance = TOLERANCE[x.dtype.name]
    wanted = oracle(x.astype(np.float64))
    np.testing.assert_allclose(
        found.numpy().astype(np.float64), wanted, tolerance, 4 * tolerance, err_msg=message
    )
    return made


@pytest.mark.usefixtures("width")
@pytest.mark.parametrize("name", ROWS)
def test_short_rows(name: str) -> None:
    function, oracle, together = ROWS[name]
    rng = np.random.default_rng(0)
    for rows, columns in SIZES:
        for dtype in ("float32", "float64") if columns in (3, 10) else ("float32",):
            x = rng.standard_normal((rows, columns)).astype(dtype)
            made = checked(function, oracle, x, f"{name} of {x.shape}")
            short = columns - (name == "rows far apart") <= 16
            count = -(-rows // 2) if name == "every other row" else rows
            many = count >= max(host().lanes(x.itemsize), 2)
            if together and short and many and columns > 2:
                assert "@transpose_back." in made.text, f"{name} of {x.shape}"


@pytest.mark.usefixtures("width")
def test_short_rows_stay_with_themselves() -> None:
    """What is not finite in one row changes no other; rows of 0 and of -0.0 keep their sign."""
    x = np.random.default_rng(1).standard_normal((35, 5)).astype(np.float32)
    x[3, 2], x[16, 0], x[34, 4] = np.nan, np.inf, -np.inf
    x[20], x[21] = 0.0, -0.0
    given = weft.tensor(x)
    total = weft.make_graph(lambda x: (x * 1, x.sum(axis=1)), given)
    copied, sums = NativeProgram(total)([given])
    np.testing.assert_array_equal(copied.numpy(), x)
    np.testing.assert_array_equal(np.signbit(copied.numpy()), np.signbit(x))
    (found,) = NativeProgram(weft.make_graph(soft, given))([given])
    np.testing.assert_allclose(found.numpy(), softmax(x), 1e-5)
    clean = [row for row in range(35) if row not in (3, 16, 34)]
    np.testing.assert_allclose(sums.numpy()[clean], x[clean].sum(axis=1), 1e-5, 1e-6)
    assert np.isnan(sums.numpy()[3])
    assert sums.numpy()[16] == np.inf
    assert sums.numpy()[34] == -np.inf


#: Columns that fit into registers, and some that do not.
COLUMNS = [(32, 10), (32, 64), (7, 1), (50, 33), (9, 100), (300, 20), (1, 5), (2000, 17)]


@pytest.mark.usefixtures("width")
def test_sums_over_columns() -> None:
    """Row after row, as NumPy has it: the same bits."""
    rng = np.random.default_rng(2)
    for shape in COLUMNS:
        x = rng.standard_normal(shape).astype(np.float32)
        given = weft.tensor(x)
        graph = weft.make_graph(lambda x: ((x * 2).sum(axis=0), x.max(axis=0), x + 1), given)
        total, most, other = (t.numpy() for t in NativeProgram(graph)([given]))
        if x.size <= 1 << 15:  # larger ones are summed in pieces
            rows = np.zeros(shape[1], np.float32)
            for row in x:
                rows = rows + row * np.float32(2)
            np.testing.assert_array_equal(total, rows, f"{shape}")
        np.testing.assert_allclose(total, x.sum(axis=0, dtype=np.float64) * 2, 1e-4, 1e-4)
        np.testing.assert_array_equal(most, x.max(axis=0), f"{shape}")
        np.testing.assert_array_equal(other, x + 1, f"{shape}")


@pytest.mark.usefixtures("width")
def test_columns_of_stacks() -> None:
    x = np.random.default_rng(3).standard_normal((6, 9, 12)).astype(np.float32)
    for axis in (0, 1, (0, 1)):
        checked(
            lambda x, axis=axis: weft.exp(x).sum(axis=axis),
            lambda x, axis=axis: np.exp(x).sum(axis=axis),
            x,
            f"over {axis}",
        )


@pytest.mark.usefixtures("width")
def test_products_with_what_follows_them() -> None:
    """Small products whose sums go from registers into the ops behind them, updates in place."""
    rng = np.random.default_rng(4)
    for m, n, k in [(64, 64, 32), (32, 64, 64), (48, 40, 6), (64, 17, 3), (61, 33, 9)]:
        x, y = (rng.standard_normal(s).astype(np.float32) for s in ((k, m), (n, k)))
        w, rate = rng.standard_normal((m, n)).astype(np.float32), np.float64(0.1)

        def update(w: Any, x: Any, y: Any, rate: Any) -> Any:
            found = x.T @ y.T
            return w - found * rate.astype(weft.float32), weft.nn.functional.relu(found)

        given = [weft.tensor(a) for a in (w, x, y, np.asarray(rate))]
        made = NativeProgram(weft.make_graph(update, *given), {0: 0})
        wanted = x.T.astype(np.float64) @ y.T
        for _ in range(2):
            before = given[0].numpy().astype(np.float64)
            moved, relu = made(given)
            np.testing.assert_allclose(moved.numpy(), before - 0.1 * wanted, 1e-5, 1e-5)
            np.testing.assert_allclose(relu.numpy(), np.maximum(wanted, 0), 1e-5, 1e-5)
            given[0] = moved
