"""Attributes and constants as text and as keys: bit for bit, type for type."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import graph_ops
import ml_dtypes
import numpy as np
import pytest
from attribute_cases import ATTRIBUTES, F32, B
from graph_ops import one_node, there_and_back
from hypothesis import given
from hypothesis import strategies as st

import weft
from weft.base.device import Device
from weft.errors import GraphError
from weft.ir.attributes import attrs_key
from weft.ir.graph import Graph
from weft.ir.literal import CONSTANT, Literal, constant_attrs
from weft.ir.op import OPS
from weft.ir.types import TOKEN, TensorType

FLOAT8 = weft.register_dtype("float8_e4m3fn", ml_dtypes.float8_e4m3fn, "float", "f8e4m3")


@pytest.fixture(autouse=True)
def _ops() -> Iterator[None]:
    with graph_ops.graph_ops():
        yield


def of_attribute(value: Any) -> Any:
    """An attribute, after it was printed and read."""
    graph = one_node(OPS["t any"], [], {"a": value}, [])
    return there_and_back(graph).nodes[0].attrs["a"]


# --- constants ---------------------------------------------------------------------------------


def constant(array: np.ndarray[Any, Any]) -> Graph:
    return one_node(CONSTANT, [], constant_attrs(array, Device("cpu")), [weft_type(array)])


def weft_type(array: np.ndarray[Any, Any]) -> TensorType:
    return TensorType(weft.asarray(array).dtype, array.shape)


def awkward(dtype: weft.DType) -> np.ndarray[Any, Any]:
    """Numbers of a dtype that text loses easily."""
    if dtype.kind in ("int", "uint"):
        info = weft.iinfo(dtype)
        return np.array([info.min, info.max, 0, 1], dtype.numpy)
    if dtype.kind == "bool":
        return np.array([True, False])
    if dtype.kind == "complex":
        parts = awkward(weft.float32 if dtype is weft.complex64 else weft.float64)
        return np.concatenate([parts, parts[::-1]])[:16].view(dtype.numpy)
    numbers = [0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 0.1, 1 / 3, 1e-5, -2.5, 3.0]
    return np.array(numbers).astype(dtype.numpy)


DTYPES = list(weft.base.dtypes.DTYPES.values())


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
def test_constants_keep_their_bits(dtype: weft.DType) -> None:
    values = awkward(dtype)
    for array in (values, values[:1].reshape(()), values[:2].reshape(1, 2), values[:0]):
        again = there_and_back(constant(array)).nodes[0].attrs["value"].array
        assert again.tobytes() == array.tobytes()
        assert (again.dtype, again.shape) == (array.dtype, array.shape)


@pytest.mark.parametrize(
    "dtype",
    [weft.float16, weft.bfloat16, weft.float32, weft.float64, FLOAT8],
    ids=lambda d: d.name,
)
def test_all_kinds_of_bits(dtype: weft.DType) -> None:
    rng = np.random.default_rng(0)
    for _ in range(60):
        array = rng.integers(0, 256, 8 * dtype.itemsize, np.uint8).view(dtype.numpy)
        again = there_and_back(constant(array)).nodes[0].attrs["value"].array
        assert again.tobytes() == array.tobytes()


def test_nan_with_a_payload() -> None:
    array = np.array([0x7FC00001, 0xFF800002], np.uint32).view(np.float32)
    graph = constant(array)
    assert "value={nan(0x7fc00001), nan(0xff800002)}" in str(graph)
    there_and_back(graph)


def test_large_constants_are_in_a_side_table() -> None:
    array = np.arange(17.0)
    graph = constant(array)
    digest = Literal(array).digest
    assert f"constant[value=@{digest}]" in str(graph)
    assert list(graph.constants()) == [digest]
    np.testing.assert_array_equal(graph.constants()[digest], array)
    there_and_back(graph)
    with pytest.raises(GraphError, match=f"@{digest} is not in the table of constants"):
        weft.parse_graph(str(graph))
    with pytest.raises(GraphError, match="another array"):
        weft.parse_graph(str(graph), {digest: array + 1})


def test_a_constant_on_another_device_or_of_another_type_than_its_result() -> None:
    attrs = constant_attrs(np.ones(2, np.float32), Device("cuda"))
    graph = one_node(CONSTANT, [], attrs, [TensorType(weft.float64, (2,))])
    assert "constant[value=f32[2]{1.0, 1.0}, dtype=f32, device=device('cuda')]" in str(graph)
    there_and_back(graph)


# --- attributes --------------------------------------------------------------------------------


@pytest.mark.parametrize(("value", "text"), ATTRIBUTES, ids=[str(text) for _, text in ATTRIBUTES])
def test_attributes(value: Any, text: str | None) -> None:
    again = of_attribute(value)
    assert attrs_key({"a": again}) == attrs_key({"a": value})
    assert type(again) is type(value)
    if text is not None:
        assert f"'t any'[a={text}]\n" in str(one_node(OPS["t any"], [], {"a": value}, []))


LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=True)
    | st.complex_numbers(allow_nan=True)
    | st.text(max_size=8)
    | st.binary(max_size=4)
    | st.sampled_from([..., weft.float32, weft.bool, Device("cuda", 1), B, 3 * B + 2, TOKEN, F32])
    | st.builds(slice, *[st.none() | st.integers(-9, 9)] * 3)
    | st.builds(lambda n: Literal(np.array(n, np.float32)), st.floats(width=32))
)
TREES = st.recursive(
    LEAVES,
    lambda part: (
        st.lists(part, max_size=4)
        | st.lists(part, max_size=4).map(tuple)
        | st.dictionaries(st.text(max_size=4) | st.integers(), part, max_size=3)
    ),
    max_leaves=12,
)


@given(TREES)
def test_attribute_trees(value: Any) -> None:
    assert attrs_key({"a": of_attribute(value)}) == attrs_key({"a": value})


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (1, True),
        (1, 1.0),
        (0.0, -0.0),
        (0, False),
        (1.0, 1 + 0j),
        ((1,), [1]),
        ((1,), (1.0,)),
        (slice(1), slice(True)),
        ({"a": 0}, {"a": False}),
        ({1: 0}, {1.0: 0}),
        ("1", 1),
        (None, "None"),
        (weft.dim("A"), weft.dim("B")),
        (np.float32(1), np.float64(1)),
        (np.float32(1), 1.0),
        (Literal(np.zeros(1)), Literal(-np.zeros(1))),
        ([], ()),
    ],
)
def test_keys_of_attributes_that_differ(a: Any, b: Any) -> None:
    assert attrs_key({"x": a}) != attrs_key({"x": b})
    assert attrs_key({"x": a}) == attrs_key({"x": a})


def test_keys_of_attributes_that_are_equal() -> None:
    nan = float("nan")
    first = {"a": nan, "b": [slice(0, nan)], "c": {"x": 1, "y": 2}, "d": Literal(np.ones(3))}
    second = {"d": Literal(np.ones(3)), "c": {"y": 2, "x": 1}, "b": [slice(0, nan)], "a": nan}
    assert attrs_key(first) == attrs_key(second)
    assert hash(attrs_key(first)) == hash(attrs_key(second))
    unhashable = [object(), bytearray()]
    assert attrs_key({"a": unhashable[1]}) == attrs_key({"a": unhashable[1]})
