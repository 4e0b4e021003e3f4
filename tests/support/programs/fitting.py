"""Optimisation and training loops, many of them with gradients inside."""

from __future__ import annotations

import numpy as np

import weft
from programs.table import Program, f64, wild


def rosenbrock(x):
    return (1 - x[0]) ** 2 + 5 * (x[1] - x[0] ** 2) ** 2


def gradient_descent(x, rate):
    """Until the gradient is small; the tape is used inside the loop."""
    x = x.detach()
    steps = 0
    while steps < 100:
        at = x.clone().requires_grad_()
        (slope,) = weft.autograd.grad(rosenbrock(at), [at])
        if (slope * slope).sum() < 1e-2:
            break
        x = x - rate * slope
        steps += 1
    return x, steps


def gradient_descent_reference(x, rate):
    steps = 0
    while steps < 100:
        inner = x[1] - x[0] ** 2
        slope = np.array([-2 * (1 - x[0]) - 20 * inner * x[0], 10 * inner])
        if slope @ slope < 1e-2:
            break
        x, steps = x - rate * slope, steps + 1
    return x, steps


def armijo(x):
    """Steepest descent on a bowl with backtracking; the slope is written out."""
    scale = weft.asarray([1.0, 10.0], dtype=x.dtype)
    for _ in range(5):
        value = (scale * x * x).sum()
        slope = 2 * scale * x
        if weft.abs(slope).max() < 1e-8:
            break
        step = 1.0
        while True:
            moved = x - step * slope
            if (scale * moved * moved).sum() <= value - 1e-4 * step * (slope * slope).sum():
                break
            step = step / 2
        x = moved
    return x


def armijo_reference(x):
    scale = np.array([1.0, 10.0])
    for _ in range(5):
        value, slope = (scale * x * x).sum(), 2 * scale * x
        if abs(slope).max() < 1e-8:
            break
        step = 1.0
        while True:
            moved = x - step * slope
            if (scale * moved**2).sum() <= value - 1e-4 * step * (slope @ slope):
                break
            step /= 2
        x = moved
    return x


def through_line_search(w, data):
    """One step along the gradient, its length found by a search; differentiable in w and data."""

    def loss(v):
        return (weft.tanh(data @ v) ** 2).sum() + 0.1 * (v * v).sum()

    here = loss(w)
    (slope,) = weft.autograd.grad(here, [w], create_graph=True)
    length = weft.ones((), dtype=w.dtype)
    tries = 0
    while loss(w - length * slope) > here - 0.3 * length * (slope * slope).sum():
        length = 0.5 * length
        tries += 1
        if tries >= 3:
            break
    return loss(w - length * slope)


def k_means(points, centres):
    """Lloyd's algorithm until no centre moves; a centre without points stays where it is."""
    while True:
        distances = ((points[:, None, :] - centres[None, :, :]) ** 2).sum(axis=-1)
        nearest = weft.argmin(distances, axis=1)
        moved = centres.clone()
        for k in range(centres.shape[0]):
            mine = (nearest == k).astype(points.dtype)
            if mine.sum() > 0:
                moved[k] = (mine[:, None] * points).sum(axis=0) / mine.sum()
        if weft.abs(moved - centres).max() < 1e-9:
            return moved, nearest
        centres = moved


def k_means_reference(points, centres):
    while True:
        nearest = ((points[:, None] - centres) ** 2).sum(-1).argmin(1)
        moved = centres.copy()
        for k in range(len(centres)):
            if (nearest == k).any():
                moved[k] = points[nearest == k].mean(axis=0)
        if abs(moved - centres).max() < 1e-9:
            return moved, nearest
        centres = moved


def lasso(x, y, penalty):
    """Coordinate descent with soft thresholds, until the weights stand still."""
    w = weft.zeros(x.shape[1], dtype=x.dtype)
    change = 1.0
    rounds = 0
    while change > 1e-7 and rounds < 100:
        old = w
        w = w.clone()
        for j in range(x.shape[1]):
            rest = y - x @ w + x[:, j] * w[j]
            rho = weft.vecdot(x[:, j], rest)
            if rho > penalty:
                new = (rho - penalty) / weft.vecdot(x[:, j], x[:, j])
            elif rho < -penalty:
                new = (rho + penalty) / weft.vecdot(x[:, j], x[:, j])
            else:
                new = 0.0 * rho
            w[j] = new
        change = weft.abs(w - old).max()
        rounds += 1
    return w


def simplex_projection(v):
    """The nearest point with positive entries that sum to 1."""
    ordered = weft.sort(v, descending=True)
    total = weft.zeros((), dtype=v.dtype)
    theta = weft.zeros((), dtype=v.dtype)
    for i, u in enumerate(ordered):
        total = total + u
        t = (total - 1) / (i + 1)
        if u - t <= 0:
            break
        theta = t
    return weft.relu(v - theta)


def simplex_reference(v):
    u = np.sort(v)[::-1]
    t = (np.cumsum(u) - 1) / np.arange(1, len(v) + 1)
    return np.maximum(v - t[np.nonzero(u - t > 0)[0][-1]], 0)


def trust_region(x):
    """Newton steps on a quartic within a region that grows and shrinks."""
    radius = weft.ones((), dtype=x.dtype)

    def f(at):
        return at**4 - 3 * at**2 + at

    for _ in range(15):
        g = 4 * x**3 - 6 * x + 1
        h = 12 * x**2 - 6
        if abs(g) < 1e-6:
            break
        step = -g / h if h > 0 else -weft.sign(g) * radius
        step = weft.clip(step, -radius, radius)
        predicted = -(g * step + 0.5 * h * step**2)
        ratio = (f(x) - f(x + step)) / predicted
        if ratio < 0.25:
            radius = radius / 4
        elif ratio > 0.75 and abs(step) >= radius:
            radius = weft.minimum(2 * radius, weft.full_like(radius, 2.0))
        x = x + step if ratio > 0.1 else x
    return x


POINTS = f64([[0.0, 0.1], [0.2, 0.0], [3.0, 3.1], [2.9, 3.0], [0.1, 0.2]])

PROGRAMS = [
    Program(
        "gradient descent",
        gradient_descent,
        [(f64([-0.5, 0.5]), 0.05), (f64([1.0, 1.0]), 0.05), (f64([0.5, 0.0]), 0.001)],
        gradients=False,
        reference=gradient_descent_reference,
    ),
    Program(
        "armijo",
        armijo,
        [(f64([1.0, 1.0]),), (f64([0.0, 0.0]),), (f64([3.0, -0.1]),)],
        second_order=True,
        kinks=(1,),
        reference=armijo_reference,
    ),
    Program(
        "through a line search",
        through_line_search,
        [
            (f64([0.5, -0.3]), wild(3, 2)),
            (f64([4.0, 3.0]), 3 * wild(3, 2, seed=2)),
            (f64([0.0, 0.0]), wild(3, 2, seed=1)),
        ],
        second_order=True,
        kinks=(2,),
    ),
    Program(
        "k-means",
        k_means,
        [
            (POINTS, f64([[0.0, 0.0], [1.0, 1.0]])),
            (POINTS, f64([[1.0, 1.0], [50.0, 50.0]])),
            (POINTS, f64([[0.1, 0.1], [2.95, 3.05]])),
        ],
        reference=k_means_reference,
    ),
    Program(
        "lasso",
        lasso,
        [
            (wild(5, 3), wild(5, seed=3), f64(0.1)),
            (wild(5, 3), wild(5, seed=3), f64(0.7)),
            (wild(5, 3), wild(5, seed=3), f64(50.0)),
            (wild(5, 3), -wild(5, seed=3), f64(0.1)),
        ],
    ),
    Program(
        "simplex projection",
        simplex_projection,
        [(f64([0.2, 0.3, 0.5]),), (f64([2.0, 0.1, -1.0]),), (f64([1.0, 0.9, 0.8, 0.1]),)],
        reference=simplex_reference,
    ),
    Program("trust region", trust_region, [(f64(0.3),), (f64(-2.0),), (f64(0.73),), (f64(-4.0),)]),
]
