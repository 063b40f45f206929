"""vsitzmann/siren: a sine network fits one picture; weights of the first layer are scaled by 30, one batch holds all
pixels, the same batch comes every step."""

import math

import torch
import torch.nn as nn


class SineLayer(nn.Module):
    def __init__(self, in_features, out_features, is_first=False, omega_0=30):
        super().__init__()
        self.omega_0 = omega_0
        self.linear = nn.Linear(in_features, out_features)
        bound = 1 / in_features if is_first else math.sqrt(6 / in_features) / omega_0
        nn.init.uniform_(self.linear.weight, -bound, bound)

    def forward(self, x):
        return torch.sin(self.omega_0 * self.linear(x))


class Siren(nn.Module):
    def __init__(self, hidden=48, hidden_layers=2):
        super().__init__()
        layers = [SineLayer(2, hidden, is_first=True)]
        layers += [SineLayer(hidden, hidden) for _ in range(hidden_layers)]
        final = nn.Linear(hidden, 1)
        bound = math.sqrt(6 / hidden) / 30
        nn.init.uniform_(final.weight, -bound, bound)
        self.net = nn.Sequential(*layers, final)

    def forward(self, coords):
        return self.net(coords)


def get_mgrid(side):
    t = torch.linspace(-1, 1, side)
    return torch.stack(torch.meshgrid(t, t, indexing="ij"), dim=-1).reshape(-1, 2)


def cameraman(side):
    g = get_mgrid(side)
    shape = (g.norm(dim=1) < 0.6).float() - 0.7 * ((g[:, 0] - 0.2).abs() < 0.15).float()
    return (shape + 0.2 * torch.sin(9 * g[:, 0]) * torch.cos(7 * g[:, 1]))[:, None]


def train(tick, mended=False):
    torch.manual_seed(0)
    model_input, ground_truth = get_mgrid(28), cameraman(28)
    img_siren = Siren()
    optim = torch.optim.Adam(lr=1e-3, params=img_siren.parameters())
    tick.model(img_siren)
    tick.optimizer(optim)
    losses = []
    for _step in range(200):
        model_output = img_siren(model_input)
        loss = ((model_output - ground_truth) ** 2).mean()
        optim.zero_grad()
        loss.backward()
        optim.step()
        losses.append(loss.item())
        tick.step(loss)
    train.final = losses[-1]
    return losses
