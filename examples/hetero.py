"""One training step on three kinds of devices: images are unpacked by Python threads, a frozen
backbone runs as a segment of ONNX Runtime or OpenVINO, and the head is trained natively."""

import zlib

import numpy as np
from gallery import show
from sklearn.datasets import load_digits

import weft
from weft import nn, optim
from weft.nn import functional as F

images, labels = load_digits(return_X_y=True)
order = np.random.default_rng(0).permutation(len(images))
labels = weft.tensor(labels[order].astype(np.int64))
files = [zlib.compress((image / 16).astype(np.float32).tobytes()) for image in images[order]]


@weft.custom_op("unpack", infer=lambda rows: weft.spec((*rows.shape, 1, 8, 8)))
def unpack(xp, rows):
    """Plain Python: the executor calls it in a thread, and zlib lets others run meanwhile."""
    found = [np.frombuffer(zlib.decompress(files[i]), np.float32) for i in rows]
    return np.stack(found).reshape(-1, 1, 8, 8)


def an_engine():
    """The first engine that is installed; without one the backbone runs natively, too."""
    for name in ("ort", "openvino"):
        try:
            weft.compile(lambda x: x, backend=weft.Split({"backbone": name}))
            return name
        except weft.errors.DeviceError as missing:
            print(f"note: {missing.message} ({missing.hint})")
    return "cpu"


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(
            *(nn.Conv2d(1, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(64, 128, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        )
        self.head = nn.Sequential(nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, 10))

    def forward(self, x):
        with weft.no_grad():
            features = self.backbone(x)
        return self.head(features)


def build(engine):
    weft.manual_seed(0)
    model = Model()
    optimizer = optim.Adam(model.head.parameters(), lr=2e-3)

    @weft.compile(backend=weft.Split({"backbone": engine}, scheduler="pool"))
    def train(left, right, y):
        optimizer.zero_grad()
        x = weft.concat([unpack(left), unpack(right)])  # at the same time
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return model, train


def run(steps=200):
    engine = an_engine()
    model, train = build(engine)
    before = model.head[0].weight.numpy().copy()
    losses = []
    for _ in range(steps):
        rows = weft.randint(0, 1500, (100,))
        losses.append(train(rows[:50], rows[50:], labels[rows]).item())
    with weft.no_grad():
        test = unpack(weft.arange(1500, len(files)))
        right = (model(test).argmax(axis=1) == labels[1500:]).float().mean().item()
    placement = train.programs[-1].program.placement
    moved = float(np.abs(model.head[0].weight.numpy() - before).max())
    return {
        "summary": f"{right:.1%} of unseen digits are right, the backbone on {engine}",
        "losses": losses,
        "placement": placement.explain(),
        "moved": moved,
        "busy": dict(placement.forecast.busy),
    }


def draw(figure, result):
    left, right = figure.subplots(1, 2, width_ratios=[2, 1])
    left.plot(result["losses"], color="teal", linewidth=1)
    left.set(title="loss of the head", xlabel="step", yscale="log")
    names, seconds = zip(*sorted(result["busy"].items()))
    right.bar(names, [1e6 * second for second in seconds], color="teal")
    right.set(title="expected µs per step")
    print(result["placement"])


if __name__ == "__main__":
    show(run, draw, (7, 2.6))
