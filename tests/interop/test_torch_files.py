"""Files that PyTorch wrote, read without it. `files/torch_2_13.pt` was written by PyTorch 2.13."""

from __future__ import annotations

import io
import pickle
import struct
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
import weft.torch
from weft.errors import FileError, SkippedWarning

FILES = Path(__file__).parent / "files"
FILE = FILES / "torch_2_13.pt"


@pytest.mark.parametrize("mmap", [True, False])
def test_tensors_and_plain_values(mmap: bool) -> None:
    found = weft.load(FILE, mmap=mmap)
    x = np.arange(24.0, dtype=np.float32).reshape(2, 3, 4)
    assert np.array_equal(found["float32"], x)
    assert np.array_equal(found["view"], x.transpose(2, 0, 1)[1:, :, ::2])
    for name in ("float32", "bfloat16", "float8_e4m3fn", "bool", "complex64", "int64"):
        assert found[name].dtype.name == name
    for name in ("bfloat16", "float8_e4m3fn"):
        assert found[name].astype("float32").tolist() == [0, 1, 2]
    assert found["bool"].tolist() == [True, False]
    assert found["complex64"].tolist() == [1 - 2j, -3j]
    assert (found["int64"].shape, found["int64"].item()) == ((), -3)
    assert found["empty"].shape == (0, 2)
    assert found["expanded"].tolist() == [[7.0] * 4] * 3
    one, two, three = found["shared"]
    assert one is two
    assert (one.requires_grad, three.requires_grad) == (True, False)
    assert one.tolist() == three.tolist() == [[1.0] * 3] * 2
    state = ["weight", "bias", "running_mean", "running_var", "num_batches_tracked"]
    assert (type(found["state"]), list(found["state"])) == (OrderedDict, state)
    weft.nn.BatchNorm1d(2).load_state_dict(found["state"])
    assert (found["size"], found["dtype"], str(found["device"])) == ((2, 3), weft.bfloat16, "cpu")
    plain = [1, 1.5, None, True, "ü", b"x\xff", 2**70, (1,), {1, 2}, 1 + 2j]
    assert found["plain"] == plain
    assert list(map(type, found["plain"])) == list(map(type, plain))


def test_tensors_of_a_file_are_written_to_as_others() -> None:
    found = weft.load(FILE)
    x, shared = found["float32"], found["shared"][2]
    x[0, 0, 0] = 5
    shared += 1
    found["expanded"][0, 0] = 1
    assert found["expanded"].sum().item() == 78
    again = weft.load(FILE)
    assert again["float32"][0, 0, 0].item() == 0
    assert again["shared"][2].tolist() == [[1.0] * 3] * 2
    namesake = weft.torch.load(FILE)["bfloat16"]
    assert isinstance(namesake, weft.torch.Tensor)
    namesake.zero_()
    found = weft.torch.load(FILE, map_location="cpu", mmap=True)
    assert found["bfloat16"].sum().item() == 3
    with pytest.warns(weft.errors.LostWriteWarning):  # it shares its storage with "view"
        found["float32"].zero_()


def test_older_formats_are_refused() -> None:
    with pytest.raises(FileError, match=r"before version 1\.6"):
        weft.load(FILES / "torch_legacy.pt")
    with pytest.raises(FileError, match="a pickle, which runs code"):
        weft.load(io.BytesIO(pickle.dumps([1])))


def records() -> dict[str, bytes]:
    with zipfile.ZipFile(FILE) as file:
        return {name: file.read(name) for name in file.namelist()}


def archive(parts: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as written:
        for name, data in parts.items():
            written.writestr(name, data)
    return file.getvalue()


def of_pickle(data: bytes) -> bytes:
    """A file with this pickle."""
    return archive({"archive/data.pkl": data, "archive/version": b"3\n"})


class Runs:
    """An object whose pickle runs code."""

    def __reduce__(self) -> Any:
        return (exec, ("raise SystemExit",))


class Ordinary:
    pass


#: What is in a pickle, and what the error says.
REFUSED = {
    "code": (pickle.dumps(Runs(), 2), r"__builtin__\.exec is refused"),
    "system": (b"cposix\nsystem\n(Vtrue\ntR.", r"posix\.system is refused"),
    "attributes": (
        b"\x80\x04\x8c\x05torch\x8c\x0b_C.__init__\x93.",
        r"torch\._C\.__init__ is refu",
    ),
    "class": (pickle.dumps(Ordinary(), 2), "Ordinary is refused|copyreg"),
    "numpy": (pickle.dumps(np.float64(1), 2), r"multiarray\.scalar is refused"),
    "extension": (b"\x82\x01.", "opcode"),
    "instance": (b"(i__builtin__\nlist\n.", "opcode"),
    "protocol": (b"\x80\x09.", "protocol 9"),
    "cut off": (b"\x80\x02", "cut off"),
    "no value": (b"\x80\x02.", "in the middle"),
    "no memo": (b"h\x05.", "KeyError"),
    "long text": (b"\x8d" + struct.pack("<Q", 1 << 60) + b".", "cut off"),
    "long bytes": (b"\x96" + struct.pack("<Q", 1 << 40) + b".", "cut off"),
    "far memo": (b"Nr\xff\xff\xff\xff.", None),
    "itself": (b"]q\x00h\x00a.", "contains itself"),
    "deep": (b"]" * 5000 + b"a" * 4999 + b".", "too deeply"),
    "many lists": (b"(" + b"]" * 300_000 + b"t.", "too many"),
    "odd key": (b"}]Ns.", "a key is a list"),
    "wide key": (pickle.dumps({1 << 80: 1}, 2), "more than 64 bits"),
    "set of lists": (b"c__builtin__\nset\n](]e\x85R.", "a key is a list"),
    "storage": (b"(\x8c\x07storageNNNK\x01tQ.", "none of a storage"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_pickles_that_are_refused(name: str) -> None:
    data, message = REFUSED[name]
    if message is None:
        assert weft.load(io.BytesIO(of_pickle(data))) is None
        return
    with pytest.raises(FileError, match=message):
        weft.load(io.BytesIO(of_pickle(data)))


def test_what_is_not_loaded_is_named() -> None:
    data = pickle.dumps({"options": Ordinary(), "score": np.float64(1), "epoch": 3}, 2)
    data = data.replace(b"copyreg", b"copy_re") if b"copyreg" in data else data
    with pytest.warns(SkippedWarning, match=r"multiarray\.scalar"):
        found = weft.load(io.BytesIO(of_pickle(data)), strict=False)
    assert found["epoch"] == 3
    assert "skipped numpy" in repr(found["score"])


def rewritten(change: Callable[[dict[str, bytes]], Any]) -> bytes:
    parts = records()
    change(parts)
    return archive(parts)


def storage(parts: dict[str, bytes], change: Callable[[bytes], bytes]) -> None:
    parts["torch_2_13/data/0"] = change(parts["torch_2_13/data/0"])


def patched(at: int, data: bytes) -> bytes:
    """The file with other bytes somewhere; a negative place counts from the end."""
    whole = FILE.read_bytes()
    at %= len(whole)
    return whole[:at] + data + whole[at + len(data) :]


BAD: dict[str, tuple[bytes, str]] = {
    "cut off": (FILE.read_bytes()[:-30], "zip file"),
    "no end": (FILE.read_bytes()[:2000], "cut off"),
    "number of records": (patched(-22 - 20 - 56 + 32, b"\xff"), "damaged"),
    "compressed": (archive(records(), zipfile.ZIP_DEFLATED), "compressed"),
    "bomb": (archive({"a/data.pkl": bytes(1 << 22)}, zipfile.ZIP_DEFLATED), "compressed"),
    "no pickle": (archive({"a/x": b""}), "none that torch.save wrote"),
    "two pickles": (archive({"a/data.pkl": b"N.", "b/data.pkl": b"N."}), "none that torch"),
    "version": (rewritten(lambda p: p.update({"torch_2_13/version": b"77"})), "version"),
    "no version": (rewritten(lambda p: p.update({"torch_2_13/version": b"x"})), "version"),
    "byte order": (rewritten(lambda p: p.update({"torch_2_13/byteorder": b"big"})), "highest"),
    "TorchScript": (archive({"a/data.pkl": b"N.", "a/constants.pkl": b""}), "TorchScript"),
    "storage": (rewritten(lambda p: p.pop("torch_2_13/data/0")), "missing, or cut off"),
    "short": (rewritten(lambda p: storage(p, lambda d: d[:-4])), "missing, or cut off"),
    "long": (rewritten(lambda p: storage(p, lambda d: d + b"1234")), "missing, or cut off"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files_are_refused(name: str) -> None:
    data, message = BAD[name]
    with pytest.raises(FileError, match=message):
        weft.load(io.BytesIO(data))


def test_damage_of_numbers_is_found_where_all_is_read(tmp_path: Path) -> None:
    data = records()["torch_2_13/data/0"]
    at = FILE.read_bytes().find(data)
    path = tmp_path / "damaged.pt"
    path.write_bytes(patched(at + 5, b"\x77"))
    weft.load(path)  # mapped: elements are read when they are used
    with pytest.raises(FileError, match="checksum"):
        weft.load(path, mmap=False)


def test_damage_of_the_pickle_is_always_found() -> None:
    at = FILE.read_bytes().find(b"_rebuild_tensor_v2")
    with pytest.raises(FileError, match="checksum"):
        weft.load(io.BytesIO(patched(at, b"_rebuild_tensor_v3")))


def text(value: str) -> bytes:
    """Text in a pickle."""
    return b"\x8c" + bytes([len(value)]) + value.encode()


def tensor_pickle(arguments: bytes, key: str = "0") -> bytes:
    """A file of one tensor whose storage has four numbers; `arguments`: offset, shape, strides."""
    storage = text("storage") + b"ctorch\nFloatStorage\n" + text(key) + text("cpu") + b"K\x04"
    function = b"ctorch._utils\n_rebuild_tensor_v2\n"
    data = function + b"((" + storage + b"tQ" + arguments + b"\x89NtR."
    return archive({"a/data.pkl": data, "a/data/0": np.arange(4, dtype="<f4").tobytes()})


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (b"K\x01K\x02\x85K\x02\x85", [1.0, 3.0]),
        (b"K\x00K\x02K\x02\x86K\x00K\x01\x86", [[0.0, 1.0], [0.0, 1.0]]),
        (b"K\x01K\x02\x85K\x03\x85", None),
        (b"K\x04K\x01\x85K\x01\x85", None),
        (b"J\xff\xff\xff\xffK\x01\x85K\x01\x85", None),
        (b"K\x00K\x02\x85J\xff\xff\xff\xff\x85", None),
        (b"K\x00K\x02\x85K\x01K\x01\x86", None),
        (b"K\x00K\x02K\x02\x86\x8a\x08" + b"\xff" * 7 + b"\x0fK\x01\x86", None),
        (b"K\x00" + b"\x8a\x08" + b"\xff" * 7 + b"\x0f\x85K\x00\x85", None),
    ],
)
def test_views_stay_within_their_storage(arguments: bytes, wanted: Any) -> None:
    file = io.BytesIO(tensor_pickle(arguments))
    if wanted is None:
        with pytest.raises(FileError):
            weft.load(file)
    else:
        assert weft.load(file).tolist() == wanted


def test_names_are_never_paths(tmp_path: Path) -> None:
    """Storages are records of the file, whatever their names look like."""
    (tmp_path / "secret").write_bytes(bytes(16))
    for name in ("../secret", "/etc/passwd", str(tmp_path / "secret")):
        with pytest.raises(FileError, match="missing, or cut off"):
            weft.load(io.BytesIO(tensor_pickle(b"K\x00K\x02\x85K\x01\x85", name)))


def test_large_files_have_wide_numbers() -> None:
    """A list of records that only the fields of 64 bits describe."""
    data = archive({"a/data.pkl": b"I7\n."})
    end = data.rfind(b"PK\x05\x06")
    count, size, offset = struct.unpack("<HLL", data[end + 10 : end + 20])
    locator = b"PK\x06\x07" + struct.pack("<LQL", 0, end, 1)
    tail = b"PK\x05\x06" + struct.pack("<4H2LH", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    wide = b"PK\x06\x06" + struct.pack("<QHHLLQQQQ", 44, 45, 45, 0, 0, count, count, size, offset)
    assert weft.load(io.BytesIO(data[:end] + wide + locator + tail)) == 7


def test_against_pytorch() -> None:
    """What PyTorch writes now is what is read."""
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(5, 3)).sum().backward()
    optimizer.step()
    for protocol in (2, 3, 4, 5):
        file = io.BytesIO()
        saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(saved, file, pickle_protocol=protocol)
        file.seek(0)
        found = weft.load(file)
        for name, value in saved["model"].items():
            assert np.array_equal(found["model"][name], value.numpy())
        for number, state in saved["optimizer"]["state"].items():
            for name, value in state.items():
                assert np.array_equal(found["optimizer"]["state"][number][name], value.numpy())
        assert found["optimizer"]["param_groups"] == saved["optimizer"]["param_groups"]
