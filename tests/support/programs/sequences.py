"""Dynamic programming and decoding over sequences."""

# ruff: noqa: SIM108 - both ways to write a choice are meant

from __future__ import annotations

import itertools

import numpy as np

import weft
from programs.table import Program, f64, i64, wild


def levenshtein(a, b):
    """Edit distance of two integer sequences, one row kept."""
    row = weft.arange(b.shape[0] + 1)
    for i, x in enumerate(a):
        diagonal = row[0]
        row[0] = i + 1
        for j, y in enumerate(b):
            above = row[j + 1]
            if x == y:
                best = diagonal
            else:
                best = 1 + weft.minimum(diagonal, weft.minimum(above, row[j]))
            diagonal = above
            row[j + 1] = best
    return row[-1]


def levenshtein_reference(a, b):
    table = np.zeros((len(a) + 1, len(b) + 1), int)
    table[:, 0], table[0] = np.arange(len(a) + 1), np.arange(len(b) + 1)
    for i, j in itertools.product(range(len(a)), range(len(b))):
        change = table[i, j] + (a[i] != b[j])
        table[i + 1, j + 1] = min(change, table[i, j + 1] + 1, table[i + 1, j] + 1)
    return table[-1, -1]


def longest_common_subsequence(a, b):
    """Its length, by a full table of writes."""
    table = weft.zeros((len(a) + 1, len(b) + 1), dtype=weft.int64)
    for i in range(len(a)):
        for j in range(len(b)):
            if a[i] == b[j]:
                table[i + 1, j + 1] = table[i, j] + 1
            elif table[i, j + 1] >= table[i + 1, j]:
                table[i + 1, j + 1] = table[i, j + 1]
            else:
                table[i + 1, j + 1] = table[i + 1, j]
    return table[len(a), len(b)]


def lcs_reference(a, b):
    if not len(a) or not len(b):
        return 0
    if a[-1] == b[-1]:
        return 1 + lcs_reference(a[:-1], b[:-1])
    return max(lcs_reference(a[:-1], b), lcs_reference(a, b[:-1]))


def time_warping(x, y):
    """Dynamic time warping; the path of least cost carries the gradient."""
    n, m = x.shape[0], y.shape[0]
    cost = weft.full((n + 1, m + 1), weft.inf, dtype=x.dtype)
    cost[0, 0] = 0.0
    for i in range(1, n + 1):
        for j in range(1, m + 1):
            step = (x[i - 1] - y[j - 1]) ** 2
            best = cost[i - 1, j - 1]
            if cost[i - 1, j] < best:
                best = cost[i - 1, j]
            if cost[i, j - 1] < best:
                best = cost[i, j - 1]
            cost[i, j] = step + best
    return cost[n, m]


def warping_reference(x, y):
    cost = np.full((len(x) + 1, len(y) + 1), np.inf)
    cost[0, 0] = 0
    for i, j in itertools.product(range(len(x)), range(len(y))):
        cost[i + 1, j + 1] = (x[i] - y[j]) ** 2 + min(cost[i, j], cost[i, j + 1], cost[i + 1, j])
    return cost[-1, -1]


def viterbi(emissions, transitions):
    """The best path of states and its score."""
    score = emissions[0]
    back = []
    for t in range(1, emissions.shape[0]):
        all_scores = score[:, None] + transitions
        back.append(weft.argmax(all_scores, axis=0))
        score = all_scores.max(axis=0) + emissions[t]
    state = weft.argmax(score)
    path = [state]
    for pointers in reversed(back):
        state = pointers[state]
        path.append(state)
    path.reverse()
    return score.max(), weft.stack(path)


def viterbi_reference(emissions, transitions):
    steps, states = emissions.shape

    def score(path):
        moves = sum(transitions[a, b] for a, b in itertools.pairwise(path))
        return moves + sum(emissions[t, s] for t, s in enumerate(path))

    best = max(itertools.product(range(states), repeat=steps), key=score)
    return score(best), np.array(best)


def hmm_forward(start, move, emit, observed):
    """The likelihood of a sequence of symbols, scaled in each step; stops if it is impossible."""
    alpha = start * emit[:, observed[0]]
    log_likelihood = weft.log(alpha.sum())
    alpha = alpha / alpha.sum()
    for symbol in observed[1:]:
        alpha = (alpha @ move) * emit[:, symbol]
        total = alpha.sum()
        if total <= 0:
            return weft.full_like(log_likelihood, -weft.inf)
        log_likelihood = log_likelihood + weft.log(total)
        alpha = alpha / total
    return log_likelihood


def hmm_reference(start, move, emit, observed):
    total = 0.0
    for path in itertools.product(range(len(start)), repeat=len(observed)):
        p = start[path[0]] * emit[path[0], observed[0]]
        for a, b, o in zip(path, path[1:], observed[1:], strict=False):
            p *= move[a, b] * emit[b, o]
        total += p
    with np.errstate(divide="ignore"):
        return np.log(total)


def ctc_forward(log_probs, target):
    """The CTC loss of one sequence, blank 0, by the forward recursion."""
    length = 2 * target.shape[0] + 1
    labels = weft.zeros(length, dtype=weft.int64)
    for i, symbol in enumerate(target):
        labels[2 * i + 1] = symbol
    alpha = weft.full((length,), -1e30, dtype=log_probs.dtype)
    alpha[0] = log_probs[0, 0]
    if length > 1:
        alpha[1] = log_probs[0, labels[1]]
    for t in range(1, log_probs.shape[0]):
        new = alpha.clone()
        for s in range(length):
            total = alpha[s]
            if s > 0:
                total = weft.logaddexp(total, alpha[s - 1])
            if s > 1 and labels[s] != 0 and labels[s] != labels[s - 2]:
                total = weft.logaddexp(total, alpha[s - 2])
            new[s] = total + log_probs[t, labels[s]]
        alpha = new
    if length == 1:
        return -alpha[0]
    return -weft.logaddexp(alpha[length - 1], alpha[length - 2])


def ctc_reference(log_probs, target):
    total = 0.0
    for path in itertools.product(range(log_probs.shape[1]), repeat=len(log_probs)):
        merged = [k for k, _ in itertools.groupby(path) if k != 0]
        if merged == list(target):
            total += np.exp(sum(log_probs[t, s] for t, s in enumerate(path)))
    return -np.log(total)


def beam_search(scores, width):
    """The best sequences under a table of next-token scores; token 0 ends a sequence."""
    tokens = scores.shape[0]
    totals = weft.full((width,), -1e9, dtype=scores.dtype)
    totals[0] = 0.0
    last = weft.full((width,), tokens - 1, dtype=weft.int64)
    done = weft.zeros(width, dtype=weft.bool)
    history = []
    for _ in range(4):
        if done.all():
            break
        grown = totals[:, None] + weft.where(done[:, None], -1e9, scores[last])
        grown[:, 0] = weft.where(done, totals, grown[:, 0])
        flat = grown.reshape(-1)
        order = weft.argsort(flat, descending=True)[:width]
        totals = flat[order]
        beam, last = order // tokens, order % tokens
        done = done[beam] | (last == 0)
        history.append(last)
    return totals, history[-1], weft.asarray(len(history))


def greedy_decode(table, start):
    """Follow the best next token until the end token, or a token that was seen before."""
    token = start
    seen = weft.zeros(table.shape[0], dtype=weft.bool)
    score = weft.zeros((), dtype=table.dtype)
    out = []
    while token != 0 and not seen[token]:
        seen[token] = True
        out.append(token)
        logp = weft.log_softmax(table[token])
        token = weft.argmax(logp)
        score = score + logp[token]
    return score, len(out)


def knapsack(weights, values, capacity):
    """The best value within a capacity; weights are tensors, used as bounds of a loop."""
    best = weft.zeros(capacity + 1, dtype=values.dtype)
    for w, v in zip(weights, values, strict=True):
        for room in range(capacity, w - 1, -1):
            if (candidate := best[room - w] + v) > best[room]:
                best[room] = candidate
    return best[capacity]


def knapsack_reference(weights, values, capacity):
    best = 0.0
    for chosen in itertools.product([0, 1], repeat=len(weights)):
        if np.dot(chosen, weights) <= capacity:
            best = max(best, np.dot(chosen, values))
    return best


def matrix_chain(sizes):
    """The least number of products for a chain of matrices."""
    n = sizes.shape[0] - 1
    cost = weft.zeros((n, n), dtype=sizes.dtype)
    for length in range(2, n + 1):
        for i in range(n - length + 1):
            j = i + length - 1
            best = weft.asarray(weft.iinfo(sizes.dtype).max)
            for k in range(i, j):
                c = cost[i, k] + cost[k + 1, j] + sizes[i] * sizes[k + 1] * sizes[j + 1]
                best = c if c < best else best
            cost[i, j] = best
    return cost[0, n - 1]


def matrix_chain_reference(sizes):
    if len(sizes) <= 2:
        return 0
    return min(
        matrix_chain_reference(sizes[: k + 1])
        + matrix_chain_reference(sizes[k:])
        + sizes[0] * sizes[k] * sizes[-1]
        for k in range(1, len(sizes) - 1)
    )


def maximum_subarray(x):
    """Kadane's algorithm: the largest sum of neighbours."""
    best = current = x[0]
    for value in x[1:]:
        current = value if current < 0 else current + value
        if current > best:
            best = current
    return best


def run_lengths(x):
    """How long the runs of equal values are: counts in place, and how many runs."""
    counts = weft.zeros(x.shape, dtype=weft.int64)
    run = 0
    counts[0] = 1
    for i in range(1, x.shape[0]):
        if x[i] != x[i - 1]:
            run += 1
        counts[run] += 1
    return counts, run + 1


def run_lengths_reference(x):
    runs = [len(list(group)) for _, group in itertools.groupby(x)]
    return np.array(runs + [0] * (len(x) - len(runs))), len(runs)


def increasing_subsequence(x):
    """The length of the longest increasing subsequence."""
    n = len(x)
    longest = weft.ones(n, dtype=weft.int64)
    for i in range(n):
        for j in range(i):
            if x[j] < x[i] and longest[j] + 1 > longest[i]:
                longest[i] = longest[j] + 1
    return longest.max()


EMIT = f64([[0.5, 0.5, 0.0], [0.1, 0.2, 0.7]])
MOVE = f64([[0.7, 0.3], [0.4, 0.6]])
LOGP = f64(np.log(np.array([[0.2, 0.5, 0.3], [0.4, 0.3, 0.3], [0.3, 0.3, 0.4], [0.5, 0.2, 0.3]])))

PROGRAMS = [
    Program(
        "levenshtein",
        levenshtein,
        [(i64([1, 2, 3, 4]), i64([2, 3, 5])), (i64([1, 2]), i64([1, 2])), (i64([7]), i64([8, 9]))],
        gradients=False,
        reference=levenshtein_reference,
    ),
    Program(
        "longest common subsequence",
        longest_common_subsequence,
        [(i64([1, 3, 4, 1]), i64([3, 1, 4])), (i64([1, 2]), i64([3, 4]))],
        gradients=False,
        reference=lcs_reference,
    ),
    Program(
        "time warping",
        time_warping,
        [(f64([1.0, 2.0, 3.5]), f64([1.1, 1.2, 3.0, 3.3])), (f64([0.0]), f64([2.0, 1.0]))],
        second_order=True,
        reference=warping_reference,
    ),
    Program(
        "viterbi",
        viterbi,
        [(wild(4, 3), wild(3, 3, seed=1)), (wild(1, 2), wild(2, 2))],
        reference=viterbi_reference,
    ),
    Program(
        "hmm forward",
        hmm_forward,
        [
            (f64([0.6, 0.4]), MOVE, EMIT, i64([0, 1, 2])),
            (f64([0.6, 0.4]), MOVE, EMIT, i64([1])),
            (f64([1.0, 0.0]), f64([[1.0, 0.0], [0.0, 1.0]]), EMIT, i64([0, 2, 0])),
        ],
        gradients=(0, 1),
        reference=hmm_reference,
        smooth=False,
    ),
    Program(
        "ctc forward",
        ctc_forward,
        [(LOGP, i64([1, 2])), (LOGP, i64([1, 1])), (LOGP, i64(np.zeros(0, int)))],
        second_order=True,
        reference=ctc_reference,
    ),
    Program(
        "beam search",
        beam_search,
        [(wild(4, 4), 2), (wild(4, 4, seed=3), 3), (f64([[0.0, -5.0], [0.0, -5.0]]), 1)],
    ),
    Program(
        "greedy decode",
        greedy_decode,
        [(wild(4, 4, seed=1), i64(3)), (wild(4, 4, seed=1), i64(0)), (wild(4, 4, seed=5), i64(2))],
        second_order=True,
    ),
    Program(
        "knapsack",
        knapsack,
        [(i64([1, 3, 4]), f64([1.5, 4.0, 5.0]), 7), (i64([5, 9]), f64([1.0, 2.0]), 4)],
        reference=knapsack_reference,
    ),
    Program(
        "matrix chain",
        matrix_chain,
        [(i64([10, 30, 5, 60]),), (i64([3, 4]),), (i64([4, 3, 2, 5, 2]),)],
        gradients=False,
        reference=matrix_chain_reference,
    ),
    Program(
        "maximum subarray",
        maximum_subarray,
        [(f64([1.0, -3.0, 2.0, 3.0, -1.0]),), (f64([-2.0, -1.0]),), (f64([4.0]),)],
        second_order=True,
        reference=lambda x: max(
            x[i:j].sum() for i in range(len(x)) for j in range(i + 1, len(x) + 1)
        ),
    ),
    Program(
        "run lengths",
        run_lengths,
        [(i64([3, 3, 1, 1, 1, 2]),), (i64([5]),), (i64([1, 2, 1]),)],
        gradients=False,
        reference=run_lengths_reference,
    ),
    Program(
        "increasing subsequence",
        increasing_subsequence,
        [(f64([3.0, 1.0, 2.0, 5.0, 4.0]),), (f64([3.0, 2.0, 1.0]),)],
        gradients=False,
    ),
]
