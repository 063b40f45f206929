"""microsoft/MMdnn#250: an entropy network moved from TensorFlow to a channels-first framework.

conv -> relu -> pool -> flatten -> three dense layers. Layer by layer both give the same maps up
to the flatten layer; the numbers of the converted network are wrong after it.
"""

import torch
import torch.nn.functional as F
from torch import nn


class TFConv(nn.Module):
    """NHWC activations, HWIO kernel."""

    def __init__(self, k, cin, cout):
        super().__init__()
        self.kernel = nn.Parameter(torch.randn(k, k, cin, cout) * (k * k * cin) ** -0.5)
        self.bias = nn.Parameter(torch.randn(cout) * 0.1)

    def forward(self, x):
        y = F.conv2d(x.permute(0, 3, 1, 2), self.kernel.permute(3, 2, 0, 1), self.bias, padding="same")
        return y.permute(0, 2, 3, 1)


class TFDense(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.kernel = nn.Parameter(torch.randn(cin, cout) * cin**-0.5)
        self.bias = nn.Parameter(torch.randn(cout) * 0.1)

    def forward(self, x):
        return x @ self.kernel + self.bias


class EntropyNetTF(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv2d = TFConv(3, 3, 6)
        self.conv2d_1 = TFConv(3, 6, 8)
        self.dense = TFDense(4 * 4 * 8, 20)
        self.dense_1 = TFDense(20, 12)
        self.dense_2 = TFDense(12, 5)

    @staticmethod
    def pool(x):
        b, h, w, c = x.shape
        return x.reshape(b, h // 2, 2, w // 2, 2, c).amax((2, 4))

    def forward(self, image):
        x = image.permute(0, 2, 3, 1)
        x = self.pool(F.relu(self.conv2d(x)))
        x = self.pool(F.relu(self.conv2d_1(x)))
        x = x.reshape(x.size(0), -1)
        x = F.relu(self.dense(x))
        x = F.relu(self.dense_1(x))
        return self.dense_2(x)


class CaffeEntropyNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 6, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(6, 8, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
        )
        self.ip1 = nn.Linear(128, 20)
        self.ip2 = nn.Linear(20, 12)
        self.ip3 = nn.Linear(12, 5)

    def forward(self, data):
        blob = self.features(data)
        for ip in (self.ip1, self.ip2):
            blob = torch.clamp_min(ip(blob), 0)
        return self.ip3(blob)


def inner_product(kernel, blob_shape=None):
    if blob_shape is not None:
        c, h, w = blob_shape
        kernel = kernel.reshape(h, w, c, -1).permute(2, 0, 1, 3).reshape(c * h * w, -1)
    return kernel.t().contiguous()


def convert(sd, shapes=None):
    shapes = shapes or {}
    out = {}
    for src, dst in (("conv2d", "features.0"), ("conv2d_1", "features.3")):
        out[dst + ".weight"] = sd[src + ".kernel"].permute(3, 2, 0, 1)
        out[dst + ".bias"] = sd[src + ".bias"]
    for src, dst in (("dense", "ip1"), ("dense_1", "ip2"), ("dense_2", "ip3")):
        out[dst + ".weight"] = inner_product(sd[src + ".kernel"], shapes.get(src))
        out[dst + ".bias"] = sd[src + ".bias"]
    return out


def build(fixed):
    torch.manual_seed(2)
    original = EntropyNetTF().eval()
    port = CaffeEntropyNet().eval()
    shapes = {"dense": (8, 4, 4)} if fixed else None
    port.load_state_dict(convert(original.state_dict(), shapes))
    return original, port, (torch.randn(3, 3, 16, 16),)
