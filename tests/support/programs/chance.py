"""Random draws inside control flow: with the same seed, the same numbers in every mode."""

from __future__ import annotations

import weft
from programs.table import Program, f64, i64, wild


def rejection_sampling(scale):
    """A point in the unit disc: draw until it is inside."""
    tries = 0
    while True:
        point = 2 * weft.rand(2, dtype=scale.dtype) - 1
        tries += 1
        if (point * point).sum() < 1:
            break
    return point * scale, tries


def rejection_with_density(slope):
    """Three draws from a density that rises, each by rejection; a list of results."""
    drawn = []
    for _ in range(3):
        accepted = False
        while not accepted:
            u, v = weft.rand(dtype=slope.dtype), weft.rand(dtype=slope.dtype)
            accepted = v * (1 + slope) < 1 + slope * u
        drawn.append(u * slope)
    return weft.stack(drawn)


def random_walk(start, barrier):
    """Until it leaves an interval, at most 60 steps."""
    x = start
    steps = 0
    while weft.abs(x) < barrier and steps < 60:
        x = x + weft.randn(dtype=x.dtype) * 0.8
        steps += 1
    return x, steps


def metropolis(x, steps):
    """MCMC on a normal density: accept or reject; the share of accepted moves."""
    accepted = 0
    energy = 0.5 * (x * x).sum()
    for _ in range(steps):
        proposal = x + 0.9 * weft.randn_like(x)
        new = 0.5 * (proposal * proposal).sum()
        if new < energy or weft.rand(dtype=x.dtype) < weft.exp(energy - new):
            x, energy = proposal, new
            accepted += 1
    return x, accepted / steps


def annealing(x):
    """Simulated annealing on a wavy line, while it cools."""

    def cost(at):
        return at * at + 2 * weft.sin(5 * at)

    best, temperature = x, 1.0
    while temperature > 0.1:
        candidate = x + temperature * weft.normal(0.0, 1.0, (), dtype=x.dtype)
        gain = cost(x) - cost(candidate)
        if gain > 0 or weft.rand(dtype=x.dtype) < weft.exp(gain / temperature):
            x = candidate
        if cost(x) < cost(best):
            best = x
        temperature *= 0.8
    return best


def gibbs(mean, correlation):
    """Alternating draws of two correlated normals; restarts where one goes far out."""
    x = y = weft.zeros_like(mean)
    restarts = 0
    spread = weft.sqrt(1 - correlation**2)
    for _ in range(5):
        x = mean + correlation * (y - mean) + spread * weft.randn(dtype=mean.dtype)
        y = mean + correlation * (x - mean) + spread * weft.randn(dtype=mean.dtype)
        if weft.abs(x - mean) > 1.5:
            x = y = mean
            restarts += 1
    return x, y, restarts


def own_generator(x):
    """A generator with a seed of its own, inside the function."""
    generator = weft.Generator(11)
    for _ in range(4):
        if weft.rand(generator=generator) > 0.5:
            x = x * 2
        else:
            x = x + weft.randn(dtype=x.dtype, generator=generator)
    return x


def stochastic_depth(x, p, training):
    """Layers that are dropped by a coin, in training."""
    for _ in range(4):
        if training:
            if weft.rand(dtype=x.dtype) < p:
                continue
            x = x + weft.tanh(x) / (1 - p)
        else:
            x = x + weft.tanh(x)
    return x


def dropout_until_dense(x):
    """Masks until at least half of one is kept."""
    while True:
        mask = weft.bernoulli(0.4, x.shape)
        if mask.mean() >= 0.5:
            return x * mask.astype(x.dtype)


def coupon_collector(n):
    """Draws until each of n coupons was seen."""
    seen = weft.zeros(n, dtype=weft.bool)
    draws = 0
    while not seen.all():
        seen[weft.randint(n)] = True
        draws += 1
        if draws == 15:
            break
    return draws


def resampling(particles, weights):
    """A particle filter's step: resample where few particles carry the weight."""
    weights = weights / weights.sum()
    if 1 / (weights * weights).sum() < 0.7 * weights.shape[0]:
        sums = weft.cumulative_sum(weights)
        places = weft.zeros(weights.shape, dtype=weft.int64)
        start = weft.rand(dtype=weights.dtype) / weights.shape[0]
        j = 0
        for i in range(weights.shape[0]):
            while sums[j] < start + i / weights.shape[0]:
                j += 1
            places[i] = j
        particles = particles[places]
    return particles + 0.1 * weft.randn_like(particles)


def shuffled_epochs(x, epochs):
    """A pass over rows in a random order, until the weight is settled."""
    w = weft.zeros_like(x[0])
    for _ in range(epochs):
        for i in weft.permutation(x.shape[0]):
            w = w + 0.3 * (x[i] - w)
        if weft.abs(w).max() < 0.1:
            break
    return w


def drawn_on_one_path(x):
    """Draws on one side only: the numbers after it depend on the path."""
    if x.sum() > 0:
        x = x + weft.rand(2, dtype=x.dtype)
    return x * weft.rand(2, dtype=x.dtype)


def gumbel_choice(logits):
    """A random choice, then a branch by it."""
    noise = -weft.log(-weft.log(weft.rand_like(logits)))
    choice = weft.argmax(logits + noise)
    if choice == 0:
        return logits * 2, choice
    elif choice == 1:
        return logits.sum() * weft.ones_like(logits), choice
    return -logits, choice


PROGRAMS = [
    Program("rejection sampling", rejection_sampling, [(f64(1.0),), (f64(2.5),)], random=True),
    Program(
        "rejection with a density", rejection_with_density, [(f64(0.5),), (f64(3.0),)], random=True
    ),
    Program(
        "random walk",
        random_walk,
        [(f64(0.0), 2.0), (f64(3.0), 2.0), (f64(0.0), 1e9)],
        random=True,
        second_order=True,
    ),
    Program("metropolis", metropolis, [(wild(2), 8), (5 * wild(2), 5)], random=True),
    Program("annealing", annealing, [(f64(2.0),), (f64(-1.0),)], random=True),
    Program(
        "gibbs", gibbs, [(f64(0.0), f64(0.5)), (f64(1.0), f64(0.9))], random=True, second_order=True
    ),
    Program("own generator", own_generator, [(f64([1.0, 2.0]),), (f64([0.0]),)], random=True),
    Program(
        "stochastic depth",
        stochastic_depth,
        [(wild(2), f64(0.5), True), (wild(2), f64(0.5), False), (wild(2), f64(0.1), True)],
        random=True,
    ),
    Program("dropout until dense", dropout_until_dense, [(wild(4),), (wild(5),)], random=True),
    Program("coupon collector", coupon_collector, [(2,), (5,), (12,)], random=True),
    Program(
        "resampling",
        resampling,
        [(wild(4), f64([0.1, 0.1, 0.1, 0.7])), (wild(4), f64([0.25, 0.25, 0.25, 0.25]))],
        random=True,
    ),
    Program(
        "shuffled epochs", shuffled_epochs, [(wild(3, 2), 2), (0.01 * wild(2, 2), 3)], random=True
    ),
    Program(
        "drawn on one path",
        drawn_on_one_path,
        [(f64([1.0, 2.0]),), (f64([-1.0, 0.0]),)],
        random=True,
    ),
    Program(
        "gumbel choice",
        gumbel_choice,
        [(wild(3),), (wild(3, seed=2),), (f64([9.0, 0.0, 0.0]),), (f64([0.0, 0.0, 9.0]),)],
        random=True,
    ),
    Program(
        "coin of an integer seed",
        lambda x, n: x * weft.rand(dtype=x.dtype) if n > 0 else x,
        [(f64(2.0), i64(1)), (f64(2.0), i64(0))],
        random=True,
    ),
]
