"""After tgyg-jegli/tf_texture_net#1: the stylised pictures of the converted texture network are not
those of the Torch model."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class ConvINReLU(nn.Sequential):
    def __init__(self, c_in, c_out, k):
        super().__init__(
            nn.ReplicationPad2d(k // 2),
            nn.Conv2d(c_in, c_out, k),
            nn.InstanceNorm2d(c_out, affine=True, eps=1e-5),
            nn.LeakyReLU(0.01),
        )


class TexturePyramid(nn.Module):
    def __init__(self, ratios=(1, 2, 4), width=6):
        super().__init__()
        self.ratios = ratios
        self.noise_blocks = nn.ModuleList(
            nn.Sequential(ConvINReLU(3, width, 3), ConvINReLU(width, width, 1)) for _ in ratios
        )
        self.joins = nn.ModuleList(ConvINReLU(width * (i + 1), width * (i + 1), 3) for i in range(1, len(ratios)))
        self.last = nn.Conv2d(width * len(ratios), 3, 1)

    def forward(self, img):
        cur = None
        for i, r in reversed(list(enumerate(self.ratios))):
            z = self.noise_blocks[i](F.avg_pool2d(img, r))
            if cur is None:
                cur = z
            else:
                cur = torch.cat([F.interpolate(cur, scale_factor=2, mode="nearest"), z], 1)
                cur = self.joins[len(self.ratios) - 2 - i](cur)
        return self.last(cur)


def conv2d_nhwc(x, kernel, bias):
    kh, kw, _, co = kernel.shape
    if kh > 1:
        p = kh // 2
        x = torch.cat([x[:, :1]] * p + [x] + [x[:, -1:]] * p, 1)
        x = torch.cat([x[:, :, :1]] * p + [x] + [x[:, :, -1:]] * p, 2)
    H, W = x.shape[1] - kh + 1, x.shape[2] - kw + 1
    y = bias.view(1, 1, 1, co).expand(x.shape[0], H, W, co)
    for dy in range(kh):
        for dx in range(kw):
            y = y + x[:, dy : dy + H, dx : dx + W] @ kernel[dy, dx]
    return y


def instance_norm(x, gamma, beta, eps=1e-5):
    mean = x.mean((1, 2), keepdim=True)
    var = x.var((1, 2), keepdim=True, unbiased=False)
    return (x - mean) * torch.rsqrt(var + eps) * gamma + beta


class TFBlock(nn.Module):
    def __init__(self, w):
        super().__init__()
        for k, v in w.items():
            self.register_buffer(k, torch.from_numpy(np.ascontiguousarray(v)))

    def forward(self, x):
        y = instance_norm(conv2d_nhwc(x, self.kernel, self.bias), self.gamma, self.beta)
        return torch.maximum(y, 0.01 * y)


class Head(TFBlock):
    def forward(self, x):
        return conv2d_nhwc(x, self.kernel, self.bias)


class TextureNetTF(nn.Module):
    def __init__(self, params):
        super().__init__()
        n = len(params["noise"])
        self.noise = nn.ModuleList(nn.ModuleList(TFBlock(w) for w in seq) for seq in params["noise"])
        self.join = nn.ModuleList(TFBlock(w) for w in params["join"])
        self.rgb = Head(params["last"])
        self.n = n

    def pool(self, x, r):
        b, h, w, c = x.shape
        return x.view(b, h // r, r, w // r, r, c).mean((2, 4))

    def forward(self, img):
        x = img.permute(0, 2, 3, 1).contiguous()
        feats = []
        for i in range(self.n):
            y = self.pool(x, 2**i)
            for blk in self.noise[i]:
                y = blk(y)
            feats.append(y)
        cur = feats.pop()
        for join in self.join:
            up = cur.repeat_interleave(2, 1).repeat_interleave(2, 2)
            cur = join(torch.cat([up, feats.pop()], -1))
        return self.rgb(cur).permute(0, 3, 1, 2)


def to_tf(w, axes):
    return np.transpose(w, axes) if axes else np.transpose(w)


def export_params(net, axes):
    def block(b):
        return {
            "kernel": to_tf(b[1].weight.detach().numpy(), axes),
            "bias": b[1].bias.detach().numpy(),
            "gamma": b[2].weight.detach().numpy(),
            "beta": b[2].bias.detach().numpy(),
        }

    return {
        "noise": [[block(b) for b in seq] for seq in net.noise_blocks],
        "join": [block(b) for b in net.joins],
        "last": {"kernel": to_tf(net.last.weight.detach().numpy(), axes), "bias": net.last.bias.detach().numpy()},
    }


def build(fixed):
    torch.manual_seed(2017)
    original = TexturePyramid().eval()
    port = TextureNetTF(export_params(original, (2, 3, 1, 0) if fixed else None)).eval()
    return original, port, (torch.rand(1, 3, 16, 24),)
