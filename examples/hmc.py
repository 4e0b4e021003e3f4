"""Hamiltonian Monte Carlo: 100 chains sample a banana-shaped density by its gradient."""

import numpy as np
from gallery import show

import weft

CHAINS, LEAPS = 100, 20


def log_density(x):
    """Of one point: a Gaussian, bent along a parabola."""
    return -(x[0] ** 2) / 8 - 2 * (x[1] - x[0] ** 2 / 4 + 1) ** 2


def build(size=0.15):
    weft.manual_seed(0)
    slope = weft.vmap(weft.grad(log_density))
    height = weft.vmap(log_density)

    @weft.compile
    def move(x):
        """One step of all chains: leapfrog along the gradient, then accept or stay."""
        momentum = weft.randn((CHAINS, 2))
        before = height(x) - (momentum**2).sum(axis=1) / 2
        new = x
        momentum = momentum + size / 2 * slope(new)
        for i in range(LEAPS):
            new = new + size * momentum
            momentum = momentum + (size if i < LEAPS - 1 else size / 2) * slope(new)
        after = height(new) - (momentum**2).sum(axis=1) / 2
        accepted = weft.log(weft.rand(CHAINS)) < after - before
        return weft.where(accepted[:, None], new, x), accepted

    x = weft.randn((CHAINS, 2))

    def step():
        nonlocal x
        x, accepted = move(x)
        return x, accepted

    return step, None


def run(steps=200):
    step, _ = build()
    draws = [tuple(part.numpy() for part in step()) for _ in range(steps)]
    points = np.concatenate([x for x, _ in draws[steps // 5 :]])
    rate = np.mean([accepted.mean() for _, accepted in draws])
    return {
        "summary": f"{rate:.0%} accepted; variance of x {points[:, 0].var():.2f}, exact 4",
        "points": points,
    }


def draw(figure, result):
    axes = figure.subplots()
    x, y = np.meshgrid(np.linspace(-7, 7, 200), np.linspace(-3, 9, 200))
    axes.contour(x, y, np.exp(log_density(np.stack([x, y]))), levels=6, linewidths=0.8)
    axes.scatter(*result["points"][::10].T, s=2, color="tab:orange")
    axes.set(xlim=(-7, 7), ylim=(-3, 9))


if __name__ == "__main__":
    show(run, draw, (4, 3))
