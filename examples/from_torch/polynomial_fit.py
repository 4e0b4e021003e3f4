"""A polynomial of degree three learns a sine: by hand, and as a module."""

import math

import weft.torch as torch


def by_hand(steps):
    dtype = torch.float
    device = torch.device("cpu")
    x = torch.linspace(-math.pi, math.pi, 2000, device=device, dtype=dtype)
    y = torch.sin(x)
    a = torch.full((), 0.5, device=device, dtype=dtype, requires_grad=True)
    b = torch.full((), -0.3, device=device, dtype=dtype, requires_grad=True)
    c = torch.full((), 0.1, device=device, dtype=dtype, requires_grad=True)
    d = torch.full((), 0.0, device=device, dtype=dtype, requires_grad=True)

    learning_rate = 1e-6
    losses = []
    for t in range(steps):
        y_pred = a + b * x + c * x**2 + d * x**3
        loss = (y_pred - y).pow(2).sum()
        losses.append(loss.item())
        if t % 100 == 99:
            print(t, loss.item())
        loss.backward()
        with torch.no_grad():
            a -= learning_rate * a.grad
            b -= learning_rate * b.grad
            c -= learning_rate * c.grad
            d -= learning_rate * d.grad
            a.grad = None
            b.grad = None
            c.grad = None
            d.grad = None
    print(f"Result: y = {a.item()} + {b.item()} x + {c.item()} x^2 + {d.item()} x^3")
    return losses


def with_modules(steps):
    x = torch.linspace(-math.pi, math.pi, 2000)
    y = torch.sin(x)
    p = torch.tensor([1, 2, 3])
    xx = x.unsqueeze(-1).pow(p)
    model = torch.nn.Sequential(torch.nn.Linear(3, 1), torch.nn.Flatten(0, 1))
    loss_fn = torch.nn.MSELoss(reduction="sum")
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    losses = []
    for t in range(steps):
        y_pred = model(xx)
        loss = loss_fn(y_pred, y)
        losses.append(loss.item())
        if t % 100 == 99:
            print(t, loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    linear_layer = model[0]
    weight = linear_layer.weight
    print(f"Result: y = {linear_layer.bias.item()} + {weight[:, 0].item()} x + …")
    return losses


def main(steps=400):
    torch.manual_seed(0)
    return by_hand(steps) + with_modules(steps)


if __name__ == "__main__":
    main()
