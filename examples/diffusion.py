"""A diffusion model in two dimensions: noise becomes a spiral, step by step."""

import numpy as np
from gallery import show

import weft
from weft import nn, optim

LEVELS = 50
NOISE = np.linspace(1e-3, 0.2, LEVELS, dtype=np.float32)  # added at each level
KEPT = np.cumprod(1 - NOISE)  # of the signal, after so many levels


def spiral(count):
    turn = 3 * weft.pi * weft.sqrt(weft.rand((count, 1)))
    points = weft.concat([turn * weft.cos(turn), turn * weft.sin(turn)], axis=1) / 6
    return points + 0.03 * weft.randn((count, 2))


class Denoiser(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.level = nn.Embedding(LEVELS, width)
        self.point, self.middle = nn.Linear(2, width), nn.Linear(width, width)
        self.second, self.last = nn.Linear(width, width), nn.Linear(width, 2)

    def forward(self, x, level):
        hidden = nn.functional.silu(self.point(x) + self.level(level))
        hidden = nn.functional.silu(self.middle(hidden))
        return self.last(nn.functional.silu(self.second(hidden)))


def build(batch=256):
    weft.manual_seed(0)
    model = Denoiser()
    optimizer = optim.Adam(model.parameters(), lr=1e-3)
    kept = weft.tensor(KEPT)

    @weft.compile
    def step():
        clean, noise = spiral(batch), weft.randn((batch, 2))
        level = weft.randint(0, LEVELS, (batch,))
        share = kept[level][:, None]
        optimizer.zero_grad()
        guess = model(weft.sqrt(share) * clean + weft.sqrt(1 - share) * noise, level)
        loss = ((guess - noise) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    return step, model


def sample(model, count, levels=LEVELS):
    """The whole way from noise to points is one graph: its loop is a loop there."""
    noise, kept = weft.tensor(NOISE), weft.tensor(KEPT)

    @weft.compile
    def denoise():
        x, stages = weft.randn((count, 2)), []
        for i in range(levels):
            level = LEVELS - 1 - i
            guess = model(x, weft.full((count,), level))
            x = (x - noise[level] / weft.sqrt(1 - kept[level]) * guess) / weft.sqrt(
                1 - noise[level]
            )
            if level > 0:
                x = x + weft.sqrt(noise[level]) * weft.randn((count, 2))
            stages.append(x)
        return weft.stack(stages)

    with weft.no_grad():
        return denoise()


def run(steps=12000):
    step, model = build()
    losses = [step().item() for _ in range(steps)]
    quick = steps < 100
    stages = sample(model, 20 if quick else 1000, 3 if quick else LEVELS).numpy()
    return {"summary": f"loss {np.mean(losses[-100:]):.3f}", "losses": losses, "stages": stages}


def draw(figure, result):
    for axes, level in zip(figure.subplots(1, 4), (0, 24, 39, 49)):
        axes.scatter(*result["stages"][level].T, s=1)
        axes.set(xlim=(-2, 2), ylim=(-2, 2), title=f"after {level + 1}", aspect="equal")
        axes.axis("off")


if __name__ == "__main__":
    show(run, draw, (8, 2.2))
