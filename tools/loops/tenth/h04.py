"""After pytorch/examples (reinforcement_learning/reinforce.py): REINFORCE with returns made
zero-mean in each episode batch; the loss hovers about zero while the return rises."""

import torch
import torch.nn as nn
from torch.distributions import Categorical


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.affine1 = nn.Linear(4, 32)
        self.dropout = nn.Dropout(p=0.1)
        self.affine2 = nn.Linear(32, 3)

    def forward(self, x):
        return torch.softmax(self.affine2(torch.relu(self.dropout(self.affine1(x)))), dim=1)


class Chase:
    """A pursuer on a line keeps close to a drifting target."""

    def __init__(self, n):
        self.n = n

    def reset(self):
        self.x, self.g = torch.randn(self.n), torch.randn(self.n)
        self.v = 0.1 * torch.randn(self.n)
        return self.obs()

    def obs(self):
        return torch.stack([self.x, self.g, self.v, self.g - self.x], 1)

    def step(self, a):
        self.x = self.x + 0.3 * (a.float() - 1)
        self.g = self.g + self.v
        return self.obs(), -(self.x - self.g).abs()


def train(tick, mended=False):
    torch.manual_seed(543)
    env, policy = Chase(48), Policy()
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
    gamma, losses, scores = 0.9, [], []
    tick.model(policy)
    tick.optimizer(optimizer)
    for _i_episode in range(120):
        state, log_probs, rewards = env.reset(), [], []
        for _t in range(12):
            m = Categorical(policy(state))
            action = m.sample()
            log_probs.append(m.log_prob(action))
            state, r = env.step(action)
            rewards.append(r)
        R, returns = torch.zeros(env.n), []
        for r in reversed(rewards):
            R = r + gamma * R
            returns.insert(0, R)
        returns = torch.stack(returns)
        returns = (returns - returns.mean(1, keepdim=True)) / (returns.std(1, keepdim=True) + 1e-6)
        policy_loss = -(torch.stack(log_probs) * returns).sum(0).mean()
        optimizer.zero_grad()
        policy_loss.backward()
        optimizer.step()
        tick.step(policy_loss)
        losses.append(policy_loss.item())
        scores.append(torch.stack(rewards).mean().item())
    return losses
