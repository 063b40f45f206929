"""Reward-to-go policy gradient on pole balancing after openai/spinningup (examples/pytorch/pg_math/2_rtg_pg.py)."""

import math
import torch
import torch.nn as nn
from torch.distributions import Categorical


class CartPoles:
    def __init__(self, n):
        self.n = n

    def reset(self):
        self.s = (torch.rand(self.n, 4) - 0.5) * 0.1
        return self.s

    def step(self, action):
        x, v, th, w = self.s.unbind(1)
        force = (action.float() * 2 - 1) * 10
        temp = (force + 0.05 * w**2 * th.sin()) / 1.1
        thacc = (9.8 * th.sin() - th.cos() * temp) / (0.5 * (4 / 3 - 0.1 * th.cos() ** 2 / 1.1))
        acc = temp - 0.05 * thacc * th.cos() / 1.1
        self.s = torch.stack([x + 0.02 * v, v + 0.02 * acc, th + 0.02 * w, w + 0.02 * thacc], 1)
        return self.s, (self.s[:, 2].abs() > 12 * math.pi / 180) | (self.s[:, 0].abs() > 2.4)


class LogitsNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(4, 64)
        self.output = nn.Linear(64, 2)

    def forward(self, x):
        return self.output(torch.tanh(self.hidden(x)))


def rollout(policy, env, horizon=60):
    state = env.reset()
    alive = torch.ones(env.n)
    logps, masks = [], []
    for _ in range(horizon):
        m = Categorical(logits=policy(state))
        action = m.sample()
        logps.append(m.log_prob(action))
        masks.append(alive)
        state, done = env.step(action)
        alive = alive * (~done).float()
    return torch.stack(logps), torch.stack(masks)


def quality(policy):
    torch.manual_seed(1)
    with torch.no_grad():
        return rollout(policy, CartPoles(64))[1].sum(0).mean().item()


def train(tick, mended=False):
    torch.manual_seed(32)
    env = CartPoles(16)
    logits_net = LogitsNet()
    optimizer = torch.optim.Adam(logits_net.parameters(), lr=1e-2)
    tick.model(logits_net)
    tick.optimizer(optimizer)
    losses = []
    for epoch in range(40):
        logps, masks = rollout(logits_net, env)
        returns, R = [], torch.zeros(env.n)
        for m in reversed(masks):
            R = m + 0.97 * R
            returns.insert(0, R)
        returns = torch.stack(returns)
        keep = masks > 0
        returns = (returns - returns[keep].mean()) / (returns[keep].std() + 1e-6)
        loss = -(logps * returns * masks).sum() / masks.sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tick.step(loss)
        losses.append(loss.item())
    return losses
