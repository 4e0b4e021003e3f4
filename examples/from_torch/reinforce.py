"""REINFORCE: a policy learns to walk to the right end of a corridor."""

from collections import deque

import weft.torch as torch
import weft.torch.nn as nn
import weft.torch.nn.functional as F
import weft.torch.optim as optim
from weft.torch.distributions import Categorical


class Corridor:
    def reset(self):
        self.place, self.steps = 2, 0
        return self.seen()

    def seen(self):
        state = torch.zeros(6)
        state[self.place] = 1.0
        return state

    def step(self, action):
        self.place = max(0, min(5, self.place + (1 if action == 1 else -1)))
        self.steps += 1
        done = self.place == 5 or self.steps == 20
        return self.seen(), (1.0 if self.place == 5 else -0.05), done


class Policy(nn.Module):
    def __init__(self):
        super(Policy, self).__init__()
        self.affine1 = nn.Linear(6, 32)
        self.dropout = nn.Dropout(p=0.1)
        self.affine2 = nn.Linear(32, 2)
        self.saved_log_probs = []
        self.rewards = []

    def forward(self, x):
        x = self.affine1(x)
        x = self.dropout(x)
        x = F.relu(x)
        return F.softmax(self.affine2(x), dim=1)


def select_action(policy, state):
    probs = policy(state.unsqueeze(0))
    m = Categorical(probs)
    action = m.sample()
    policy.saved_log_probs.append(m.log_prob(action))
    return action.item()


def finish_episode(policy, optimizer, eps=1e-8, gamma=0.95):
    R = 0
    policy_loss = []
    returns = deque()
    for r in policy.rewards[::-1]:
        R = r + gamma * R
        returns.appendleft(R)
    returns = torch.tensor(returns)
    returns = (returns - returns.mean()) / (returns.std() + eps)
    for log_prob, R in zip(policy.saved_log_probs, returns):
        policy_loss.append(-log_prob * R)
    optimizer.zero_grad()
    policy_loss = torch.cat(policy_loss).sum()
    policy_loss.backward()
    optimizer.step()
    del policy.rewards[:]
    del policy.saved_log_probs[:]
    return policy_loss.item()


def main(steps=60):
    torch.manual_seed(543)
    env, policy = Corridor(), Policy()
    optimizer = optim.Adam(policy.parameters(), lr=1e-2)
    losses, lengths = [], []
    for _ in range(steps):
        state, done = env.reset(), False
        while not done:
            action = select_action(policy, state)
            state, reward, done = env.step(action)
            policy.rewards.append(reward)
        losses.append(finish_episode(policy, optimizer))
        lengths.append(env.steps)
    print("steps to the end:", lengths[:5], "...", lengths[-5:])
    return losses


if __name__ == "__main__":
    main()
