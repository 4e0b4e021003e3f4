"""Models that draw random numbers, and two that play against each other."""

from __future__ import annotations

from typing import Any

from nn_samples.table import values

import weft
from training.table import Case, Setup, fill
from weft.nn import functional as F


def vae(library: Any) -> Setup:
    """Each step draws its own noise; the random state is part of what a step leaves behind."""
    nn = library.nn

    class VAE(nn.Module):
        def __init__(self):
            super().__init__()
            self.encode = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))
            self.decode = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 6))

        def forward(self, x):
            encoded = self.encode(x)
            mean, log_var = encoded[:, :2], encoded[:, 2:]
            z = mean + weft.exp(log_var / 2) * weft.randn(mean.shape, dtype=mean.dtype)
            return self.decode(z), mean, log_var

    model = fill(VAE(), library.make)
    optimizer = library.optim.Adam(model.parameters(), lr=0.01)

    def train_step(x):
        optimizer.zero_grad()
        again, mean, log_var = model(x)
        error = F.mse_loss(again, x, reduction="sum") / x.shape[0]
        divergence = -0.5 * (1 + log_var - mean**2 - log_var.exp()).sum() / x.shape[0]
        loss = error + divergence
        loss.backward()
        optimizer.step()
        return loss, error, divergence

    batches = [(library.make(values(5, 6, seed=s)),) for s in range(3)]
    return Setup(train_step, batches, [model], [optimizer])


def players(nn: Any, make: Any) -> tuple[Any, Any]:
    generator = nn.Sequential(nn.Linear(2, 6), nn.Tanh(), nn.Linear(6, 3))
    critic = nn.Sequential(nn.Linear(3, 6), nn.Softplus(), nn.Linear(6, 1))
    return fill(generator, make), fill(critic, make)


def gan(library: Any) -> Setup:
    """Two optimizers in one step: each moves its own player."""
    generator, critic = players(library.nn, library.make)
    moves = library.optim.Adam(generator.parameters(), lr=0.01, betas=(0.5, 0.9))
    judges = library.optim.Adam(critic.parameters(), lr=0.02, betas=(0.5, 0.9))
    criterion = library.nn.BCEWithLogitsLoss()

    def train_step(real):
        yes, no = weft.ones((len(real), 1), dtype=real.dtype), weft.zeros((len(real), 1))
        fake = generator(weft.randn(len(real), 2, dtype=real.dtype))
        judges.zero_grad()
        judged = criterion(critic(real), yes) + criterion(critic(fake.detach()), no)
        judged.backward()
        judges.step()

        moves.zero_grad()
        moved = criterion(critic(fake), yes)
        moved.backward()  # leaves gradients in the critic, too: the next zero_grad() drops them
        moves.step()
        return {"critic": judged.detach(), "generator": moved.detach()}

    batches = [(library.make(values(5, 3, seed=s)),) for s in range(3)]
    return Setup(train_step, batches, [generator, critic], [moves, judges])


def wgan_gp(library: Any) -> Setup:
    """The length of the critic's gradient is part of its loss: the backward has a backward."""
    generator, critic = players(library.nn, library.make)
    moves = library.optim.RMSprop(generator.parameters(), lr=0.005)
    judges = library.optim.SGD(critic.parameters(), lr=0.05, momentum=0.5)

    def penalty(real, fake):
        mix = weft.rand(len(real), 1, dtype=real.dtype)
        between = (mix * real + (1 - mix) * fake).detach().requires_grad_()
        (slope,) = weft.autograd.grad(critic(between).sum(), between, create_graph=True)
        return ((weft.linalg.vector_norm(slope, axis=1) - 1) ** 2).mean()

    def train_step(real):
        for _ in range(2):
            judges.zero_grad()
            fake = generator(weft.randn(len(real), 2, dtype=real.dtype)).detach()
            loss = critic(fake).mean() - critic(real).mean() + 10 * penalty(real, fake)
            loss.backward()
            judges.step()
        moves.zero_grad()
        judges.zero_grad()
        moved = -critic(generator(weft.randn(len(real), 2, dtype=real.dtype))).mean()
        moved.backward()
        moves.step()
        return loss, moved

    batches = [(library.make(values(5, 3, seed=s)),) for s in range(3)]
    return Setup(train_step, batches, [generator, critic], [moves, judges])


GRADIENTS = "the second step finds gradients that the first has left"
CASES = [
    Case("vae", vae),
    Case("gan", gan, False),
    Case("wgan-gp", wgan_gp, False, (2, 2), (2, 2), GRADIENTS),
]
