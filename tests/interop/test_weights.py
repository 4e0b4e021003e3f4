"""`weft.save` and `weft.load`; more of their files: `tests/pytorch/test_serialization.py`."""

from __future__ import annotations

import io
import json
import math
import os
import random
import stat
import struct
from collections import OrderedDict
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

import weft
import weft.torch
from weft.errors import FileError, SkippedWarning
from weft.interop.safetensors import CHECKSUM, dtype_named
from weft.interop.tree import Packed
from weft.interop.weights import write


def test_a_checkpoint(tmp_path: Path) -> None:
    model = weft.nn.Sequential(weft.nn.Linear(2, 3), weft.nn.BatchNorm1d(3))
    optimizer = weft.optim.Adam(model.parameters())
    model(weft.randn(4, 2)).sum().backward()
    optimizer.step()
    path = tmp_path / "checkpoint"
    weft.save({"epoch": 3, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
    found = weft.load(path)
    assert found["epoch"] == 3
    assert all(type(x) is weft.Tensor for x in found["model"].values())
    other = weft.nn.Sequential(weft.nn.Linear(2, 3), weft.nn.BatchNorm1d(3))
    other.load_state_dict(found["model"])
    again = weft.optim.Adam(other.parameters())
    again.load_state_dict(found["optimizer"])
    for a, b in zip(model.parameters(), other.parameters(), strict=True):
        assert (a == b).all()
        assert (optimizer.state[a]["exp_avg"] == again.state[b]["exp_avg"]).all()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "bool", "complex64"])
def test_files_of_both_namespaces_are_one(dtype: str) -> None:
    x = weft.asarray([[0, 1], [2, 3]]).astype(dtype)
    for save, load in ((weft.save, weft.torch.load), (weft.torch.save, weft.load)):
        file = io.BytesIO()
        save({"x": x, "views": [x[0], x.T]}, file)
        file.seek(0)
        found = load(file)
        assert type(found["x"]) is (weft.Tensor if load is weft.load else type(weft.torch.ones(1)))
        assert (weft.asarray(found["x"]) == x).all()
        assert (weft.asarray(found["views"][1]) == x.T).all()


def test_what_is_loaded_is_its_own(tmp_path: Path) -> None:
    weft.save(weft.ones(2), tmp_path / "x")
    x, y = weft.load(tmp_path / "x"), weft.load(tmp_path / "x", device="cpu")
    x += 1
    assert y.tolist() == [1.0, 1.0]
    assert weft.load(tmp_path / "x").tolist() == [1.0, 1.0]


def test_a_module_is_refused(tmp_path: Path) -> None:
    with pytest.raises(weft.errors.DTypeError, match="is a Linear"):
        weft.save(weft.nn.Linear(1, 1), tmp_path / "x")
    assert not list(tmp_path.iterdir())


# --- dtypes, and the `safetensors` package -------------------------------------------------------

DTYPES = [
    *("bool", "uint8", "int8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
    *("float8_e5m2", "float8_e4m3fn", "float8_e8m0fnu", "float8_e4m3fnuz", "float8_e5m2fnuz"),
]


def sample(name: str, *shape: int) -> weft.Tensor:
    """A tensor of all kinds of bits."""
    dtype = dtype_named(name)
    size = math.prod(shape) * dtype.itemsize
    bits = np.random.default_rng(len(name)).integers(
        0, 2 if name == "bool" else 256, size, np.uint8
    )
    return weft.asarray(bits.view(dtype.numpy).reshape(shape))


def same(x: Any, y: Any) -> bool:
    one, two = (np.ascontiguousarray(v) for v in (x, y))
    return (one.dtype, x.shape, one.tobytes()) == (two.dtype, y.shape, two.tobytes())


def saved(obj: Any, **options: Any) -> bytes:
    file = io.BytesIO()
    weft.save(obj, file, **options)
    return file.getvalue()


def metadata_of(data: bytes) -> dict[str, str]:
    length = struct.unpack("<Q", data[:8])[0]
    found: dict[str, str] = json.loads(data[8 : 8 + length]).get("__metadata__", {})
    return found


@pytest.mark.parametrize("shape", [(2, 3), (), (0,), (2, 0, 3), (1,)])
def test_dtypes_and_shapes(shape: tuple[int, ...], tmp_path: Path) -> None:
    tree = {name: sample(name, *shape) for name in DTYPES}
    weft.save(tree, tmp_path / "x")
    for mmap in (True, False):
        found = weft.load(tmp_path / "x", mmap=mmap)
        assert list(found) == DTYPES
        for name in DTYPES:
            assert same(found[name], tree[name])
            assert found[name].dtype is tree[name].dtype


def test_the_package_reads_and_writes_the_same_bytes() -> None:
    own_way = {"complex128"}
    tree = {
        f"{name} {place}": x
        for name in DTYPES
        if name not in own_way
        for place, x in enumerate(
            [sample(name, 3, 2), sample(name), sample(name, 0), sample(name, 4)[1::2]]
        )
    }
    arrays = {name: np.ascontiguousarray(x).reshape(x.shape) for name, x in tree.items()}
    for texts in ({}, {"format": "pt"}, {"ü": '"\n\x01'}):
        theirs = safetensors.numpy.save(arrays, texts or None)
        in_order = dict.fromkeys(weft.load(io.BytesIO(theirs)))
        assert saved({name: tree[name] for name in in_order}, metadata=texts) == theirs
        found = weft.load(io.BytesIO(theirs))
        assert all(same(found[name], x) for name, x in tree.items())
    # What else there is to say stands in the metadata.
    for other, prefix in ((tree, ""), ({"a": {"b": tree}, "n": [1, 2.5, None]}, "a.b.")):
        data = saved(other)
        loaded = {
            name: np.frombuffer(entry["data"], tree[name.removeprefix(prefix)].dtype.numpy)
            for name, entry in safetensors.deserialize(data)
        }
        loaded = {
            name: x.reshape(tree[name.removeprefix(prefix)].shape) for name, x in loaded.items()
        }
        assert safetensors.numpy.save(loaded, metadata_of(data)) == data
        assert all(same(loaded[prefix + name], x) for name, x in tree.items())


def test_dtypes_without_a_name_in_the_format() -> None:
    int4 = weft.register_dtype("int4", ml_dtypes.int4, "int", "i4")
    x, z = weft.asarray([1, 2, 3]).astype(int4), weft.asarray([[1 + 2j], [3j]], dtype="complex128")
    data = saved({"x": x, "z": z})
    theirs = safetensors.numpy.load(data)
    assert (theirs["x"].dtype, theirs["x"].shape) == (np.uint8, (3, 1))
    assert theirs["z"].tolist() == [[[1, 2]], [[0, 3]]]
    found = weft.load(io.BytesIO(data))
    assert same(found["x"], x)
    assert same(found["z"], z)
    unknown = data.replace(b"int4", b"int9")
    with pytest.raises(FileError, match=r"dtype 'int9', which is not known(.|\n)*register_dtype"):
        weft.load(io.BytesIO(unknown))


def test_bools_are_zeros_and_ones() -> None:
    data = bytearray(saved({"x": weft.asarray([True, False])}))
    data[-1] = 2
    with pytest.raises(FileError, match="neither 0 nor 1"):
        weft.load(io.BytesIO(data))


# --- trees ---------------------------------------------------------------------------------------

PLAIN = [
    *(None, True, 0, -1, 2**63, 2**64 - 1, 2**64, -(2**100), 0.1, 1e300, -0.0, 5e-324),
    *(
        math.inf,
        -math.inf,
        math.nan,
        1 + 2j,
        complex(math.nan, -0.0),
        "",
        "ü\ud800\n",
        b"",
        b"\xff",
    ),
    *([], (), {}, set(), [[], [()]], {1, 2}, frozenset({"a"}), weft.bfloat16),
    *({1: 2, "1": 3, 2.5: 4, None: 5, (1, "a"): 6, b"k": 7, False: 8}, random.Random(0).getstate()),
    {"a.b": {"c": 1}, "a": {"b.c": 2}},
]


def test_plain_values() -> None:
    found = weft.load(io.BytesIO(saved(PLAIN)))
    assert repr(found) == repr(PLAIN)  # types, signs of zeros and NaN too


def test_other_classes_of_containers_and_numbers_become_plain() -> None:
    given = [OrderedDict(a=1), np.float32(0.5), np.int8(3), bytearray(b"x"), np.str_("s")]
    assert repr(weft.load(io.BytesIO(saved(given)))) == "[{'a': 1}, 0.5, 3, b'x', 's']"


def test_arrays_stay_arrays() -> None:
    state = np.random.RandomState(0).get_state(legacy=False)
    x = np.arange(6).reshape(2, 3)[:, ::2]
    found = weft.load(io.BytesIO(saved({"state": state, "x": [x, x]})))
    assert isinstance(found["x"][0], np.ndarray)
    assert found["x"][0] is found["x"][1]
    found["x"][0][0, 0] = 7
    assert x[0, 0] == 0
    other = np.random.RandomState(1)
    other.set_state(found["state"])
    assert other.rand() == np.random.RandomState(0).rand()


def test_tensors_keep_who_they_are() -> None:
    w = weft.tensor([1.0], requires_grad=True)
    tree = {"w": w, "again": w, "": w.detach(), "__metadata__": w * 2, "half \ud800": w}
    found = weft.load(io.BytesIO(saved(tree)))
    assert list(found) == list(tree)
    assert found["w"] is found["again"] is found["half \ud800"]
    assert found["w"].requires_grad
    assert not found[""].requires_grad
    assert found["__metadata__"].tolist() == [2.0]


def test_a_dict_keeps_its_order() -> None:
    state = weft.nn.TransformerEncoderLayer(4, 2, 8).state_dict()
    found = weft.load(io.BytesIO(saved(state)))
    assert list(found) == list(state)
    assert all(same(found[name], state[name]) for name in state)


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"a": [object()]}, r"a\.0 is a object"),
        ({"a": np.array([object()])}, "has no counterpart"),
        ({object(): 1}, "a key of the dict is a object"),
        ({weft.ones(1): 1}, "keys are numbers and text"),
        (np.datetime64("2020-01-01"), "is a datetime64"),
    ],
)
def test_what_is_no_data_is_refused(tree: Any, message: str) -> None:
    with pytest.raises(weft.errors.DTypeError, match=message):
        saved(tree)


def test_depth() -> None:
    deep: Any = 0
    for _ in range(100):
        deep = [deep]
    assert weft.load(io.BytesIO(saved(deep))) == deep
    with pytest.raises(FileError, match="nested too deeply"):
        saved([deep])
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(FileError, match="contains itself"):
        saved(loop)


# --- files ---------------------------------------------------------------------------------------


def test_files_are_replaced_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, link = tmp_path / "x", tmp_path / "link"
    weft.save({"x": weft.ones(3)}, path)
    before = weft.load(path)  # a map of the old file
    link.symlink_to(path)
    weft.save({"x": weft.zeros(3)}, link)
    assert link.is_symlink()
    assert before["x"].tolist() == [1.0] * 3
    assert weft.load(path)["x"].tolist() == [0.0] * 3
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~_umask()

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        weft.save({"x": weft.ones(3)}, path)
    assert weft.load(path)["x"].tolist() == [0.0] * 3
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link", "x"]


def _umask() -> int:
    mask = os.umask(0o22)
    os.umask(mask)
    return mask


def test_mapped_tensors_are_never_written(tmp_path: Path) -> None:
    """Whatever writes to a tensor, eagerly or compiled, the file stays as it is."""
    model = weft.nn.Sequential(weft.nn.Linear(3, 2), weft.nn.BatchNorm1d(2))
    path = tmp_path / "model.safetensors"
    weft.save(model.state_dict(), path)
    data = path.read_bytes()
    for mode in (weft.compile, lambda f: f):
        state = weft.load(path)
        other = weft.nn.Sequential(weft.nn.Linear(3, 2), weft.nn.BatchNorm1d(2))
        other.load_state_dict(state)
        optimizer = weft.optim.SGD(other.parameters(), lr=0.1)

        def step(x: Any, other: Any = other, optimizer: Any = optimizer) -> Any:
            optimizer.zero_grad()
            loss = (other(x) ** 2).sum()
            loss.backward()
            optimizer.step()
            return loss

        run = mode(step)
        for _ in range(3):
            run(weft.ones((4, 3)) * weft.arange(4.0)[:, None])
        assert not same(other[1].bias, state["1.bias"])
        state["0.weight"][0, 0] = 100
        state["0.bias"].fill_(1)
        again = weft.load(path)
        assert all(same(again[name], x) for name, x in model.state_dict().items())
    assert path.read_bytes() == data


@pytest.mark.parametrize("mmap", [True, False])
def test_what_is_no_file(mmap: bool, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        weft.load(tmp_path / "missing", mmap=mmap)
    (tmp_path / "empty").touch()
    with pytest.raises(FileError, match="empty: this is not a file of tensors"):
        weft.load(tmp_path / "empty", mmap=mmap)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileError, match="not a regular file"):
        weft.load(tmp_path / "pipe", mmap=mmap)
    with pytest.raises(FileError, match="not a regular file"):
        weft.load("/dev/zero", mmap=mmap)


def test_other_versions_are_refused() -> None:
    data = saved([1]).replace(rb"\"version\":1", rb"\"version\":2")
    with pytest.raises(FileError, match=r"version 2, (.|\n)*to fix: load it with the version"):
        weft.load(io.BytesIO(data))


def test_what_a_structure_does_not_name_is_said() -> None:
    data = saved([weft.ones(1), {"a": weft.zeros(1)}])
    entry = rb"{\"tensor\":\"0\"}"
    data = data.replace(entry, b"0".ljust(len(entry)))
    with pytest.warns(SkippedWarning, match="skipped the tensor 0"):
        assert weft.load(io.BytesIO(data)) == [0, {"a": 0}]


def test_headers_that_would_fill_the_memory() -> None:
    entry = '{"dtype":"U8","shape":[%s],"data_offsets":[0,0]}'
    headers = {
        "too many": '{"x":[' + "[]," * 10**6 + "[]]}",
        "nested too deeply": '{"x":' + "[" * 10**5,
        "sizes that are none": '{"x":' + entry % ",".join(["9"] * 10**5) + "}",
        "another size": '{"x":' + entry % ",".join(["9" * 18] * 64) + "}",
        "not valid JSON": '{"x":' + entry % ("9" * 10**5) + "}",
    }
    for message, header in headers.items():
        data = struct.pack("<Q", len(header)) + header.encode()
        with pytest.raises(FileError, match=message):
            weft.load(io.BytesIO(data))
    with pytest.raises(FileError, match="not a file of tensors"):
        weft.load(io.BytesIO(struct.pack("<Q", 1 << 60) + b"{}"))


# --- shards --------------------------------------------------------------------------------------


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_shards(tmp_path: Path) -> None:
    state = {f"layer.{i}": weft.full((10,), float(i)) for i in (3, 1, 2)}
    path = tmp_path / "model.safetensors"
    index = "model.safetensors.index.json"
    weft.save(state, tmp_path, max_shard_size="80 B", metadata={"format": "pt"})
    first = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    assert names(tmp_path) == [*first, index]
    said = json.loads((tmp_path / index).read_text())
    assert said["metadata"] == {"total_size": 120}
    assert said["weight_map"] == {
        "layer.3": first[0],
        "layer.1": first[0],
        "layer.2": first[1],
    }
    with safetensors.safe_open(tmp_path / first[1], "np") as file:  # type: ignore[no-untyped-call]
        assert (file.metadata(), list(file.keys())) == ({"format": "pt"}, ["layer.2"])
    for where in (tmp_path, path, tmp_path / index):
        for mmap in (True, False):
            found = weft.load(where, mmap=mmap)
            assert list(found) == list(state)
            assert all(same(found[name], x) for name, x in state.items())

    # Again: what the old index names stays until the new one is there.
    weft.save({"x": weft.ones(4), "y": weft.ones(4)}, path, max_shard_size=16)
    files = names(tmp_path)
    assert len(files) == 3
    assert not set(files) & set(first)
    assert weft.load(path)["y"].tolist() == [1.0] * 4
    # One file in the place of several, and the other way round.
    weft.save({"z": weft.ones(1)}, path, max_shard_size="1 GB")
    assert names(tmp_path) == ["model.safetensors"]
    weft.save({"one": weft.ones(4), "tree": [weft.zeros(4), 7]}, path, max_shard_size=16)
    assert names(tmp_path) == [*first, index]
    assert weft.load(tmp_path)["tree"][1] == 7
    assert weft.load(tmp_path)["tree"][0].tolist() == [0.0] * 4


def test_shards_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.safetensors"
    old = {"x": weft.ones(4), "y": weft.ones(4)}
    weft.save(old, path, max_shard_size=16)
    before, replace = names(tmp_path), os.replace

    def no_index(source: Any, target: Any) -> None:
        if str(target).endswith("json"):
            raise OSError("no")
        replace(source, target)

    monkeypatch.setattr(os, "replace", no_index)
    with pytest.raises(OSError, match="no"):
        weft.save({"x": weft.zeros(4), "y": weft.zeros(4)}, path, max_shard_size=16)
    assert names(tmp_path) == before
    assert weft.load(path)["y"].tolist() == [1.0] * 4


def write_index(folder: Path, files: Any, **more: Any) -> Path:
    path = folder / "model.safetensors.index.json"
    path.write_text(json.dumps({"weight_map": files, **more}))
    return path


@pytest.mark.parametrize(
    "file",
    ["../x.safetensors", "/etc/passwd", "a/b", "..", ".", "", " ", "a\\b", "C:x", "a\0b", 5, None],
)
def test_indices_name_files_beside_them(file: Any, tmp_path: Path) -> None:
    weft.save({"x": weft.ones(1)}, tmp_path / "x.safetensors")
    (tmp_path / "sub").mkdir()
    path = write_index(tmp_path / "sub", {"x": file})
    with pytest.raises(FileError, match="does not lie beside it"):
        weft.load(path)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"weight_map":[]}',
        '{"weight_map":{}}',
        "[" * 10**5,
        "\xff",
        '{"a":1,"a":1}',
    ],
)
def test_bad_indices(text: str, tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors.index.json"
    path.write_text(text, encoding="latin1")
    with pytest.raises(FileError):
        weft.load(path)


def test_folders(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="no file of weights"):
        weft.load(tmp_path)
    weft.save({"x": weft.ones(1), "y": weft.ones(1)}, tmp_path / "a.safetensors")
    assert list(weft.load(tmp_path)) == ["x", "y"]
    weft.save({"z": weft.ones(1)}, tmp_path / "b.safetensors")
    with pytest.raises(FileError, match=r"a\.safetensors, b\.safetensors"):
        weft.load(tmp_path)
    write_index(tmp_path, {"x": "a.safetensors"})
    with pytest.warns(SkippedWarning) as caught:
        assert list(weft.load(tmp_path)) == ["x"]
    said = [str(warning.message) for warning in caught]
    assert [text for text in said if "b.safetensors" in text]
    assert [text for text in said if "a.safetensors: skipped the tensor y" in text]
    write_index(tmp_path, {"w": "b.safetensors", "x": "a.safetensors"})
    with pytest.raises(FileError, match=r"b\.safetensors has no tensor 'w'"):
        weft.load(tmp_path)
    index = write_index(tmp_path, {"x": "c.safetensors"})
    with pytest.raises(FileNotFoundError):
        weft.load(index)


def test_folders_of_pytorch(tmp_path: Path) -> None:
    data = Path(__file__).with_name("files") / "torch_2_13.pt"
    (tmp_path / "pytorch_model.bin").write_bytes(data.read_bytes())
    assert weft.load(tmp_path)["int64"].item() == -3


# --- checksums -----------------------------------------------------------------------------------


def test_checksums(tmp_path: Path) -> None:
    """Files of checkpoints have one of all their bytes."""
    file = io.BytesIO()
    write(Packed({"x": weft.ones(3), "lr": 0.25}), file, {}, checksum=True)
    data = file.getvalue()
    assert len(metadata_of(data)[CHECKSUM]) == 8
    assert weft.load(io.BytesIO(data))["lr"] == 0.25
    path = tmp_path / "x"
    for at in (data.find(b"0.25"), len(data) - 3):
        path.write_bytes(data[:at] + b"1" + data[at + 1 :])
        with pytest.raises(FileError, match="checksum"):
            weft.load(path, mmap=False)
