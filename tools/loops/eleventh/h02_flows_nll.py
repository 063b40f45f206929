"""After ikostrikov/pytorch-flows.

RealNVP-style density estimator on almost low-dimensional data: the negative log
likelihood goes far below zero.
"""

import math

import torch
from torch import nn


class CouplingLayer(nn.Module):
    def __init__(self, num_inputs, num_hidden, mask):
        super().__init__()
        self.register_buffer("mask", mask)
        self.scale_net = nn.Sequential(
            nn.Linear(num_inputs, num_hidden), nn.Tanh(), nn.Linear(num_hidden, num_inputs), nn.Tanh()
        )
        self.translate_net = nn.Sequential(
            nn.Linear(num_inputs, num_hidden), nn.ReLU(), nn.Linear(num_hidden, num_inputs)
        )
        self.gain = nn.Parameter(torch.ones(num_inputs))
        for m in self.modules():
            if isinstance(m, nn.Linear):
                m.bias.data.fill_(0)
                nn.init.orthogonal_(m.weight.data, gain=0.5)

    def forward(self, inputs):
        masked = inputs * self.mask
        log_s = self.scale_net(masked) * (1 - self.mask) * 2 * self.gain
        t = self.translate_net(masked) * (1 - self.mask)
        return inputs * log_s.exp() + t, log_s.sum(-1, keepdim=True)


class FlowSequential(nn.Sequential):
    def log_probs(self, inputs):
        logdets = torch.zeros(len(inputs), 1)
        for module in self:
            inputs, logdet = module(inputs)
            logdets = logdets + logdet
        log_probs = (-0.5 * inputs.pow(2) - 0.5 * math.log(2 * math.pi)).sum(-1, keepdim=True)
        return log_probs + logdets


def power_like(n):
    z = torch.randn(n, 2)
    x = torch.stack([z[:, 0], z[:, 1], z[:, 0] * 0.7 - z[:, 1], (z[:, 0] * z[:, 1]).tanh()], 1)
    return 0.3 * x + 0.01 * torch.randn(n, 4)


def train(tick, mended=False):
    torch.manual_seed(0)
    data = power_like(1000)
    mask = torch.arange(4) % 2
    blocks = []
    for _ in range(5):
        blocks.append(CouplingLayer(4, 32, mask.float()))
        mask = 1 - mask
    model = FlowSequential(*blocks)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, weight_decay=1e-6)
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []
    for it in range(200):
        batch = data[torch.randint(0, len(data), (100,))]
        optimizer.zero_grad()
        loss = -model.log_probs(batch).mean()
        loss.backward()
        optimizer.step()
        tick.step(loss)
        losses.append(loss.item())
    return losses
