"""After SystemErrorWang/White-box-Cartoonization#66: a generator trained in TensorFlow 1 ported to
torch. The asymmetric 'SAME' padding of the strided convolutions was already taken care of, and
yet the pictures are a little shifted against those of the TensorFlow graph."""

import torch
import torch.nn as nn
import torch.nn.functional as F

CH = 12


def tf1_resize_bilinear(x, size):
    """NHWC, align_corners=False of the old kernels: source = target * (in / out)."""
    for axis, out in ((1, size[0]), (2, size[1])):
        n = x.shape[axis]
        src = torch.arange(out).float() * (n / out)
        lo = src.floor().long()
        hi = (lo + 1).clamp_max(n - 1)
        shape = [1, 1, 1, 1]
        shape[axis] = out
        w = (src - lo).view(shape)
        x = x.index_select(axis, lo) * (1 - w) + x.index_select(axis, hi) * w
    return x


class TFConv(nn.Module):
    def __init__(self, cin, cout, k, stride=1):
        super().__init__()
        self.weights = nn.Parameter(torch.randn(k, k, cin, cout) * (k * k * cin) ** -0.5)
        self.biases = nn.Parameter(torch.randn(cout) * 0.1)
        self.k, self.stride = k, stride

    def forward(self, x):
        h, w = x.shape[1:3]
        pads = []
        for n in (w, h):
            total = max((-(-n // self.stride) - 1) * self.stride + self.k - n, 0)
            pads += [total // 2, total - total // 2]
        y = F.conv2d(F.pad(x.permute(0, 3, 1, 2), pads), self.weights.permute(3, 2, 0, 1), self.biases, self.stride)
        return y.permute(0, 2, 3, 1)


class TFGenerator(nn.Module):
    def __init__(self):
        super().__init__()
        self.Conv = TFConv(3, CH, 7)
        self.Conv_1 = TFConv(CH, CH, 3, 2)
        self.Conv_2 = TFConv(CH, 2 * CH, 3)
        self.block_0 = TFConv(2 * CH, 2 * CH, 3)
        self.Conv_3 = TFConv(2 * CH, CH, 3)
        self.Conv_4 = TFConv(CH, CH, 3)
        self.Conv_5 = TFConv(CH, 3, 7)

    def forward(self, img):
        x = img.permute(0, 2, 3, 1)
        x0 = F.leaky_relu(self.Conv(x), 0.2)
        x1 = F.leaky_relu(self.Conv_1(x0), 0.2)
        x1 = F.leaky_relu(self.Conv_2(x1), 0.2)
        x1 = x1 + F.leaky_relu(self.block_0(x1), 0.2)
        x2 = F.leaky_relu(self.Conv_3(x1), 0.2)
        x3 = tf1_resize_bilinear(x2, (x2.shape[1] * 2, x2.shape[2] * 2))
        x3 = F.leaky_relu(self.Conv_4(x3 + x0), 0.2)
        return self.Conv_5(x3).permute(0, 3, 1, 2)


class SamePadConv(nn.Module):
    def __init__(self, cin, cout, k):
        super().__init__()
        self.pad = nn.ZeroPad2d((k // 2 - 1, k // 2, k // 2 - 1, k // 2))
        self.conv = nn.Conv2d(cin, cout, k, stride=2)

    def forward(self, x):
        return self.conv(self.pad(x))


class UpBilinear2x(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.fixed = fixed

    def forward(self, x):
        if not self.fixed:
            return F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
        b, c, h, w = x.shape
        edge = F.pad(x, (0, 1, 0, 1), mode="replicate")
        up = F.interpolate(edge, size=(2 * h + 1, 2 * w + 1), mode="bilinear", align_corners=True)
        return up[..., : 2 * h, : 2 * w]


class Down(nn.Module):
    def __init__(self):
        super().__init__()
        self.strided = SamePadConv(CH, CH, 3)
        self.widen = nn.Conv2d(CH, 2 * CH, 3, padding=1)
        self.act = nn.LeakyReLU(0.2)

    def forward(self, x):
        return self.act(self.widen(self.act(self.strided(x))))


class UNetGenerator(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.act = nn.LeakyReLU(0.2)
        self.stem = nn.Conv2d(3, CH, 7, padding=3)
        self.down = Down()
        self.res = nn.Conv2d(2 * CH, 2 * CH, 3, padding=1)
        self.narrow = nn.Conv2d(2 * CH, CH, 3, padding=1)
        self.upsample = UpBilinear2x(fixed)
        self.fuse = nn.Conv2d(CH, CH, 3, padding=1)
        self.to_rgb = nn.Conv2d(CH, 3, 7, padding=3)

    def forward(self, img):
        skip = self.act(self.stem(img))
        x = self.down(skip)
        x = self.act(self.res(x)) + x
        x = self.upsample(self.act(self.narrow(x)))
        return self.to_rgb(self.act(self.fuse(skip + x)))


def convert(sd):
    names = {
        "Conv": "stem",
        "Conv_1": "down.strided.conv",
        "Conv_2": "down.widen",
        "block_0": "res",
        "Conv_3": "narrow",
        "Conv_4": "fuse",
        "Conv_5": "to_rgb",
    }
    out = {}
    for a, b in names.items():
        out[b + ".weight"] = sd[a + ".weights"].permute(3, 2, 0, 1)
        out[b + ".bias"] = sd[a + ".biases"]
    return out


def build(fixed):
    torch.manual_seed(66)
    original = TFGenerator().eval()
    port = UNetGenerator(fixed).eval()
    port.load_state_dict(convert(original.state_dict()))
    return original, port, (torch.rand(2, 3, 16, 16),)
