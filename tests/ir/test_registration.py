"""Devices, layouts, dtypes and kernels registered from outside the package."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import weft
from weft.base.errors import DeviceError, DTypeError
from weft.ir.dispatch import FAMILIES
from weft.ir.op import OPS

Array = np.ndarray[Any, Any]


class ToyArray:
    """An array of a device of our own. Only what `register_device` asks for, and a unit number."""

    def __init__(self, values: Any, unit: int = 0) -> None:
        self.values = np.asarray(values)
        self.unit = unit

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.values.dtype

    def copy(self) -> ToyArray:
        return ToyArray(self.values.copy(), self.unit)


@pytest.fixture
def toy() -> Iterator[str]:
    weft.register_device(
        "toy",
        ToyArray,
        from_numpy=lambda array, device: ToyArray(array.copy(), device.index),
        to_numpy=lambda toy: toy.values,
        device_of=lambda toy: weft.Device("toy", toy.unit),
    )
    yield "toy"
    if ("toy", "dense") in FAMILIES:
        weft.unregister_device("toy")


def on_toy(values: Any, **kwargs: Any) -> weft.Tensor:
    return weft.asarray(values, **kwargs).to_device("toy")


# --- devices -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float32", "bfloat16", "complex128"])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3)])
def test_there_and_back(toy: str, dtype: str, shape: tuple[int, ...]) -> None:
    x = weft.ones(shape, dtype=dtype)
    there = x.to_device(toy)
    assert str(there.device) == toy
    assert (there.shape, there.dtype, there.layout) == (x.shape, x.dtype, "dense")
    back = there.to_device("cpu")
    assert back.device == x.device
    assert back.dtype is x.dtype
    np.testing.assert_array_equal(back.numpy(), x.numpy())


def test_units_of_a_device(toy: str) -> None:
    x = weft.ones(3).to_device("toy:1")
    assert str(x.device) == "toy:1"
    assert str(x.to_device("toy").device) == "toy"


def test_a_toy_tensor_is_a_tensor(toy: str) -> None:
    x = on_toy([[1.0, 2.0]])
    assert repr(x) == "tensor([[1., 2.]], device='toy')"
    assert str(x.type) == "f32[1,2]@toy"
    assert x.tolist() == [[1.0, 2.0]]
    assert (len(x), x.size, x.nbytes) == (1, 2, 8)
    again = pickle.loads(pickle.dumps(x))
    assert str(again.device) == toy
    assert again.tolist() == x.tolist()


def test_values_do_not_alias_across_devices(toy: str) -> None:
    x = weft.zeros(3)
    there = x.to_device(toy)
    x[0] = 7
    assert there.tolist() == [0, 0, 0]
    assert there.to_device("cpu").tolist() == [0, 0, 0]


def test_asarray_takes_arrays_of_a_registered_class(toy: str) -> None:
    mine = ToyArray(np.asarray([1.0, 2.0], dtype=np.float32))
    x = weft.asarray(mine)
    assert str(x.device) == toy
    mine.values[0] = 99
    assert x.tolist() == [1, 2]


def test_a_device_is_registered_once(toy: str) -> None:
    conversions: dict[str, Any] = {"from_numpy": lambda a, d: a, "to_numpy": lambda a: a}
    with pytest.raises(DeviceError, match="already registered"):
        weft.register_device("toy", int, **conversions)
    with pytest.raises(DeviceError, match="already registered"):
        weft.register_device("other", ToyArray, **conversions)
    assert ("other", "dense") not in FAMILIES


def test_unknown_devices_are_named() -> None:
    with pytest.raises(DeviceError, match="'nowhere'") as caught:
        weft.ones(3).to_device("nowhere")
    assert "cpu" in caught.value.hint
    with pytest.raises(DeviceError, match="'nowhere'"):
        weft.zeros(3, device="nowhere")
    with pytest.raises(DeviceError, match="not a device"):
        weft.ones(3).to_device(3.5)


def test_unregister(toy: str) -> None:
    weft.register_kernel("negative", device=toy)(lambda a: ToyArray(-a.values))
    x = on_toy([1.0])
    assert (-x).tolist() == [-1]
    weft.unregister_device(toy)
    with pytest.raises(DeviceError, match="there is no device 'toy'"):
        on_toy([1.0])
    with pytest.raises(DeviceError):
        _ = -x
    with pytest.raises(DeviceError, match="was not registered"):
        weft.unregister_device(toy)


def test_kernels_go_with_their_device(toy: str) -> None:
    weft.register_kernel("negative", device=toy)(lambda a: ToyArray(-a.values))
    assert (-on_toy([1.0])).tolist() == [-1]
    weft.unregister_device(toy)
    weft.register_device(
        "toy", ToyArray, from_numpy=lambda a, d: ToyArray(a), to_numpy=lambda a: a.values
    )
    with pytest.raises(DTypeError, match="no kernel"):
        _ = -on_toy([1.0])


def test_the_cpu_stays() -> None:
    with pytest.raises(DeviceError):
        weft.unregister_device("cpu")
    assert weft.ones(2).to_device("cpu").tolist() == [1, 1]
    assert (weft.zeros(2) + 1).tolist() == [1, 1]


# --- kernels -----------------------------------------------------------------------------------


def test_a_missing_kernel_is_a_clear_error(toy: str) -> None:
    x = on_toy([1.0])
    with pytest.raises(DTypeError) as caught:
        _ = x + x  # this line
    message = str(caught.value)
    assert message.startswith("add: no kernel for float32 on (toy, dense)")
    assert "operands: f32[1]@toy, f32[1]@toy" in message
    assert "test_registration.py" in message
    assert "_ = x + x  # this line" in message
    assert "to fix: weft.register_kernel adds one" in message


def test_a_kernel_serves_function_method_and_operator(toy: str) -> None:
    @weft.register_kernel("add", device=toy)
    def add(a: ToyArray, b: ToyArray) -> ToyArray:
        return ToyArray(a.values + b.values)

    x, y = on_toy([1.0, 2.0]), on_toy([10.0, 20.0])
    for total in (x + y, weft.add(x, y), x.add(y)):
        assert str(total.device) == toy
        assert total.tolist() == [11, 22]


def test_python_numbers_meet_a_toy_tensor(toy: str) -> None:
    @weft.register_kernel("multiply", device=toy)
    def multiply(a: ToyArray, b: ToyArray) -> ToyArray:
        return ToyArray(a.values * b.values)

    x = on_toy([1.0, 2.0])
    for product in (x * 2, 2 * x, x * 2.0):
        assert product.tolist() == [2, 4]
        assert product.dtype is weft.float32
        assert str(product.device) == toy


def test_in_place_on_a_toy_tensor(toy: str) -> None:
    weft.register_kernel("add", device=toy)(lambda a, b: ToyArray(a.values + b.values))
    x = on_toy([1.0, 2.0])
    other = weft.asarray(x)
    same = x
    x += 1
    assert x is same
    assert x.tolist() == [2, 3]
    del other


def test_attributes_come_by_name(toy: str) -> None:
    seen: dict[str, Any] = {}

    @weft.register_kernel("sum", device=toy)
    def total(a: ToyArray, **attrs: Any) -> ToyArray:
        seen.update(attrs)
        return ToyArray(a.values.sum(axis=attrs["axis"], keepdims=attrs["keepdims"]))

    assert weft.sum(on_toy([[1.0, 2.0], [3.0, 4.0]]), axis=1, keepdims=True).tolist() == [[3], [7]]
    assert set(seen) == set(OPS["sum"].attrs)


def test_a_kernel_for_one_dtype_goes_first(toy: str) -> None:
    x, n = on_toy([1.0]), on_toy([1])
    weft.register_kernel("negative", device=toy, dtype=weft.int64)(lambda a: ToyArray(a.values * 5))
    assert (-n).tolist() == [5]
    with pytest.raises(DTypeError, match="no kernel for float32"):
        _ = -x
    weft.register_kernel("negative", device=toy)(lambda a: ToyArray(-a.values))
    assert (-x).tolist() == [-1]
    assert (-n).tolist() == [5]


def test_a_newer_kernel_replaces_an_older_one(toy: str) -> None:
    x = on_toy([1.0])
    for factor in (2, 3):

        @weft.register_kernel("negative", device=toy)
        def scale(a: ToyArray, factor: int = factor) -> ToyArray:
            return ToyArray(a.values * np.float32(factor))

        assert (-x).tolist() == [factor]


def test_creation_on_a_toy_device(toy: str) -> None:
    with pytest.raises(DTypeError, match="no kernel for float32 on \\(toy, dense\\)"):
        weft.zeros(3, device=toy)

    @weft.register_kernel("full", device=toy)
    def full(*, shape: Any, value: Any, dtype: Any, device: Any) -> ToyArray:
        return ToyArray(np.full(shape, value, dtype=dtype.numpy), device.index)

    made = weft.ones((2, 2), device="toy:3")
    assert str(made.device) == "toy:3"
    assert made.tolist() == [[1, 1], [1, 1]]


def test_a_failing_kernel_names_the_op(toy: str) -> None:
    weft.register_kernel("add", device=toy)(lambda a, b: ToyArray(a.values + b.values))
    with pytest.raises(weft.errors.ShapeError, match="add: shapes") as caught:
        _ = on_toy([1.0, 2.0]) + on_toy([1.0, 2.0, 3.0])
    assert "f32[2]@toy, f32[3]@toy" in str(caught.value)


def test_devices_do_not_mix(toy: str) -> None:
    weft.register_kernel("add", device=toy)(lambda a, b: ToyArray(a.values + b.values))
    x, y = weft.ones(3), on_toy([1.0, 2.0, 3.0])
    for mixed in (
        lambda: x + y,
        lambda: y + x,
        lambda: weft.add(x, y),
        lambda: weft.concat([x, y]),
    ):
        with pytest.raises(DeviceError, match="different devices") as caught:
            mixed()
        assert "cpu" in str(caught.value)
        assert "toy" in str(caught.value)
        assert "to_device" in caught.value.hint


def test_unknown_names_are_errors(toy: str) -> None:
    with pytest.raises(weft.errors.WeftError, match="no op named 'frobnicate'"):
        weft.register_kernel("frobnicate", device=toy)
    with pytest.raises(DeviceError, match="'nowhere'"):
        weft.register_kernel("add", device="nowhere")
    with pytest.raises(DeviceError, match="'curly'"):
        weft.register_kernel("add", device=toy, layout="curly")
    with pytest.raises(DTypeError, match="not a dtype"):
        weft.register_kernel("add", device=toy, dtype="int7")


# --- a device with a namespace -----------------------------------------------------------------


class Shadow(np.ndarray):
    """A class of arrays for which NumPy itself is the namespace: all cards run on it at once."""

    __array_priority__ = 1  # so that np.concat, too, returns this class


@pytest.fixture
def shadow() -> Iterator[str]:
    weft.register_device(
        "shadow",
        Shadow,
        namespace=np,
        from_numpy=lambda array, _device: array.copy().view(Shadow),
        to_numpy=lambda array: array.view(np.ndarray),
    )
    yield "shadow"
    weft.unregister_device("shadow")


def test_a_namespace_brings_all_ops(shadow: str) -> None:
    a = weft.reshape(weft.arange(6, dtype=weft.float32), (2, 3))
    b = a.to_device(shadow)
    programs = {
        "add": lambda x: x + x,
        "scale": lambda x: 2 * x - 1,
        "exp": weft.exp,
        "sum": lambda x: weft.sum(x, axis=0),
        "matmul": lambda x: x @ x.mT,
        "reshape": lambda x: weft.reshape(x, (3, 2)),
        "concat": lambda x: weft.concat([x, x]),
        "part": lambda x: x[:, 1:],
    }
    for name, program in programs.items():
        mine, theirs = program(a), program(b)
        assert str(theirs.device) == shadow, name
        assert theirs.dtype is mine.dtype, name
        np.testing.assert_array_equal(theirs.numpy(), mine.numpy(), err_msg=name)


def test_a_kernel_goes_before_the_namespace(shadow: str) -> None:
    x = weft.ones(2).to_device(shadow)
    assert (x + x).tolist() == [2, 2]
    weft.register_kernel("add", device=shadow)(lambda a, b: a + b + np.float32(100))
    assert (x + x).tolist() == [102, 102]
    assert (weft.ones(2) + 1).tolist() == [2, 2]  # the CPU's own is as it was


# --- layouts -----------------------------------------------------------------------------------


class Diagonal:
    """A square matrix that is zero off its diagonal."""

    def __init__(self, values: Array) -> None:
        self.values = values

    @property
    def shape(self) -> tuple[int, int]:
        return (len(self.values), len(self.values))

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.values.dtype

    def copy(self) -> Diagonal:
        return Diagonal(self.values.copy())


@pytest.fixture
def diagonal() -> Iterator[weft.Tensor]:
    weft.register_device(
        "cpu",
        Diagonal,
        layout="diagonal",
        from_numpy=lambda array, _device: Diagonal(np.diagonal(array).copy()),
        to_numpy=lambda array: np.diag(array.values),
    )
    yield weft.asarray(Diagonal(np.asarray([1, 2, 3], dtype=np.float32)))
    weft.unregister_device("cpu", layout="diagonal")


def test_a_layout(diagonal: weft.Tensor) -> None:
    assert diagonal.layout == "diagonal"
    assert str(diagonal.device) == "cpu"
    assert str(diagonal.type) == "f32[3,3]:diagonal"
    np.testing.assert_array_equal(diagonal.numpy(), np.diag([1, 2, 3]))
    assert weft.ones(1).layout == "dense"


def test_kernels_of_a_layout(diagonal: weft.Tensor) -> None:
    dense = weft.asarray(diagonal.numpy())
    with pytest.raises(DTypeError, match=r"no kernel for float32 on \(cpu, diagonal\)"):
        _ = diagonal @ diagonal
    weft.register_kernel("matmul", layout="diagonal")(lambda a, b: Diagonal(a.values * b.values))
    product = diagonal @ diagonal
    assert product.layout == "diagonal"
    np.testing.assert_array_equal(product.numpy(), (dense @ dense).numpy())


def test_layouts_do_not_mix(diagonal: weft.Tensor) -> None:
    with pytest.raises(DeviceError, match="in different layouts"):
        _ = diagonal + weft.ones((3, 3))


# --- dtypes ------------------------------------------------------------------------------------

#: A registered dtype stays for the life of the process; the op tests leave 8-bit floats out.
float8 = weft.register_dtype("float8_e4m3fn", ml_dtypes.float8_e4m3fn, "float", "f8e4m3")


def test_a_dtype_of_our_own() -> None:
    x = weft.asarray([1.0, 2.0, 3.3, -448.0], dtype=float8)
    assert x.dtype is float8
    assert (x.itemsize, str(x.type)) == (1, "f8e4m3[4]")
    assert x.astype(weft.float32).tolist() == [1, 2, 3.25, -448]
    assert weft.asarray(x.numpy()).dtype is float8
    assert weft.asarray([1.0], dtype="float8_e4m3fn").dtype is float8
    assert "dtype=float8_e4m3fn" in repr(x)
    assert pickle.loads(pickle.dumps(x)).dtype is float8
    assert weft.isdtype(float8, "real floating")


def test_ops_that_move_data_take_it() -> None:
    x = weft.asarray([[1.0, 2.0], [3.0, 4.0]], dtype=float8)
    assert weft.reshape(x, (4,)).astype(weft.float32).tolist() == [1, 2, 3, 4]
    assert x.mT.astype(weft.float32).tolist() == [[1, 3], [2, 4]]
    assert x[1].astype(weft.float32).tolist() == [3, 4]
    assert weft.concat([x, x]).dtype is float8


def test_a_kernel_for_a_dtype_of_our_own() -> None:
    calls: list[tuple[int, ...]] = []

    @weft.register_kernel("multiply", dtype=float8)
    def multiply(a: Array, b: Array) -> Array:
        calls.append(a.shape)
        return np.asarray(a.astype(np.float32) * b.astype(np.float32)).astype(a.dtype)

    x = weft.asarray([1.5, 2.0], dtype=float8)
    for product in (x * x, weft.multiply(x, x), x * 2 - x * 2 + x * x):
        assert product.astype(weft.float32).tolist() == [2.25, 4.0]
    assert len(calls) == 5
    assert (weft.asarray([1.5]) * 2).tolist() == [3]  # other dtypes keep their kernel
    assert len(calls) == 5


def test_a_cpu_kernel_replaces_one_already_used() -> None:
    """The operators' short cut must see it too."""
    x = weft.asarray([3.0, 4.0], dtype=float8)
    results = []
    for value in (1.0, 2.0):

        @weft.register_kernel("subtract", dtype=float8)
        def subtract(a: Array, b: Array, value: float = value) -> Array:
            return np.full(a.shape, value).astype(a.dtype)

        results += [(x - x).astype(weft.float32).tolist()[0] for _ in range(3)]
    assert results == [1, 1, 1, 2, 2, 2]


def test_promotion_is_said_not_guessed() -> None:
    x = weft.asarray([1.0], dtype=float8)
    with pytest.raises(DTypeError, match="float8_e4m3fn") as caught:
        _ = x + weft.ones(1)
    assert "astype" in caught.value.hint
    assert (x + 1).dtype is float8


def test_registering_again() -> None:
    again = weft.register_dtype("float8_e4m3fn", ml_dtypes.float8_e4m3fn, "float", "f8e4m3")
    assert again is float8
    with pytest.raises(DTypeError, match="is taken"):
        weft.register_dtype("float8_e4m3fn", ml_dtypes.float8_e4m3, "float", "f8")
    with pytest.raises(DTypeError, match="is taken"):
        weft.register_dtype("single", np.float32, "float", "f32")
