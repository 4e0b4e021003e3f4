"""A program as users write it, for type checkers: `tests/project/test_types.py` runs them on it.

A line that ends with `# error` is a mistake that they must find; on all others they find none.
"""

from typing import assert_type

import weft
from weft import nn
from weft.nn import functional as F


class Net(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Linear(4, width)
        self.last = nn.Linear(width, 2)

    def forward(self, x: weft.Tensor) -> weft.Tensor:
        return self.last(F.relu(self.first(x)))


model = Net(width=8)
assert_type(model, Net)
assert_type(nn.Linear(4, 2), nn.Linear)
assert_type(model.first, nn.Linear)
width: int = model.first.out_features
wrong: str = model.first.out_features  # error
optimizer = weft.optim.Adam(model.parameters(), lr=1e-3)


@weft.compile
def step(x: weft.Tensor, y: weft.Tensor, scale: float = 1.0) -> weft.Tensor:
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y) * scale
    loss.backward()
    optimizer.step()
    return loss


x = weft.randn((16, 4))
y = weft.zeros(16, dtype=weft.int64)
loss = step(x, y, scale=0.5)
assert_type(loss, weft.Tensor)
print(f"{loss:.3f}", loss.item(), len(step.recordings), step)
step(x)  # error
step(x, y, scal=0.5)  # error
step(x, "y")  # error


@weft.compile(backend="interpret", limit=8)
def double(x: weft.Tensor) -> weft.Tensor:
    return x * 2


assert_type(double(x), weft.Tensor)
double()  # error
plain: weft.Compiled[[weft.Tensor], weft.Tensor] = double
traced = weft.trace(double.function)
assert_type(traced(x), weft.Tensor)
run = weft.compile(model)
out = run(x)
weft.compiel(double)  # error
weft.compile(3)  # error
nn.Liner(2, 3)  # error
nn.Linear("a", 3)  # error

total = (x + 1.0).sum() - 2 * x.mean(axis=0).max()
assert_type(total, weft.Tensor)
assert_type(x.shape[0] > 3, bool)
part = x[0, :2]
assert_type(part, weft.Tensor)
for parameter in model.parameters():
    assert_type(parameter, nn.Parameter)
with weft.no_grad():
    predicted = model(x).argmax(axis=1)
gradient = weft.grad(lambda w: (w * w).sum())(x)

made = weft.zeros(2, 3, requires_grad=True) + weft.ones((2, 3)) + weft.zeros(shape=(2, 3))
assert_type(weft.sum(made, 0, keepdim=True), weft.Tensor)
assert_type(made.sum(dim=0).reshape(3, -1).permute(1, 0), weft.Tensor)
assert_type(weft.stack([made, made], dim=1), weft.Tensor)
assert_type(weft.cat([made, made], 0).add_(1).clamp_(max=3), weft.Tensor)
assert_type(weft.linalg.vector_norm(made, dim=1), weft.Tensor)
smallest, largest = weft.aminmax(made)
assert_type(smallest, weft.Tensor)
weft.sum(made, dmi=0)  # error
weft.zeros("a")  # error
made.softmax(dims="last")  # error
