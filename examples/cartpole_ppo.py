"""PPO learns to balance a pole: 32 carts at a time, the environment is part of the graph."""

from gallery import show

import weft
from weft import nn, optim
from weft.nn import functional as F

CARTS, LENGTH = 32, 64
GRAVITY, CART, POLE, HALF, FORCE, DT = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02


def push(state, right):
    """One step of the cart and its pole."""
    x, v, angle, turn = state[:, 0], state[:, 1], state[:, 2], state[:, 3]
    force = weft.where(right == 1, FORCE, -FORCE)
    cos, sin = weft.cos(angle), weft.sin(angle)
    common = (force + POLE * HALF * turn**2 * sin) / (CART + POLE)
    bend = (GRAVITY * sin - cos * common) / (HALF * (4 / 3 - POLE * cos**2 / (CART + POLE)))
    speed = common - POLE * HALF * bend * cos / (CART + POLE)
    state = weft.stack([x + DT * v, v + DT * speed, angle + DT * turn, turn + DT * bend], axis=1)
    return state, (abs(state[:, 0]) > 2.4) | (abs(state[:, 2]) > 0.21)


def build():
    weft.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 3))  # two logits, one value
    optimizer = optim.Adam(model.parameters(), lr=3e-3)

    @weft.compile
    def play(state):
        states, actions, fell = [], [], []
        for _ in range(LENGTH):
            logits = model(state)[:, :2]
            gumbel = -weft.log(-weft.log(weft.rand((CARTS, 2))))
            action = (logits + gumbel).argmax(axis=1)
            states.append(state)
            actions.append(action)
            state, done = push(state, action)
            fell.append(done)
            fresh = 0.1 * (weft.rand((CARTS, 4)) - 0.5)
            state = weft.where(done[:, None], fresh, state)
        return state, weft.stack(states), weft.stack(actions), weft.stack(fell)

    @weft.compile
    def advantages(states, last, fell, discount=0.98, decay=0.95):
        values, following = model(states)[..., 2], model(last)[:, 2]
        alive = 1.0 - weft.where(fell, 1.0, 0.0)
        total, gains = weft.zeros(CARTS), []
        for t in range(LENGTH - 1, -1, -1):
            change = alive[t] + discount * alive[t] * following - values[t]
            total = change + discount * decay * alive[t] * total
            gains.append(total)
            following = values[t]
        gains = weft.stack(gains[::-1])
        return gains, gains + values

    @weft.compile
    def improve(states, actions, gains, returns, before):
        optimizer.zero_grad()
        out = model(states)
        scores = F.log_softmax(out[..., :2], dim=-1)
        ratio = weft.exp(weft.where(actions == 1, scores[..., 1], scores[..., 0]) - before)
        gains = (gains - gains.mean()) / (gains.std() + 1e-6)
        clipped = weft.clip(ratio, 0.8, 1.2)
        loss = -weft.minimum(ratio * gains, clipped * gains).mean()
        loss = loss + 0.01 * ((out[..., 2] - returns) ** 2).mean()
        loss = loss + 0.01 * (weft.exp(scores) * scores).sum(axis=-1).mean()
        loss.backward()
        optimizer.step()

    state = 0.1 * (weft.rand((CARTS, 4)) - 0.5)

    def step():
        nonlocal state
        with weft.no_grad():
            state, states, actions, fell = play(state)
            gains, returns = advantages(states, state, fell)
            scores = F.log_softmax(model(states)[..., :2], dim=-1)
            before = weft.where(actions == 1, scores[..., 1], scores[..., 0])
        for _ in range(6):
            improve(states, actions, gains, returns, before)
        return CARTS * LENGTH / (1 + weft.where(fell, 1.0, 0.0).sum())

    return step, model


def run(steps=200):
    step, _ = build()
    lengths = [step().item() for _ in range(steps)]
    return {"summary": f"a pole stays up for {lengths[-1]:.0f} steps", "lengths": lengths}


def draw(figure, result):
    axes = figure.subplots()
    axes.semilogy(result["lengths"])
    axes.set(xlabel="iteration", ylabel="steps per fall")


if __name__ == "__main__":
    show(run, draw)
