"""Kernels that read and write by index, against the cards themselves, bit by bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from emitted import Array, Case, build_cases, check_case, narrow_target, type_of, values

from weft.base import dtypes
from weft.base.device import CPU
from weft.base.dtypes import DTYPES, DType, bfloat16, complex128, float32, float64, int64
from weft.codegen.indexing import EMITTERS
from weft.codegen.indexing.classes import check_classes
from weft.codegen.indexing.plan import indexed, merged
from weft.codegen.kernel import Kernel
from weft.codegen.text import Module
from weft.ir.graph import Node
from weft.ops.index_shape import TENSOR as T

S = slice
ALL = S(None)


def at(low: int, high: int, *shape: int, dtype: Any = np.int64, seed: int = 1) -> Array:
    return np.random.default_rng(seed).integers(low, high, shape).astype(dtype)


# --- reading -------------------------------------------------------------------------------------


def reading(dtype: DType) -> list[Case]:
    x = values(dtype, (5, 7, 6))
    i = at(-5, 5, 4, 3)
    return [
        Case("take", [x, i], {"axis": 0}),
        Case("take", [x, i], {"axis": 1}),
        Case("take", [x, i], {"axis": 2}),
        Case("gather", [x, i, i[:1]], {"index": (T, S(None, None, -2), T)}),
        Case("take_along_axis", [x, at(-7, 7, 5, 9, 6)], {"axis": 1}),
        Case("embedding", [x[0], at(0, 7, 2, 3)], {"padding_idx": None}),
    ]


def kinds_of_index() -> list[Case]:
    x = values(float32, (5, 7, 6))
    i = at(-5, 5, 4, 3)
    indices: list[tuple[Any, list[Array]]] = [
        ((T,), [i]),
        ((ALL, T), [i]),
        ((S(1, None, 2), T, T), [i, i[0]]),
        ((T, None, T), [i, i[0]]),
        ((2, S(1, 4), T), [i]),
        ((..., T, 3), [i]),
        ((T, 1), [i]),
        ((T, T, T), [i[:, 0], i[:, 1], np.asarray(2)]),
        ((T,), [np.asarray(-1)]),
        ((T,), [at(0, 1, 0)]),
        ((S(3, 3), T), [i]),
    ]
    cases = [Case("gather", [x, *tensors], {"index": index}) for index, tensors in indices]
    cases += [Case("take", [x, i.astype(name)], {"axis": 0}) for name in ("int8", "int16", "int32")]
    unsigned = at(0, 5, 9)
    cases += [
        Case("take", [x, unsigned.astype(f"uint{bits}")], {"axis": 0}) for bits in (8, 16, 32, 64)
    ]
    cases.append(Case("take", [x, np.asarray([2**64 - 1], np.uint64)], {"axis": 0}))  # NumPy's -1
    cases.append(Case("take", [x[0, 0], np.asarray(3)], {"axis": 0}))
    cases.append(Case("take", [values(float32, (300, 70)), at(-300, 300, 1000)], {"axis": 0}))
    cases.append(Case("take_along_axis", [x, at(-5, 5, 2, 7, 6)], {"axis": 0}))
    cases.append(Case("take_along_axis", [x, at(-6, 6, 5, 7, 1)], {"axis": 2}))
    return cases


def out_of_range() -> list[Case]:
    x = values(float32, (5, 4))
    cases = []
    for wrong in (-6, 5, 2**40):
        i = np.asarray([1, wrong, 2])
        cases += [
            Case("take", [x, i], {"axis": 0}),
            Case("gather", [x, i, np.asarray([0, 1, 2])], {"index": (T, T)}),
            Case("take_along_axis", [x, np.stack([i] * 4, axis=1)], {"axis": 0}),
            Case("setitem", [x, np.asarray(1, np.float32), i], {"index": (T,)}),
            Case("scatter_add", [x[:3], i], {"shape": (5, 4), "index": (T,)}),
            Case("scatter_add", [x[:2, :3], i], {"shape": (2, 5), "index": (ALL, T)}),
            Case("scatter_add", [x[0, :3], i, i * 0], {"shape": (5, 1), "index": (T, T)}),
            Case("row_sums", [x[:3], i], {"rows": 5, "padding_idx": None}),
        ]
    cases.append(Case("embedding", [x, np.asarray([1, -1])], {"padding_idx": None}))
    cases.append(Case("embedding", [x, np.asarray([5, 1])], {"padding_idx": None}))
    cases.append(Case("embedding", [x[:, :0], np.asarray([5, 1])], {"padding_idx": None}))
    cases.append(Case("gather", [x[:, :0], np.asarray([5])], {"index": (T,)}))
    cases.append(Case("gather", [x[:, :0], np.asarray([4])], {"index": (T,)}))
    cases.append(Case("gather", [x, at(5, 6, 2, 1), at(0, 1, 0)], {"index": (T, T)}))
    cases.append(Case("take", [x[:0], np.asarray([9])], {"axis": 1}))  # the card lets it pass
    return cases


def losses() -> list[Case]:
    cases = []
    for dtype in (dtypes.float16, bfloat16, float32, float64):
        logp = values(dtype, (5, 7, 6))
        ordinary = {"axis": 1, "ignore_index": -100}
        some = np.asarray([1, -100, 2, 3, 4, 5, -100])
        cases += [
            Case("nll", [logp, at(0, 7, 5, 6)], ordinary),
            Case("nll", [logp, at(0, 7, 5, 6, dtype=np.uint64)], {"axis": 1, "ignore_index": 3}),
            Case("nll", [logp[0], some], ordinary),
            Case("nll", [logp[0], some], {"axis": 1, "ignore_index": 3}),
            Case("nll", [logp[0], np.full(7, 6)], ordinary),
            Case("nll", [logp[0, 0], np.asarray(2)], {"axis": 0, "ignore_index": -100}),
        ]
    wrapped = np.full(7, 2**64 - 100, np.uint64)  # as int64 it would be the ignored one
    cases.append(Case("nll", [logp[0], wrapped], ordinary))
    return cases


# --- writing -------------------------------------------------------------------------------------


def writing(dtype: DType) -> list[Case]:
    x, value = values(dtype, (5, 7, 40)), values(dtype, (4, 3, 7, 40), seed=2)
    i = at(-5, 5, 4, 3)  # names places more than once
    setitem: list[tuple[Any, Array, list[Array]]] = [
        ((T,), value, [i]),
        ((T,), value[0, 0, 0, 0], [i]),
        ((T,), value[:, :, :1, :], [i]),
        ((T,), value[:, :, :, :1], [i]),
        ((0, ALL, 3), value[0, 0, :, 0], []),
        ((3, S(2)), value[0, 0, :2], []),
        (..., value[0, :1, 0, :1], []),
        ((T, ALL, S(None, None, 15)), value[:, :, :, :3], [i]),
        ((ALL, T), value[:1, 0, :4], [i[:, 0]]),
        ((T,), value[0, :0], [at(0, 1, 0)]),
    ]
    cases = [Case("setitem", [x, v, *tensors], {"index": index}) for index, v, tensors in setitem]
    if dtype.kind == "bool":
        return cases
    shape = (5, 7, 40)
    sums: list[tuple[Any, tuple[int, ...], Array, list[Array]]] = [
        ((T,), shape, value, [i]),
        ((S(1, 4),), shape, value[0], []),
        ((ALL, T), (3, 4), value[0, :, :, 0], [at(-4, 4, 7)]),
        ((T, T), (5, 2), value[:, :, 0, 0], [i, np.asarray([0, 1, 0])]),
        ((ALL, T), (7, 5, 40), value[:, 0].transpose(1, 0, 2), [i[:, 0]]),
        ((T,), (5,), value[0, 0, 0, 0], [np.asarray(2)]),
    ]
    cases += [
        Case("scatter_add", [np.array(v, order="C"), *tensors], {"shape": to, "index": index})
        for index, to, v, tensors in sums
    ]
    rows = np.abs(i)
    cases += [
        Case("row_sums", [value[:, :, 0], rows], {"rows": 6, "padding_idx": None}),
        Case("row_sums", [value[:, :, 0], rows.astype("u1")], {"rows": 6, "padding_idx": 1}),
        Case("row_sums", [value[:, :, 0], i], {"rows": 5, "padding_idx": -1}),
        Case("row_sums", [value[:, :, 0, :1], rows], {"rows": 6, "padding_idx": None}),
        Case("row_sums", [value[:, :, 0, :0], rows + 9], {"rows": 6, "padding_idx": None}),
    ]
    return cases


# --- side by side, and by rules ------------------------------------------------------------------


def made(dtype: DType) -> list[Case]:
    device = {"dtype": dtype, "device": CPU}
    shapes: list[tuple[list[tuple[int, ...]], int]] = [
        ([(2, 3), (2, 1), (2, 0), (2, 5)], 1),
        ([(2, 3), (1, 3)], 0),
        ([(7000,), (3,), (0,), (6000,)], 0),
        ([(3, 2, 2), (3, 4, 2)], 1),
        ([(3, n) for n in range(12)], 1),
        ([(n, 3) for n in range(12)], 0),
        ([(0, 2), (0, 3)], 1),
    ]
    cases = [
        Case("concat", [values(dtype, s, seed=i) for i, s in enumerate(parts)], {"axis": axis})
        for parts, axis in shapes
    ]
    cases += [
        Case("full", [], {"shape": shape, "value": 1, **device}) for shape in ((), (0,), (7, 1001))
    ]
    if dtype.kind in ("float", "complex"):
        for value in (-0.0, float("nan")):
            cases.append(Case("full", [], {"shape": (70,), "value": value, **device}))
    cases += [
        Case("eye", [], {"rows": 5, "columns": columns, "k": k, **device})
        for columns, k in ((6, 0), (6, -3), (6, 9), (0, 0))
    ]
    if dtype.kind in ("int", "uint", "float"):
        steps: list[tuple[Any, Any, int]] = [(0, 1, 0), (5, -3, 37), (2**62, 2**61, 9)]
        steps += [(-7, 3, 9000)]
        if dtype.kind == "float":
            steps += [(0.5, 0.1, 37), (0, 0.37, 5000)]
        cases += [
            Case("arange", [], {"start": start, "step": step, "length": length, **device})
            for start, step, length in steps
        ]
    return cases


READ = ["bool", "bfloat16", "float32", "int64", "complex128"]  # one of each size
WRITTEN = ["bool", "int8", "float16", "bfloat16", "float32", "float64", "complex64"]
MADE = ["uint8", "int32", "uint64", "float16", "bfloat16", "complex128"]
TABLES: dict[str, list[Case]] = {
    **{f"reading {name}": reading(DTYPES[name]) for name in READ},
    "kinds of index": kinds_of_index(),
    "out of range": out_of_range(),
    "losses": losses(),
    **{
        f"writing {name}": writing(DTYPES[name])
        for name in [
            "bool",
            "int8",
            "uint16",
            "int64",
            "float16",
            "bfloat16",
            "float32",
            "float64",
            "complex64",
        ]
    },
    **{
        f"made {name}": made(DTYPES[name])
        for name in [
            "bool",
            "uint8",
            "int32",
            "uint64",
            "float16",
            "bfloat16",
            "float32",
            "complex128",
        ]
    },
}


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    build_cases([case for cases in TABLES.values() for case in cases], EMITTERS)


@pytest.mark.parametrize("table", TABLES)
def test_kernels_equal_the_cards(table: str) -> None:
    for case in TABLES[table]:
        check_case(case)


def test_with_narrow_vectors() -> None:
    cases = [*writing(bfloat16), *made(dtypes.float16), *reading(complex128)]
    build_cases(cases, EMITTERS, narrow_target())
    for case in cases:
        check_case(case)


def test_setitem_in_place_writes_only_the_part() -> None:
    """Where the result is the memory of x itself, nothing is copied."""
    x = values(float32, (50, 40))
    case = Case("setitem", [x, np.asarray(7, np.float32), at(0, 50, 9)], {"index": (T,)})
    build_cases([case], EMITTERS)
    memory, value, index = x.copy(), *case.arrays[1:]
    pointers = [a.ctypes.data for a in (memory, value, index, memory)]
    assert case.call(pointers) == 0
    x[index] = value
    assert memory.tobytes() == x.tobytes()


def test_a_wrong_index_leaves_memory_as_it_is() -> None:
    x = values(float32, (50, 40))
    index = np.asarray([1, 2, 50])
    case = Case("setitem", [x, np.asarray(7, np.float32), index], {"index": (T,)})
    build_cases([case], EMITTERS)
    memory = x.copy()
    pointers = [a.ctypes.data for a in (memory, case.arrays[1], index, memory)]
    assert case.call(pointers) == 1
    assert memory.tobytes() == x.tobytes()


@pytest.mark.parametrize(
    ("target", "ignored", "fails"),
    [
        ([0, 3, 2], -100, False),
        ([0, -100, 2], -100, False),
        ([0, 4, 2], -100, True),
        ([0, 1, -1], -100, True),
        ([0, 4, 4], 4, False),
        ([], -100, False),
    ],
)
def test_targets_that_name_no_class_are_found(target: list[int], ignored: int, fails: bool) -> None:
    targets = np.asarray(target, np.int64)
    attrs = {"axis": 1, "ignore_index": ignored}
    case = Case("nll", [values(float32, (len(target), 4)), targets], attrs)

    def emit(module: Module, name: str, node: Node) -> list[Kernel]:
        return [check_classes(module, name, type_of(targets), 4, ignored, 0)]

    build_cases([case], {"nll": emit})
    assert case.call([targets.ctypes.data]) == fails


def test_what_has_no_emitter() -> None:
    ints = {"start": 0.5, "step": 1, "length": 3, "dtype": int64, "device": CPU}
    cases = [
        Case("setitem", [values(float32, (3,)), np.asarray(1.0)], {"index": (0,)}),
        Case("arange", [], ints),
        Case("arange", [], {**ints, "start": 0, "dtype": complex128}),
    ]
    build_cases(cases, EMITTERS)
    assert [case.kernels for case in cases] == [None] * len(cases)


# --- the plan of an index ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("index", "tensors"),
    [
        ((T,), [(4,)]),
        ((ALL, T), [(2, 3)]),
        ((1, T, S(None, None, -1)), [(3,)]),
        ((T, ALL, T), [(3, 1), (2,)]),
        ((S(4, 1, -1), None, -1), []),
    ],
)
def test_a_plan_finds_the_places_that_numpy_finds(index: Any, tensors: list[Any]) -> None:
    x = np.arange(5 * 6 * 7).reshape(5, 6, 7)
    given = [at(0, 5, *shape, seed=n) for n, shape in enumerate(tensors)]
    parts = iter(given)
    right = x[tuple(next(parts) if part is T else part for part in index)]
    part = indexed(x.shape, index, tensors)
    assert part.shape == right.shape
    for place in np.ndindex(right.shape):
        found = part.start + sum(p * s for p, s in zip(place, part.steps, strict=True))
        for tensor, values_ in zip(part.tensors, given, strict=True):
            own = sum(p * s for p, s in zip(place, tensor.steps, strict=True))
            found += int(values_.reshape(-1)[own]) * tensor.step
        assert found == right[place]


def test_axes_are_merged_where_all_operands_allow_it() -> None:
    assert merged((2, 3, 4), (12, 4, 1)) == ((24,), [(1,)])
    assert merged((2, 1, 4), (12, 0, 1)) == ((2, 4), [(12, 1)])
    assert merged((2, 3, 4), (12, 4, 1), (4, 0, 1)) == ((2, 3, 4), [(12, 4, 1), (4, 0, 1)])
    assert merged((), ()) == ((), [()])
