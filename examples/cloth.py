"""Cloth falls on a ball. Contact is a condition on values; a gradient aims the throw."""

import numpy as np
from gallery import show

import weft
from weft import optim

SIDE, TICKS, DT = 16, 80, 0.01
RADIUS, BALL = 0.35, (0.0, 0.0, 0.0)


def springs():
    """Pairs of neighbours, along the sides and the diagonals, and their lengths."""
    grid = np.arange(SIDE * SIDE).reshape(SIDE, SIDE)
    lines = [(grid[1:], grid[:-1]), (grid[:, 1:], grid[:, :-1])]
    lines += [(grid[1:, 1:], grid[:-1, :-1]), (grid[1:, :-1], grid[:-1, 1:])]
    pairs = np.concatenate([np.stack(line, -1).reshape(-1, 2) for line in lines])
    incidence = np.zeros((SIDE * SIDE, len(pairs)), np.float32)
    incidence[pairs[:, 0], np.arange(len(pairs))] = 1
    incidence[pairs[:, 1], np.arange(len(pairs))] = -1
    return pairs, incidence


def build():
    weft.manual_seed(0)
    line = np.linspace(-0.5, 0.5, SIDE, dtype=np.float32)
    x, y = np.meshgrid(line, line)
    start = weft.tensor(np.stack([x - 0.6, y, np.full_like(x, 0.7)], -1).reshape(-1, 3))
    pairs, incidence = springs()
    first, second = weft.tensor(pairs[:, 0]), weft.tensor(pairs[:, 1])
    spread = weft.tensor(incidence)  # forces of springs to forces on points
    apart = start.numpy()[pairs[:, 0]] - start.numpy()[pairs[:, 1]]
    rest = weft.tensor(np.linalg.norm(apart, axis=1))
    ball, gravity = weft.tensor(BALL), weft.tensor([0.0, 0.0, -9.8])
    goal = weft.tensor([0.0, 0.0, 0.1])
    throw = weft.zeros(3).requires_grad_()
    optimizer = optim.Adam([throw], lr=0.1)

    def simulate():
        x, v = start, weft.zeros((SIDE * SIDE, 3)) + throw
        frames = []
        for _ in range(TICKS):
            apart = x[first] - x[second]
            length = weft.sqrt((apart**2).sum(axis=1) + 1e-9)
            pull = (-800.0 * (length - rest) / length)[:, None] * apart
            damp = -2.0 * (v[first] - v[second])
            v = v + DT * (spread @ (pull + damp) + gravity - 0.5 * v)
            x = x + DT * v
            out = x - ball
            distance = weft.sqrt((out**2).sum(axis=1) + 1e-9)[:, None]
            touching = distance < RADIUS
            normal = out / distance
            inward = weft.clip((v * normal).sum(axis=1)[:, None], -100.0, 0.0)
            slide = 0.9 * (v - inward * normal)  # friction
            x = weft.where(touching, ball + RADIUS * normal, x)
            v = weft.where(touching, slide, v)
            frames.append(x)
        return weft.stack(frames)

    @weft.compile
    def step():
        """Throw the cloth; move the throw so that its middle ends on the ball."""
        optimizer.zero_grad()
        frames = simulate()
        middle = frames[-1].mean(axis=0)
        loss = ((middle - goal) ** 2).sum()
        loss.backward()
        optimizer.step()
        return loss, frames.detach()

    return step, throw


def run(steps=60):
    step, throw = build()
    losses, cloths = [], []
    for _ in range(steps):
        loss, frames = step()
        losses.append(loss.item())
        cloths.append(frames.numpy())
    speed = ", ".join(f"{part:.2f}" for part in throw.detach().numpy())
    return {
        "summary": f"off by {losses[0] ** 0.5:.3f}, after {steps} throws {losses[-1] ** 0.5:.3f}"
        f" with speed ({speed})",
        "cloths": (cloths[0], cloths[-1]),
    }


def draw(figure, result):
    u, w = np.mgrid[0 : 2 * np.pi : 20j, 0 : np.pi : 12j]
    sphere = [RADIUS * np.cos(u) * np.sin(w), RADIUS * np.sin(u) * np.sin(w), RADIUS * np.cos(w)]
    for i, (frames, name) in enumerate(zip(result["cloths"], ("first throw", "last throw"))):
        axes = figure.add_subplot(1, 2, i + 1, projection="3d")
        axes.plot_surface(*sphere, color="tab:orange", alpha=0.6)
        axes.plot_wireframe(*frames[-1].reshape(SIDE, SIDE, 3).transpose(2, 0, 1), linewidth=0.6)
        axes.set(title=name, xlim=(-1, 1), ylim=(-1, 1), zlim=(-1.5, 0.5))
        axes.view_init(20, -70)


if __name__ == "__main__":
    show(run, draw, (7, 3.4))
