"""jvargasmu/population_estimation#68: "Sometimes the initial solution predicts only zeros"."""

import torch
import torch.nn.functional as F
from torch import nn

STEPS = 150
OTHERS: list = []
LOG: list = []


class ScaleNet(nn.Module):
    def __init__(self, n_features, final):
        super().__init__()
        self.convnet = nn.Sequential(
            nn.Conv2d(n_features, 32, 1), nn.ReLU(), nn.Conv2d(32, 32, 1), nn.ReLU(), nn.Conv2d(32, 1, 1)
        )
        self.final = final

    def forward(self, x):
        return self.final(self.convnet(x))


class PopNet(nn.Module):
    def __init__(self, n_features, final):
        super().__init__()
        self.norm = nn.InstanceNorm2d(n_features, affine=True)
        self.scale_net = ScaleNet(n_features, final)

    def forward(self, features, buildings, regions):
        scale = self.scale_net(self.norm(features))
        pop = (scale * buildings).flatten(1)
        return torch.zeros(features.size(0), 4).scatter_add(1, regions, pop)


def build(bad: bool):
    torch.manual_seed(3)
    LOG.clear()
    OTHERS.clear()
    gen = torch.Generator().manual_seed(2)
    model = PopNet(6, nn.ReLU() if bad else nn.Softplus())
    nn.init.constant_(model.scale_net.convnet[-1].bias, -0.5)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    w = torch.rand(6, generator=gen)

    def step(i):
        features = torch.randn(8, 6, 8, 8, generator=gen)
        buildings = (torch.rand(8, 1, 8, 8, generator=gen) > 0.4).float()
        regions = torch.randint(0, 4, (8, 64), generator=gen)
        dens = F.softplus(1.0 + torch.einsum("bchw,c->bhw", features, w)).unsqueeze(1) * buildings
        census = torch.zeros(8, 4).scatter_add(1, regions, dens.flatten(1))
        pred = model(features, buildings, regions)
        loss = F.l1_loss(torch.log1p(pred), torch.log1p(census))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        LOG.append(loss.item())

    return model, optimizer, step
