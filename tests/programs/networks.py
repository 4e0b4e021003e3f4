"""Networks whose depth, path or length depends on the data; modules with loops inside."""

from __future__ import annotations

import numpy as np
from programs.table import Program, f64, i64, wild

import weft
from weft import nn
from weft.nn import functional as F


def seeded(make):
    """A maker of modules that gives the same weights every time, in float64."""

    def build():
        weft.manual_seed(7)
        return make().to(weft.float64)

    return build


def dynamic_rnn(x, lengths, w, u):
    """Each sequence of a batch as long as it says, one after the other."""
    last = []
    for row, length in zip(x, lengths, strict=True):
        h = weft.zeros(w.shape[0], dtype=x.dtype)
        for t in range(length):
            h = weft.tanh(w @ h + u * row[t])
        last.append(h)
    return weft.stack(last)


def dynamic_rnn_reference(x, lengths, w, u):
    out = []
    for row, length in zip(x, lengths, strict=True):
        h = np.zeros(len(w))
        for t in range(length):
            h = np.tanh(w @ h + u * row[t])
        out.append(h)
    return np.stack(out)


def gru_by_hand(x, h, w, u):
    """A gated unit over the rows of x; stops where a row is all zero."""
    for row in x:
        if not row.any():
            break
        gates = w @ row + u @ h
        z = weft.sigmoid(gates[:2])
        candidate = weft.tanh(gates[2:] * z)
        h = (1 - z) * h + z * candidate
    return h


def lstm_early_stop(x, w, threshold=0.5):
    """An LSTM cell until the first component of its output passes a threshold."""
    h = c = weft.zeros(2, dtype=x.dtype)
    steps = 0
    while steps < x.shape[0] and h[0] < threshold:
        gates = w @ weft.concat([x[steps], h])
        i, f, g, o = weft.unstack(gates.reshape(4, 2))
        c = weft.sigmoid(f + 1) * c + weft.sigmoid(i) * weft.tanh(g)
        h = weft.sigmoid(o) * weft.tanh(c)
        steps += 1
    return h, c, steps


def attention(q, k, v, mask=None, causal=False):
    """Attention with an optional mask, and with the future hidden where asked."""
    scores = q @ k.T / q.shape[-1] ** 0.5
    if causal:
        hidden = weft.triu(weft.ones(scores.shape, dtype=weft.bool), k=1)
        scores = weft.where(hidden, -weft.inf, scores)
    if mask is not None:
        if mask.any():
            scores = weft.where(mask, scores, -1e9)
        else:
            return weft.zeros_like(v)
    return weft.softmax(scores, axis=-1) @ v


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
        rows = [self.route(row, c) * weight[c] for row, c, weight in zip(x, choices, p, strict=True)]
        return weft.stack(rows)


class Equilibrium(nn.Module):
    """A layer iterated to its fixed point without a tape, then once with it."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(0.4 * wild(3, 3))

    def forward(self, x):
        z = weft.zeros_like(x)
        with weft.no_grad():
            for count in range(50):
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


def highway(x, depth, w):
    """Gated layers, as many as a tensor says."""
    k = weft.asarray(0)
    while k < depth:
        gate = weft.sigmoid(x - 1)
        x = gate * weft.tanh(w @ x) + (1 - gate) * x
        k = k + 1
    return x


def hinge_pairs(scores, labels):
    """A ranking loss over pairs, with the cases told apart by if."""
    loss = 0.0
    pairs = 0
    for i in range(scores.shape[0]):
        for j in range(i + 1, scores.shape[0]):
            if labels[i] == labels[j]:
                continue
            margin = scores[i] - scores[j] if labels[i] > labels[j] else scores[j] - scores[i]
            if margin < 1:
                loss = loss + (1 - margin) ** 2
            pairs += 1
    return loss / pairs if pairs > 0 else loss


def masked_mean_pool(x, lengths):
    """Means over the first `lengths` rows; an empty sequence gives zeros."""
    pooled = weft.zeros((x.shape[0], x.shape[2]), dtype=x.dtype)
    for b in range(x.shape[0]):
        n = lengths[b]
        if n > 0:
            keep = weft.arange(x.shape[1]) < n
            pooled[b] = (x[b] * keep[:, None].astype(x.dtype)).sum(axis=0) / n
    return pooled


def smooth_or_sharp(x, sharp):
    """A functional block whose activation is picked from a table of Python functions."""
    table = {True: weft.relu, False: F.softplus}
    for i in range(3):
        x = table[sharp](x) if i % 2 == 0 else x - x.mean()
    return x


PROGRAMS = [
    Program("dynamic-depth rnn", dynamic_rnn,
            [(wild(2, 3), i64([1, 3]), wild(2, 2), wild(2)), (wild(2, 3), i64([0, 2]), wild(2, 2), wild(2))],
            second_order=True, reference=dynamic_rnn_reference),
    Program("gru by hand", gru_by_hand,
            [(wild(3, 2), wild(2), wild(4, 2), wild(4, 2, seed=1)),
             (f64([[1.0, 2.0], [0.0, 0.0], [3.0, 1.0]]), wild(2), wild(4, 2), wild(4, 2, seed=1))],
            second_order=True, kinks=(1,)),
    Program("lstm early stop", lstm_early_stop,
            [(wild(4, 2), wild(8, 4)), (4 * wild(4, 2), 4 * wild(8, 4, seed=2), 0.1),
             (wild(4, 2), wild(8, 4), -1.0)],
            second_order=True),
    Program("attention", attention,
            [(wild(2, 3), wild(2, 3, seed=1), wild(2, 3, seed=2)),
             (wild(2, 3), wild(2, 3, seed=1), wild(2, 3, seed=2), None, True),
             (wild(2, 3), wild(2, 3, seed=1), wild(2, 3, seed=2), weft.asarray([True, False])),
             (wild(2, 3), wild(2, 3, seed=1), wild(2, 3, seed=2), weft.asarray([False, False]))],
            second_order=True),
    Program("early exit", None, [(wild(3),), (5 * wild(3, seed=1),), (f64([0.0, 0.0, 0.0]),)],
            build=seeded(EarlyExit), second_order=True),
    Program("early exit, never sure", None, [(wild(3),), (wild(3, seed=2),)],
            build=seeded(lambda: EarlyExit(2, 0.999))),
    Program("adaptive computation time", None, [(wild(2),), (9 * wild(2, seed=1),), (-9 * wild(2),)],
            build=seeded(Ponder), second_order=True),
    Program("mixture of experts", None, [(2 * wild(4, 2),), (9 * wild(4, 2, seed=3),)],
            build=seeded(Experts), second_order=True),
    Program("equilibrium", None, [(wild(3),), (f64([0.0, 0.0, 0.0]),)], build=seeded(Equilibrium),
            smooth=False, why="the loop without a tape is a constant to it"),
    Program("residual with skips", None, [(wild(2),), (-5 * wild(2, seed=1),), (f64([3.0, -2.0]),)],
            build=seeded(Residual)),
    Program("running norm", None, [(wild(3, 2),), (2 + wild(3, 2),), (wild(1, 2),)],
            build=seeded(RunningNorm), smooth=False, why="the mean is a constant to the tape"),
    Program("running norm, eval", None, [(wild(3, 2),), (2 + wild(3, 2),)],
            build=lambda: seeded(RunningNorm)().eval()),
    Program("tied recurrent", None, [(wild(2, 2),), (wild(3, 2), 1), (wild(1, 2), 4)],
            build=seeded(Recurrent), second_order=True),
    Program("copier", None, [(i64([1, 2]),), (i64([3]), 2), (i64([0, 4, 4]),)],
            build=seeded(Copier)),
    Program("highway", highway, [(wild(2), i64(0), wild(2, 2)), (wild(2), i64(4), wild(2, 2))],
            second_order=True),
    Program("hinge over pairs", hinge_pairs,
            [(wild(4), i64([0, 1, 1, 2])), (9 * wild(3, seed=1), i64([0, 1, 2])),
             (wild(2), i64([1, 1]))], second_order=True),
    Program("masked mean pool", masked_mean_pool, [(wild(2, 3, 2), i64([1, 3])),
                                                   (wild(2, 3, 2), i64([0, 2]))]),
    Program("table of activations", smooth_or_sharp, [(wild(3), True), (wild(3), False)],
            second_order=True),
]
