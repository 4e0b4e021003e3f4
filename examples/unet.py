"""A U-Net finds discs in noisy pictures: down to a quarter of the size, and up again."""

import numpy as np
from gallery import show

import weft
from weft import nn, optim
from weft.nn import functional as F

SIZE = 32


def pictures(rng, count):
    """Discs on noise, and which pixels are discs."""
    y, x = np.mgrid[:SIZE, :SIZE]
    masks = np.zeros((count, 1, SIZE, SIZE), np.float32)
    for mask in masks:
        for _ in range(rng.integers(1, 4)):
            cx, cy, radius = *rng.uniform(4, SIZE - 4, 2), rng.uniform(3, 7)
            mask[0][(x - cx) ** 2 + (y - cy) ** 2 < radius**2] = 1
    noisy = masks * rng.uniform(0.5, 1) + rng.normal(0, 0.6, masks.shape)
    return noisy.astype(np.float32), masks


def twice(inputs, outputs):
    return nn.Sequential(
        *(nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU()),
        *(nn.Conv2d(outputs, outputs, 3, padding=1), nn.ReLU()),
    )


class UNet(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.down1, self.down2 = twice(1, width), twice(width, 2 * width)
        self.bottom = twice(2 * width, 4 * width)
        self.up2 = nn.ConvTranspose2d(4 * width, 2 * width, 2, stride=2)
        self.up1 = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.join2, self.join1 = twice(4 * width, 2 * width), twice(2 * width, width)
        self.last = nn.Conv2d(width, 1, 1)

    def forward(self, x):
        full = self.down1(x)
        half = self.down2(F.max_pool2d(full, 2))
        quarter = self.bottom(F.max_pool2d(half, 2))
        half = self.join2(weft.concat([self.up2(quarter), half], axis=1))
        full = self.join1(weft.concat([self.up1(half), full], axis=1))
        return self.last(full)


def build(batch=16):
    weft.manual_seed(0)
    images, masks = map(weft.tensor, pictures(np.random.default_rng(0), 256))
    model = UNet()
    optimizer = optim.Adam(model.parameters(), lr=2e-3)

    @weft.compile
    def train(x, y):
        optimizer.zero_grad()
        loss = F.binary_cross_entropy_with_logits(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    def step():
        rows = weft.randint(0, len(images), (batch,))
        return train(images[rows], masks[rows])

    return step, model


def run(steps=300):
    step, model = build()
    losses = [step().item() for _ in range(steps)]
    images, masks = pictures(np.random.default_rng(1), 16)
    with weft.no_grad():
        found = (model(weft.tensor(images)) > 0).numpy()
    overlap = (found & (masks > 0)).sum() / (found | (masks > 0)).sum()
    return {
        "summary": f"loss {losses[-1]:.3f}, {overlap:.0%} overlap on unseen pictures",
        "rows": (images[:6, 0], masks[:6, 0], found[:6, 0]),
    }


def draw(figure, result):
    for row, images, name in zip(figure.subplots(3, 6), result["rows"], ("seen", "true", "found")):
        for axes, image in zip(row, images):
            axes.imshow(image, cmap="gray")
            axes.axis("off")
        row[0].set_title(name, loc="left", fontsize=9)


if __name__ == "__main__":
    show(run, draw, (6, 3.2))
