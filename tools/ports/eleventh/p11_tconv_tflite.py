"""After PINTO0309/onnx2tf#56.

A decoder with ConvTranspose (kernel 4, stride 3, padding 1) exported from PyTorch via
ONNX to a channels-last runtime.  Output shape is right, values are not.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

LAT, C1, C2 = 10, 12, 8


class TorchDecoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(LAT, C1 * 9)
        self.bn = nn.BatchNorm2d(C1)
        self.tconv = nn.ConvTranspose2d(C1, C2, 4, stride=3, padding=1)
        self.refine = nn.Conv2d(C2, C2, 3, padding=1)
        self.out = nn.Conv2d(C2, 1, 3, padding=1)

    def forward(self, z):
        x = F.relu(self.bn(self.fc(z).view(-1, C1, 3, 3)))
        x = F.leaky_relu(self.tconv(x), 0.2)
        x = x + F.leaky_relu(self.refine(x), 0.2)
        return torch.sigmoid(self.out(x))


class Conv2DNHWC(nn.Module):
    def __init__(self, kh, cin, cout):
        super().__init__()
        self.kernel = nn.Parameter(torch.empty(cout, kh, kh, cin))
        self.bias = nn.Parameter(torch.empty(cout))

    def forward(self, x):
        w = self.kernel.permute(0, 3, 1, 2)
        y = F.conv2d(x.permute(0, 3, 1, 2), w, self.bias, padding=w.shape[-1] // 2)
        return y.permute(0, 2, 3, 1)


class TransposeConv(nn.Module):
    """VALID transposed convolution by zero insertion, then Slice(begin, size)."""

    def __init__(self, kh, cin, cout, stride, begin, cut):
        super().__init__()
        self.stride, self.begin, self.cut = stride, begin, cut
        self.kernel = nn.Parameter(torch.empty(cout, kh, kh, cin))
        self.bias = nn.Parameter(torch.empty(cout))

    def forward(self, x):
        n, h, w, c = x.shape
        s, k = self.stride, self.kernel.shape[1]
        z = x.new_zeros(n, (h - 1) * s + 1, (w - 1) * s + 1, c)
        z[:, ::s, ::s] = x
        z = F.pad(z, (0, 0, k - 1, k - 1, k - 1, k - 1))
        patches = z.unfold(1, k, 1).unfold(2, k, 1)
        full = torch.einsum("nhwcab,oabc->nhwo", patches, self.kernel.flip(1, 2))
        b, oh, ow = self.begin, full.shape[1] - self.cut, full.shape[2] - self.cut
        return full[:, b : b + oh, b : b + ow] + self.bias


class TFDecoder(nn.Module):
    def __init__(self, begin):
        super().__init__()
        self.dense_w = nn.Parameter(torch.empty(LAT, 9 * C1))
        self.dense_b = nn.Parameter(torch.empty(9 * C1))
        self.up = TransposeConv(4, C1, C2, 3, begin, 2)
        self.mid = Conv2DNHWC(3, C2, C2)
        self.last = Conv2DNHWC(3, C2, 1)

    def forward(self, z):
        x = F.relu(z @ self.dense_w + self.dense_b).view(-1, 3, 3, C1)
        x = self.up(x)
        x = torch.where(x > 0, x, 0.2 * x)
        y = self.mid(x)
        x = torch.where(y > 0, y, 0.2 * y) + x
        return self.last(x).sigmoid().permute(0, 3, 1, 2)


def convert(sd):
    g = sd["bn.weight"] / (sd["bn.running_var"] + 1e-5).sqrt()
    w = sd["fc.weight"].view(C1, 9, LAT) * g[:, None, None]
    b = (sd["fc.bias"].view(C1, 9) - sd["bn.running_mean"][:, None]) * g[:, None] + sd["bn.bias"][:, None]
    return {
        "dense_w": w.permute(2, 1, 0).reshape(LAT, -1),
        "dense_b": b.T.reshape(-1),
        "up.kernel": sd["tconv.weight"].permute(1, 2, 3, 0).contiguous(),
        "up.bias": sd["tconv.bias"],
        "mid.kernel": sd["refine.weight"].permute(0, 2, 3, 1).contiguous(),
        "mid.bias": sd["refine.bias"],
        "last.kernel": sd["out.weight"].permute(0, 2, 3, 1).contiguous(),
        "last.bias": sd["out.bias"],
    }


def build(fixed):
    torch.manual_seed(56)
    original = TorchDecoder().eval()
    original.bn.running_mean.normal_(0, 0.2), original.bn.running_var.uniform_(0.1, 0.6)
    with torch.no_grad():
        original.out.weight.mul_(3), original.tconv.weight.mul_(3)
    port = TFDecoder(1 if fixed else 0).eval()
    port.load_state_dict(convert(original.state_dict()))
    return original, port, (torch.randn(3, LAT),)
