"""Actor and critic: one network proposes actions and says what they are worth."""

from collections import namedtuple

import weft.torch as torch
import weft.torch.nn as nn
import weft.torch.nn.functional as F
import weft.torch.optim as optim
from weft.torch.distributions import Categorical

SavedAction = namedtuple("SavedAction", ["log_prob", "value"])


class Target:
    """A point on a line, pushed left or right, is to stay near zero."""

    def reset(self):
        self.x, self.v, self.t = 1.0, 0.0, 0
        return [self.x, self.v]

    def step(self, action):
        self.v = 0.9 * self.v + (0.2 if action == 1 else -0.2)
        self.x += self.v * 0.5
        self.t += 1
        return [self.x, self.v], -abs(self.x), self.t == 20


class Policy(nn.Module):
    def __init__(self):
        super(Policy, self).__init__()
        self.affine1 = nn.Linear(2, 64)
        self.action_head = nn.Linear(64, 2)
        self.value_head = nn.Linear(64, 1)
        self.saved_actions = []
        self.rewards = []

    def forward(self, x):
        x = F.relu(self.affine1(x))
        action_prob = F.softmax(self.action_head(x), dim=-1)
        state_values = self.value_head(x)
        return action_prob, state_values


def select_action(model, state):
    state = torch.tensor(state).float()
    probs, state_value = model(state)
    m = Categorical(probs)
    action = m.sample()
    model.saved_actions.append(SavedAction(m.log_prob(action), state_value))
    return action.item()


def finish_episode(model, optimizer):
    R = 0
    policy_losses, value_losses, returns = [], [], []
    for r in model.rewards[::-1]:
        R = r + 0.99 * R
        returns.insert(0, R)
    returns = torch.tensor(returns)
    returns = (returns - returns.mean()) / (returns.std() + 1e-7)
    for (log_prob, value), R in zip(model.saved_actions, returns):
        advantage = R - value.item()
        policy_losses.append(-log_prob * advantage)
        value_losses.append(F.smooth_l1_loss(value, torch.tensor([R])))
    optimizer.zero_grad()
    loss = torch.stack(policy_losses).sum() + torch.stack(value_losses).sum()
    loss.backward()
    optimizer.step()
    del model.rewards[:]
    del model.saved_actions[:]
    return loss.item()


def main(steps=50):
    torch.manual_seed(543)
    env, model = Target(), Policy()
    optimizer = optim.Adam(model.parameters(), lr=3e-2)
    losses, totals = [], []
    for _ in range(steps):
        state, done = env.reset(), False
        while not done:
            state, reward, done = env.step(select_action(model, state))
            model.rewards.append(reward)
        totals.append(sum(model.rewards))
        losses.append(finish_episode(model, optimizer))
    print("rewards:", [round(t, 1) for t in totals[:3]], "...", [round(t, 1) for t in totals[-3:]])
    return losses


if __name__ == "__main__":
    main()
