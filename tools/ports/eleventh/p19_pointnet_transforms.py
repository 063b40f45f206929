"""After fxia22/pointnet.pytorch#3.

PointNet classification in PyTorch, written after the TensorFlow code.  Users who carry
the original's weights over find that the class scores are not those of the original.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

NC = 8
EPS = 1e-3


class TFLayer(nn.Module):
    def __init__(self, cin, cout, bn=True):
        super().__init__()
        self.weights = nn.Parameter(torch.randn(cin, cout) * (2.0 / cin) ** 0.5)
        self.biases = nn.Parameter(torch.randn(cout) * 0.1)
        self.use_bn = bn
        if bn:
            self.beta, self.gamma = nn.Parameter(torch.randn(cout) * 0.1), nn.Parameter(torch.rand(cout) + 0.5)
            self.register_buffer("mean", torch.randn(cout) * 0.1)
            self.register_buffer("variance", torch.rand(cout) + 0.5)

    def forward(self, x):
        x = x @ self.weights + self.biases
        if not self.use_bn:
            return x
        return torch.relu((x - self.mean) * torch.rsqrt(self.variance + EPS) * self.gamma + self.beta)


class TransformNet(nn.Module):
    def __init__(self, k):
        super().__init__()
        self.k = k
        self.tconv1, self.tconv2 = TFLayer(k, 12), TFLayer(12, 24)
        self.tfc1 = TFLayer(24, 12)
        self.transform = nn.Linear(12, k * k)

    def forward(self, x):
        g = self.tconv2(self.tconv1(x)).amax(1)
        return self.transform(self.tfc1(g)).view(-1, self.k, self.k) + torch.eye(self.k)


class TFPointNet(nn.Module):
    """point_cloud: (B, N, 3)"""

    def __init__(self):
        super().__init__()
        self.transform_net1 = TransformNet(3)
        self.conv1, self.conv2 = TFLayer(3, 8), TFLayer(8, 8)
        self.transform_net2 = TransformNet(8)
        self.conv3, self.conv4 = TFLayer(8, 16), TFLayer(16, 32)
        self.fc1, self.fc3 = TFLayer(32, 16), TFLayer(16, NC, bn=False)

    def forward(self, point_cloud):
        x = torch.matmul(point_cloud, self.transform_net1(point_cloud))
        x = self.conv2(self.conv1(x))
        x = torch.matmul(x, self.transform_net2(x))
        x = self.conv4(self.conv3(x)).amax(1)
        return self.fc3(self.fc1(x))


class STN(nn.Module):
    def __init__(self, k):
        super().__init__()
        self.k = k
        self.convs = nn.ModuleList([nn.Conv1d(k, 12, 1), nn.Conv1d(12, 24, 1)])
        self.conv_bns = nn.ModuleList([nn.BatchNorm1d(12, eps=EPS), nn.BatchNorm1d(24, eps=EPS)])
        self.fc1, self.bn, self.fc2 = nn.Linear(24, 12), nn.BatchNorm1d(12, eps=EPS), nn.Linear(12, k * k)

    def forward(self, x):
        for conv, bn in zip(self.convs, self.conv_bns):
            x = F.relu(bn(conv(x)))
        x = F.relu(self.bn(self.fc1(x.max(-1)[0])))
        return (self.fc2(x) + torch.eye(self.k).flatten()).view(-1, self.k, self.k)


class PointNetfeat(nn.Module):
    def __init__(self, transforms):
        super().__init__()
        self.stn = nn.ModuleDict({str(k): STN(k) for k in transforms})
        dims = (3, 8, 8, 16, 32)
        self.conv = nn.ModuleList(nn.Conv1d(a, b, 1) for a, b in zip(dims[:-1], dims[1:]))
        self.bn = nn.ModuleList(nn.BatchNorm1d(b, eps=EPS) for b in dims[1:])

    def forward(self, x):
        for i, (conv, bn) in enumerate(zip(self.conv, self.bn)):
            key = str(x.shape[1]) if i in (0, 2) else ""
            if key in self.stn:
                x = torch.bmm(self.stn[key](x).transpose(2, 1), x)
            x = F.relu(bn(conv(x)))
        return F.adaptive_max_pool1d(x, 1).squeeze(-1)


class PointNetCls(nn.Module):
    def __init__(self, transforms=(3,)):
        super().__init__()
        self.feat = PointNetfeat(transforms)
        self.head = nn.Sequential(nn.Linear(32, 16), nn.BatchNorm1d(16, eps=EPS), nn.ReLU(), nn.Linear(16, NC))

    def forward(self, points):
        return self.head(self.feat(points.transpose(2, 1)))


def convert(sd, transforms=(3,)):
    new = {}

    def layer(o, n, conv, bn=None):
        w = sd[o + ".weights"].T
        new[n + conv + ".weight"] = w[..., None].contiguous() if "conv" in conv else w.contiguous()
        new[n + conv + ".bias"] = sd[o + ".biases"]
        if bn:
            for a, b in (("gamma", "weight"), ("beta", "bias"), ("mean", "running_mean"), ("variance", "running_var")):
                new[f"{n}{bn}.{b}"] = sd[f"{o}.{a}"]
            new[f"{n}{bn}.num_batches_tracked"] = torch.tensor(0)

    for k, o in ((3, "transform_net1"), (8, "transform_net2")):
        if k in transforms:
            n = f"feat.stn.{k}."
            layer(o + ".tconv1", n, "convs.0", "conv_bns.0"), layer(o + ".tconv2", n, "convs.1", "conv_bns.1")
            layer(o + ".tfc1", n, "fc1", "bn")
            new[n + "fc2.weight"], new[n + "fc2.bias"] = sd[o + ".transform.weight"], sd[o + ".transform.bias"]
    for i in range(4):
        layer(f"conv{i + 1}", "feat.", f"conv.{i}", f"bn.{i}")
    layer("fc1", "head.", "0", "1"), layer("fc3", "head.", "3")
    return new


def build(fixed):
    torch.manual_seed(3)
    original = TFPointNet().eval()
    with torch.no_grad():
        original.fc3.weights.mul_(0.1)
    transforms = (3, 8) if fixed else (3,)
    port = PointNetCls(transforms).eval()
    port.load_state_dict(convert(original.state_dict(), transforms))
    return original, port, (torch.randn(4, 32, 3) * 0.6,)
