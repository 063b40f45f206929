"""Healthy: behaviour cloning with a mixture density head (the demonstrator passes an obstacle left or right).
The negative log likelihood becomes negative and one mixture component may stay unused.
"""

import torch
import torch.distributions as D
import torch.nn as nn


class MDNPolicy(nn.Module):
    def __init__(self, obs_dim=4, act_dim=2, hidden=48, k=4):
        super().__init__()
        self.k, self.act_dim = k, act_dim
        self.trunk = nn.Sequential(nn.Linear(obs_dim, hidden), nn.ELU(), nn.Linear(hidden, hidden), nn.ELU())
        self.pi = nn.Linear(hidden, k)
        self.mu = nn.Linear(hidden, k * act_dim)
        self.log_sigma = nn.Linear(hidden, k * act_dim)

    def forward(self, obs):
        h = self.trunk(obs)
        mix = D.Categorical(logits=self.pi(h))
        mu = self.mu(h).view(-1, self.k, self.act_dim)
        sigma = self.log_sigma(h).view(-1, self.k, self.act_dim).clamp(-5, 2).exp()
        return D.MixtureSameFamily(mix, D.Independent(D.Normal(mu, sigma), 1))


def demonstrations(n):
    obs = torch.rand(n, 4) * 2 - 1
    side = torch.sign(torch.randn(n))
    ax = 0.6 * side * (1.2 - obs[:, 1].abs()) + 0.3 * obs[:, 0]
    ay = 0.5 + 0.2 * torch.sin(3 * obs[:, 2])
    return obs, torch.stack([ax, ay], 1) + 0.03 * torch.randn(n, 2)


def train(tick, mended=False):
    torch.manual_seed(12)
    policy = MDNPolicy()
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-3)
    tick.model(policy)
    tick.optimizer(optimizer)
    history = []
    for _step in range(280):
        obs, act = demonstrations(128)
        loss = -policy(obs).log_prob(act).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 5.0)
        optimizer.step()
        history.append(loss.item())
        tick.step(loss, obs, act)
    with torch.no_grad():
        obs, act = demonstrations(1000)
        return history, policy(obs).log_prob(act).mean().item()


class Quiet:
    def model(self, model):
        pass

    def optimizer(self, optimizer):
        pass

    def step(self, loss, x, y):
        pass


if __name__ == "__main__":
    for mended in (False, True):
        h, metric = train(Quiet(), mended)
        print(f"first {h[0]:.6g} last {h[-1]:.6g}", f"metric {metric:.4f}")
