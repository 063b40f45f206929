"""After LianpoWang/SLIIF#13.

Story: arbitrary-scale super resolution with an implicit function; the residual
MLPs of the decoder do not take part and the fit is poor.
"""

import torch
import torch.nn.functional as F
from torch import nn


class RES_MLP(nn.Module):
    def __init__(self, in_dim, out_dim, hidden_list):
        super().__init__()
        layers, last = [], in_dim
        for h in hidden_list:
            layers += [nn.Linear(last, h), nn.ReLU()]
            last = h
        layers.append(nn.Linear(last, out_dim))
        self.layers = nn.Sequential(*layers)

    def forward(self, x):
        return self.layers(x)


class RESMLPS(nn.Module):
    def __init__(self, feat_dim, n_mlps, hidden_list, container):
        super().__init__()
        self.mlps = container([RES_MLP(feat_dim + 2, feat_dim, hidden_list) for _ in range(n_mlps)])
        self.expansionNet = nn.Linear(feat_dim, 1)

    def forward(self, feat, coord):
        for mlp in self.mlps:
            feat = torch.relu(feat + mlp(torch.cat([feat, coord], -1)))
        return self.expansionNet(feat)


class SLIIF(nn.Module):
    def __init__(self, container, n_feats=12):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, n_feats, 3, padding=1), nn.ReLU(), nn.Conv2d(n_feats, n_feats, 3, padding=1)
        )
        self.imnet = RESMLPS(n_feats, 3, [24], container)

    def forward(self, lr_img, coord):
        feat = self.encoder(lr_img)
        grid = coord.flip(-1).unsqueeze(1)
        q = F.grid_sample(feat, grid, mode="nearest", align_corners=False)[:, :, 0].transpose(1, 2)
        side = lr_img.size(-1)
        rel = ((coord + 1) * side / 2) % 1 * 2 - 1
        return self.imnet(q, rel)


def sample(batch=8, n_query=64):
    a = torch.rand(batch, 4) * 3

    def field(c):
        return torch.sin(3 * a[:, 0:1] * c[..., 0] + a[:, 1:2]) * torch.cos(3 * a[:, 2:3] * c[..., 1] + a[:, 3:4])

    axis = (torch.arange(8) + 0.5) / 4 - 1
    gy, gx = torch.meshgrid(axis, axis, indexing="ij")
    lr = field(torch.stack([gy, gx], -1).view(1, 64, 2).expand(batch, -1, -1)).view(batch, 1, 8, 8)
    coord = torch.rand(batch, n_query, 2) * 2 - 1
    return lr, coord, field(coord).unsqueeze(-1)


def train(tick, mended=False):
    torch.manual_seed(0)
    model = SLIIF(nn.ModuleList if mended else list)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    loss_fn = nn.L1Loss()
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []
    for step in range(250):
        lr_img, coord, gt = sample()
        pred = model(lr_img, coord)
        loss = loss_fn(pred, gt)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tick.step(loss)
        losses.append(loss.item())
    return losses
