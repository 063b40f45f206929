"""After KanishJebaMathewM/Truxify#12551.

A radiance-field service keeps its own NeRF module.  Scenes come out smoother than with the
published encoding and fine detail is missing.
"""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F


def posenc(x, degree):
    """gamma(p) = (sin(2^0 pi p), cos(2^0 pi p), ..., sin(2^(L-1) pi p), cos(2^(L-1) pi p))."""
    out = [x]
    for i in range(degree):
        for fn in (torch.sin, torch.cos):
            out.append(fn(2.0**i * math.pi * x))
    return torch.cat(out, -1)


class PaperNeRF(nn.Module):
    def __init__(self, lx=4, ld=2, width=32, depth=4, skip=2):
        super().__init__()
        self.lx, self.ld, self.skip = lx, ld, skip
        cin = 3 + 6 * lx
        self.pts_linears = nn.ModuleList(
            [nn.Linear(cin if i == 0 else width + (cin if i == skip else 0), width) for i in range(depth)]
        )
        self.alpha_linear, self.feature_linear = nn.Linear(width, 1), nn.Linear(width, width)
        self.views_linear, self.rgb_linear = nn.Linear(width + 3 + 6 * ld, width // 2), nn.Linear(width // 2, 3)

    def field(self, pts, dirs):
        e = posenc(pts, self.lx)
        h = e
        for i, layer in enumerate(self.pts_linears):
            h = F.relu(layer(torch.cat([e, h], -1) if i == self.skip else h))
        sigma = F.relu(self.alpha_linear(h)).squeeze(-1)
        h = torch.cat([self.feature_linear(h), posenc(dirs, self.ld)], -1)
        return torch.sigmoid(self.rgb_linear(F.relu(self.views_linear(h)))), sigma

    def forward(self, rays_o, rays_d, z_vals):
        pts = rays_o[:, None] + rays_d[:, None] * z_vals[..., None]
        dirs = F.normalize(rays_d, dim=-1)[:, None].expand_as(pts)
        rgb, sigma = self.field(pts, dirs)
        dists = torch.cat([z_vals[:, 1:] - z_vals[:, :-1], torch.full_like(z_vals[:, :1], 1e10)], -1) * rays_d.norm(
            dim=-1, keepdim=True
        )
        alpha = 1 - torch.exp(-sigma * dists)
        trans = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-10], -1), -1)[:, :-1]
        weights = alpha * trans
        return (weights[..., None] * rgb).sum(1), weights


class PositionalEncoding(nn.Module):
    def __init__(self, num_frequencies, include_input=True):
        super().__init__()
        self.num_frequencies, self.include_input = num_frequencies, include_input

    def frequency(self, i):
        return 2**i

    def forward(self, x):
        encoding = [x] if self.include_input else []
        for i in range(self.num_frequencies):
            freq = self.frequency(i)
            encoding.append(torch.sin(freq * x))
            encoding.append(torch.cos(freq * x))
        return torch.cat(encoding, dim=-1)


class PositionalEncodingMended(PositionalEncoding):
    def frequency(self, i):
        return (2**i) * math.pi


class NeRFModel(nn.Module):
    def __init__(self, encoding, pos_freqs=4, dir_freqs=2, hidden_dim=32):
        super().__init__()
        self.pos_encoder, self.dir_encoder = encoding(pos_freqs), encoding(dir_freqs)
        pos_dim, dir_dim = 3 + 6 * pos_freqs, 3 + 6 * dir_freqs
        self.block1 = nn.Sequential(
            nn.Linear(pos_dim, hidden_dim), nn.ReLU(), nn.Linear(hidden_dim, hidden_dim), nn.ReLU()
        )
        self.block2 = nn.Sequential(
            nn.Linear(pos_dim + hidden_dim, hidden_dim), nn.ReLU(), nn.Linear(hidden_dim, hidden_dim), nn.ReLU()
        )
        self.density_head = nn.Sequential(nn.Linear(hidden_dim, 1), nn.ReLU())
        self.bottleneck = nn.Linear(hidden_dim, hidden_dim)
        self.color_head = nn.Sequential(
            nn.Linear(hidden_dim + dir_dim, hidden_dim // 2), nn.ReLU(), nn.Linear(hidden_dim // 2, 3), nn.Sigmoid()
        )

    def forward(self, positions, directions):
        p, d = self.pos_encoder(positions), self.dir_encoder(directions)
        h = self.block2(torch.cat([p, self.block1(p)], dim=-1))
        return self.color_head(torch.cat([self.bottleneck(h), d], dim=-1)), self.density_head(h)


class VolumeRenderer(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, origins, directions, depths):
        n, s = depths.shape
        points = torch.addcmul(origins.unsqueeze(1), directions.unsqueeze(1), depths.unsqueeze(2))
        unit = directions / directions.norm(dim=-1, keepdim=True)
        rgb, density = self.model(points.view(-1, 3), unit.repeat_interleave(s, dim=0))
        rgb, density = rgb.view(n, s, 3), density.view(n, s)
        delta = F.pad(depths.diff(dim=-1), (0, 1), value=1e10) * directions.norm(dim=-1)[:, None]
        optical = density * delta
        alpha = 1.0 - torch.exp(-optical)
        keep = (1 - alpha + 1e-10).cumprod(-1)
        weights = alpha * F.pad(keep[:, :-1], (1, 0), value=1.0)
        return torch.einsum("ns,nsc->nc", weights, rgb), weights


def convert(sd):
    names = {
        "pts_linears.0": "block1.0",
        "pts_linears.1": "block1.2",
        "pts_linears.2": "block2.0",
        "pts_linears.3": "block2.2",
        "alpha_linear": "density_head.0",
        "feature_linear": "bottleneck",
        "views_linear": "color_head.0",
        "rgb_linear": "color_head.2",
    }
    return {"model." + names[k.rsplit(".", 1)[0]] + "." + k.rsplit(".", 1)[1]: v for k, v in sd.items()}


def build(fixed):
    torch.manual_seed(26)
    original = PaperNeRF().eval()
    with torch.no_grad():
        for layer in original.pts_linears:
            layer.weight.mul_(1.8)
        original.alpha_linear.bias.fill_(0.3)
        original.rgb_linear.weight.mul_(4)
    port = VolumeRenderer(NeRFModel(PositionalEncodingMended if fixed else PositionalEncoding)).eval()
    port.load_state_dict(convert(original.state_dict()))
    z = torch.linspace(0.5, 2.5, 16).expand(6, 16).contiguous()
    return original, port, (torch.randn(6, 3) * 0.2, torch.randn(6, 3) * 0.6, z)
