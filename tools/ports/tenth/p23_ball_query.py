"""yanx27/Pointnet_Pointnet2_pytorch#209: set abstraction for point clouds in plain PyTorch.

A user compared the neighbourhoods with those of a nearest-in-radius search: in dense regions the
plain version groups other points, and the class scores differ.
"""

import itertools

import torch
import torch.nn.functional as F
from torch import nn


def fps(xyz, n):
    idx = [torch.zeros(xyz.size(0), dtype=torch.long)]
    dist = torch.full(xyz.shape[:2], 1e10)
    rows = torch.arange(xyz.size(0))
    for _ in range(n - 1):
        dist = torch.minimum(dist, (xyz - xyz[rows, idx[-1]][:, None]).pow(2).sum(-1))
        idx.append(dist.argmax(-1))
    return torch.stack(idx, 1)


class SharedMLP(nn.Sequential):
    def __init__(self, widths):
        layers = []
        for a, b in itertools.pairwise(widths):
            layers += [nn.Conv2d(a, b, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU()]
        super().__init__(*layers)


class SAModule(nn.Module):
    """Reference: the nsample nearest points of the ball; short balls repeat the nearest one."""

    def __init__(self, npoint, radius, nsample, widths):
        super().__init__()
        self.npoint, self.radius, self.nsample = npoint, radius, nsample
        self.mlp = SharedMLP(widths)

    def forward(self, xyz, feats):
        rows = torch.arange(xyz.size(0))[:, None]
        centre = xyz[rows, fps(xyz, self.npoint)]
        d = (centre[:, :, None] - xyz[:, None]).pow(2).sum(-1)
        near, idx = d.topk(self.nsample, dim=-1, largest=False)
        idx = torch.where(near > self.radius**2, idx[..., :1], idx)
        group = xyz[rows[..., None], idx] - centre[:, :, None]
        if feats is not None:
            group = torch.cat([group, feats[rows[..., None], idx]], -1)
        return centre, self.mlp(group.permute(0, 3, 1, 2)).amax(-1).transpose(1, 2)


class PointNet2(nn.Module):
    def __init__(self, classes=5):
        super().__init__()
        self.sa1 = SAModule(16, 0.5, 6, [3, 8, 12])
        self.sa2 = SAModule(6, 0.9, 4, [15, 16])
        self.global_mlp = SharedMLP([19, 24])
        self.fc1, self.fc2 = nn.Linear(24, 16), nn.Linear(16, classes)

    def forward(self, xyz):
        x1, f1 = self.sa1(xyz, None)
        x2, f2 = self.sa2(x1, f1)
        g = self.global_mlp(torch.cat([x2, f2], -1).mT[..., None]).amax((2, 3))
        return self.fc2(F.relu(self.fc1(g)))


def square_distance(src, dst):
    return torch.cdist(src, dst, compute_mode="donot_use_mm_for_euclid_dist").square()


def farthest_point_sample(xyz, npoint):
    B, N, _ = xyz.shape
    centroids = torch.zeros(B, npoint, dtype=torch.long)
    distance = torch.ones(B, N) * 1e10
    farthest = torch.zeros(B, dtype=torch.long)
    for i in range(npoint):
        centroids[:, i] = farthest
        centroid = xyz.gather(1, farthest.view(B, 1, 1).expand(-1, -1, 3))
        distance = torch.min(distance, ((xyz - centroid) ** 2).sum(-1))
        farthest = distance.max(-1)[1]
    return centroids


def query_ball_point(radius, nsample, xyz, new_xyz, by):
    B, N, _ = xyz.shape
    sqrdists = square_distance(new_xyz, xyz)
    if by == "index":
        group_idx = torch.arange(N).expand(B, new_xyz.size(1), N).clone()
        group_idx[sqrdists > radius**2] = N
        group_idx = group_idx.sort(dim=-1)[0][:, :, :nsample]
    else:
        sort_dis, group_idx = sqrdists.sort(dim=-1)
        group_idx[sort_dis > radius**2] = N
        group_idx = group_idx[:, :, :nsample]
    group_first = group_idx[:, :, :1].expand(-1, -1, nsample)
    return torch.where(group_idx == N, group_first, group_idx)


class SetAbstraction(nn.Module):
    def __init__(self, npoint, radius, nsample, widths, by):
        super().__init__()
        self.cfg, self.by = (npoint, radius, nsample), by
        self.lins = nn.ModuleList([nn.Linear(a, b) for a, b in itertools.pairwise(widths)])

    def forward(self, xyz, points):
        npoint, radius, nsample = self.cfg

        def take(t, i):
            return t.gather(1, i.flatten(1)[..., None].expand(-1, -1, t.size(-1))).view(*i.shape, -1)

        new_xyz = take(xyz, farthest_point_sample(xyz, npoint))
        idx = query_ball_point(radius, nsample, xyz, new_xyz, self.by)
        grouped = take(xyz, idx) - new_xyz.unsqueeze(2)
        if points is not None:
            grouped = torch.cat((grouped, take(points, idx)), dim=-1)
        for lin in self.lins:
            grouped = torch.relu(lin(grouped))
        return new_xyz, grouped.max(dim=2)[0]


class PointNetCls(nn.Module):
    def __init__(self, num_class=5, by="index"):
        super().__init__()
        self.sa1 = SetAbstraction(16, 0.5, 6, [3, 8, 12], by)
        self.sa2 = SetAbstraction(6, 0.9, 4, [15, 16], by)
        self.sa3 = nn.Linear(19, 24)
        self.classifier = nn.Sequential(nn.Linear(24, 16), nn.ReLU(), nn.Linear(16, num_class))

    def forward(self, xyz):
        l2_xyz, l2_points = self.sa2(*self.sa1(xyz, None))
        l3 = self.sa3(torch.cat((l2_xyz, l2_points), -1)).relu().max(1)[0]
        return self.classifier(l3)


def convert(sd):
    def folded(p, j):
        g = sd[f"{p}.{j + 1}.weight"] * (sd[f"{p}.{j + 1}.running_var"] + 1e-5).rsqrt()
        return sd[f"{p}.{j}.weight"].flatten(1) * g[:, None], sd[f"{p}.{j + 1}.bias"] - g * sd[
            f"{p}.{j + 1}.running_mean"
        ]

    out = {}
    for p, j, dst in (
        ("sa1.mlp", 0, "sa1.lins.0"),
        ("sa1.mlp", 3, "sa1.lins.1"),
        ("sa2.mlp", 0, "sa2.lins.0"),
        ("global_mlp", 0, "sa3"),
    ):
        out[dst + ".weight"], out[dst + ".bias"] = folded(p, j)
    for src, dst in (("fc1", "classifier.0"), ("fc2", "classifier.2")):
        out[dst + ".weight"], out[dst + ".bias"] = sd[src + ".weight"], sd[src + ".bias"]
    return out


def build(fixed):
    torch.manual_seed(90)
    original = PointNet2().eval()
    for m in original.modules():
        if isinstance(m, nn.BatchNorm2d):
            m.running_mean.normal_(0, 0.1)
            m.running_var.uniform_(0.05, 0.3)
            nn.init.normal_(m.bias, 0, 0.1)
    port = PointNetCls(by="distance" if fixed else "index").eval()
    port.load_state_dict(convert(original.state_dict()))
    cloud = F.normalize(torch.randn(2, 80, 3), dim=-1) * torch.tensor([1.0, 0.8, 0.5])
    return original, port, (cloud + 0.02 * torch.randn(2, 80, 3),)
