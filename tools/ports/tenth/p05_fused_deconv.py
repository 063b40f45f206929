"""ultralytics/ultralytics#25364: a mask head exported without batch norm.

The deployment copy of the head has its batch norms merged into the convolutions by the exporter;
masks from the exported head differ from those of the training head.
"""

import torch
import torch.nn.functional as F
from torch import nn


class ConvBNAct(nn.Module):
    def __init__(self, c1, c2, k):
        super().__init__()
        self.conv = nn.Conv2d(c1, c2, k, padding=k // 2, bias=False)
        self.bn = nn.BatchNorm2d(c2, eps=1e-3)

    def forward(self, x):
        return F.silu(self.bn(self.conv(x)))


class UpBNAct(nn.Module):
    def __init__(self, c1, c2):
        super().__init__()
        self.deconv = nn.ConvTranspose2d(c1, c2, 2, stride=2, bias=True)
        self.bn = nn.BatchNorm2d(c2, eps=1e-3)

    def forward(self, x):
        return F.silu(self.bn(self.deconv(x)))


class ProtoHead(nn.Module):
    def __init__(self, c_in=6, c_mid=10, n_masks=4):
        super().__init__()
        self.cv1 = ConvBNAct(c_in, c_mid, 3)
        self.upsample = UpBNAct(c_mid, c_mid)
        self.cv2 = ConvBNAct(c_mid, c_mid, 3)
        self.cv3 = nn.Conv2d(c_mid, n_masks, 1)

    def forward(self, x):
        return self.cv3(self.cv2(self.upsample(self.cv1(x))))


class DeployProto(nn.Module):
    """Only biased convolutions are left."""

    def __init__(self, channels=6, width=10, protos=4):
        super().__init__()
        self.stem = nn.Conv2d(channels, width, 3, padding=1)
        self.up_kernel = nn.Parameter(torch.empty(width, width * 4))
        self.up_bias = nn.Parameter(torch.empty(width))
        self.refine = nn.Conv2d(width, width, 3, padding=1)
        self.out = nn.Linear(width, protos)

    def forward(self, x):
        x = self.stem(x)
        x = x * x.sigmoid()
        x = torch.einsum("bihw,io->bohw", x, self.up_kernel)
        x = F.pixel_shuffle(x, 2) + self.up_bias[:, None, None]
        x = x * x.sigmoid()
        x = F.silu(self.refine(x))
        return self.out(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


def bn_scale_shift(sd, prefix, eps=1e-3):
    scale = sd[prefix + ".weight"] / (sd[prefix + ".running_var"] + eps).sqrt()
    return scale, sd[prefix + ".bias"] - sd[prefix + ".running_mean"] * scale


def merge_conv(sd, name):
    scale, shift = bn_scale_shift(sd, name + ".bn")
    return sd[name + ".conv.weight"] * scale.view(-1, 1, 1, 1), shift


def merge_deconv(sd, name, channel_axis):
    scale, shift = bn_scale_shift(sd, name + ".bn")
    shape = [1, 1, 1, 1]
    shape[channel_axis] = -1
    return sd[name + ".deconv.weight"] * scale.view(shape), sd[name + ".deconv.bias"] * scale + shift


def convert(sd, channel_axis=0):
    out = {}
    out["stem.weight"], out["stem.bias"] = merge_conv(sd, "cv1")
    kernel, out["up_bias"] = merge_deconv(sd, "upsample", channel_axis)
    out["up_kernel"] = kernel.flatten(1)
    out["refine.weight"], out["refine.bias"] = merge_conv(sd, "cv2")
    out["out.weight"], out["out.bias"] = sd["cv3.weight"].flatten(1), sd["cv3.bias"]
    return out


def build(fixed):
    torch.manual_seed(9)
    original = ProtoHead().eval()
    for m in original.modules():
        if isinstance(m, nn.BatchNorm2d):
            m.running_mean.normal_(0, 0.3)
            m.running_var.uniform_(0.3, 1.5)
            nn.init.uniform_(m.weight, 0.4, 1.8)
            nn.init.normal_(m.bias, 0, 0.3)
    port = DeployProto().eval()
    port.load_state_dict(convert(original.state_dict(), channel_axis=1 if fixed else 0))
    return original, port, (torch.randn(2, 6, 8, 8),)
