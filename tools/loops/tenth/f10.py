"""After yenchenlin/nerf-pytorch#91 (see also #52 there).

NeRF on the Lego scene: the renderings are blank for some runs, the loss stands still from
the first iteration on; many users answer that running again with another seed helped.
"""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F


def positional_encoding(x, num_freqs=4):
    out = [x]
    for i in range(num_freqs):
        out += [torch.sin(2.0**i * x), torch.cos(2.0**i * x)]
    return torch.cat(out, dim=-1)


class NeRF(nn.Module):
    def __init__(self, D=3, W=48, input_ch=2 + 2 * 2 * 4):
        super().__init__()
        self.pts_linears = nn.ModuleList([nn.Linear(input_ch, W)] + [nn.Linear(W, W) for _ in range(D - 1)])
        self.feature_linear = nn.Linear(W, W)
        self.rgb_linear = nn.Linear(W, 3)
        self.alpha_linear = nn.Linear(W, 1)

    def forward(self, pts):
        h = positional_encoding(pts)
        for layer in self.pts_linears:
            h = F.relu(layer(h))
        return self.rgb_linear(F.relu(self.feature_linear(h))), self.alpha_linear(h)


def raw2outputs(rgb_raw, alpha_raw, z_vals, mended):
    dists = torch.cat([z_vals[..., 1:] - z_vals[..., :-1], torch.full_like(z_vals[..., :1], 0.1)], -1)
    rgb = torch.sigmoid(rgb_raw)
    density = F.softplus(alpha_raw) if mended else F.relu(alpha_raw)
    alpha = 1.0 - torch.exp(-density[..., 0] * dists)
    trans = torch.cumprod(1.0 - alpha + 1e-10, dim=-1)
    trans = torch.cat([torch.ones_like(trans[..., :1]), trans[..., :-1]], -1)
    weights = alpha * trans
    return (weights[..., None] * rgb).sum(-2)


def render_rays(model, rays_o, rays_d, mended, n_samples=24):
    z_vals = torch.linspace(1.0, 3.0, n_samples).expand(rays_o.size(0), n_samples)
    z_vals = z_vals + torch.rand_like(z_vals) * (2.0 / n_samples)
    pts = rays_o[:, None] + rays_d[:, None] * z_vals[..., None]
    return raw2outputs(*model(pts), z_vals, mended)


def sample_rays(n):
    """Views of a disc with an angular colour pattern from a circle of cameras."""
    phi = 2 * math.pi * torch.rand(n)
    rays_o = 2 * torch.stack([phi.cos(), phi.sin()], -1)
    off = 0.35 * torch.randn(n)
    rays_d = -torch.stack([(phi + off).cos(), (phi + off).sin()], -1)
    b = (rays_o * rays_d).sum(-1)
    disc = b**2 - (rays_o**2).sum(-1) + 0.64
    hit = disc > 0
    p = rays_o + (-b - disc.clamp(min=0).sqrt())[:, None] * rays_d
    ang = torch.atan2(p[:, 1], p[:, 0])
    rgb = torch.stack([0.6 + 0.3 * ang.cos(), 0.6 + 0.3 * ang.sin(), 0.6 + 0 * ang], -1)
    return rays_o, rays_d, rgb * hit[:, None]


def train(tick, mended=False):
    torch.manual_seed(40)
    model = NeRF()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    losses = []
    tick.model(model)
    tick.optimizer(optimizer)
    for _i in range(200):
        rays_o, rays_d, target = sample_rays(128)
        rgb = render_rays(model, rays_o, rays_d, mended)
        loss = torch.mean((rgb - target) ** 2)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tick.step(loss)
        losses.append(loss.item())
    return losses
