"""After erikwijmans/Pointnet2_PyTorch#151: a set-abstraction network for small point clouds, in
the first version with the sampling of the TensorFlow original and in the torch version with its
own furthest point sampling. For most clouds the picked points agree, for some not."""

import torch
import torch.nn as nn
import torch.nn.functional as F

N, M1, M2, K = 40, 14, 6, 6


def fps_reference(xyz, m):
    picks = torch.zeros(xyz.shape[0], m, dtype=torch.long)
    best = torch.full(xyz.shape[:2], 1e38)
    cur = torch.zeros(xyz.shape[0], dtype=torch.long)
    for i in range(m):
        picks[:, i] = cur
        d = (xyz - xyz[torch.arange(len(xyz)), cur][:, None]).pow(2).sum(-1)
        best = torch.minimum(best, d)
        cur = best.argmax(-1)
    return picks


def take(x, idx):
    return torch.stack([a[i] for a, i in zip(x, idx)])


class SetAbstraction(nn.Module):
    def __init__(self, m, cin, cout):
        super().__init__()
        self.m = m
        self.conv1, self.conv2 = nn.Conv2d(cin + 3, cout, 1), nn.Conv2d(cout, cout, 1)

    def forward(self, xyz, feats):
        centres = take(xyz, fps_reference(xyz, self.m))
        d = (centres[:, :, None] - xyz[:, None]).pow(2).sum(-1)
        nn_idx = d.topk(K, largest=False).indices
        local = take(xyz, nn_idx) - centres[:, :, None]
        g = torch.cat([local, take(feats, nn_idx)], -1).permute(0, 3, 1, 2)
        g = self.conv2(F.relu(self.conv1(g)))
        return centres, F.relu(g).amax(-1).transpose(1, 2)


class PointNet2TF(nn.Module):
    def __init__(self):
        super().__init__()
        self.sa1, self.sa2 = SetAbstraction(M1, 3, 16), SetAbstraction(M2, 16, 24)
        self.fc1, self.fc2 = nn.Linear(24, 16), nn.Linear(16, 5)

    def forward(self, cloud):
        xyz, f = self.sa1(cloud, cloud)
        xyz, f = self.sa2(xyz, f)
        return self.fc2(F.relu(self.fc1(f.mean(1))))


class FurthestPointSampler(nn.Module):
    def __init__(self, npoint, min_mag):
        super().__init__()
        self.npoint, self.min_mag = npoint, min_mag

    def sample(self, points):
        usable = (points**2).sum(1) > self.min_mag
        dist = torch.full((len(points),), 1e10)
        order = [0]
        while len(order) < self.npoint:
            step = ((points - points[order[-1]]) ** 2).sum(1)
            dist = torch.where(usable, torch.minimum(dist, step), dist)
            order.append(int(torch.where(usable, dist, torch.tensor(-1.0)).argmax()))
        return torch.tensor(order)

    def forward(self, xyz):
        return torch.stack([self.sample(p) for p in xyz])


class QueryAndGroup(nn.Module):
    def forward(self, xyz, new_xyz, features):
        dist = torch.cdist(new_xyz, xyz, compute_mode="donot_use_mm_for_euclid_dist")
        idx = dist.argsort(-1)[..., :K]
        b = torch.arange(len(xyz))[:, None, None]
        return torch.cat([xyz[b, idx] - new_xyz.unsqueeze(2), features[b, idx]], -1)


class PointnetSAModule(nn.Module):
    def __init__(self, npoint, cin, cout, min_mag):
        super().__init__()
        self.sampler = FurthestPointSampler(npoint, min_mag)
        self.grouper = QueryAndGroup()
        self.shared_mlp = nn.Sequential(nn.Linear(cin + 3, cout), nn.ReLU(), nn.Linear(cout, cout), nn.ReLU())

    def forward(self, xyz, features):
        idx = self.sampler(xyz)
        new_xyz = xyz.gather(1, idx.unsqueeze(-1).expand(-1, -1, 3))
        return new_xyz, self.shared_mlp(self.grouper(xyz, new_xyz, features)).max(2).values


class Pointnet2Torch(nn.Module):
    def __init__(self, min_mag):
        super().__init__()
        self.SA_modules = nn.ModuleList([PointnetSAModule(M1, 3, 16, min_mag), PointnetSAModule(M2, 16, 24, min_mag)])
        self.fc_layer = nn.Sequential(nn.Linear(24, 16), nn.ReLU(), nn.Linear(16, 5))

    def forward(self, pointcloud):
        xyz, features = pointcloud, pointcloud
        for module in self.SA_modules:
            xyz, features = module(xyz, features)
        return self.fc_layer(features.sum(1) / features.shape[1])


def convert(sd):
    out = {}
    for p in ("weight", "bias"):
        for i, s in enumerate(("sa1", "sa2")):
            for j, c in ((0, "conv1"), (2, "conv2")):
                w = sd[f"{s}.{c}.{p}"]
                out[f"SA_modules.{i}.shared_mlp.{j}.{p}"] = w[:, :, 0, 0] if w.dim() == 4 else w
        out[f"fc_layer.0.{p}"], out[f"fc_layer.2.{p}"] = sd[f"fc1.{p}"], sd[f"fc2.{p}"]
    return out


def build(fixed):
    torch.manual_seed(151)
    original = PointNet2TF().eval()
    for n, p in original.named_parameters():
        p.data.mul_(20.0 if n == "sa1.conv1.weight" else 2.0 if p.dim() > 1 else 0.5)
    port = Pointnet2Torch(min_mag=1e-12 if fixed else 1e-3).eval()
    port.load_state_dict(convert(original.state_dict()))
    cloud = torch.randn(3, N, 3) * torch.rand(3, N, 1) * 0.06
    return original, port, (cloud,)
