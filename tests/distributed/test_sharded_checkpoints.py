"""Checkpoints that several ranks write: parts and an index; read by other numbers of ranks."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from weft import distributed, nn, optim
from weft.data import DataLoader
from weft.errors import DistributedError, FileError, RangeError
from weft.interop import sharded

X = np.random.default_rng(0).normal(size=(24, 4)).astype(np.float32)


class Run:
    """A training run, as a rank sees it."""

    def __init__(self, folder: Path) -> None:
        self.model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
        rng = np.random.default_rng(7)
        for parameter in self.model.parameters():
            parameter.data = weft.asarray(rng.normal(size=parameter.shape).astype(np.float32))
        if distributed.world_size() > 1:
            distributed.data_parallel(self.model)
        self.optimizer = optim.Adam(self.model.parameters(), lr=0.05)
        data = weft.data.TensorDataset(weft.asarray(X))
        self.loader = DataLoader(
            *(data, 6, True), generator=weft.Generator(1), part=distributed.part(), uneven="pad"
        )
        self.progress = {"done": 0}
        named = dict(vars(self))
        self.checkpoint = weft.Checkpoint(folder, keep=2, **named)

    def train(self, steps: int, save: bool = False) -> list[Any]:
        while self.progress["done"] < steps:
            for (x,) in self.loader:
                self.optimizer.zero_grad()
                (self.model(x) ** 2).mean().backward()
                self.optimizer.step()
                self.progress["done"] += 1
                if save:
                    self.checkpoint.save(self.progress["done"])
                if self.progress["done"] == steps:
                    break
        self.checkpoint.wait()
        return [parameter.detach().numpy().copy() for parameter in self.model.parameters()]


def trained(folder: Path, steps: int, restored: bool, save: bool) -> list[Any]:
    run = Run(folder)
    if restored:
        assert run.checkpoint.restore() == 6
    return run.train(steps, save)


@pytest.mark.parametrize("before", [1, 2, 3])
@pytest.mark.parametrize("after", [1, 2, 3])
def test_another_number_of_ranks_goes_on(before: int, after: int, tmp_path: Path) -> None:
    """In the middle of an epoch, with moments of Adam; bit by bit on as many ranks."""
    distributed.run_virtual(before, trained, tmp_path, 6, False, True)
    found = distributed.run_virtual(after, trained, tmp_path, 9, True, False)
    whole = distributed.run_virtual(before, trained, tmp_path / "none", 9, False, False)
    for parameters in found:
        for mine, wanted in zip(parameters, whole[0], strict=True):
            if before == after:
                np.testing.assert_array_equal(mine, wanted)
            else:
                np.testing.assert_allclose(mine, wanted, rtol=2e-4, atol=1e-5)


def test_each_rank_writes_a_part(tmp_path: Path) -> None:
    distributed.run_virtual(3, trained, tmp_path, 4, False, True)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert [name for name in names if "part" not in name] == [
        "checkpoint-00000003.safetensors",
        "checkpoint-00000004.safetensors",
    ]
    parts = [path for path in tmp_path.iterdir() if "part" in path.name]
    assert len(parts) == 6  # those of steps that are gone are gone, too
    arrays = [set(sharded.read_arrays(path)) for path in parts if "00000004" in path.name]
    names_of_all = [name for found in arrays for name in found]
    assert all(arrays)
    assert len(names_of_all) == len(set(names_of_all))  # what is alike is written once


def test_what_no_index_names_is_no_checkpoint(tmp_path: Path) -> None:
    """A run that is killed while parts are written leaves the checkpoint before."""
    distributed.run_virtual(2, trained, tmp_path, 5, False, True)
    (tmp_path / "checkpoint-00000005.safetensors").unlink()

    def restored() -> Any:
        run = Run(tmp_path)
        found = run.checkpoint.restore()
        run.checkpoint.save(6, wait=True)
        distributed.barrier()
        return found

    assert distributed.run_virtual(2, restored) == [4, 4]
    assert not [path for path in tmp_path.iterdir() if "00000005" in path.name]


def test_a_damaged_part(tmp_path: Path) -> None:
    distributed.run_virtual(2, trained, tmp_path, 6, False, True)
    part = max(path for path in tmp_path.iterdir() if "part-0001" in path.name)
    content = bytearray(part.read_bytes())
    content[-5] ^= 1
    part.write_bytes(content)
    with pytest.raises(FileError, match="damaged"):
        distributed.run_virtual(2, trained, tmp_path, 7, True, False)


def test_tensors_of_one_name_that_differ(tmp_path: Path) -> None:
    """They go back to as many ranks, and to no other number."""

    def saved() -> None:
        mine = weft.full((3,), float(distributed.rank()))
        weft.Checkpoint(tmp_path, mine=mine).save(1, wait=True)
        distributed.barrier()

    def restored() -> float:
        mine = weft.zeros(3)
        weft.Checkpoint(tmp_path, mine=mine).restore()
        return float(mine[0].item())

    distributed.run_virtual(2, saved)
    assert distributed.run_virtual(2, restored) == [0.0, 1.0]
    for ranks in (1, 3):
        with pytest.raises(FileError, match=r"objects\.mine was another one on each of 2 ranks"):
            distributed.run_virtual(ranks, restored)


def test_ranks_save_one_step_together(tmp_path: Path) -> None:
    def saved() -> None:
        weft.Checkpoint(tmp_path, progress={}).save(distributed.rank())

    with pytest.raises(RangeError, match="rank 0 saves step 0, and rank 1 step 1"):
        distributed.run_virtual(2, saved, timeout=20)


def test_random_numbers_go_on(tmp_path: Path) -> None:
    def saved() -> None:
        weft.Checkpoint(tmp_path, progress={}).save(1, wait=True)
        distributed.barrier()

    random.seed(5)
    distributed.run_virtual(2, saved)
    drawn = random.random()
    for ranks in (1, 2):
        random.seed(6)
        distributed.run_virtual(ranks, lambda: weft.Checkpoint(tmp_path, progress={}).restore())
        assert random.random() == drawn


# --- tensors that lie over a mesh -----------------------------------------------------------------


def over_a_mesh(folder: Path, axes: dict[str, int], steps: int, restored: bool) -> Any:
    """Train with parameters and moments cut over the mesh; returns them as wholes."""
    with distributed.Mesh(axes):
        model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
        rng = np.random.default_rng(3)
        for parameter in model.parameters():
            parameter.data = weft.asarray(rng.normal(size=parameter.shape).astype(np.float32))
        if "model" in axes:
            distributed.tensor_parallel(model, "model", {"0": "columns", "2": "rows"})
        if "data" in axes:
            distributed.fully_sharded(model, "data")
        optimizer = optim.Adam(model.parameters(), lr=0.05)
        progress = {"done": 0}
        checkpoint = weft.Checkpoint(folder, model=model, optimizer=optimizer, progress=progress)
        if restored:
            assert checkpoint.restore() == 3

        @weft.compile
        def step(x: Any) -> Any:
            optimizer.zero_grad()
            loss = (model(x) ** 2).mean()
            loss.backward()
            optimizer.step()
            return loss

        while progress["done"] < steps:
            x = weft.asarray(X[progress["done"] :][:8].copy())
            step(distributed.split(x, "data") if "data" in axes else x)
            progress["done"] += 1
            if progress["done"] == 3:
                checkpoint.save(3, wait=True)
                distributed.barrier()
        kinds = [str(parameter.type) for parameter in model.parameters()]
        wholes = [distributed.full(parameter).detach().numpy() for parameter in model.parameters()]
        return kinds, wholes


MESHES: list[dict[str, int]] = [{"data": 2}, {"model": 2}, {"data": 2, "model": 2}, {"data": 1}]


@pytest.mark.parametrize("before", MESHES, ids=str)
@pytest.mark.parametrize("after", MESHES, ids=str)
def test_another_mesh_goes_on(before: Any, after: Any, tmp_path: Path) -> None:
    counts = [int(np.prod(list(axes.values()))) for axes in (before, after)]
    distributed.run_virtual(counts[0], over_a_mesh, tmp_path, before, 3, False)
    found = distributed.run_virtual(counts[1], over_a_mesh, tmp_path, after, 6, True)
    whole = distributed.run_virtual(1, over_a_mesh, tmp_path / "none", {"data": 1}, 6, False)
    for _, wholes in found:
        for mine, wanted in zip(wholes, whole[0][1], strict=True):
            np.testing.assert_allclose(mine, wanted, rtol=1e-4, atol=1e-5)
    if counts[1] > 1:
        assert any("{" in kind for kind in found[0][0])


def test_states_of_what_lies_over_a_mesh(tmp_path: Path) -> None:
    """Wholes and parts go into modules that lie over a mesh, with their dtype; a file of one rank's
    part is refused."""
    whole = nn.Linear(4, 2).state_dict()

    def loaded() -> Any:
        model = distributed.fully_sharded(nn.Linear(4, 2), "ranks")
        model.load_state_dict({name: x.astype("float64") for name, x in whole.items()})
        other = distributed.fully_sharded(nn.Linear(4, 2), "ranks")
        other.load_state_dict(model.state_dict())
        found = {name: distributed.full(x) for name, x in other.state_dict().items()}
        with pytest.raises(DistributedError, match="only a part of weight"):
            weft.save(other.state_dict(), tmp_path / "x.safetensors")
        turned = distributed.split(weft.zeros((2, 4)), None, "ranks")
        with pytest.raises(DistributedError, match="a state lies as"):
            other.load_state_dict({**other.state_dict(), "weight": turned})
        return {name: (x.numpy(), str(x.dtype)) for name, x in found.items()}

    for found in distributed.run_virtual(2, loaded):
        for name, (value, dtype) in found.items():
            np.testing.assert_array_equal(value, whole[name].numpy())
            assert dtype == "weft.float32"
