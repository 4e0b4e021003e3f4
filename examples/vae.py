"""A variational autoencoder puts handwritten digits on a plane, and draws new ones from it."""

import numpy as np
from gallery import show
from sklearn.datasets import load_digits

import weft
from weft import nn, optim
from weft.nn import functional as F


class VAE(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 4))
        self.decoder = nn.Sequential(
            *(nn.Linear(2, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()),
            nn.Linear(width, 64),
        )

    def forward(self, x):
        code = self.encoder(x)
        mean, log_variance = code[:, :2], code[:, 2:]
        z = mean + weft.exp(0.5 * log_variance) * weft.randn(mean.shape)
        return self.decoder(z), mean, log_variance


def build(batch=128):
    weft.manual_seed(0)
    images, labels = load_digits(return_X_y=True)
    images = weft.tensor((images / 16).astype(np.float32))
    model = VAE()
    optimizer = optim.Adam(model.parameters(), lr=2e-3)

    @weft.compile
    def train(x):
        optimizer.zero_grad()
        logits, mean, log_variance = model(x)
        picture = F.binary_cross_entropy_with_logits(logits, x, reduction="sum")
        prior = -0.5 * (1 + log_variance - mean**2 - weft.exp(log_variance)).sum()
        loss = (picture + prior) / len(x)
        loss.backward()
        optimizer.step()
        return loss

    def step():
        return train(images[weft.randint(0, len(images), (batch,))])

    return step, (model, images, labels)


def run(steps=6000):
    step, (model, images, labels) = build()
    losses = [step().item() for _ in range(steps)]
    line = np.linspace(-2, 2, 14, dtype=np.float32)
    grid = weft.tensor(np.stack(np.meshgrid(line, -line), -1).reshape(-1, 2))
    with weft.no_grad():
        drawn = weft.sigmoid(model.decoder(grid)).numpy()
        codes = model.encoder(images).numpy()[:, :2]
    return {
        "summary": f"loss {np.mean(losses[-20:]):.2f} nats per image",
        "drawn": drawn.reshape(14, 14, 8, 8).transpose(0, 2, 1, 3).reshape(112, 112),
        "codes": codes,
        "labels": labels,
    }


def draw(figure, result):
    left, right = figure.subplots(1, 2)
    left.scatter(*result["codes"].T, c=result["labels"], cmap="tab10", s=2)
    left.set(title="where digits lie")
    right.imshow(result["drawn"], cmap="gray_r")
    right.set(title="what the plane draws")
    right.axis("off")


if __name__ == "__main__":
    show(run, draw)
