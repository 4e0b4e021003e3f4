"""Training that is killed at random moments and goes on from checkpoints, again and again.

    python killed_training.py FOLDER eager|compiled KILLS SEED

Each run is a process of its own, forked from this one. What it sees at each step, and what it has
at the end, must be what a run sees that was not killed.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import weft
import weft.data

EPOCHS, SAMPLES, BATCH = 4, 22, 4


class Noisy:
    """Samples with noise that a worker draws."""

    def __init__(self) -> None:
        self.x = np.random.default_rng(0).normal(size=(SAMPLES, 6)).astype(np.float32)

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> Any:
        noise = np.random.random() + random.random() + weft.rand(()).item()  # noqa: NPY002
        return weft.asarray(self.x[index] + np.float32(noise)), index % 3


def train(folder: Path, mode: str) -> None:
    for seed in (weft.manual_seed, random.seed, np.random.seed):
        seed(0)
    nn = weft.nn
    model = nn.Sequential(
        nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.25), nn.Tanh(), nn.Linear(8, 3)
    )
    # With a GradScaler, a rate that is a number makes a recording for each value.
    rate = weft.tensor(0.01) if mode == "compiled" else 0.01
    optimizer = weft.optim.AdamW(model.parameters(), lr=rate)
    by_step = weft.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=30)
    by_epoch = weft.optim.lr_scheduler.StepLR(optimizer, 2)
    ema, scaler = weft.optim.EMA(model, 0.9), weft.amp.GradScaler(growth_interval=5)
    loader = weft.data.DataLoader(
        Noisy(), BATCH, shuffle=True, num_workers=1, persistent_workers=True
    )
    progress = {"epoch": 0}
    own = np.random.default_rng(1)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        ema.update()
        return loss

    run = weft.compile(step, dynamic=False) if mode == "compiled" else step
    checkpoint = weft.Checkpoint(
        folder,
        keep=2,
        model=model,
        optimizer=optimizer,
        schedules=[by_step, by_epoch],
        averages=ema,
        scaler=scaler,
        loader=loader,
        progress=progress,
        own=own,
    )
    with checkpoint, (folder / "log").open("a") as log:
        number = checkpoint.restore() or 0
        while progress["epoch"] < EPOCHS:
            for x, y in loader:
                seen = [y.tolist(), float(x.sum()).hex(), random.random(), own.random()]
                loss = run(x, y)
                by_step.step()
                number += 1
                log.write(json.dumps([number, progress["epoch"], float(loss).hex(), seen]) + "\n")
                log.flush()
                checkpoint.save(number)
            by_epoch.step()
            progress["epoch"] += 1
    parts = {"model": model, "optimizer": optimizer, "by step": by_step, "by epoch": by_epoch}
    parts |= {"averages": ema, "scaler": scaler, "loader": loader}
    end = {name: digest(part.state_dict()) for name, part in parts.items()}
    (folder / "end").write_text(json.dumps(end | {"draws": [own.random(), random.random()]}))


def digest(state: Any) -> str:
    file = io.BytesIO()
    weft.save(state, file)
    return hashlib.sha256(file.getvalue()).hexdigest()


def start(folder: Path, mode: str) -> int:
    """The process that trains."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        train(folder, mode)
        status = 0
    finally:
        sys.stderr.flush()
        os._exit(status)


def outcome(folder: Path) -> tuple[str, list[str]]:
    return (folder / "end").read_text(), (folder / "log").read_text().splitlines()


def main(folder: Path, mode: str, kills: int, seed: int) -> None:
    chance = random.Random(seed)
    whole = folder / "whole"
    whole.mkdir(parents=True)
    for _ in range(2):  # the first one may fill caches
        shutil.rmtree(whole)
        whole.mkdir()
        begun = time.monotonic()
        assert os.waitpid(start(whole, mode), 0)[1] == 0
        lasts = time.monotonic() - begun
    end, lines = outcome(whole)
    known = set(lines)
    assert len(lines) == EPOCHS * -(-SAMPLES // BATCH)
    done = runs = unfinished = 0
    killed = folder / "killed"
    while done < kills or killed.exists():
        killed.mkdir(exist_ok=True)
        child = start(killed, mode)
        deadline = time.monotonic() + chance.uniform(0.1 * lasts, 1.1 * lasts)
        ended = (0, 0)
        while not ended[0] and (done >= kills or time.monotonic() < deadline):
            time.sleep(0.001)
            ended = os.waitpid(child, os.WNOHANG)
        if not ended[0]:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            done += 1
            unfinished += any(".part" in name for name in os.listdir(killed))
            continue
        assert ended[1] == 0, "the training failed"
        its_end, its_lines = outcome(killed)
        others = [line for line in its_lines if line not in known and line.endswith("]]")]
        assert not others, others[:3]
        assert its_end == end, f"the end is another one: {its_end} and {end}"
        assert not any(".part" in name for name in os.listdir(killed))
        shutil.rmtree(killed)
        runs += 1
    print(f"{done} kills, {unfinished} while a file was written; {runs} trainings ended the same")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
