"""After akanazawa/cmr#11.

Category-specific mesh reconstruction: the smoothness term triangle_loss_fn (flatten loss
over neighbouring faces) makes the total loss nan at the first iterations.  The template
here, as there, has flat faces next to each other.
"""

import torch
import torch.nn as nn


def grid_template(n=5):
    ax = torch.linspace(-1, 1, n)
    y, x = torch.meshgrid(ax, ax, indexing="ij")
    verts = torch.stack([x.flatten(), y.flatten(), torch.zeros(n * n)], -1)
    faces = []
    for i in range(n - 1):
        for j in range(n - 1):
            a, b, c, d = i * n + j, i * n + j + 1, (i + 1) * n + j, (i + 1) * n + j + 1
            faces += [(a, b, c), (b, d, c)]
    return verts, torch.tensor(faces)


def shared_edges(faces):
    seen, quads = {}, []
    for f in faces.tolist():
        for k in range(3):
            e = tuple(sorted((f[k], f[(k + 1) % 3])))
            other = f[(k + 2) % 3]
            if e in seen:
                quads.append((e[0], e[1], seen[e], other))
            seen[e] = other
    return torch.tensor(quads)


class TriangleLoss(nn.Module):
    def __init__(self, faces, mended):
        super().__init__()
        self.register_buffer("quads", shared_edges(faces))
        self.mended = mended

    def forward(self, verts):
        v0, v1, v2, v3 = (verts[:, self.quads[:, k]] for k in range(4))
        axis = v1 - v0
        axis = axis / axis.norm(dim=-1, keepdim=True)
        a, b = v2 - v0, v3 - v0
        a = a - (a * axis).sum(-1, keepdim=True) * axis
        b = b - (b * axis).sum(-1, keepdim=True) * axis
        cos = (a * b).sum(-1) / (a.norm(dim=-1) * b.norm(dim=-1))
        sin2 = (1 - cos**2).clamp(min=0)
        sin = torch.sqrt(sin2 + 1e-6) if self.mended else torch.sqrt(sin2)
        return (cos + 1).pow(2).mean() + 0.1 * sin.mean()


class MeshNet(nn.Module):
    def __init__(self, nz_feat=32):
        super().__init__()
        verts, faces = grid_template()
        self.register_buffer("mean_v", verts)
        self.faces = faces
        self.encoder = nn.Sequential(
            nn.Linear(20, nz_feat), nn.LeakyReLU(0.2), nn.Linear(nz_feat, nz_feat), nn.LeakyReLU(0.2)
        )
        self.shape_predictor = nn.Linear(nz_feat, verts.numel())
        nn.init.zeros_(self.shape_predictor.weight)
        nn.init.zeros_(self.shape_predictor.bias)

    def forward(self, feat):
        delta_v = self.shape_predictor(self.encoder(feat)).view(-1, *self.mean_v.shape)
        return self.mean_v + delta_v


def train(tick, mended=False):
    torch.manual_seed(15)
    model = MeshNet()
    triangle_loss_fn = TriangleLoss(model.faces, mended)
    basis = torch.randn(3, 20)
    xy = model.mean_v[:, :2]
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    losses = []
    tick.model(model)
    tick.optimizer(optimizer)
    for _it in range(200):
        code = torch.randn(32, 3)
        feat = code @ basis + 0.05 * torch.randn(32, 20)
        target = model.mean_v.repeat(32, 1, 1)
        target[..., 2] = 0.3 * (code[:, :1] * xy[:, 0] + code[:, 1:2] * xy[:, 1] ** 2 + code[:, 2:])
        verts = model(feat)
        total_loss = (verts - target).pow(2).sum(-1).mean() + 0.01 * triangle_loss_fn(verts)
        optimizer.zero_grad()
        total_loss.backward()
        optimizer.step()
        tick.step(total_loss)
        losses.append(total_loss.item())
    return losses
