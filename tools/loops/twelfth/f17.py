"""After rlworkgroup/garage#291: policy gradients through a normalizing environment wrapper.

Wrapping the environment sabotages the training: the returns do not rise,
while the bare environment is solved.
"""

import numpy as np
import torch
import torch.nn as nn
from torch.distributions import Normal


class SawyerReachEnv:
    low, high = np.array([-0.1, -0.1], np.float32), np.array([0.1, 0.1], np.float32)

    def reset(self, n, rng):
        self.goal = rng.uniform(-0.08, 0.08, (n, 2)).astype(np.float32)
        return self.goal * 10

    def step(self, action):
        return -((action - self.goal) ** 2).sum(-1) * 100


class NormalizedEnv:
    def __init__(self, env, mended):
        self.env, self.mended = env, mended

    def reset(self, n, rng):
        return self.env.reset(n, rng)

    def step(self, action):
        if self.mended:
            action = action.copy()
        lb, ub = self.env.low, self.env.high
        action += 1.0
        action *= 0.5 * (ub - lb)
        action += lb
        np.clip(action, lb, ub, out=action)
        return self.env.step(action)


class GaussianMLPPolicy(nn.Module):
    def __init__(self, obs_dim=2, action_dim=2, hidden=32):
        super().__init__()
        self.mean_network = nn.Sequential(
            nn.Linear(obs_dim, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, action_dim)
        )
        self.log_std = nn.Parameter(torch.full((action_dim,), -0.7))

    def dist(self, obs):
        return Normal(self.mean_network(obs), self.log_std.clamp(-2.0, 0.5).exp())


def mean_return(policy, env, rng, n=256):
    obs = env.reset(n, rng)
    with torch.no_grad():
        act = policy.dist(torch.from_numpy(obs)).mean.numpy().copy()
    return float(env.step(act).mean())


def quality(policy):
    return mean_return(policy, NormalizedEnv(SawyerReachEnv(), True), np.random.default_rng(5))


def train(tick, mended=False):
    torch.manual_seed(16)
    rng = np.random.default_rng(16)
    env = NormalizedEnv(SawyerReachEnv(), mended)
    policy = GaussianMLPPolicy()
    optimizer = torch.optim.Adam(policy.parameters(), lr=5e-3)
    tick.model(policy)
    tick.optimizer(optimizer)
    losses = []
    for itr in range(250):
        obs = env.reset(256, rng)
        obs_t = torch.from_numpy(obs)
        with torch.no_grad():
            actions = policy.dist(obs_t).sample().numpy()
        rewards = torch.from_numpy(env.step(actions))
        advantages = (rewards - rewards.mean()) / (rewards.std() + 1e-8)
        log_prob = policy.dist(obs_t).log_prob(torch.from_numpy(actions)).sum(-1)
        loss = -(log_prob * advantages).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tick.step(loss)
        losses.append(loss.item())
    return losses
