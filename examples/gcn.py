"""A graph convolutional network: four known members of each group place all others."""

import numpy as np
from gallery import show

import weft
from weft import nn, optim
from weft.nn import functional as F

GROUPS, EACH = 4, 40


def network(rng):
    """People know others of their own group more often."""
    labels = np.repeat(np.arange(GROUPS), EACH)
    known = rng.random((len(labels), len(labels))) < np.where(
        labels[:, None] == labels[None, :], 0.12, 0.008
    )
    adjacency = np.triu(known, 1)
    return (adjacency | adjacency.T).astype(np.float32), labels


class GCN(nn.Module):
    def __init__(self, people, width=16):
        super().__init__()
        self.first, self.second = nn.Linear(people, width), nn.Linear(width, 2)
        self.out = nn.Linear(2, GROUPS)

    def forward(self, features, spread):
        hidden = weft.relu(spread @ self.first(features))
        place = weft.tanh(spread @ self.second(hidden))
        return self.out(place), place


def build():
    weft.manual_seed(1)
    adjacency, labels = network(np.random.default_rng(0))
    people = len(labels)
    closed = adjacency + np.eye(people, dtype=np.float32)
    degree = closed.sum(1) ** -0.5
    spread = weft.tensor(degree[:, None] * closed * degree[None, :])
    features = weft.tensor(np.eye(people, dtype=np.float32))
    members = np.arange(GROUPS)[:, None] * EACH + np.arange(4)  # four of each group are known
    known, goals = weft.tensor(members.reshape(-1)), weft.tensor(labels[members.reshape(-1)])
    model = GCN(people)
    optimizer = optim.Adam(model.parameters(), lr=0.02, weight_decay=1e-3)

    @weft.compile
    def step():
        optimizer.zero_grad()
        scores, _ = model(features, spread)
        loss = F.cross_entropy(scores[known], goals)
        loss.backward()
        optimizer.step()
        return loss

    return step, (model, features, spread, adjacency, labels)


def run(steps=300):
    step, (model, features, spread, adjacency, labels) = build()
    losses = [step().item() for _ in range(steps)]
    with weft.no_grad():
        scores, places = model(features, spread)
    right = (scores.numpy().argmax(1) == labels).mean()
    return {
        "summary": f"loss {losses[-1]:.3f}, {right:.1%} of {len(labels)} people are placed right",
        "places": places.numpy(),
        "edges": np.argwhere(np.triu(adjacency)),
        "labels": labels,
    }


def draw(figure, result):
    axes, places = figure.subplots(), result["places"]
    for a, b in result["edges"]:
        axes.plot(*places[[a, b]].T, color="0.85", linewidth=0.4, zorder=0)
    axes.scatter(*places.T, c=result["labels"], cmap="tab10", s=12)
    axes.set(xticks=[], yticks=[])


if __name__ == "__main__":
    show(run, draw, (4, 3))
