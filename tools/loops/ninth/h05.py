"""Healthy. After openai/evolution-strategies-starter: no backward at all; the gradient
is estimated from mirrored perturbations with centred ranks and written into .grad.
"""

import torch
from torch import nn


class MujocoPolicy(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(4, 16)
        self.fc2 = nn.Linear(16, 2)

    def forward(self, ob):
        return self.fc2(torch.tanh(self.fc1(ob)))


def compute_centered_ranks(x):
    ranks = x.flatten().argsort().argsort().float().view_as(x)
    return ranks / (x.numel() - 1) - 0.5


@torch.no_grad()
def rollout(policy, n=32):
    pos, vel, ret = torch.randn(n, 2), torch.zeros(n, 2), 0.0
    for _ in range(12):
        a = policy(torch.cat([pos, vel], 1)).clamp(-1, 1)
        vel = 0.8 * vel + 0.3 * a
        pos = pos + vel
        ret = ret - (pos**2).sum(1).mean()
    return ret


def train(tick, mended=False):
    torch.manual_seed(0)
    policy = MujocoPolicy()
    optimizer = torch.optim.Adam(policy.parameters(), lr=0.06)
    noise_stdev, pairs = 0.08, 10
    tick.model(policy)
    tick.optimizer(optimizer)
    losses = []
    for _it in range(50):
        theta = nn.utils.parameters_to_vector(policy.parameters()).detach()
        eps = torch.randn(pairs, theta.numel())
        returns = torch.zeros(pairs, 2)
        for i in range(pairs):
            for j, s in enumerate((1, -1)):
                nn.utils.vector_to_parameters(theta + s * noise_stdev * eps[i], policy.parameters())
                returns[i, j] = rollout(policy)
        nn.utils.vector_to_parameters(theta, policy.parameters())
        proc = compute_centered_ranks(returns)
        g = (proc[:, 0] - proc[:, 1]) @ eps / pairs
        optimizer.zero_grad()
        k = 0
        for p in policy.parameters():
            p.grad = (-g[k : k + p.numel()] + 0.001 * theta[k : k + p.numel()]).view_as(p).clone()
            k += p.numel()
        optimizer.step()
        loss = -returns.mean()
        losses.append(loss.item())
        tick.step(loss)
    return losses
