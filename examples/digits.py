"""A small convolutional network reads handwritten digits; its training step is one graph."""

import numpy as np
from gallery import show
from sklearn.datasets import load_digits

import weft
from weft import nn, optim
from weft.nn import functional as F


def data():
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(images))
    images = weft.tensor((images[order] / 16).astype(np.float32)).reshape(-1, 1, 8, 8)
    labels = weft.tensor(labels[order].astype(np.int64))
    return images[:1500], labels[:1500], images[1500:], labels[1500:]


def build():
    weft.manual_seed(0)
    images, labels, *test = data()
    model = nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(128, 10)),
    )
    optimizer = optim.Adam(model.parameters(), lr=3e-3)

    @weft.compile
    def train(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    def step():
        rows = weft.randint(0, len(images), (100,))
        return train(images[rows], labels[rows])

    return step, model, test


def run(steps=200):
    step, model, (images, labels) = build()
    losses = [step().item() for _ in range(steps)]
    with weft.no_grad():
        guesses = model(images).argmax(axis=1)
    right = (guesses == labels).float().mean().item() if steps else 0.0
    return {
        "summary": f"{right:.1%} of unseen digits are right",
        "losses": losses,
        "images": images.numpy()[:24, 0],
        "guesses": guesses.numpy()[:24],
        "labels": labels.numpy()[:24],
    }


def draw(figure, result):
    for axes, image, guess, label in zip(
        figure.subplots(3, 8).flat, result["images"], result["guesses"], result["labels"]
    ):
        axes.imshow(image, cmap="gray_r")
        axes.set_title(guess, color="black" if guess == label else "red", fontsize=10)
        axes.axis("off")


if __name__ == "__main__":
    show(run, draw)
