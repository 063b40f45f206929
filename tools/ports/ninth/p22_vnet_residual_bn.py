"""jackyko1991/vnet-tensorflow#12

A V-Net for volumetric segmentation was re-implemented channels-last, in the style of
TensorFlow.  Class scores differ from the reference at every voxel.
"""

import torch
import torch.nn.functional as F
from torch import nn

BN_EPS = 1e-3


class ConvBlock(nn.Module):
    def __init__(self, channels, num_convs):
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv3d(channels, channels, 3, padding=1) for _ in range(num_convs))
        self.bns = nn.ModuleList(nn.BatchNorm3d(channels, eps=BN_EPS) for _ in range(num_convs))
        self.input_bn = nn.BatchNorm3d(channels, eps=BN_EPS)
        self.prelu = nn.PReLU(channels)

    def forward(self, layer_input):
        x = layer_input
        for i, (conv, bn) in enumerate(zip(self.convs, self.bns)):
            x = bn(conv(x))
            if i == len(self.convs) - 1:
                x = x + self.input_bn(layer_input)
            x = self.prelu(x)
        return x


class VNet(nn.Module):
    def __init__(self, in_ch=1, base=4, classes=3):
        super().__init__()
        self.input_layer = nn.Conv3d(in_ch, base, 5, padding=2)
        self.enc1, self.enc2 = ConvBlock(base, 1), ConvBlock(2 * base, 2)
        self.down1, self.down2 = nn.Conv3d(base, 2 * base, 2, stride=2), nn.Conv3d(2 * base, 4 * base, 2, stride=2)
        self.bottom = ConvBlock(4 * base, 2)
        self.up2, self.up1 = (
            nn.ConvTranspose3d(4 * base, 2 * base, 2, stride=2),
            nn.ConvTranspose3d(2 * base, base, 2, stride=2),
        )
        self.merge2, self.merge1 = nn.Conv3d(4 * base, 2 * base, 1), nn.Conv3d(2 * base, base, 1)
        self.dec2, self.dec1 = ConvBlock(2 * base, 2), ConvBlock(base, 1)
        self.output_layer = nn.Conv3d(base, classes, 1)

    def forward(self, volume):
        f1 = self.enc1(self.input_layer(volume))
        f2 = self.enc2(self.down1(f1))
        x = self.bottom(self.down2(f2))
        x = self.dec2(self.merge2(torch.cat([self.up2(x), f2], 1)))
        x = self.dec1(self.merge1(torch.cat([self.up1(x), f1], 1)))
        return self.output_layer(x)


class Conv3DLast(nn.Module):
    def __init__(self, cin, cout, k, stride=1):
        super().__init__()
        self.kernel, self.bias = nn.Parameter(torch.empty(k, k, k, cin, cout)), nn.Parameter(torch.empty(cout))
        self.stride = stride

    def forward(self, x):
        y = F.conv3d(
            x.permute(0, 4, 1, 2, 3),
            self.kernel.permute(4, 3, 0, 1, 2),
            self.bias,
            self.stride,
            self.kernel.shape[0] // 2 if self.stride == 1 else 0,
        )
        return y.permute(0, 2, 3, 4, 1)


class UpConv3D(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.kernel, self.bias = nn.Parameter(torch.empty(2, 2, 2, cout, cin)), nn.Parameter(torch.empty(cout))

    def forward(self, x):
        b, d, h, w, _ = x.shape
        y = torch.einsum("bdhwi,pqroi->bdphqwro", x, self.kernel)
        return y.reshape(b, 2 * d, 2 * h, 2 * w, -1) + self.bias


class BatchNorm(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.gamma, self.beta = nn.Parameter(torch.ones(c)), nn.Parameter(torch.zeros(c))
        self.register_buffer("mean", torch.zeros(c))
        self.register_buffer("variance", torch.ones(c))

    def forward(self, x):
        return (x - self.mean) / (self.variance + BN_EPS).sqrt() * self.gamma + self.beta


class ConvolutionBlock(nn.Module):
    def __init__(self, n_channels, num_convolutions, normalize_input):
        super().__init__()
        self.layers = nn.ModuleList(Conv3DLast(n_channels, n_channels, 3) for _ in range(num_convolutions))
        self.norms = nn.ModuleList(BatchNorm(n_channels) for _ in range(num_convolutions))
        self.residual_norm = BatchNorm(n_channels)
        self.alpha = nn.Parameter(torch.empty(n_channels))
        self.normalize_input = normalize_input

    def forward(self, layer_input):
        x = layer_input
        last = len(self.layers) - 1
        for i, layer in enumerate(self.layers):
            x = self.norms[i](layer(x))
            if i == last:
                layer_input = self.residual_norm(layer_input if self.normalize_input else x)
                x = x + layer_input
            x = torch.where(x > 0, x, self.alpha * x)
        return x


class VNetTF(nn.Module):
    def __init__(self, base=4, classes=3, normalize_input=False):
        super().__init__()

        def blk(c, n):
            return ConvolutionBlock(c, n, normalize_input)

        self.stem, self.head = Conv3DLast(1, base, 5), Conv3DLast(base, classes, 1)
        self.encoder = nn.ModuleList([blk(base, 1), blk(2 * base, 2)])
        self.down = nn.ModuleList([Conv3DLast(base, 2 * base, 2, 2), Conv3DLast(2 * base, 4 * base, 2, 2)])
        self.bottom = blk(4 * base, 2)
        self.up = nn.ModuleList([UpConv3D(2 * base, base), UpConv3D(4 * base, 2 * base)])
        self.merge = nn.ModuleList([Conv3DLast(2 * base, base, 1), Conv3DLast(4 * base, 2 * base, 1)])
        self.decoder = nn.ModuleList([blk(base, 1), blk(2 * base, 2)])

    def forward(self, volume):
        x, skips = self.stem(volume.permute(0, 2, 3, 4, 1)), []
        for block, down in zip(self.encoder, self.down):
            skips.append(block(x))
            x = down(skips[-1])
        x = self.bottom(x)
        for i in (1, 0):
            x = self.decoder[i](self.merge[i](torch.cat([self.up[i](x), skips[i]], -1)))
        return self.head(x).permute(0, 4, 1, 2, 3)


NAMES = {
    "input_layer": "stem",
    "output_layer": "head",
    "enc1": "encoder.0",
    "enc2": "encoder.1",
    "down1": "down.0",
    "down2": "down.1",
    "bottom": "bottom",
    "up1": "up.0",
    "up2": "up.1",
    "merge1": "merge.0",
    "merge2": "merge.1",
    "dec1": "decoder.0",
    "dec2": "decoder.1",
    "convs": "layers",
    "bns": "norms",
    "input_bn": "residual_norm",
}
BN = {"weight": "gamma", "bias": "beta", "running_mean": "mean", "running_var": "variance"}


def convert(sd):
    out = {}
    for k, v in sd.items():
        parts = [NAMES.get(p, p) for p in k.split(".")]
        if parts[-1] == "num_batches_tracked":
            continue
        if "prelu" in parts:
            parts = [parts[0], "alpha"]
        elif "bns" in k or "input_bn" in k:
            parts[-1] = BN[parts[-1]]
        elif v.ndim == 5:
            parts[-1] = "kernel"
            v = v.permute(2, 3, 4, 1, 0)
        out[".".join(parts)] = v.contiguous().clone()
    return out


def build(fixed):
    torch.manual_seed(21)
    original = VNet()
    for n, p in original.named_parameters():
        if "bn" in n:
            nn.init.normal_(p, 1.0 if n.endswith("weight") else 0.0, 0.2)
    volume = torch.randn(4, 1, 8, 8, 8)
    for _ in range(10):
        original(volume)
    original.eval()
    port = VNetTF(normalize_input=fixed).eval()
    port.load_state_dict(convert(original.state_dict()))
    return original, port, (volume[:1],)
