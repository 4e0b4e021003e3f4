"""A diffusion model (DDPM) of points on two moons."""

import math

import weft.torch as torch
import weft.torch.nn as nn
import weft.torch.nn.functional as F

T = 50


def two_moons(count):
    angle = torch.rand(count) * math.pi
    upper = torch.stack([torch.cos(angle), torch.sin(angle)], dim=1)
    lower = torch.stack([1 - torch.cos(angle), 0.5 - torch.sin(angle)], dim=1)
    pick = (torch.rand(count, 1) < 0.5).float()
    return pick * upper + (1 - pick) * lower + 0.05 * torch.randn(count, 2)


class SinusoidalEmbedding(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, t):
        half = self.dim // 2
        freqs = torch.exp(-math.log(10000) * torch.arange(half, device=t.device) / (half - 1))
        args = t[:, None].float() * freqs[None, :]
        return torch.cat([args.sin(), args.cos()], dim=-1)


class Denoiser(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.time = nn.Sequential(SinusoidalEmbedding(16), nn.Linear(16, dim), nn.SiLU())
        self.inp = nn.Linear(2, dim)
        self.blocks = nn.ModuleList([nn.Linear(dim, dim) for _ in range(2)])
        self.out = nn.Linear(dim, 2)

    def forward(self, x, t):
        h = self.inp(x) + self.time(t)
        for block in self.blocks:
            h = h + F.silu(block(h))
        return self.out(h)


class DDPM(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model
        betas = torch.linspace(1e-4, 0.15, T)
        alphas = 1.0 - betas
        self.register_buffer("betas", betas)
        self.register_buffer("alphas", alphas)
        self.register_buffer("alpha_bars", torch.cumprod(alphas, dim=0))

    def loss(self, x0):
        t = torch.randint(0, T, (x0.shape[0],), device=x0.device)
        noise = torch.randn_like(x0)
        a = self.alpha_bars[t].unsqueeze(-1)
        xt = a.sqrt() * x0 + (1 - a).sqrt() * noise
        return F.mse_loss(self.model(xt, t), noise)

    @torch.no_grad()
    def sample(self, count):
        x = torch.randn(count, 2)
        for step in reversed(range(T)):
            t = torch.full((count,), step, dtype=torch.long)
            eps = self.model(x, t)
            coef = self.betas[step] / (1 - self.alpha_bars[step]).sqrt()
            x = (x - coef * eps) / self.alphas[step].sqrt()
            if step > 0:
                x += self.betas[step].sqrt() * torch.randn_like(x)
        return x


def main(steps=200):
    torch.manual_seed(0)
    ddpm = DDPM(Denoiser())
    optimizer = torch.optim.Adam(ddpm.parameters(), lr=3e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)
    losses = []
    for step in range(steps):
        loss = ddpm.loss(two_moons(128))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
        if step % 50 == 0:
            print(f"step {step:4d} loss {loss.item():.4f} lr {scheduler.get_last_lr()[0]:.5f}")
    points = ddpm.sample(256)
    print("mean", points.mean(dim=0).tolist(), "std", points.std(dim=0).tolist())
    return losses


if __name__ == "__main__":
    main()
