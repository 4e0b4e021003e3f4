"""Linear regression, the first program of many courses."""

import os
import tempfile

import weft.torch as torch
from weft.torch import nn


class LinearRegression(nn.Module):
    def __init__(self, input_dim, output_dim):
        super().__init__()
        self.linear = nn.Linear(input_dim, output_dim)

    def forward(self, x):
        return self.linear(x)


def main(steps=200):
    torch.manual_seed(42)
    weight, bias = 0.7, 0.3
    X = torch.arange(0, 1, 0.02).unsqueeze(dim=1)
    y = weight * X + bias
    train_split = int(0.8 * len(X))
    X_train, y_train = X[:train_split], y[:train_split]
    X_test, y_test = X[train_split:], y[train_split:]

    model = LinearRegression(1, 1)
    loss_fn = nn.L1Loss()
    optimizer = torch.optim.SGD(params=model.parameters(), lr=0.01)
    losses = []
    for epoch in range(steps):
        model.train()
        y_pred = model(X_train)
        loss = loss_fn(y_pred, y_train)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        model.eval()
        with torch.inference_mode():
            test_loss = loss_fn(model(X_test), y_test)
        if epoch % 50 == 0:
            print(f"Epoch: {epoch} | MAE Train: {loss:.4f} | MAE Test: {test_loss:.4f}")

    path = os.path.join(tempfile.mkdtemp(), "model.pt")
    torch.save(obj=model.state_dict(), f=path)
    loaded = LinearRegression(1, 1)
    loaded.load_state_dict(torch.load(f=path))
    loaded.eval()
    with torch.inference_mode():
        assert torch.equal(model(X_test), loaded(X_test))
    print("learned", loaded.state_dict()["linear.weight"].item(), "and", loaded.linear.bias.item())
    return losses


if __name__ == "__main__":
    main()
