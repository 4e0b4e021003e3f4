"""What varies from call to call: numbers, structures, loops of Python. Each row has its bar.

    python benchmarks/varying.py            # all rows, one thread
    python benchmarks/varying.py item trees

item       a GPT's training step that returns `loss.item()`, over the one that returns `loss`: 1.05
schedule   a step with OneCycleLR: no recording after the second, though rate and betas change
sampler    the first call of fifty reversed steps of a sampler, without the cache on disk: 1 s
trees      a Tree-LSTM over 200 random trees, all calls, over running them eagerly: 1.3
adam       recordings of a training step with Adam: 1

Where PyTorch is installed, its eager time stands beside.
"""

from __future__ import annotations

import importlib.util
import os
import random
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

os.environ["WEFT_CACHE"] = "0"

import weft
from weft import nn, optim

F = nn.functional
ROUNDS = 15


def seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def in_turns(*runs: Callable[[], object]) -> list[float]:
    """The median times of several functions, called in turns."""
    times = [[seconds(run) for run in runs] for _ in range(ROUNDS)]
    return [statistics.median(column) for column in zip(*times, strict=True)]


# --- a small GPT ---------------------------------------------------------------------------------

LETTERS, LENGTH, WIDE, HEADS = 65, 64, 128, 4


def gpt(lib: Any, nn: Any) -> Any:
    """The model in Weft or PyTorch: embeddings, two blocks of attention and layers, a head."""

    class Block(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.ln1, self.ln2 = nn.LayerNorm(WIDE), nn.LayerNorm(WIDE)
            self.q, self.k, self.v = (nn.Linear(WIDE, WIDE) for _ in range(3))
            self.out = nn.Linear(WIDE, WIDE)
            self.up, self.down = nn.Linear(WIDE, 4 * WIDE), nn.Linear(4 * WIDE, WIDE)

        def forward(self, x: Any) -> Any:
            batch, length, _ = x.shape
            y = self.ln1(x)
            q, k, v = (
                layer(y).reshape(batch, length, HEADS, WIDE // HEADS).permute(0, 2, 1, 3)
                for layer in (self.q, self.k, self.v)
            )
            a = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(a.permute(0, 2, 1, 3).reshape(batch, length, WIDE))
            return x + self.down(nn.functional.gelu(self.up(self.ln2(x))))

    class Model(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.token, self.place = nn.Embedding(LETTERS, WIDE), nn.Embedding(LENGTH, WIDE)
            self.blocks = nn.Sequential(Block(), Block())
            self.head = nn.Linear(WIDE, LETTERS)

        def forward(self, x: Any) -> Any:
            return self.head(self.blocks(self.token(x) + self.place(lib.arange(x.shape[1]))))

    return Model()


def gpt_step(lib: Any, nn: Any, optim: Any, number: bool) -> Callable[[Any, Any], Any]:
    model = gpt(lib, nn)
    optimizer = optim.AdamW(model.parameters(), lr=1e-3)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x).reshape(-1, LETTERS), y.reshape(-1))
        loss.backward()
        optimizer.step()
        return loss.item() if number else loss

    return step


def item() -> bool:
    steps = [weft.compile(gpt_step(weft, nn, optim, number)) for number in (False, True)]
    x, y = (weft.randint(0, LETTERS, (8, LENGTH)) for _ in range(2))
    for step in steps:
        step(x, y)
    plain, number = in_turns(*[lambda step=step: step(x, y) for step in steps])
    recordings = len(steps[1].recordings)
    print(f"item       {number * 1e3:.2f} ms, loss {plain * 1e3:.2f} ms: {number / plain:.3f}, "
          f"{recordings} recordings{beside(_torch_gpt)}")  # fmt: skip
    return number / plain <= 1.05 and recordings == 1


def _torch_gpt(torch: Any) -> float:
    step = gpt_step(torch, torch.nn, torch.optim, True)
    x, y = (torch.randint(0, LETTERS, (8, LENGTH)) for _ in range(2))
    step(x, y)
    return in_turns(lambda: step(x, y))[0]


# --- a schedule that changes rate and betas ------------------------------------------------------


def scheduled(lib: Any, nn: Any, optim: Any, steps: int) -> tuple[Any, Callable[..., Any]]:
    model = nn.Sequential(nn.Linear(64, 128), nn.Tanh(), nn.Linear(128, 8))
    optimizer = optim.Adam(model.parameters(), lr=0.1)
    schedule = optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=steps)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        schedule.step()
        return loss

    return model, step


def schedule() -> bool:
    captured = weft.compile(scheduled(weft, nn, optim, 1000)[1])
    x, y = weft.ones((32, 64)), weft.zeros((32, 8))
    captured(x, y)
    captured(x, y)
    before = len(captured.recordings)
    (took,) = in_turns(lambda: [captured(x, y) for _ in range(20)])
    after = len(captured.recordings) - before
    print(f"schedule   {took / 20 * 1e6:.0f} µs, {after} recordings after the second step"
          f"{beside(_torch_schedule)}")  # fmt: skip
    return after == 0


def _torch_schedule(torch: Any) -> float:
    step = scheduled(torch, torch.nn, torch.optim, 1000)[1]
    x, y = torch.ones(32, 64), torch.zeros(32, 8)
    step(x, y)
    return in_turns(lambda: [step(x, y) for _ in range(20)])[0] / 20


def adam() -> bool:
    captured = weft.compile(gpt_step(weft, nn, optim, False))
    x, y = (weft.randint(0, LETTERS, (2, LENGTH)) for _ in range(2))
    first = seconds(lambda: captured(x, y))
    second = seconds(lambda: captured(x, y))
    print(f"adam       {len(captured.recordings)} recordings, first step {first:.2f} s, "
          f"second {second * 1e3:.1f} ms")  # fmt: skip
    return len(captured.recordings) == 1


# --- a sampler, fifty steps from the last to the first -------------------------------------------


def sampler() -> bool:
    steps = 50
    betas = weft.linspace(1e-4, 0.02, steps)
    kept = weft.cumulative_prod(1 - betas)
    table = nn.Embedding(steps, 64)
    up, down = nn.Linear(32, 64), nn.Linear(64, 32)

    @weft.no_grad()
    def sample(count: int) -> Any:
        x = weft.randn((count, 32))
        for i in reversed(range(steps)):
            t = weft.full((count,), i, dtype=weft.int64)
            noise = down(F.silu(up(x) + table(t)))
            x = (x - betas[i] / weft.sqrt(1 - kept[i]) * noise) / weft.sqrt(1 - betas[i])
            if i > 0:
                x = x + weft.sqrt(betas[i]) * weft.randn((count, 32))
        return x

    captured = weft.compile(sample)
    first = seconds(lambda: captured(16))
    native, eager = in_turns(lambda: captured(16), lambda: sample(16))
    print(f"sampler    first call {first:.2f} s, then {native * 1e3:.2f} ms, eagerly "
          f"{eager * 1e3:.1f} ms")  # fmt: skip
    return first <= 1.0


# --- trees ---------------------------------------------------------------------------------------


class Tree:
    def __init__(self, word: Any = None, left: Any = None, right: Any = None) -> None:
        self.word, self.left, self.right = word, left, right


def random_tree(rng: random.Random, leaves: int) -> Tree:
    if leaves == 1:
        return Tree(word=weft.tensor(rng.randrange(50)))
    left = rng.randrange(1, leaves)
    return Tree(None, random_tree(rng, left), random_tree(rng, leaves - left))


class TreeLSTM(nn.Module):
    def __init__(self, wide: int = 32) -> None:
        super().__init__()
        self.wide = wide
        self.words, self.leaf = nn.Embedding(50, wide), nn.Linear(wide, 2 * wide)
        self.both, self.out = nn.Linear(2 * wide, 5 * wide), nn.Linear(wide, 5)

    def node(self, tree: Tree) -> tuple[Any, Any]:
        if tree.left is None:
            h, c = weft.split(self.leaf(self.words(tree.word)), self.wide, axis=-1)
            return weft.tanh(h), c
        (h1, c1), (h2, c2) = self.node(tree.left), self.node(tree.right)
        gates = weft.split(self.both(weft.concat([h1, h2])), self.wide, axis=-1)
        i, f1, f2, o = (weft.sigmoid(gate) for gate in gates[:4])
        c = i * weft.tanh(gates[4]) + f1 * c1 + f2 * c2
        return o * weft.tanh(c), c

    def forward(self, tree: Tree) -> Any:
        return self.out(self.node(tree)[0])


def trees() -> bool:
    model, rng = TreeLSTM(), random.Random(0)
    given = [random_tree(rng, rng.randrange(5, 16)) for _ in range(200)]
    captured = weft.compile(lambda tree: model(tree))
    model(given[0])
    took = [(seconds(lambda: captured(t)), seconds(lambda: model(t))) for t in given]  # noqa: B023
    compiled, eager = (sum(column) for column in zip(*took, strict=True))
    recordings = len(captured.recordings)
    for _ in range(10):
        captured(given[-1])
    again = in_turns(lambda: captured(given[-1]), lambda: model(given[-1]))
    ratio = compiled / eager
    print(f"trees      {compiled:.2f} s, eagerly {eager:.2f} s: {ratio:.2f}, {recordings}"
          f" recordings; one that was seen before {again[0] * 1e3:.2f} ms, eagerly "
          f"{again[1] * 1e3:.2f} ms")  # fmt: skip
    return ratio <= 1.3


# --- all -----------------------------------------------------------------------------------------


def beside(run: Callable[[Any], float]) -> str:
    if importlib.util.find_spec("torch") is None:
        return ""
    import torch

    torch.set_num_threads(1)
    return f"; PyTorch eagerly {run(torch) * 1e3:.2f} ms"


ROWS = {row.__name__: row for row in (item, schedule, adam, sampler, trees)}


def main() -> int:
    weft.set_num_threads(1)
    weft.manual_seed(0)
    results = [ROWS[name]() for name in sys.argv[1:] or ROWS]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
