"""pytorch/examples (reinforcement_learning): REINFORCE with normalised returns on a cart and pole; the
loss hovers round zero while the episodes grow longer."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Categorical


class CartPole:
    def reset(self, gen):
        self.s = ((torch.rand(4, generator=gen) - 0.5) * 0.1).tolist()
        return torch.tensor(self.s)

    def step(self, action):
        x, xd, th, thd = self.s
        force = 10.0 if action == 1 else -10.0
        temp = (force + 0.05 * thd * thd * math.sin(th)) / 1.1
        tha = (9.8 * math.sin(th) - math.cos(th) * temp) / (0.5 * (4 / 3 - 0.1 * math.cos(th) ** 2 / 1.1))
        xa = temp - 0.05 * tha * math.cos(th) / 1.1
        self.s = [x + 0.02 * xd, xd + 0.02 * xa, th + 0.02 * thd, thd + 0.02 * tha]
        return torch.tensor(self.s), abs(self.s[0]) > 2.4 or abs(self.s[2]) > 0.2095


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.affine1 = nn.Linear(4, 128)
        self.dropout = nn.Dropout(p=0.6)
        self.affine2 = nn.Linear(128, 2)
        self.saved_log_probs = []

    def forward(self, x):
        return F.softmax(self.affine2(F.relu(self.dropout(self.affine1(x)))), dim=-1)


def select_action(policy, state):
    m = Categorical(policy(state), validate_args=False)
    action = m.sample()
    policy.saved_log_probs.append(m.log_prob(action))
    return action.item()


def train(tick, mended=False):
    torch.manual_seed(543)
    gen = torch.Generator().manual_seed(5)
    env, policy = CartPole(), Policy()
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
    eps = 1e-7
    tick.model(policy)
    tick.optimizer(optimizer)
    losses, lengths = [], []
    for _episode in range(90):
        state, policy.saved_log_probs = env.reset(gen), []
        for t in range(120):  # noqa: B007
            state, done = env.step(select_action(policy, state))
            if done:
                break
        lengths.append(t + 1)
        R, returns = 0.0, []
        for _ in range(t + 1):
            R = 1.0 + 0.99 * R
            returns.insert(0, R)
        returns = torch.tensor(returns)
        returns = (returns - returns.mean()) / (returns.std() + eps)
        optimizer.zero_grad()
        policy_loss = (-torch.stack(policy.saved_log_probs) * returns).sum()
        policy_loss.backward()
        optimizer.step()
        losses.append(policy_loss.item())
        tick.step(policy_loss)
    train.final = (sum(lengths[:15]) / 15, sum(lengths[-15:]) / 15)
    return losses
