"""Snapshot ensembles: one run with restarts of the learning rate gives several models."""

import copy

import weft.torch as torch
import weft.torch.nn as nn
from weft.torch.optim.lr_scheduler import CosineAnnealingWarmRestarts


def spirals(count):
    labels = torch.arange(count) % 3
    radius = torch.rand(count)
    angle = 4 * radius + labels * 2 * torch.pi / 3 + 0.2 * torch.randn(count)
    points = torch.stack((radius * angle.cos(), radius * angle.sin()), dim=-1)
    return points, labels


def evaluate(models, x, y):
    probs = torch.stack([torch.softmax(m(x), dim=1) for m in models])
    return (probs.mean(dim=0).argmax(dim=1) == y).float().mean().item()


def main(steps=120, cycles=3):
    torch.manual_seed(0)
    x, y = spirals(300)
    x_test, y_test = spirals(150)
    model = nn.Sequential(
        nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 3)
    )
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    length = max(1, steps // cycles)
    scheduler = CosineAnnealingWarmRestarts(optimizer, T_0=length, eta_min=1e-4)
    snapshots, losses = [], []
    for step in range(length * cycles):
        batch = torch.randperm(len(x))[:64]
        loss = criterion(model(x[batch]), y[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
        if (step + 1) % length == 0:
            snapshots.append(copy.deepcopy(model).eval())
            print(
                f"snapshot {len(snapshots)} loss {loss.item():.4f} lr {scheduler.get_last_lr()[0]}"
            )
    with torch.no_grad():
        single = [evaluate([m], x_test, y_test) for m in snapshots]
        together = evaluate(snapshots, x_test, y_test)
    print("single", [round(s, 3) for s in single], "together", round(together, 3))
    return losses


if __name__ == "__main__":
    main()
