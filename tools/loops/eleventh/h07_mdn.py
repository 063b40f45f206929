"""After sagelywizard/pytorch-mdn.

Mixture density network on narrow conditional densities; the loss is a density and
falls below zero.
"""

import math

import torch
from torch import nn

ONEOVERSQRT2PI = 1.0 / math.sqrt(2 * math.pi)


class MDN(nn.Module):
    def __init__(self, in_features, out_features, num_gaussians):
        super().__init__()
        self.out_features, self.num_gaussians = out_features, num_gaussians
        self.pi = nn.Sequential(nn.Linear(in_features, num_gaussians), nn.Softmax(dim=1))
        self.sigma = nn.Linear(in_features, out_features * num_gaussians)
        self.mu = nn.Linear(in_features, out_features * num_gaussians)

    def forward(self, x):
        sigma = torch.exp(self.sigma(x)).view(-1, self.num_gaussians, self.out_features)
        mu = self.mu(x).view(-1, self.num_gaussians, self.out_features)
        return self.pi(x), sigma, mu


def gaussian_probability(sigma, mu, target):
    target = target.unsqueeze(1).expand_as(sigma)
    ret = ONEOVERSQRT2PI * torch.exp(-0.5 * ((target - mu) / sigma) ** 2) / sigma
    return torch.prod(ret, 2)


def mdn_loss(pi, sigma, mu, target):
    prob = pi * gaussian_probability(sigma, mu, target)
    return torch.mean(-torch.log(prob.sum(1) + 1e-12))


def train(tick, mended=False):
    torch.manual_seed(0)
    x = torch.rand(600, 1) * 2 - 1
    branch = (torch.rand(600, 1) < 0.5).float() * 2 - 1
    y = torch.cat([0.5 * branch * (1 - x**2), 0.3 * x], 1) + 0.02 * torch.randn(600, 2)
    model = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), MDN(32, 2, 4))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []
    for epoch in range(20):
        for rows in torch.randperm(len(x)).split(60):
            model.zero_grad()
            pi, sigma, mu = model(x[rows])
            loss = mdn_loss(pi, sigma, mu, y[rows])
            loss.backward()
            optimizer.step()
            tick.step(loss)
            losses.append(loss.item())
    return losses
