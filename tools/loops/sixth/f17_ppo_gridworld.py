"""RITCHIEHuang/DeepRL_Algorithms#13: PPO on a grid world; reward grows far too slowly."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Categorical

STEPS = 120
OTHERS: list = []
LOG: list = []


class Policy(nn.Module):
    def __init__(self, dim_state, dim_action, hidden=32):
        super().__init__()
        self.common = nn.Sequential(nn.Linear(dim_state, hidden), nn.Tanh())
        self.action_head = nn.Linear(hidden, dim_action)

    def dist(self, x):
        return Categorical(logits=self.action_head(self.common(x)))


class Value(nn.Module):
    def __init__(self, dim_state, hidden=32):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim_state, hidden), nn.Tanh(), nn.Linear(hidden, 1))

    def forward(self, x):
        return self.net(x)


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.policy = Policy(10, 4)
        self.value = Value(10)


def grid_step(pos, action, goal):
    move = torch.tensor([[0, 1], [0, -1], [1, 0], [-1, 0]])[action]
    nxt = (pos + move).clamp(0, 4)
    before, after = (pos - goal).abs().sum(1), (nxt - goal).abs().sum(1)
    return nxt, (before - after).float() - 0.1


def estimate_advantages(rewards, values, gamma, tau):
    advantages = torch.zeros_like(values)
    running = torch.zeros_like(values[0])
    for t in reversed(range(len(rewards))):
        nxt = values[t + 1] if t + 1 < len(rewards) else 0.0
        running = rewards[t][:, None] + gamma * nxt - values[t] + gamma * tau * running
        advantages[t] = running
    returns = (advantages + values).flatten(0, 1)
    advantages = advantages.flatten(0, 1)
    return (advantages - advantages.mean()) / (advantages.std() + 1e-6), returns


def build(bad: bool):
    torch.manual_seed(16)
    LOG.clear()
    OTHERS.clear()
    gen = torch.Generator().manual_seed(16)
    net = ActorCritic()
    optim_policy = torch.optim.Adam(net.policy.parameters(), lr=5e-3)
    optim_value = torch.optim.Adam(net.value.parameters(), lr=5e-3)
    OTHERS.append(optim_value)
    eye = torch.eye(5)

    def obs(pos):
        return torch.cat([eye[pos[:, 0]], eye[pos[:, 1]]], 1)

    def step(i):
        pos = torch.randint(0, 5, (32, 2), generator=gen)
        goal = torch.tensor([[4, 4]])
        states, actions, logps, rewards, values = [], [], [], [], []
        with torch.no_grad():
            for _ in range(6):
                x = obs(pos)
                d = net.policy.dist(x)
                a = torch.multinomial(d.probs, 1, generator=gen).squeeze(1)
                states.append(x), actions.append(a), logps.append(d.log_prob(a)), values.append(net.value(x))
                pos, r = grid_step(pos, a, goal)
                rewards.append(r)
        advantages, returns = estimate_advantages(rewards, torch.stack(values), 0.9, 0.9)
        if not bad:
            advantages = advantages.reshape(-1)
        states, actions, old = torch.cat(states), torch.cat(actions), torch.cat(logps)
        for _ in range(3):
            value_loss = F.mse_loss(net.value(states), returns)
            optim_value.zero_grad()
            value_loss.backward()
            optim_value.step()
            ratio = torch.exp(net.policy.dist(states).log_prob(actions) - old)
            surr1 = ratio * advantages
            surr2 = ratio.clamp(0.8, 1.2) * advantages
            policy_loss = -torch.min(surr1, surr2).mean()
            optim_policy.zero_grad()
            policy_loss.backward()
            optim_policy.step()
        LOG.append(torch.stack(rewards).mean().item())

    return net, optim_policy, step
