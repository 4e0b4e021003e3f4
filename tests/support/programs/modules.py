"""Modules with loops, branches and state inside."""

from __future__ import annotations

import weft
from programs.table import Program, f64, i64, wild
from weft import nn


def seeded(make):
    """A maker of modules that gives the same weights every time, in float64."""

    def build():
        weft.manual_seed(7)
        return make().to(weft.float64)

    return build


class EarlyExit(nn.Module):
    """Leaves after the first layer whose guess is sure enough."""

    def __init__(self, layers=3, threshold=0.4):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, 3) for _ in range(layers)])
        self.head = nn.Linear(3, 4)
        self.threshold = threshold

    def forward(self, x):
        for depth, layer in enumerate(self.layers):
            x = weft.tanh(layer(x))
            p = weft.softmax(self.head(x))
            if p.max() > self.threshold:
                return p, depth
        return p, len(self.layers)


class Ponder(nn.Module):
    """Adaptive computation time: steps until the halting probabilities add up to one."""

    def __init__(self, limit=6):
        super().__init__()
        self.cell = nn.Linear(2, 2)
        self.halt = nn.Linear(2, 1)
        self.limit = limit

    def forward(self, x):
        state = x
        total = weft.zeros((), dtype=x.dtype)
        output = weft.zeros_like(x)
        for n in range(self.limit):
            state = weft.tanh(self.cell(state) + x)
            p = weft.sigmoid(self.halt(state))[0]
            last = total + p >= 0.99 or n == self.limit - 1
            weight = 1 - total if last else p
            output = output + weight * state
            total = total + weight
            if last:
                break
        return output, n + 1


class Experts(nn.Module):
    """Each row goes to the expert that a gate chooses."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(2, 3)
        self.experts = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2), nn.Identity()])

    def route(self, row, choice):
        if choice == 0:
            return self.experts[0](row)
        elif choice == 1:
            return weft.tanh(self.experts[1](row))
        return self.experts[2](row)

    def forward(self, x):
        p = weft.softmax(self.gate(x))
        choices = weft.argmax(p, axis=-1)
        rows = [
            self.route(row, c) * weight[c] for row, c, weight in zip(x, choices, p, strict=True)
        ]
        return weft.stack(rows)


class Equilibrium(nn.Module):
    """A layer iterated to its fixed point without a tape, then once with it."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(0.4 * wild(3, 3))

    def forward(self, x):
        z = weft.zeros_like(x)
        with weft.no_grad():
            for count in range(50):  # noqa: B007
                new = weft.tanh(self.weight @ z + x)
                if weft.abs(new - z).max() < 1e-7:
                    break
                z = new
        return weft.tanh(self.weight @ z + x), count


class Residual(nn.Module):
    """Blocks that are skipped where they change little; flags are Python attributes."""

    def __init__(self, depth=3, skip=True):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(2, 2, bias=i % 2 == 0) for i in range(depth)])
        self.skip = skip

    def forward(self, x):
        used = 0
        for i, block in enumerate(self.blocks):
            change = weft.relu(block(x))
            if self.skip and i > 0 and change.sum() < 0.1:
                continue
            x = x + change
            used += 1
        return x, used


class RunningNorm(nn.Module):
    """Normalises by running statistics, kept in buffers that forward writes while training."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", weft.zeros(2))
        self.register_buffer("seen", weft.zeros(()))

    def forward(self, x):
        if self.training:
            batch = x.mean(axis=0)
            if self.seen == 0:
                self.mean = batch.detach()
            else:
                self.mean = 0.9 * self.mean + 0.1 * batch.detach()
            self.seen += 1
        return x - self.mean, self.seen.clone()


class Recurrent(nn.Module):
    """A stack of layers, each tied over time, as deep as an argument says."""

    def __init__(self):
        super().__init__()
        self.cell = nn.Linear(2, 2)
        self.out = nn.Sequential(nn.Tanh(), nn.Linear(2, 1))

    def step(self, h, x):
        return weft.tanh(self.cell(h) + x)

    def forward(self, x, depth=2):
        h = weft.zeros_like(x[0])
        for row in x:
            for _ in range(depth):
                h = self.step(h, row)
        return self.out(h)


class Copier(nn.Module):
    """Writes a sequence until it predicts the end, with its own outputs as inputs."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(5, 3)
        self.mix = nn.Linear(3, 3)
        self.head = nn.Linear(3, 5)

    def forward(self, prompt, limit=6):
        state = weft.zeros(3, dtype=self.mix.weight.dtype)
        for token in prompt:
            state = weft.tanh(self.mix(state) + self.embed(token))
        out = weft.full((limit,), -1, dtype=weft.int64)
        score = weft.zeros((), dtype=state.dtype)
        n = 0
        while n < limit:
            logp = weft.log_softmax(self.head(state))
            token = weft.argmax(logp)
            score = score + logp[token]
            out[n] = token
            n += 1
            if token == 0 or token == prompt[-1]:
                break
            state = weft.tanh(self.mix(state) + self.embed(token))
        return score, out


PROGRAMS = [
    Program(
        "early exit",
        None,
        [(wild(3),), (5 * wild(3, seed=1),), (f64([0.0, 0.0, 0.0]),)],
        build=seeded(EarlyExit),
        second_order=True,
    ),
    Program(
        "early exit, never sure",
        None,
        [(wild(3),), (wild(3, seed=2),)],
        build=seeded(lambda: EarlyExit(2, 0.999)),
    ),
    Program(
        "adaptive computation time",
        None,
        [(wild(2),), (9 * wild(2, seed=1),), (-9 * wild(2),)],
        build=seeded(Ponder),
        second_order=True,
    ),
    Program(
        "mixture of experts",
        None,
        [(2 * wild(4, 2),), (9 * wild(4, 2, seed=3),)],
        build=seeded(Experts),
        second_order=True,
    ),
    Program(
        "equilibrium",
        None,
        [(wild(3),), (f64([0.0, 0.0, 0.0]),)],
        build=seeded(Equilibrium),
        smooth=False,
        why="the loop without a tape is a constant to it",
    ),
    Program(
        "residual with skips",
        None,
        [(wild(2),), (-5 * wild(2, seed=1),), (f64([3.0, -2.0]),)],
        build=seeded(Residual),
    ),
    Program(
        "running norm",
        None,
        [(wild(3, 2),), (2 + wild(3, 2),), (wild(1, 2),)],
        build=seeded(RunningNorm),
        smooth=False,
        why="the mean is a constant to the tape",
    ),
    Program(
        "running norm, eval",
        None,
        [(wild(3, 2),), (2 + wild(3, 2),)],
        build=lambda: seeded(RunningNorm)().eval(),
    ),
    Program(
        "tied recurrent",
        None,
        [(wild(2, 2),), (wild(3, 2), 1), (wild(1, 2), 4)],
        build=seeded(Recurrent),
        second_order=True,
    ),
    Program(
        "copier", None, [(i64([1, 2]),), (i64([3]), 2), (i64([0, 4, 4]),)], build=seeded(Copier)
    ),
]
