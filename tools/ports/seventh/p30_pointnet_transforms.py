"""After fxia22/pointnet.pytorch#3: a PyTorch PointNet is not the network of the paper and of the
TensorFlow code; converted weights do not reproduce the shape classes."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class TFConv2d(nn.Module):
    """[B, N, 1, C] maps as in the TensorFlow model, batch norm and ReLU behind."""

    def __init__(self, c_in, c_out, kernel_w=1):
        super().__init__()
        self.weights = nn.Parameter(torch.randn(1, kernel_w, c_in, c_out) * (kernel_w * c_in) ** -0.5)
        self.biases = nn.Parameter(torch.zeros(c_out))
        self.gamma, self.beta = nn.Parameter(torch.rand(c_out) + 0.5), nn.Parameter(torch.randn(c_out) * 0.1)
        self.register_buffer("moving_mean", torch.randn(c_out) * 0.1)
        self.register_buffer("moving_var", torch.rand(c_out) * 0.5 + 0.5)

    def forward(self, x):
        y = torch.einsum("bnwc,wco->bno", x, self.weights[0]).unsqueeze(2) + self.biases
        y = (y - self.moving_mean) / torch.sqrt(self.moving_var + 1e-3) * self.gamma + self.beta
        return F.relu(y)


class TransformNet(nn.Module):
    def __init__(self, k, first_w):
        super().__init__()
        c = 1 if first_w > 1 else k
        self.tconv1, self.tconv2, self.tconv3 = TFConv2d(c, 16, first_w), TFConv2d(16, 24), TFConv2d(24, 32)
        self.tfc1 = TFConv2d(32, 16)
        self.w, self.b = nn.Parameter(torch.randn(16, k * k) * 0.1), nn.Parameter(torch.randn(k * k) * 0.05)
        self.k = k

    def forward(self, x):
        x = self.tconv3(self.tconv2(self.tconv1(x)))
        x = self.tfc1(x.amax(1, keepdim=True))
        x = x[:, 0, 0] @ self.w + self.b + torch.eye(self.k).flatten()
        return x.view(-1, self.k, self.k)


class PointNetTF(nn.Module):
    def __init__(self, feat=12, classes=6):
        super().__init__()
        self.transform_net1, self.transform_net2 = TransformNet(3, 3), TransformNet(feat, 1)
        self.conv1, self.conv2 = TFConv2d(1, feat, 3), TFConv2d(feat, feat)
        self.conv3, self.conv4, self.conv5 = TFConv2d(feat, feat), TFConv2d(feat, 24), TFConv2d(24, 48)
        self.fc1 = TFConv2d(48, 24)
        self.fc3_w, self.fc3_b = nn.Parameter(torch.randn(24, classes) * 0.3), nn.Parameter(torch.zeros(classes))

    def forward(self, points):
        t1 = self.transform_net1(points.unsqueeze(-1))
        pts = torch.matmul(points, t1)
        net = self.conv2(self.conv1(pts.unsqueeze(-1)))
        t2 = self.transform_net2(net)
        net = torch.matmul(net.squeeze(2), t2).unsqueeze(2)
        net = self.conv5(self.conv4(self.conv3(net)))
        g = self.fc1(net.amax(1, keepdim=True))[:, 0, 0]
        return g @ self.fc3_w + self.fc3_b


class ConvBN(nn.Module):
    def __init__(self, a, b):
        super().__init__()
        self.conv, self.bn = nn.Conv1d(a, b, 1), nn.BatchNorm1d(b, eps=1e-3)

    def forward(self, x):
        return F.relu(self.bn(self.conv(x)))


class STN(nn.Module):
    def __init__(self, k):
        super().__init__()
        self.mlp = nn.Sequential(ConvBN(k, 16), ConvBN(16, 24), ConvBN(24, 32))
        self.fc1, self.bn4, self.fc3 = nn.Linear(32, 16), nn.BatchNorm1d(16, eps=1e-3), nn.Linear(16, k * k)
        self.k = k

    def forward(self, x):
        g = torch.max(self.mlp(x), 2)[0]
        g = self.fc3(F.relu(self.bn4(self.fc1(g))))
        return g.view(-1, self.k, self.k) + torch.eye(self.k)


class PointNetfeat(nn.Module):
    def __init__(self, feature_transform, feat=12):
        super().__init__()
        self.stn, self.fstn = STN(3), STN(feat)
        self.conv1, self.conv2, self.conv3 = ConvBN(3, feat), ConvBN(feat, feat), ConvBN(feat, feat)
        self.conv4, self.conv5 = ConvBN(feat, 24), ConvBN(24, 48)
        self.feature_transform = feature_transform

    def forward(self, x):
        trans = self.stn(x)
        x = torch.bmm(x.transpose(2, 1), trans).transpose(2, 1)
        x = self.conv2(self.conv1(x))
        if self.feature_transform:
            x = torch.bmm(x.transpose(2, 1), self.fstn(x)).transpose(2, 1)
        x = self.conv5(self.conv4(self.conv3(x)))
        return x.max(dim=2).values


class PointNetCls(nn.Module):
    def __init__(self, feature_transform=False, classes=6):
        super().__init__()
        self.feat = PointNetfeat(feature_transform)
        self.fc1, self.bn1, self.fc3 = nn.Linear(48, 24), nn.BatchNorm1d(24, eps=1e-3), nn.Linear(24, classes)

    def forward(self, cloud):
        g = self.feat(cloud.transpose(1, 2))
        return self.fc3(F.relu(self.bn1(self.fc1(g))))


@torch.no_grad()
def copy_layer(src, lin, bn):
    _, w, c, o = src.weights.shape
    k = src.weights[0].reshape(w * c, o).t()
    lin.weight.copy_(k.unsqueeze(-1) if lin.weight.ndim == 3 else k)
    lin.bias.copy_(src.biases)
    bn.load_state_dict(
        {
            "weight": src.gamma,
            "bias": src.beta,
            "running_mean": src.moving_mean,
            "running_var": src.moving_var,
            "num_batches_tracked": torch.tensor(0),
        }
    )


def load_tf(tf, net):
    for t, s in ((tf.transform_net1, net.feat.stn), (tf.transform_net2, net.feat.fstn)):
        for a, b in zip((t.tconv1, t.tconv2, t.tconv3), s.mlp):
            copy_layer(a, b.conv, b.bn)
        copy_layer(t.tfc1, s.fc1, s.bn4)
        s.fc3.load_state_dict({"weight": t.w.t(), "bias": t.b})
    for n in range(1, 6):
        m = getattr(net.feat, f"conv{n}")
        copy_layer(getattr(tf, f"conv{n}"), m.conv, m.bn)
    copy_layer(tf.fc1, net.fc1, net.bn1)
    net.fc3.load_state_dict({"weight": tf.fc3_w.t(), "bias": tf.fc3_b})


def build(fixed):
    torch.manual_seed(30)
    original = PointNetTF().eval()
    port = PointNetCls(**({"feature_transform": True} if fixed else {})).eval()
    load_tf(original, port)
    return original, port, (torch.randn(3, 40, 3),)
