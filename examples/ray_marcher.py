"""A differentiable ray marcher finds the ball that made a picture: inverse rendering."""

import numpy as np
from gallery import show

import weft
from weft import nn, optim

SIZE = 40


def rays():
    line = np.linspace(-0.7, 0.7, SIZE, dtype=np.float32)
    x, y = np.meshgrid(line, -line)
    ways = np.stack([x, y, np.full_like(x, 1.5)], -1)
    return (ways / np.linalg.norm(ways, axis=-1, keepdims=True)).reshape(-1, 3)


def distance(p, ball):
    """To the nearest thing: the ball (its middle and radius), or the floor."""
    sphere = weft.sqrt(((p - ball[:3]) ** 2).sum(axis=1) + 1e-9) - ball[3]
    return weft.minimum(sphere, p[:, 1] + 1.0), sphere


def render(ball, ways, light):
    depth = weft.zeros(len(ways))
    gap, ticks = weft.ones(len(ways)), 0
    while (gap > 1e-3).any() and ticks < 40:  # until every ray has arrived, or gave up
        gap, _ = distance(depth[:, None] * ways, ball)
        gap = weft.where(depth > 8, 0.0, gap)
        depth = depth + gap
        ticks = ticks + 1
    p = depth[:, None] * ways
    _, sphere = distance(p, ball)
    inside = weft.sigmoid(-40.0 * (sphere - 0.03))  # soft, so that the outline has a gradient
    normal = (p - ball[:3]) / ball[3]
    bright = weft.relu((normal * light).sum(axis=1))
    shadow = weft.exp(-6.0 * ((p - ball[:3])[:, 0] ** 2 + (p - ball[:3])[:, 2] ** 2))
    floor = weft.where(depth > 8, 0.2, 0.6 - 0.4 * shadow)
    return inside * (0.1 + 0.9 * bright) + (1 - inside) * floor


def build(lr=0.02):
    ways, light = weft.tensor(rays()), weft.tensor([0.5, 0.7, -0.5])
    with weft.no_grad():
        goal = render(weft.tensor([0.4, -0.2, 3.0, 0.8]), ways, light)
    ball = weft.tensor([-0.3, 0.2, 3.6, 0.5]).requires_grad_()
    optimizer = optim.Adam([ball], lr=lr)

    @weft.compile
    def step():
        optimizer.zero_grad()
        picture = render(ball, ways, light)
        loss = ((picture - goal) ** 2).mean()
        loss.backward()
        nn.utils.clip_grad_norm_([ball], 0.02)  # a ray that grazes the ball has a huge slope
        optimizer.step()
        return loss, picture.detach()

    return step, (ball, goal)


def run(steps=500):
    step, (ball, goal) = build()
    losses, pictures = [], []
    for _ in range(steps):
        loss, picture = step()
        losses.append(loss.item())
        pictures.append(picture.numpy())
    found = ", ".join(f"{part:.2f}" for part in ball.detach().numpy())
    return {
        "summary": f"loss {losses[0]:.4f} → {losses[-1]:.6f}, ball ({found}),"
        " true (0.40, -0.20, 3.00, 0.80)",
        "pictures": (pictures[0], pictures[len(pictures) // 5], pictures[-1], goal.numpy()),
    }


def draw(figure, result):
    names = ("start", "on the way", "found", "goal")
    for axes, picture, name in zip(figure.subplots(1, 4), result["pictures"], names):
        axes.imshow(picture.reshape(SIZE, SIZE), cmap="gray", vmin=0, vmax=1)
        axes.set_title(name, fontsize=9)
        axes.axis("off")


if __name__ == "__main__":
    show(run, draw, (7, 2))
