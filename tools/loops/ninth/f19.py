"""After kwea123/nerf_pl#75: "Loss did not drop when training the blender dataset".

A flat-world radiance field: rays through a white scene with one small object, a
positional encoding, an MLP for density and colour, volume rendering.
"""

import torch
import torch.nn.functional as F
from torch import nn


class Embedding(nn.Module):
    def __init__(self, n_freqs=4):
        super().__init__()
        self.freqs = 2.0 ** torch.arange(n_freqs)

    def forward(self, x):
        out = [x]
        for f in self.freqs:
            out += [torch.sin(f * x), torch.cos(f * x)]
        return torch.cat(out, -1)


class NeRF(nn.Module):
    def __init__(self, in_channels=18, W=64, act=F.relu):
        super().__init__()
        self.embedding_xyz = Embedding()
        self.xyz_encoding_1 = nn.Sequential(nn.Linear(in_channels, W), nn.ReLU(True))
        self.xyz_encoding_2 = nn.Sequential(nn.Linear(W, W), nn.ReLU(True))
        self.xyz_encoding_3 = nn.Sequential(nn.Linear(W, W), nn.ReLU(True))
        self.sigma = nn.Linear(W, 1)
        self.rgb = nn.Sequential(nn.Linear(W, W // 2), nn.ReLU(True), nn.Linear(W // 2, 3), nn.Sigmoid())
        self.act = act

    def forward(self, xyz):
        h = self.xyz_encoding_3(self.xyz_encoding_2(self.xyz_encoding_1(self.embedding_xyz(xyz))))
        return self.act(self.sigma(h)).squeeze(-1), self.rgb(h)


def render_rays(nerf, rays_o, rays_d, n_samples=20):
    z = torch.linspace(0, 2, n_samples) + torch.rand(len(rays_o), n_samples) * 2 / n_samples
    xyz = rays_o[:, None] + rays_d[:, None] * z[..., None]
    sigma, rgb = nerf(xyz)
    alpha = 1 - torch.exp(-sigma * 4 * 2 / n_samples)
    trans = torch.cumprod(torch.cat([torch.ones(len(z), 1), 1 - alpha + 1e-10], 1), 1)[:, :-1]
    weights = alpha * trans
    return (weights[..., None] * rgb).sum(1) + 1 - weights.sum(1, keepdim=True)


def rays(n):
    ang = torch.rand(n) * 2 * torch.pi
    d = torch.stack([ang.cos(), ang.sin()], 1)
    off = 2 * torch.rand(n, 1) - 1
    o = -d + off * torch.stack([-d[:, 1], d[:, 0]], 1)
    centre = torch.tensor([0.2, -0.1])
    side = ((centre - o) * torch.stack([-d[:, 1], d[:, 0]], 1)).sum(1)
    hit = side.abs() < 0.16
    rgb = torch.ones(n, 3)
    rgb[hit] = torch.tensor([0.8, 0.1, 0.2])
    return o, d, rgb


def train(tick, mended=False):
    torch.manual_seed(0)
    nerf = NeRF(act=F.softplus if mended else F.relu)
    optimizer = torch.optim.Adam(nerf.parameters(), lr=4e-3, eps=1e-8)
    tick.model(nerf)
    tick.optimizer(optimizer)
    losses = []
    for _ in range(150):
        o, d, target = rays(96)
        loss = F.mse_loss(render_rays(nerf, o, d), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        tick.step(loss)
    return losses
