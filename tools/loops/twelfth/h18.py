"""Sine layers fitted to one image on the full grid after lucidrains/siren-pytorch."""

import math
import torch
import torch.nn as nn


class Sine(nn.Module):
    def __init__(self, w0=1.0):
        super().__init__()
        self.w0 = w0

    def forward(self, x):
        return torch.sin(self.w0 * x)


class Siren(nn.Module):
    def __init__(self, dim_in, dim_out, w0=30.0, c=6.0, is_first=False, activation=None):
        super().__init__()
        w_std = (1 / dim_in) if is_first else (math.sqrt(c / dim_in) / w0)
        self.weight = nn.Parameter(torch.zeros(dim_out, dim_in).uniform_(-w_std, w_std))
        self.bias = nn.Parameter(torch.zeros(dim_out).uniform_(-w_std, w_std))
        self.activation = Sine(w0) if activation is None else activation

    def forward(self, x):
        return self.activation(nn.functional.linear(x, self.weight, self.bias))


class SirenNet(nn.Module):
    def __init__(self, dim_in=2, dim_hidden=48, dim_out=1, num_layers=3, w0=30.0, w0_initial=30.0):
        super().__init__()
        self.layers = nn.ModuleList(
            [
                Siren(dim_in if i == 0 else dim_hidden, dim_hidden, w0=w0_initial if i == 0 else w0, is_first=i == 0)
                for i in range(num_layers)
            ]
        )
        self.last_layer = Siren(dim_hidden, dim_out, w0=w0, activation=nn.Identity())

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.last_layer(x)


def cameraman(side=24):
    lin = torch.linspace(-1, 1, side)
    y, x = torch.meshgrid(lin, lin, indexing="ij")
    img = torch.sin(6 * x) * torch.cos(5 * y) + 0.5 * ((x**2 + y**2) < 0.3).float()
    return torch.stack([x, y], -1).view(-1, 2), img.view(-1, 1)


def train(tick, mended=False):
    torch.manual_seed(48)
    coords, ground_truth = cameraman()
    net = SirenNet()
    optim = torch.optim.Adam(lr=1e-3, params=net.parameters())
    tick.model(net)
    tick.optimizer(optim)
    losses = []
    for step in range(250):
        loss = ((net(coords) - ground_truth) ** 2).mean()
        optim.zero_grad()
        loss.backward()
        optim.step()
        tick.step(loss)
        losses.append(loss.item())
    return losses
