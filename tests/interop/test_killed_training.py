"""`weft.Checkpoint`: training that is killed and goes on as if nothing was."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from weft import nn, optim
from weft.data import DataLoader
from weft.errors import DTypeError, FileError, RangeError
from weft.interop.weights import write

SCRIPT = Path(__file__).resolve().parents[1] / "support" / "killed_training.py"
ALL = os.environ.get("WEFT_TEST_ALL") == "1"


@pytest.mark.parametrize(
    ("mode", "kills"), [("eager", 70 if ALL else 9), ("compiled", 30 if ALL else 3)]
)
def test_killed_training(mode: str, kills: int, tmp_path: Path) -> None:
    """Training that is killed with signal 9 at random moments, again and again."""
    command = [
        sys.executable,
        "-W",
        "error",
        str(SCRIPT),
        str(tmp_path / "runs"),
        mode,
        str(kills),
        "0",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith(f"{kills} kills")


# --- what is restored ----------------------------------------------------------------------------


def bits(value: Any) -> Any:
    """A state as something that can be compared."""
    if isinstance(value, (weft.Tensor, np.ndarray)):
        array = np.asarray(value)
        return str(array.dtype), array.shape, array.tobytes()
    if isinstance(value, dict):
        return {key: bits(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [bits(part) for part in value]
    return value


class Run:
    """A model with an optimizer, and all that trains with them."""

    def __init__(self, make: Any, dtype: Any = None) -> None:
        weft.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2, bias=False))
        self.model.to(dtype=dtype)
        self.optimizer = make(self.model.parameters())

    def train(self, steps: int) -> None:
        for _ in range(steps):
            self.optimizer.zero_grad()
            x = weft.randn(5, 3).astype(self.model[0].weight.dtype)
            (self.model(x) ** 2).sum().backward()
            self.optimizer.step()

    def state(self) -> Any:
        return bits([self.model.state_dict(), self.optimizer.state_dict()])


OPTIMIZERS: dict[str, Any] = {
    "SGD": lambda p: optim.SGD(p, lr=0.1, momentum=0.9),
    "Adam": lambda p: optim.Adam(p, amsgrad=True),
    "Adafactor": lambda p: optim.Adafactor(p),
    "Adagrad": lambda p: optim.Adagrad(p),
    "RMSprop": lambda p: optim.RMSprop(p, momentum=0.5, centered=True),
    "Rprop": lambda p: optim.Rprop(p),
    "ASGD": lambda p: optim.ASGD(p),
    "NAdam": lambda p: optim.NAdam(p),
    "Lion": lambda p: optim.Lion(p),
    "groups": lambda p: optim.AdamW([{"params": [x], "lr": 0.1 * i} for i, x in enumerate(p)]),
    "rate": lambda p: optim.Adam(p, lr=weft.tensor(0.01)),
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(name: str, dtype: str, tmp_path: Path) -> None:
    one = Run(OPTIMIZERS[name], dtype)
    one.train(2)
    checkpoint = weft.Checkpoint(tmp_path, model=one.model, optimizer=one.optimizer)
    checkpoint.save(2)
    one.train(2)
    checkpoint.wait()
    two = Run(OPTIMIZERS[name], dtype)
    assert weft.Checkpoint(tmp_path, model=two.model, optimizer=two.optimizer).restore() == 2
    two.train(2)
    assert one.state() == two.state()


SCHEDULES: dict[str, Any] = {
    "steps": lambda o: optim.lr_scheduler.MultiStepLR(o, [2, 4]),
    "cosine": lambda o: optim.lr_scheduler.CosineAnnealingWarmRestarts(o, 3),
    "once": lambda o: optim.lr_scheduler.OneCycleLR(o, 0.1, total_steps=9),
    "plateau": lambda o: optim.lr_scheduler.ReduceLROnPlateau(o, patience=0),
    "function": lambda o: optim.lr_scheduler.LambdaLR(o, lambda n: 1 / (n + 1)),
    "sequence": lambda o: optim.lr_scheduler.SequentialLR(
        o, [optim.lr_scheduler.LinearLR(o), optim.lr_scheduler.ExponentialLR(o, 0.9)], [3]
    ),
    "chain": lambda o: optim.lr_scheduler.ChainedScheduler(
        [optim.lr_scheduler.ConstantLR(o), optim.lr_scheduler.ExponentialLR(o, 0.9)]
    ),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules(name: str, tmp_path: Path) -> None:
    def new() -> tuple[Any, Any]:
        optimizer = optim.SGD([weft.ones(1).requires_grad_()], lr=0.1, momentum=0.9)
        return optimizer, SCHEDULES[name](optimizer)

    def go(optimizer: Any, schedule: Any) -> list[float]:
        rates = []
        for _ in range(3):
            optimizer.step()
            schedule.step(*([1.0] if name == "plateau" else []))
            rates.append(optimizer.param_groups[0]["lr"])
        return rates

    optimizer, schedule = new()
    go(optimizer, schedule)
    with weft.Checkpoint(tmp_path, optimizer=optimizer, schedule=schedule) as checkpoint:
        checkpoint.save(3)
    other, again = new()
    assert weft.Checkpoint(tmp_path, optimizer=other, schedule=again).restore() == 3
    assert go(other, again) == go(optimizer, schedule)


def test_everything_else(tmp_path: Path) -> None:
    def new() -> dict[str, Any]:
        return {
            "generator": weft.Generator(1),
            "generators": [np.random.default_rng(1), np.random.RandomState(1), random.Random(1)],
            "tensor": weft.zeros(2),
            "tree": {"n": 1, "tensors": (weft.zeros(1), weft.zeros(1)), "list": [1, [2]]},
            "loader": DataLoader(range(8), 2, shuffle=True, generator=weft.Generator(2)),
        }

    def draws(run: dict[str, Any]) -> Any:
        numbers = [one.random() for one in run["generators"][::2]]
        numbers += [run["generators"][1].rand(), random.random(), np.random.random()]  # noqa: NPY002
        drawn = weft.rand(2).tolist() + weft.rand(2, generator=run["generator"]).tolist()
        return numbers, drawn, [x.tolist() for x in run["loader"]]

    one = new()
    draws(one)
    one["tensor"] += 5
    one["tree"]["tensors"][1].fill_(7)
    one["tree"] |= {"n": 2, "more": "text"}
    one["tree"]["list"][1].append(3)
    loop = iter(one["loader"])
    first = next(loop).tolist()
    with weft.Checkpoint(tmp_path, **one) as checkpoint:
        checkpoint.save(0)
    two = new()
    known = two["tensor"], two["tree"]["tensors"][1]
    assert weft.Checkpoint(tmp_path, **two).restore() == 0
    assert (two["tensor"].tolist(), known[0].tolist(), known[1].tolist()) == ([5, 5], [5, 5], [7])
    assert (two["tree"]["n"], two["tree"]["more"], two["tree"]["list"]) == (2, "text", [1, [2, 3]])
    assert two["tree"]["tensors"][1] is known[1]
    rest = [x.tolist() for x in loop]
    assert [x.tolist() for x in two["loader"]] == rest
    assert sorted(x for batch in (first, *rest) for x in batch) == list(range(8))
    checkpoint.restore()
    list(one["loader"])
    wanted = draws(one)
    weft.Checkpoint(tmp_path, **two).restore()
    list(two["loader"])
    assert draws(two) == wanted


@pytest.mark.parametrize("compiled", [False, True])
def test_a_snapshot_does_not_change(compiled: bool, tmp_path: Path) -> None:
    """Steps that run while a checkpoint is written do not show in it."""
    run = Run(OPTIMIZERS["Adam"])
    state = np.zeros(3)

    def step(x: Any) -> Any:
        run.optimizer.zero_grad()
        loss = (nn.functional.dropout(run.model(x), 0.5) ** 2).sum()
        loss.backward()
        run.optimizer.step()
        return loss

    call = weft.compile(step) if compiled else step
    for _ in range(3):
        call(weft.ones((5, 3)))
    checkpoint = weft.Checkpoint(
        tmp_path, model=run.model, optimizer=run.optimizer, more={"array": state}
    )
    wanted, drawn = run.state(), weft.get_rng_state().tolist()
    gate = threading.Event()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("weft.interop.checkpoint.write", _after(gate))
        checkpoint.save(1)
        for _ in range(3):
            call(weft.ones((5, 3)))
        state += 1
        gate.set()
        checkpoint.wait()
    assert run.state() != wanted
    found = weft.load(tmp_path / "checkpoint-00000001.safetensors")
    assert bits([found["objects"]["model"], found["objects"]["optimizer"]]) == wanted
    assert found["random"]["weft"].tolist() == drawn
    assert found["objects"]["more"]["array"].tolist() == [0, 0, 0]


def _after(gate: threading.Event) -> Any:
    """`write`, which waits before it begins."""

    def waiting(*arguments: Any, **options: Any) -> None:
        assert gate.wait(60)
        write(*arguments, **options)

    return waiting


# --- files ---------------------------------------------------------------------------------------


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_last_ones_are_kept(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    model = nn.Linear(1, 1)
    checkpoint = weft.Checkpoint(folder, keep=2, model=model)
    assert (checkpoint.restore(), checkpoint.steps()) == (None, [])
    for step in (1, 5, 123_456_789_012):
        checkpoint.save(step, wait=True)
    assert checkpoint.steps() == [5, 123_456_789_012]
    assert files(folder) == [
        "checkpoint-00000005.safetensors",
        "checkpoint-123456789012.safetensors",
    ]
    (folder / "notes.txt").touch()
    assert checkpoint.restore(5) == 5
    checkpoint.save(7, wait=True)  # the later one is of another course of training
    assert checkpoint.steps() == [5, 7]
    assert (folder / "notes.txt").exists()
    with pytest.raises(RangeError, match="no checkpoint of step 6; there are 5, 7"):
        checkpoint.restore(6)
    every = weft.Checkpoint(folder, keep=None, model=model)
    for step in range(8, 12):
        every.save(step)
    every.wait()
    assert every.steps() == [5, 7, 8, 9, 10, 11]


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / ".checkpoint-00000001.safetensors.0a.part").write_bytes(b"half")
    checkpoint = weft.Checkpoint(tmp_path, model=nn.Linear(1, 1))
    assert checkpoint.restore() is None
    checkpoint.save(2, wait=True)
    assert files(tmp_path) == ["checkpoint-00000002.safetensors"]


def test_errors_of_the_background_are_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = weft.Checkpoint(tmp_path, model=nn.Linear(1, 1))
    checkpoint.save(1, wait=True)

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        checkpoint.save(2)
        with pytest.raises(OSError, match="No space left") as caught:
            checkpoint.save(3)
        assert caught.value.__notes__ == ["raised while the checkpoint of step 2 was written"]
        checkpoint.save(4)
        with pytest.raises(OSError, match="No space left"):
            checkpoint.restore()
        last = weft.Checkpoint(tmp_path, model=nn.Linear(1, 1))
        last.save(5)
        assert last._thread is not None
        last._thread.join()
    with pytest.warns(UserWarning, match="a checkpoint was not written"):
        del last
    assert files(tmp_path) == ["checkpoint-00000001.safetensors"]


def test_damaged_checkpoints_are_refused(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)
    checkpoint = weft.Checkpoint(tmp_path, model=model, numbers={"rate": 0.25})
    checkpoint.save(1, wait=True)
    (path,) = tmp_path.iterdir()
    data = path.read_bytes()
    for at in (data.find(b"0.25"), data.find(b"weft.crc32"), len(data) - 2, 3):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(FileError, match=path.name):
            checkpoint.restore()
    path.write_bytes(data[:-1])
    with pytest.raises(FileError, match=path.name):
        checkpoint.restore()
    weft.save({"version": 1}, path)
    with pytest.raises(FileError, match="no checksum"):
        checkpoint.restore()


def test_what_does_not_fit_changes_nothing(tmp_path: Path) -> None:
    model, numbers = nn.Linear(2, 2), {"n": 1}
    weft.Checkpoint(tmp_path, numbers=numbers, model=model).save(1, wait=True)
    with pytest.raises(FileError, match="has model, numbers, and this is a Checkpoint of model"):
        weft.Checkpoint(tmp_path, model=model).restore()
    numbers["n"] = 2
    other = nn.Linear(2, 3)
    before, drawn = bits(other.state_dict()), weft.get_rng_state().tolist()
    with pytest.raises(nn.state.StateDictError):
        weft.Checkpoint(tmp_path, numbers=numbers, model=other).restore()
    assert numbers == {"n": 2}
    assert (bits(other.state_dict()), weft.get_rng_state().tolist()) == (before, drawn)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda c: c, RangeError, "nothing to save"),
        (lambda c: c | {"epoch": 3}, DTypeError, r"epoch is a int, (.|\n)*put it into a dict"),
        (lambda c: c | {"model": nn.Linear}, DTypeError, "model is a type"),
        (lambda c: c | {"keep": 0, "model": nn.Linear(1, 1)}, RangeError, "at least 1"),
    ],
)
def test_wrong_arguments(make: Any, error: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(error, match=message):
        weft.Checkpoint(tmp_path, **make({}))
    with pytest.raises(RangeError, match="from 0 up"):
        weft.Checkpoint(tmp_path, model=nn.Linear(1, 1)).save(-1)
