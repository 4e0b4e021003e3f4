"""Readers of files and 12,000 damaged ones: each is read, or refused with an error that says so.

A reader is a row of `READERS`. Seeds are fixed; `WEFT_TEST_SEED=7` takes others.
"""

from __future__ import annotations

import functools
import io
import json
import os
import pickle
import random
import re
import struct
import tempfile
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import safetensors
from mutations import mutated, not_endless, watched

import weft
from weft.errors import FileError, SkippedWarning
from weft.interop.tree import Packed
from weft.interop.weights import write

SEED = int(os.environ.get("WEFT_TEST_SEED", "0"))
TORCH = Path(__file__).parent / "files" / "torch_2_13.pt"


def saved(obj: Any, checksum: bool = False) -> bytes:
    file = io.BytesIO()
    write(Packed(obj), file, {"format": "pt"}, checksum)
    return file.getvalue()


TREES: list[Any] = [
    {"a": weft.ones((2, 3)), "b": weft.zeros(4, dtype="int8"), "c": weft.asarray([True, False])},
    {"z": weft.ones(2), "a": weft.ones(()), "e": weft.zeros((0, 3))},
    [1, 2.5, None, "x", {"k": (weft.ones(2).astype("bfloat16"), {3, 4})}, 2**70, 1j, b"bytes"],
    {"model": {"w": weft.asarray([[1 + 2j]], dtype="complex128")}, "array": np.arange(3)},
]
FILES = [saved(tree, checksum=i == 3) for i, tree in enumerate(TREES)]


def headers() -> list[bytes]:
    return [data[8 : 8 + struct.unpack("<Q", data[:8])[0]] for data in FILES]


def with_header(header: bytes) -> bytes:
    """A file with this header, and as many data as it says, if these are few."""
    ends = re.findall(rb'"data_offsets":\[\d{1,9},(\d{1,5})\]', header)
    return struct.pack("<Q", len(header)) + header + bytes(max(map(int, ends), default=0))


@functools.cache
def records() -> dict[str, bytes]:
    with zipfile.ZipFile(TORCH) as file:
        return {name: file.read(name) for name in file.namelist()}


def pickles() -> list[bytes]:
    real = records()["torch_2_13/data.pkl"]
    plain = [{"a": [1, 2.5, None, (True, "x")], "b": b"12", 3: {4, 5}, "c": 2**80}]
    return [real, real, real, *(pickle.dumps(plain, protocol) for protocol in (2, 3, 4, 5))]


def with_pickle(data: bytes) -> bytes:
    """A file of PyTorch with this pickle, and its right checksum."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as new:
        for name, part in records().items():
            new.writestr(name, data if name.endswith("data.pkl") else part)
    return file.getvalue()


def torch_files() -> list[bytes]:
    return [TORCH.read_bytes(), with_pickle(pickle.dumps([1, 2], 2))]


INDEX = {
    "metadata": {"total_size": 24},
    "weight_map": {"a": "one.safetensors", "b": "two.safetensors"},
}


@functools.cache
def programs() -> list[bytes]:
    """Files of programs: a training step, a loop with named sizes, trees and constants."""
    w = weft.tensor([1.0, 2.0], requires_grad=True)
    optimizer = weft.optim.Adam([w])

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = (w * x + weft.rand(2)).sum()
        loss.backward()
        optimizer.step()
        return loss

    def loop(x: Any) -> Any:
        while x.sum() < 100:
            x = x * 2 if x[0] > 1 else x + x.shape[0]
        return x

    def trees(batch: Any, n: int = 3) -> Any:
        return {"a": batch["x"] + weft.asarray(np.arange(20.0)), "b": [batch["y"].sum(), n]}

    batch = {"x": weft.spec(20, weft.float64), "y": weft.spec(())}
    made = [
        weft.export(step, weft.spec(2)),
        weft.export(loop, weft.spec((weft.dim("N", min=1),))),
        weft.export(trees, batch, 3),
    ]
    files = []
    with tempfile.TemporaryDirectory() as folder:
        for program in made:
            program.save(Path(folder) / "a.weft")
            files.append((Path(folder) / "a.weft").read_bytes())
    return files


def parts_of_programs(kind: str) -> list[bytes]:
    """A part of each of these files, with the number of the file before it."""
    found = []
    for i, data in enumerate(programs()):
        with zipfile.ZipFile(io.BytesIO(data)) as file:
            found.append(b"%d" % i + file.read(kind))
    return found


def with_part(kind: str, data: bytes) -> bytes:
    """A program with this part, and its right checksum."""
    number = int(data[:1]) if data[:1] in (b"0", b"1", b"2") else 0
    whole = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(programs()[number])) as old,
        zipfile.ZipFile(whole, "w") as new,
    ):
        for name in old.namelist():
            new.writestr(name, data[1:] if name == kind else old.read(name))
    return whole.getvalue()


def run(path: Path, _mmap: bool) -> Any:
    """Load a program, and its state."""
    return dict(weft.load_program(path, backend="interpret").state)


class Reader(NamedTuple):
    """Files to damage, what makes a file of a damaged part, and how often."""

    samples: Callable[[], list[bytes]]
    cases: int
    whole: Callable[[bytes], bytes] = lambda data: data
    name: str = "file"
    read: Callable[[Path, bool], Any] = lambda path, mmap: weft.load(path, mmap=mmap)
    check: Callable[[bytes, Any], None] = lambda _data, _found: None


def part(kind: str, cases: int) -> Reader:
    samples = functools.partial(parts_of_programs, kind)
    return Reader(samples, cases, functools.partial(with_part, kind), "a.weft", run)


def package_agrees(data: bytes, _found: Any) -> None:
    """What is read here, the `safetensors` package reads, too. (It has no halves of surrogates.)"""
    if b"\\ud" not in data and b"\\uD" not in data and b"\\\\u" not in data:
        safetensors.deserialize(data)


READERS: dict[str, Reader] = {
    "safetensors": Reader(lambda: FILES, 3000, check=package_agrees),
    "headers": Reader(headers, 2500, with_header, check=package_agrees),
    "indices": Reader(
        lambda: [json.dumps(INDEX).encode()], 1000, name="model.safetensors.index.json"
    ),
    "torch": Reader(torch_files, 1500),
    "pickles": Reader(pickles, 2000, with_pickle),
    "programs": Reader(programs, 600, name="a.weft", read=run),
    "graphs of programs": part("graph.txt", 900),
    "signatures of programs": part("signature.json", 500),
}
assert sum(reader.cases for reader in READERS.values()) == 12_000


def used(value: Any) -> None:
    """Use the elements of all tensors: a map that reaches too far would end the process."""
    if isinstance(value, dict):
        value = [*value.values()]
    if isinstance(value, (list, tuple)):
        for part in value:
            used(part)
    elif isinstance(value, weft.Tensor):
        array = value.detach().numpy()
        assert within(array)
        if array.size < 10**6:
            array.tobytes()
        elif array.size:
            array[(0,) * array.ndim].tobytes(), array[(-1,) * array.ndim].tobytes()


def within(array: Any) -> bool:
    """Whether an array lies within the memory that it is a view of."""
    low, high = np.lib.array_utils.byte_bounds(array)
    whole, base = array, array.base
    while base is not None:
        whole = base if isinstance(base, np.ndarray) else whole
        base = getattr(base, "base", None)
    first, last = np.lib.array_utils.byte_bounds(whole)
    return not array.size or first <= low <= high <= last


@pytest.mark.parametrize("name", READERS)
def test_damaged_files(name: str, tmp_path: Path) -> None:
    reader = READERS[name]
    chance = random.Random(f"{name} {SEED}")
    samples = reader.samples()
    weft.save({"a": weft.ones(3)}, tmp_path / "one.safetensors")
    weft.save({"b": weft.ones(3)}, tmp_path / "two.safetensors")
    path = tmp_path / reader.name
    for sample in samples:  # undamaged ones are read
        path.write_bytes(reader.whole(sample))
        if name != "headers":
            used(reader.read(path, True))
    refused = 0
    with warnings.catch_warnings(), watched(str(tmp_path)):
        warnings.simplefilter("ignore", SkippedWarning)
        for case in range(reader.cases):
            part = mutated(chance.choice(samples), samples, chance)
            data = reader.whole(part)
            path.write_bytes(data)
            try:
                with not_endless():
                    found = reader.read(path, case % 2 == 0)
                    used(found)
                reader.check(data, found)
            except (FileError, FileNotFoundError):
                refused += 1
            except BaseException as error:
                error.add_note(f"case {case} of {name}, seed {SEED}: {part!r:.2000}")
                raise
    assert reader.cases // 3 < refused < reader.cases  # some changes do no harm
