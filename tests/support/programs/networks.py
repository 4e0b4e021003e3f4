"""Networks whose depth, path or length depends on the data; modules with loops inside."""

from __future__ import annotations

import numpy as np

import weft
from programs.table import Program, f64, i64, wild
from weft.nn import functional as F


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
    Program(
        "dynamic-depth rnn",
        dynamic_rnn,
        [
            (wild(2, 3), i64([1, 3]), wild(2, 2), wild(2)),
            (wild(2, 3), i64([0, 2]), wild(2, 2), wild(2)),
        ],
        second_order=True,
        reference=dynamic_rnn_reference,
    ),
    Program(
        "gru by hand",
        gru_by_hand,
        [
            (wild(3, 2), wild(2), wild(4, 2), wild(4, 2, seed=1)),
            (f64([[1.0, 2.0], [0.0, 0.0], [3.0, 1.0]]), wild(2), wild(4, 2), wild(4, 2, seed=1)),
        ],
        second_order=True,
        kinks=(1,),
    ),
    Program(
        "lstm early stop",
        lstm_early_stop,
        [
            (wild(4, 2), wild(8, 4)),
            (4 * wild(4, 2), 4 * wild(8, 4, seed=2), 0.1),
            (wild(4, 2), wild(8, 4), -1.0),
        ],
        second_order=True,
    ),
    Program(
        "attention",
        attention,
        [
            (wild(2, 3), wild(2, 3, seed=1), wild(2, 3, seed=2)),
            (wild(2, 3), wild(2, 3, seed=1), wild(2, 3, seed=2), None, True),
            (wild(2, 3), wild(2, 3, seed=1), wild(2, 3, seed=2), weft.asarray([True, False])),
            (wild(2, 3), wild(2, 3, seed=1), wild(2, 3, seed=2), weft.asarray([False, False])),
        ],
        second_order=True,
    ),
    Program(
        "highway",
        highway,
        [(wild(2), i64(0), wild(2, 2)), (wild(2), i64(4), wild(2, 2))],
        second_order=True,
    ),
    Program(
        "hinge over pairs",
        hinge_pairs,
        [
            (wild(4), i64([0, 1, 1, 2])),
            (9 * wild(3, seed=1), i64([0, 1, 2])),
            (wild(2), i64([1, 1])),
        ],
        second_order=True,
    ),
    Program(
        "masked mean pool",
        masked_mean_pool,
        [(wild(2, 3, 2), i64([1, 3])), (wild(2, 3, 2), i64([0, 2]))],
    ),
    Program(
        "table of activations",
        smooth_or_sharp,
        [(wild(3), True), (wild(3), False)],
        second_order=True,
    ),
]
