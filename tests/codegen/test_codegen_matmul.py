"""Kernels of matrix products, against NumPy: exact integers, floats within their error bound."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest
from emitted import OTHER_CACHES
from product_kernels import WIDTHS, Array, Built, lying, narrower

from weft.base import dtypes
from weft.base.dtypes import DTYPES, DType
from weft.codegen.index import Ptr, Size
from weft.codegen.kernel import Store, argument
from weft.codegen.machine import Machine, host
from weft.codegen.matmul import Operand, Product, emit, plain_store
from weft.codegen.matmul.numbers import number_of
from weft.codegen.matmul.plan import choose
from weft.codegen.scalar.forms import load, memory_type, store
from weft.codegen.text import Function, Module


def numbers(shape: tuple[int, ...], dtype: DType, seed: int = 0) -> Array:
    rng = np.random.default_rng([seed, *shape])
    if dtype.kind == "float":
        return rng.standard_normal(shape).astype(dtype.numpy)
    limits = np.iinfo(dtype.numpy)
    return rng.integers(limits.min, limits.max, shape, dtype=dtype.numpy, endpoint=True)


_EPS = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}


def check(found: Array, a: Array, b: Array, dtype: DType, message: str) -> None:
    """That `found` is a @ b: exactly, or as near as sums in any order are."""
    if dtype.kind != "float":
        np.testing.assert_array_equal(found, np.matmul(a, b), err_msg=message)
        return
    wide = np.longdouble if dtype is dtypes.float64 else np.float64
    x, y = a.astype(wide), b.astype(wide)
    wanted = np.matmul(x, y)
    terms = a.shape[-1] * (_EPS["float64"] if dtype is dtypes.float64 else _EPS["float32"])
    bound = terms * np.matmul(np.abs(x), np.abs(y)) + _EPS[dtype.name] * np.abs(wanted)
    wrong = np.abs(found.astype(wide) - wanted) > bound + 1e-30
    assert not wrong.any(), f"{message}: {np.argwhere(wrong)[:5]} of {found.shape}"


SHAPES = [  # m, n, k
    (1, 1, 1),
    (3, 5, 7),
    (4, 32, 32),
    (32, 10, 64),
    (64, 17, 3),
    (14, 32, 8),
    (33, 257, 19),
    (130, 70, 300),
    (61, 130, 400),
    (300, 40, 520),
    (1, 300, 40),
    (8, 1000, 20),
    (2, 150, 9),
    (1, 37, 129),
    (1, 1, 1000),
    (1, 5, 70),
    (200, 1, 33),
    (9, 1, 65),
    (70, 1, 1),
    (64, 64, 1),
    (64, 64, 32),
]
TURNS = [(False, False), (True, False), (False, True), (True, True)]


def check_shapes(
    shapes: Sequence[tuple[int, int, int]],
    dtype: DType,
    target: Machine | None = None,
    pieces: Sequence[int] = (1, 3),
) -> None:
    built, cases = Built(target), []
    for m, n, k in shapes:
        for transpose_a, transpose_b in TURNS:
            product = Product.dense(
                m, n, k, dtype, transpose_a=transpose_a, transpose_b=transpose_b
            )
            node = built.add(
                lambda module, name, product=product: emit(
                    module, name, product, 0, 1, plain_store(product, 2), 3
                )
            )
            cases.append((node, product, transpose_a, transpose_b))
    for node, product, transpose_a, transpose_b in cases:
        m, n, k = product.m, product.n, product.k
        a = numbers((k, m) if transpose_a else (m, k), dtype, 1)
        b = numbers((n, k) if transpose_b else (k, n), dtype, 2)
        found = [built.run(node, [a, b], [numbers((m, n), dtype)], count)[0] for count in pieces]
        message = f"{product}"
        check(found[0], a.T if transpose_a else a, b.T if transpose_b else b, dtype, message)
        for other in found[1:]:  # the same bits for any cut
            assert other.tobytes() == found[0].tobytes(), message


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int64", "uint8"])
def test_shapes(dtype: str) -> None:
    check_shapes(SHAPES if dtype in ("float32", "float64") else SHAPES[1::2], DTYPES[dtype])


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "uint16", "uint32", "uint64"])
def test_integers_wrap(dtype: str) -> None:
    check_shapes([(5, 7, 3), (33, 40, 50), (1, 20, 30)], DTYPES[dtype])


@pytest.mark.parametrize("width", WIDTHS[1:])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16", "int8"])
def test_narrower_vectors(dtype: str, width: int) -> None:
    shapes = [(3, 5, 7), (32, 10, 64), (33, 65, 19), (61, 40, 400), (1, 37, 129), (20, 1, 33)]
    shapes.append((48, 24, 9))
    check_shapes(shapes, DTYPES[dtype], narrower(width))


@pytest.mark.parametrize("machine", OTHER_CACHES)
def test_other_caches(machine: Machine) -> None:
    check_shapes([(300, 200, 1024), (70, 66, 5000), (33, 520, 90)], dtypes.float32, machine)


def test_large_products_share_copies() -> None:
    """Products that are cut into blocks of terms, with copies that items share; rows 4096 apart."""
    check_shapes(
        [(300, 200, 1024), (1030, 66, 500), (1024, 130, 300), (60, 40, 5000)], dtypes.float32
    )
    check_shapes([(1024, 70, 200)], dtypes.float64)


# --- where operands lie -------------------------------------------------------------------------


def product_of(a: Array, b: Array, base_a: Array, base_b: Array) -> Product:
    """The product of views of two arrays."""
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])

    def operand(x: Array, base: Array, shape: tuple[int, ...]) -> Operand:
        steps = lying(np.broadcast_to(x, (*batch, *shape)))
        offset = (x.ctypes.data - base.ctypes.data) // x.itemsize
        return Operand(steps[:-2], *steps[-2:], offset)

    (m, k), n = a.shape[-2:], b.shape[-1]
    first, second = operand(a, base_a, (m, k)), operand(b, base_b, (k, n))
    return Product(m, n, k, dtypes.float32, first, second, batch)


def _views() -> dict[str, tuple[Array, Array, Array, Array]]:
    f32 = dtypes.float32
    x, y = numbers((2, 3, 20, 30), f32, 1), numbers((2, 3, 30, 25), f32, 2)
    heads = numbers((2, 20, 3, 16), f32, 3)  # batch, tokens, heads, width
    keys = numbers((2, 18, 3, 16), f32, 4)
    row = numbers((1, 30), f32, 5)
    big = numbers((300, 400), f32, 6)
    return {
        "stacks": (x, y, x, y),
        "one b for all": (x, y[0, 0], x, y),
        "one a for all": (x[1, 2], y, x, y),
        "broadcast both ways": (x[:, :1], y[:1], x, y),
        "heads": (heads.transpose(0, 2, 1, 3), keys.transpose(0, 2, 3, 1), heads, keys),
        "heads of b": (
            x[:, :, :, :18],
            keys.transpose(0, 2, 1, 3),
            x,
            keys,
        ),
        "parts": (big[10:50, 7:100], big[100:193, 200:270], big, big),
        "turned parts": (big[10:50, 7:100].T, big[100:140, 3:70], big, big),
        "rows apart": (x[..., ::4, :], y, x, y),
        "a row again and again": (row, y, row, y),
        "column of a": (big[:100, 5:6], big[:1, :60], big, big),
        "column times": (big[:40, 20:60], big[:40, 9:10], big, big),
        "row times columns": (big[7:8, 20:60], big[5:47:1, 20:60].T, big, big),
    }


def test_views_are_read_in_place() -> None:
    built, cases = Built(), []
    for name, (a, b, base_a, base_b) in _views().items():
        product = product_of(a, b, base_a, base_b)
        node = built.add(
            lambda module, kernel, product=product: emit(
                module, kernel, product, 0, 1, plain_store(product, 2), 3
            )
        )
        cases.append((name, node, product, a, b, base_a, base_b))
    for name, node, product, a, b, base_a, base_b in cases:
        for pieces in (1, 4):
            (found,) = built.run(node, [base_a, base_b], [np.zeros(product.shape, "f4")], pieces)
            check(found, a, b, dtypes.float32, name)


def test_what_needs_a_copy() -> None:
    x = numbers((20, 40), dtypes.float32)
    for a, b in (
        (x[:, ::2], x),
        (x, np.broadcast_to(x[:, :1], (20, 40)).T),
        (x[::2, ::4].T, x[:10]),
    ):
        product = product_of(a, b, x, x)
        assert emit(Module(host()), "k", product, 0, 1, plain_store(product, 2)) is None
    product = Product.dense(2, 3, 4, dtypes.complex64)
    assert emit(Module(host()), "k", product, 0, 1, plain_store(product, 2)) is None


@pytest.mark.parametrize("shape", [(0, 3, 4), (3, 0, 4), (0, 0, 0)])
def test_no_elements_no_kernels(shape: tuple[int, int, int]) -> None:
    product = Product.dense(*shape, dtypes.float32, (2,))
    assert emit(Module(host()), "k", product, 0, 1, plain_store(product, 2)) == []
    product = Product.dense(2, 3, 4, dtypes.float32, (5, 0))
    assert emit(Module(host()), "k", product, 0, 1, plain_store(product, 2)) == []


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_no_terms_are_zeros(dtype: str) -> None:
    for shape in ((3, 37), (1, 1), (4, 1), (1, 16)):
        product = Product.dense(*shape, 0, DTYPES[dtype], (2, 3))
        built = Built()
        built.add(
            lambda module, name, product=product: emit(
                module, name, product, 0, 1, plain_store(product, 2)
            )
        )
        empty = np.zeros(0, product.dtype.numpy)
        (found,) = built.run(0, [empty, empty], [numbers(product.shape, product.dtype)], 2)
        assert not found.astype(float).any()


# --- what is done with results ------------------------------------------------------------------


@dataclasses.dataclass
class Adding:
    """Adds each element, and its place counted in C order, to what lies there."""

    product: Product
    place: int
    out: Ptr | None = None

    def begin(self, f: Function) -> None:
        self.out = argument(f, self.place, memory_type(self.product.accumulator))

    def put(
        self, f: Function, value: str, lanes: int, index: Sequence[Size], mask: str | None = None
    ) -> None:
        dtype = self.product.accumulator
        at: Size = 0
        for size, i in zip(self.product.shape, index, strict=True):
            at = at * size + i
        assert self.out is not None
        pointer = self.out + at
        before = load(f, dtype, pointer, lanes, mask)
        kind = memory_type(dtype) if lanes == 1 else f"<{lanes} x {memory_type(dtype)}>"
        store(f, dtype, pointer, f(f"fadd {kind} {before}, {value}"), lanes, mask)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_each_element_is_put_once_in_its_place(dtype: str) -> None:
    shapes = [(5, 3, 4), (40, 50, 20), (1, 50, 20), (50, 1, 20), (31, 100, 420), (1, 2, 3)]
    built, cases = Built(), []
    for m, n, k in shapes:
        for transpose_a, transpose_b in TURNS:
            product = Product.dense(
                m, n, k, DTYPES[dtype], (2, 2), transpose_a=transpose_a, transpose_b=transpose_b
            )
            adding: Store = Adding(product, 2)
            node = built.add(
                lambda module, name, product=product, adding=adding: emit(
                    module, name, product, 0, 1, adding
                )
            )
            cases.append((node, product, transpose_a, transpose_b))
    for node, product, transpose_a, transpose_b in cases:
        m, n, k = product.m, product.n, product.k
        a = numbers((2, 2, k, m) if transpose_a else (2, 2, m, k), product.dtype, 1)
        b = numbers((2, 2, n, k) if transpose_b else (2, 2, k, n), product.dtype, 2)
        out = np.arange(4 * m * n, dtype=product.accumulator.numpy).reshape(product.shape)
        (found,) = built.run(node, [a, b], [out * 1000], 3)
        a, b = (a.mT if transpose_a else a).astype("f8"), (b.mT if transpose_b else b).astype("f8")
        np.testing.assert_allclose(found, out * 1000.0 + a @ b, rtol=1e-6, atol=1e-3)


def test_nan_and_infinity_stay_in_their_row_and_column() -> None:
    for shape in ((20, 37, 30), (1, 37, 30), (130, 66, 300)):
        m, n, k = shape
        product = Product.dense(m, n, k, dtypes.float32)
        built = Built()
        built.add(lambda module, name, p=product: emit(module, name, p, 0, 1, plain_store(p, 2), 3))
        a, b = numbers((m, k), dtypes.float32), numbers((k, n), dtypes.float32)
        a[0, 3], b[k - 1, n - 1] = np.nan, np.inf
        (found,) = built.run(0, [a, b], [np.zeros((m, n), "f4")])
        with np.errstate(invalid="ignore"):
            wanted = a @ b
        np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
        np.testing.assert_array_equal(np.isinf(found), np.isinf(wanted))


def test_products_of_one_module_share_code() -> None:
    """Twelve sizes of one kind: a function for the tile, few for copies, one kernel each."""
    module = Module(host())
    for i in range(12):
        product = Product.dense(140, 128, 64 + 8 * i, dtypes.float32)
        emit(module, f"k{i}", product, 0, 1, plain_store(product, 2))
    assert module.text().count("\ndefine ") <= 12 + 3


@pytest.mark.parametrize(
    ("m", "n", "once"), [(1 << 14, 256, True), (256, 256, False), (1 << 14, 2000, False)]
)
def test_a_large_left_operand_is_read_once_where_the_right_one_stays_near(
    m: int, n: int, once: bool
) -> None:
    product, number = Product.dense(m, n, 256, dtypes.float32), number_of(dtypes.float32)
    assert number is not None
    plan = choose(product, number, host(), True, ())
    columns = plan.panels * plan.vectors * host().lanes(4)
    assert (columns >= n) == once
    assert plan.b == "shared" or not once
