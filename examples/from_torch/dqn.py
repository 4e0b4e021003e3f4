"""Deep Q-learning: a network learns to balance a pole on a cart, from memories of what it did."""

import math
import random
from collections import deque, namedtuple

import weft.torch as torch
import weft.torch.nn as nn
import weft.torch.nn.functional as F
import weft.torch.optim as optim

Transition = namedtuple("Transition", ("state", "action", "next_state", "reward"))


class CartPole:
    """The cart and pole, as the field knows them: four numbers, two actions."""

    def reset(self):
        self.state = [random.uniform(-0.05, 0.05) for _ in range(4)]
        self.steps = 0
        return self.state

    def step(self, action):
        x, v, angle, spin = self.state
        force = 10.0 if action == 1 else -10.0
        push = (force + 0.05 * spin**2 * math.sin(angle)) / 1.1
        turn = (9.8 * math.sin(angle) - math.cos(angle) * push) / (
            0.5 * (4.0 / 3.0 - 0.1 * math.cos(angle) ** 2 / 1.1)
        )
        pull = push - 0.05 * turn * math.cos(angle) / 1.1
        self.state = [x + 0.02 * v, v + 0.02 * pull, angle + 0.02 * spin, spin + 0.02 * turn]
        self.steps += 1
        terminated = abs(self.state[0]) > 2.4 or abs(self.state[2]) > 0.2095
        return self.state, 1.0, terminated, self.steps >= 200


class ReplayMemory:
    def __init__(self, capacity):
        self.memory = deque(maxlen=capacity)

    def push(self, *args):
        self.memory.append(Transition(*args))

    def sample(self, batch_size):
        return random.sample(self.memory, batch_size)

    def __len__(self):
        return len(self.memory)


class DQN(nn.Module):
    def __init__(self, n_observations, n_actions):
        super().__init__()
        self.layer1 = nn.Linear(n_observations, 64)
        self.layer2 = nn.Linear(64, 64)
        self.layer3 = nn.Linear(64, n_actions)

    def forward(self, x):
        x = F.relu(self.layer1(x))
        x = F.relu(self.layer2(x))
        return self.layer3(x)


BATCH_SIZE, GAMMA, TAU = 32, 0.99, 0.005


def optimize_model(memory, policy_net, target_net, optimizer):
    transitions = memory.sample(BATCH_SIZE)
    batch = Transition(*zip(*transitions))
    non_final_mask = torch.tensor([s is not None for s in batch.next_state], dtype=torch.bool)
    non_final_next_states = torch.cat([s for s in batch.next_state if s is not None])
    state_batch = torch.cat(batch.state)
    action_batch = torch.cat(batch.action)
    reward_batch = torch.cat(batch.reward)

    state_action_values = policy_net(state_batch).gather(1, action_batch)
    next_state_values = torch.zeros(BATCH_SIZE)
    with torch.no_grad():
        next_state_values[non_final_mask] = target_net(non_final_next_states).max(1).values
    expected_state_action_values = (next_state_values * GAMMA) + reward_batch

    criterion = nn.SmoothL1Loss()
    loss = criterion(state_action_values, expected_state_action_values.unsqueeze(1))
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_value_(policy_net.parameters(), 100)
    optimizer.step()
    return loss.item()


def main(steps=300):
    random.seed(0)
    torch.manual_seed(0)
    env = CartPole()
    policy_net = DQN(4, 2)
    target_net = DQN(4, 2)
    optimizer = optim.AdamW(policy_net.parameters(), lr=1e-3, amsgrad=True)
    target_net.load_state_dict(policy_net.state_dict())
    memory = ReplayMemory(1000)
    losses, done_steps = [], 0
    while len(losses) < steps:
        state = torch.tensor(env.reset(), dtype=torch.float32).unsqueeze(0)
        done = False
        while not done and len(losses) < steps:
            threshold = 0.05 + 0.85 * math.exp(-done_steps / 200)
            done_steps += 1
            if random.random() > threshold:
                with torch.no_grad():
                    action = policy_net(state).max(1).indices.view(1, 1)
            else:
                action = torch.tensor([[random.randrange(2)]], dtype=torch.long)
            observation, reward, terminated, truncated = env.step(action.item())
            reward = torch.tensor([reward])
            done = terminated or truncated
            next_state = (
                None if terminated else torch.tensor(observation, dtype=torch.float32).unsqueeze(0)
            )
            memory.push(state, action, next_state, reward)
            state = next_state
            if len(memory) >= BATCH_SIZE:
                losses.append(optimize_model(memory, policy_net, target_net, optimizer))
                target = target_net.state_dict()
                policy = policy_net.state_dict()
                for key in policy:
                    target[key] = policy[key] * TAU + target[key] * (1 - TAU)
                target_net.load_state_dict(target)
        print(f"episode of {env.steps} steps")
    return losses


if __name__ == "__main__":
    main()
