"""The simulator beside published figures: ten GPT models of 1.7 billion to 1 trillion parameters.

    python benchmarks/megatron.py              # published and simulated throughput
    python benchmarks/megatron.py --plan       # and what the planner would choose (some minutes)
    python benchmarks/megatron.py --degrees    # tensor degrees over nodes, and micro-batches
    python benchmarks/megatron.py --later      # figures of the same group's next paper
    python benchmarks/megatron.py --constants  # what hangs on each constant

The figures are table 1 of Narayanan et al., "Efficient Large-Scale Language Model Training on GPU
Clusters Using Megatron-LM" (SC 2021): A100 80 GB, mixed precision, activations recomputed,
sequences of 2048, a vocabulary of 51,200.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
from collections.abc import Callable
from typing import Any

import weft
from weft import distributed, nn, optim
from weft.nn import functional as F

LENGTH, VOCABULARY = 2048, 51200


@dataclasses.dataclass(frozen=True)
class Row:
    """One model: billions of parameters, sizes, degrees, samples in a step, TF/s of each GPU."""

    params: float
    heads: int
    hidden: int
    layers: int
    tensor: int
    pipeline: int
    gpus: int
    batch: int
    published: int

    @property
    def data(self) -> int:
        return self.gpus // self.tensor // self.pipeline

    @property
    def flops(self) -> float:
        """Of one step, as the paper counts them, with recomputation."""
        h, layers = self.hidden, self.layers
        rest = 1 + LENGTH / (6 * h) + VOCABULARY / (16 * layers * h)
        return 96 * self.batch * LENGTH * layers * h * h * rest


ROWS = (
    Row(1.7, 24, 2304, 24, 1, 1, 32, 512, 137),
    Row(3.6, 32, 3072, 30, 2, 1, 64, 512, 138),
    Row(7.5, 32, 4096, 36, 4, 1, 128, 512, 142),
    Row(18.4, 48, 6144, 40, 8, 1, 256, 1024, 135),
    Row(39.1, 64, 8192, 48, 8, 2, 512, 1536, 138),
    Row(76.1, 80, 10240, 60, 8, 4, 1024, 1792, 140),
    Row(145.6, 96, 12288, 80, 8, 8, 1536, 2304, 148),
    Row(310.1, 128, 16384, 96, 8, 16, 1920, 2160, 155),
    Row(529.6, 128, 20480, 105, 8, 35, 2520, 2520, 163),
    Row(1008.0, 160, 25600, 128, 8, 64, 3072, 3072, 163),
)
#: Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models" (2022), table
#: 3 and the column "full recompute" of table 5: sizes, choices, seconds of a step. Nothing in the
#: simulator was chosen with these.
LATER: tuple[tuple[Row, dict[str, Any], float], ...] = (
    (Row(22, 64, 6144, 48, 8, 1, 8, 4, 0), {"micro_batch": 4, "chunks": 1}, 1.42),
    (Row(175, 96, 12288, 96, 8, 8, 64, 64, 0), {"micro_batch": 1, "chunks": 3}, 18.13),
    (Row(530, 128, 20480, 105, 8, 35, 280, 280, 0), {"micro_batch": 1, "chunks": 3}, 49.05),
    (
        Row(1000, 160, 25600, 128, 8, 64, 512, 512, 0),
        {"micro_batch": 1, "chunks": 1, "schedule": "1f1b"},
        94.42,
    ),
)
#: What the paper says of its runs besides degrees; its software sends and sums before it goes on.
AS_PUBLISHED: dict[str, Any] = {
    "recompute": True,
    "sharded": "none",
    "sequence": False,
    "overlap": False,
    "cuts": "even",
}


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: weft.Tensor) -> weft.Tensor:
        b, t, c = x.shape
        parts = self.qkv(self.norm1(x)).reshape(b, t, self.heads, 3, c // self.heads)
        q, k, v = parts.permute_dims((3, 0, 2, 1, 4))
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=0.1)
        x = x + F.dropout(self.out(seen.swapaxes(1, 2).reshape(b, t, c)), 0.1)
        inner = F.gelu(self.up(self.norm2(x)), approximate="tanh")
        return x + F.dropout(self.down(inner), 0.1)


class GPT(nn.Module):
    def __init__(self, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(VOCABULARY, width), nn.Embedding(LENGTH, width)
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens: weft.Tensor) -> weft.Tensor:
        x = self.token(tokens) + self.place(weft.arange(tokens.shape[1]))
        x = F.dropout(x.astype(weft.bfloat16), 0.1)
        return self.norm(self.blocks(x)) @ self.token.weight.mT


def trainer(width: int, heads: int, layers: int) -> Callable[[], Callable[..., Any]]:
    """What makes a model and the step that trains it, in mixed precision."""

    def build() -> Callable[..., Any]:
        model = GPT(width, heads, layers)
        optimizer = optim.Adam(model.parameters(), lr=1e-4)

        def step(tokens: weft.Tensor, targets: weft.Tensor) -> weft.Tensor:
            optimizer.zero_grad()
            with weft.autocast(dtype=weft.bfloat16):
                logits = model(tokens).reshape(-1, VOCABULARY)
                loss = F.cross_entropy(logits, targets.reshape(-1))
            loss.backward()
            optimizer.step()
            return loss

        return step

    return build


def outlined(row: Row) -> Any:
    tokens = weft.spec((row.batch, LENGTH), weft.int64)
    return distributed.outline(trainer(row.hidden, row.heads, row.layers), tokens, tokens)


def published(row: Row, **choices: Any) -> distributed.ParallelPlan:
    """The plan of a row.

    The paper gives neither micro-batches nor chunks. They are those of the same group's next paper
    (LATER): 4 samples without a pipeline and 1 with one; 3 chunks where that divides a stage's
    layers, else 2.
    """
    each = row.layers // row.pipeline
    chunks = 1 if row.pipeline == 1 else next(c for c in (3, 2, 1) if each % c == 0)
    made: dict[str, Any] = {
        "data": row.data,
        "tensor": row.tensor,
        "pipeline": row.pipeline,
        "micro_batch": 4 if row.pipeline == 1 else 1,
        "chunks": chunks,
        "schedule": "interleaved" if chunks > 1 else "1f1b",
    }
    return distributed.ParallelPlan(**{**AS_PUBLISHED, **made, **choices})


def simulated(row: Row, step: Any, cluster: Any = None, **choices: Any) -> Any:
    """The prediction for a row."""
    on = cluster or distributed.Cluster.a100(row.gpus)
    return distributed.simulate(step, on, published(row, **choices))


def rate(row: Row, seconds: float) -> float:
    """TF/s of each GPU, with the paper's count."""
    return row.flops / seconds / row.gpus / 1e12


def table(chosen: bool) -> None:
    head = (
        "| parameters | GPUs | t × p × d | published | simulated | | micro-batch, chunks | bubble |"
    )
    print(head + (" planner | its mesh |" if chosen else ""))
    print("| ---: | ---: | --- | ---: | ---: | ---: | --- | ---: |" + " ---: | --- |" * chosen)
    within = 0
    for row in ROWS:
        step = outlined(row)
        found = simulated(row, step)
        speed = rate(row, found.seconds)
        off = speed / row.published - 1
        within += abs(off) <= 0.1
        cells = [
            f"{row.params:,.1f} B",
            f"{row.gpus:,}",
            f"{row.tensor} × {row.pipeline} × {row.data}",
            f"{row.published}",
            f"{speed:.0f}",
            f"{off:+.1%}",
            f"{found.plan.micro_batch}, {found.plan.chunks}",
            f"{found.bubble:.1%}",
        ]
        if chosen:
            begun = time.process_time()
            own = distributed.plan(step, distributed.Cluster.a100(row.gpus))
            ratio = found.seconds / own.prediction.seconds
            cells += [f"{ratio:.2f}×", f"{own.plan} ({time.process_time() - begun:.0f} s)"]
        print("| " + " | ".join(cells) + " |", flush=True)
    print(f"\n{within} of {len(ROWS)} within 10 %")


def later() -> None:
    """Seconds of a step in the next paper, whose micro-batches and chunks are published."""
    print("| parameters | GPUs | t × p | micro-batch, chunks | published | simulated | |")
    print("| ---: | ---: | --- | --- | ---: | ---: | ---: |")
    for row, choices, seconds in LATER:
        found = simulated(row, outlined(row), **choices)
        plan, off = found.plan, found.seconds / seconds - 1
        cells = [
            f"{row.params:,.0f} B",
            f"{row.gpus}",
            f"{plan.tensor} × {plan.pipeline}",
            f"{plan.micro_batch}, {plan.chunks}",
            f"{seconds} s",
            f"{found.seconds:.2f} s",
            f"{off:+.1%}",
        ]
        print("| " + " | ".join(cells) + " |", flush=True)


def constants() -> None:
    """How much hangs on a constant, one changed at a time."""
    steps = [outlined(row) for row in ROWS]
    print("| changed | rows within 10 % | smallest and largest difference |\n| --- | ---: | --- |")
    for name, change in CHANGES.items():
        off = []
        for row, step in zip(ROWS, steps, strict=True):
            found = simulated(row, step, change(distributed.Cluster.a100(row.gpus)))
            off.append(rate(row, found.seconds) / row.published - 1)
        within = sum(abs(x) <= 0.1 for x in off)
        print(f"| {name} | {within} | {min(off):+.1%}, {max(off):+.1%} |".replace("-", "−"))
    for name, choices in CHOICES.items():
        off = []
        for row, step in zip(ROWS, steps, strict=True):
            found = simulated(row, step, **(choices if row.pipeline > 1 else {}))
            off.append(rate(row, found.seconds) / row.published - 1)
        within = sum(abs(x) <= 0.1 for x in off)
        print(f"| {name} | {within} | {min(off):+.1%}, {max(off):+.1%} |".replace("-", "−"))


def _processor(**given: Any) -> Callable[[Any], Any]:
    return lambda on: dataclasses.replace(on, processor=dataclasses.replace(on.processor, **given))


def _links(reached: float) -> Callable[[Any], Any]:
    def change(on: Any) -> Any:
        inside = dataclasses.replace(on.inside, reached=reached)
        between = dataclasses.replace(on.between, reached=reached)
        return dataclasses.replace(on, inside=inside, between=between)

    return change


CHANGES: dict[str, Callable[[Any], Any]] = {
    "none": _processor(),
    "share of the peak 0.80": _processor(sustained=0.8),
    "share of the peak 0.90": _processor(sustained=0.9),
    "links reach 0.7": _links(0.7),
    "links reach 0.9": _links(0.9),
    "memory reaches 0.75": _processor(streamed=0.75),
    "memory reaches 0.95": _processor(streamed=0.95),
    "a launch costs 6 µs": _processor(launch=6e-6),
}
CHOICES: dict[str, dict[str, Any]] = {
    "pipelines do not interleave": {"chunks": 1, "schedule": "1f1b"},
    "messages travel beside kernels": {"overlap": True},
}


def degrees() -> None:
    """What the paper measured of tensor degrees over nodes, and of more micro-batches."""
    row = dataclasses.replace(ROWS[6], gpus=64, batch=128)
    step = outlined(row)
    plain: dict[str, Any] = {"data": 1, "micro_batch": 1, "chunks": 1, "schedule": "1f1b"}
    print("tensor × pipeline   TF/s per GPU (145.6 B, 64 GPUs)")
    for tensor in (2, 4, 8, 16, 32):
        found = simulated(row, step, **plain, tensor=tensor, pipeline=64 // tensor, cuts=None)
        print(f"{tensor:6} × {64 // tensor:<8}   {rate(row, found.seconds):.0f}")
    print("micro-batches   bubble (8 stages, 1f1b)   (p - 1) / (m + p - 1)")
    for batch in (8, 16, 32, 64, 128):
        row = dataclasses.replace(row, batch=batch)
        found = simulated(row, outlined(row), **plain, tensor=8, pipeline=8)
        print(f"{batch:13}   {found.bubble:23.1%}   {7 / (batch + 7):20.1%}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plan", action="store_true", help="also let the planner choose")
    parser.add_argument("--degrees", action="store_true", help="tensor degrees, micro-batches")
    parser.add_argument("--later", action="store_true", help="figures of the next paper")
    parser.add_argument("--constants", action="store_true", help="constants changed one by one")
    asked = parser.parse_args()
    if asked.degrees:
        degrees()
    elif asked.later:
        later()
    elif asked.constants:
        constants()
    else:
        table(asked.plan)
