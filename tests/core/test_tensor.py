"""Tensor as an object: making one, looking at it, handing it to others."""

from __future__ import annotations

import array
import copy
import pickle
import subprocess
import sys
from typing import Any

import generate
import ml_dtypes
import numpy as np
import pytest

import weft
from weft.base.dtypes import DTYPES

STANDARD = [d for d in DTYPES.values() if not d.name.startswith("float8")]


@pytest.mark.parametrize(
    ("obj", "dtype", "values"),
    [
        (1, weft.int64, 1),
        (1.5, weft.float32, 1.5),
        (True, weft.bool, True),
        (1j, weft.complex64, 1j),
        ([], weft.float32, []),
        ([1, 2.5], weft.float32, [1.0, 2.5]),
        ([True, 2], weft.int64, [1, 2]),
        ([[1], [2]], weft.int64, [[1], [2]]),
        ((1, 2), weft.int64, [1, 2]),
        (np.float64(1.5), weft.float64, 1.5),
        (np.array([1, 2], dtype=np.int16), weft.int16, [1, 2]),
        (np.array([1, 2], dtype=">i4"), weft.int32, [1, 2]),
        (np.array([1.5], dtype=ml_dtypes.bfloat16), weft.bfloat16, [1.5]),
        ([np.array([1.0]), np.array([2.0])], weft.float64, [[1.0], [2.0]]),
        (range(3), weft.int64, [0, 1, 2]),
        (array.array("f", [1, 2]), weft.float32, [1, 2]),
        (bytearray(b"ab"), weft.uint8, [97, 98]),
        (memoryview(b"ab"), weft.uint8, [97, 98]),
        (np.ma.array([1.0, 2.0]), weft.float64, [1, 2]),
        (np.arange(6).reshape(2, 3)[:, ::-1], weft.int64, [[2, 1, 0], [5, 4, 3]]),
    ],
)
def test_asarray(obj: Any, dtype: weft.DType, values: Any) -> None:
    x = weft.asarray(obj)
    assert x.dtype is dtype
    assert x.tolist() == values
    assert weft.tensor(obj).tolist() == values


def test_asarray_of_tensors_and_dtypes() -> None:
    assert weft.asarray([weft.asarray(1.5), weft.asarray(2.5)]).tolist() == [1.5, 2.5]
    for dtype in STANDARD:
        x = weft.asarray([1, 0], dtype=dtype)
        assert x.dtype is dtype
        for name in (dtype.name, dtype.numpy, dtype.numpy.type):
            assert weft.zeros(1, dtype=name).dtype is dtype
    assert weft.zeros(1, dtype=float).dtype is weft.float32
    assert weft.asarray(2**64 - 1, dtype=weft.uint64).item() == 2**64 - 1


def test_exact_numbers_are_not_rounded_on_the_way() -> None:
    """A regression: numbers went through the default float32."""
    for make in (
        lambda v: weft.full((), v, dtype=weft.float64),
        lambda v: weft.asarray(v, dtype=weft.float64),
        lambda v: weft.linspace(v, v, 1, dtype=weft.float64),
        lambda v: weft.arange(v, v + 1, dtype=weft.float64),
        lambda v: weft.zeros(1, dtype=weft.float64) + v,
    ):
        assert float(make(16777217.0).reshape(-1)[0]) == 16777217.0
    assert (weft.zeros(1, dtype=weft.int64) + (2**62 + 1)).item() == 2**62 + 1


def test_zero_constants_keep_their_sign() -> None:
    """A regression: x * 0.0 and x * -0.0 must not share a cached constant."""
    x = weft.ones(1)
    for zero in (0.0, -0.0, 0.0, -0.0):
        assert np.signbit((x * zero).item()) == np.signbit(zero)
    assert np.signbit(weft.full((), -0.0).item())


def test_default_dtype() -> None:
    assert weft.get_default_dtype() is weft.float32
    weft.set_default_dtype(weft.float64)
    try:
        assert weft.zeros(1).dtype is weft.float64
        assert weft.asarray(1j).dtype is weft.complex128
        assert (weft.arange(3) / 2).dtype is weft.float64
    finally:
        weft.set_default_dtype(weft.float32)
    with pytest.raises(TypeError):
        weft.set_default_dtype(weft.int32)


def test_properties_and_python_protocols() -> None:
    x = weft.asarray([[1, 2, 3], [4, 5, 6]], dtype=weft.int16)
    assert (x.shape, x.ndim, x.size, x.itemsize, x.nbytes) == ((2, 3), 2, 6, 2, 12)
    assert str(x.type) == "i16[2,3]"
    assert x.device == weft.Device("cpu")
    assert str(x.device) == "cpu"
    assert x.layout == "dense"
    assert len(x) == 2
    assert [row.tolist() for row in x] == [[1, 2, 3], [4, 5, 6]]
    assert [row.tolist() for row in reversed(x)] == [[4, 5, 6], [1, 2, 3]]
    assert 5 in x
    assert 7 not in x
    one = weft.asarray(3)
    assert (int(one), float(one), complex(one), bool(one)) == (3, 3.0, 3 + 0j, True)
    assert list(range(one)) == [0, 1, 2]
    assert [10, 20, 30, 40][one] == 40
    assert f"{weft.asarray(1.25):.1f}" == "1.2"
    assert hash(one) == hash(one)
    assert {one: 1}[one] == 1
    with pytest.raises(AttributeError, match="no attribute 'shpae'"):
        x.shpae  # noqa: B018


@pytest.mark.parametrize(
    ("x", "text"),
    [
        (lambda: weft.asarray([1.0, 2.5]), "tensor([1. , 2.5])"),
        (lambda: weft.asarray(1.0), "tensor(1.)"),
        (lambda: weft.asarray([1, 2]), "tensor([1, 2])"),
        (lambda: weft.asarray([True]), "tensor([ True])"),
        (lambda: weft.asarray([1.0], dtype=weft.float64), "tensor([1.], dtype=float64)"),
        (lambda: weft.asarray([1.5], dtype=weft.bfloat16), "tensor([1.5], dtype=bfloat16)"),
        (lambda: weft.asarray([1j]), "tensor([0.+1.j])"),
        (lambda: weft.zeros((0, 2)), "tensor([], shape=(0, 2))"),
        (lambda: weft.eye(2), "tensor([[1., 0.],\n        [0., 1.]])"),
    ],
)
def test_repr(x: Any, text: str) -> None:
    assert repr(x()) == text


@pytest.mark.parametrize("dtype", STANDARD, ids=lambda d: d.name)
def test_pickle_copy_and_numpy(dtype: weft.DType) -> None:
    x = weft.asarray([[0, 1], [1, 0]], dtype=dtype)
    for again in (pickle.loads(pickle.dumps(x)), copy.copy(x), copy.deepcopy(x), x.T.T):
        assert again.dtype is dtype
        assert again.tolist() == x.tolist()
    assert pickle.loads(pickle.dumps(dtype)) is dtype
    assert np.asarray(x).dtype == dtype.numpy
    assert np.array(x).flags.writeable
    assert np.asarray(x, dtype=np.complex128).dtype == np.complex128
    scalar = weft.asarray(1, dtype=dtype)
    assert pickle.loads(pickle.dumps(scalar)).shape == ()


def test_numpy_operators_leave_the_work_to_us() -> None:
    x = weft.asarray([1.0, 2.0])
    for out in (np.ones(2, dtype=np.float32) + x, x * np.ones(2, dtype=np.float32)):
        assert isinstance(out, weft.Tensor)
        assert out.dtype is weft.float32
    assert isinstance(np.sin(x), weft.Tensor)
    assert (x * np.float64(2)).dtype is weft.float32  # NumPy's scalars are weak
    assert (np.float64(2) * x).dtype is weft.float32
    assert (x + np.arange(2)).dtype is weft.float32


def test_dlpack_with_numpy_and_torch() -> None:
    x = weft.arange(4, dtype=weft.float32)
    shared = np.from_dlpack(x)
    assert not shared.flags.writeable
    assert shared.tolist() == [0, 1, 2, 3]
    x[0] = 9
    assert shared.tolist() == [0, 1, 2, 3]
    back = weft.from_dlpack(np.arange(3))
    assert back.tolist() == [0, 1, 2]
    with pytest.raises(BufferError, match="bfloat16"):
        x.astype(weft.bfloat16).__dlpack__()
    torch = pytest.importorskip("torch")
    theirs = torch.arange(3.0)
    ours = weft.from_dlpack(theirs)
    theirs[0] = 7
    assert ours.tolist() == [0, 1, 2]
    assert torch.from_dlpack(weft.asarray([1.0, 2.0])).tolist() == [1, 2]


def test_namespace_info() -> None:
    info = weft.ones(1).__array_namespace__(api_version="2024.12").__array_namespace_info__()
    assert info.default_dtypes()["real floating"] is weft.float32
    assert weft.Device("cpu") in info.devices()
    assert set(info.dtypes(kind="integral")) == {
        f"{u}int{n}" for u in ("", "u") for n in (8, 16, 32, 64)
    }
    assert info.capabilities()["boolean indexing"]
    with pytest.raises(ValueError, match="1999"):
        weft.ones(1).__array_namespace__(api_version="1999.12")


def test_torch_style_methods() -> None:
    x = weft.arange(6).reshape(2, 3)
    assert x.view(3, 2).shape == (3, 2)
    assert x.t().shape == (3, 2)
    assert x.transpose(0, 1).shape == (3, 2)
    assert x.unsqueeze(0).shape == (1, 2, 3)
    assert x.unsqueeze(0).squeeze().shape == (2, 3)
    assert x.permute(1, 0).shape == (3, 2)
    assert x.expand(4, -1, -1).shape == (4, 2, 3)
    assert x.flatten().shape == (6,)
    assert x.float().dtype is weft.float32
    assert x.double().dtype is weft.float64
    assert x.half().dtype is weft.float16
    assert x.bool().dtype is weft.bool
    assert x.long().dtype is weft.int64
    assert x.int().dtype is weft.int32
    assert x.to(weft.bfloat16).dtype is weft.bfloat16
    assert x.to("float64").dtype is weft.float64
    assert x.to("cpu").tolist() == x.tolist()
    assert x.clamp(min=2).tolist() == [[2, 2, 2], [3, 4, 5]]
    assert x.clone().mul(2).sub(1).neg().abs().tolist() == [[1, 1, 3], [5, 7, 9]]


def test_generated_files_are_current() -> None:
    for path, text in generate.OUTPUTS.items():
        assert path.read_text() == text(), f"{path.name} is stale: run `make generate`"


def test_import_is_light() -> None:
    code = "import sys, weft; print('llvmlite' in sys.modules, 'hypothesis' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.split() == ["False", "False"]
