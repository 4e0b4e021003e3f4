"""A neural ODE learns a spiral. The solver picks its own steps: a `while` loop in the graph."""

import numpy as np
from gallery import show

import weft
from weft import nn, optim

TRUE = np.array([[-0.1, 2.0], [-2.0, -0.1]], dtype=np.float32)


def solve(field, x, end, tolerance=1e-2):
    """Bogacki and Shampine's method of order 3(2), with steps by its own estimate of the error."""
    t, h = weft.tensor(0.0), weft.tensor(0.1)
    k1 = field(x)
    count = weft.tensor(0.0)
    while t < end:
        h = weft.minimum(h, end - t)
        k2 = field(x + h / 2 * k1)
        k3 = field(x + 3 * h / 4 * k2)
        new = x + h * (2 * k1 + 3 * k2 + 4 * k3) / 9
        k4 = field(new)
        error = abs(h * (-5 * k1 / 72 + k2 / 12 + k3 / 9 - k4 / 8)).max() / tolerance
        if error < 1:  # accept the step
            t, x, k1 = t + h, new, k4
        h = h * weft.clip(0.9 / (error + 1e-6) ** (1 / 3), 0.3, 3.0).detach()
        count = count + 1
    return x, count


def build(points=32, end=0.5):
    weft.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 2))
    optimizer = optim.Adam(model.parameters(), lr=1e-2)
    matrix = weft.tensor(TRUE)

    @weft.compile
    def step():
        with weft.no_grad():
            start = 4 * weft.rand((points, 2)) - 2
            goal, _ = solve(lambda x: x**3 @ matrix.T, start / 1.5, weft.tensor(end))
        optimizer.zero_grad()
        got, count = solve(lambda x: model(x**3), start / 1.5, weft.tensor(end))
        loss = ((got - goal) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss, count

    return step, model


def run(steps=1500):
    step, model = build()
    history = [tuple(part.item() for part in step()) for _ in range(steps)]
    paths = []
    matrix = weft.tensor(TRUE)
    with weft.no_grad():
        for field in (lambda x: x**3 @ matrix.T, lambda x: model(x**3)):
            follow = weft.compile(lambda x, field=field: solve(field, x, weft.tensor(0.1))[0])
            path = [weft.tensor([[1.3, 0.0]])]
            for _ in range(60 if steps > 10 else 2):
                path.append(follow(path[-1]))
            paths.append(weft.concat(path, axis=0).numpy())
    losses, counts = zip(*history)
    return {
        "summary": f"loss {losses[-1]:.1e}, {counts[-1]:.0f} steps of the solver",
        "losses": losses,
        "counts": counts,
        "paths": paths,
    }


def draw(figure, result):
    left, right = figure.subplots(1, 2)
    for path, style, name in zip(result["paths"], ("-", "--"), ("true", "learned")):
        left.plot(*path.T, style, label=name)
    left.legend()
    right.semilogy(result["losses"])
    right.set(xlabel="step", ylabel="loss")


if __name__ == "__main__":
    show(run, draw)
