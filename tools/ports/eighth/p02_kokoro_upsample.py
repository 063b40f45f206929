"""After Blaizzy/mlx-audio#858.

The Kokoro decoder (iSTFTNet) was ported to an array framework with channels-last tensors.
Comparing every intermediate tensor with the PyTorch reference showed the residual branch of
the upsampling AdaIN block standing one frame apart from the shortcut branch.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class AdaIN1d(nn.Module):
    def __init__(self, style_dim, num_features):
        super().__init__()
        self.norm = nn.InstanceNorm1d(num_features, affine=False)
        self.fc = nn.Linear(style_dim, num_features * 2)

    def forward(self, x, s):
        h = self.fc(s).unsqueeze(-1)
        gamma, beta = h.chunk(2, dim=1)
        return (1 + gamma) * self.norm(x) + beta


class AdainResBlk1d(nn.Module):
    def __init__(self, dim_in, dim_out, style_dim, upsample=False):
        super().__init__()
        self.upsample = upsample
        self.actv = nn.LeakyReLU(0.2)
        self.norm1 = AdaIN1d(style_dim, dim_in)
        self.norm2 = AdaIN1d(style_dim, dim_out)
        self.conv1 = nn.Conv1d(dim_in, dim_out, 3, 1, 1)
        self.conv2 = nn.Conv1d(dim_out, dim_out, 3, 1, 1)
        self.learned_sc = dim_in != dim_out
        if self.learned_sc:
            self.conv1x1 = nn.Conv1d(dim_in, dim_out, 1, bias=False)
        self.pool = (
            nn.ConvTranspose1d(dim_in, dim_in, 3, stride=2, groups=dim_in, padding=1, output_padding=1)
            if upsample
            else nn.Identity()
        )

    def _shortcut(self, x):
        if self.upsample:
            x = F.interpolate(x, scale_factor=2, mode="nearest")
        return self.conv1x1(x) if self.learned_sc else x

    def _residual(self, x, s):
        x = self.pool(self.actv(self.norm1(x, s)))
        x = self.conv1(x)
        return self.conv2(self.actv(self.norm2(x, s)))

    def forward(self, x, s):
        return (self._residual(x, s) + self._shortcut(x)) * 2**-0.5


class Decoder(nn.Module):
    def __init__(self, dim_in=16, style_dim=12, hidden=24):
        super().__init__()
        self.F0_conv = nn.Conv1d(1, 1, 3, stride=2, padding=1)
        self.encode = AdainResBlk1d(dim_in + 1, hidden, style_dim)
        self.decode = nn.ModuleList(
            [
                AdainResBlk1d(hidden + 1, hidden, style_dim),
                AdainResBlk1d(hidden, 16, style_dim, upsample=True),
            ]
        )
        self.post = nn.Conv1d(16, 10, 7, padding=3)

    def forward(self, asr, f0, s):
        F0 = self.F0_conv(f0.unsqueeze(1))
        x = self.encode(torch.cat([asr, F0], 1), s)
        x = self.decode[0](torch.cat([x, F0], 1), s)
        x = self.decode[1](x, s)
        return self.post(x)


class ConvNLC(nn.Module):
    """Convolution over [N, L, C] with the kernel kept as [O, K, I]."""

    def __init__(self, o, k, i, stride=1, padding=0, bias=True):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(o, k, i))
        self.bias = nn.Parameter(torch.zeros(o)) if bias else None
        self.stride, self.padding = stride, padding

    def forward(self, x):
        y = F.conv1d(x.transpose(1, 2), self.weight.transpose(1, 2), self.bias, self.stride, self.padding)
        return y.transpose(1, 2)


class ConvTransposeNLC(nn.Module):
    def __init__(self, dim, k, stride, padding):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(dim, k, 1))
        self.bias = nn.Parameter(torch.zeros(dim))
        self.stride, self.padding, self.groups = stride, padding, dim

    def forward(self, x):
        y = F.conv_transpose1d(
            x.transpose(1, 2), self.weight.transpose(1, 2), None, self.stride, self.padding, groups=self.groups
        )
        return y.transpose(1, 2) + self.bias


class AdaLayer(nn.Module):
    def __init__(self, style_dim, c):
        super().__init__()
        self.proj = nn.Linear(style_dim, 2 * c)

    def forward(self, x, s):
        g, b = self.proj(s)[:, None].split(x.shape[-1], dim=-1)
        mu = x.mean(1, keepdim=True)
        var = (x - mu).pow(2).mean(1, keepdim=True)
        return (x - mu) * torch.rsqrt(var + 1e-5) * (1 + g) + b


class UpPool(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.conv_t = ConvTransposeNLC(dim, 3, 2, 1)

    def forward(self, x):
        x = self.conv_t(x)
        return F.pad(x, (0, 0, 1, 0))


class UpPoolMended(UpPool):
    def __init__(self, dim):
        super().__init__(dim)
        self.conv_t.padding = 0

    def forward(self, x):
        return self.conv_t(x)[:, 1:]


class ResBlk(nn.Module):
    def __init__(self, d_in, d_out, style_dim, up=None):
        super().__init__()
        self.ada1, self.ada2 = AdaLayer(style_dim, d_in), AdaLayer(style_dim, d_out)
        self.c1, self.c2 = ConvNLC(d_out, 3, d_in, padding=1), ConvNLC(d_out, 3, d_out, padding=1)
        self.skip = ConvNLC(d_out, 1, d_in, bias=False)
        self.up = up(d_in) if up is not None else None

    def forward(self, x, s):
        y = F.leaky_relu(self.ada1(x, s), 0.2)
        r = x
        if self.up is not None:
            y = self.up(y)
            r = x.repeat_interleave(2, dim=1)
        y = self.c2(F.leaky_relu(self.ada2(self.c1(y), s), 0.2))
        return (y + self.skip(r)) / 2**0.5


class KokoroDecoder(nn.Module):
    def __init__(self, up):
        super().__init__()
        self.f0 = ConvNLC(1, 3, 1, stride=2, padding=1)
        self.blocks = nn.ModuleList([ResBlk(17, 24, 12), ResBlk(25, 24, 12), ResBlk(24, 16, 12, up)])
        self.conv_post = ConvNLC(10, 7, 16, padding=3)

    def forward(self, asr, f0, s):
        p = self.f0(f0[..., None])
        x = self.blocks[0](torch.cat([asr.transpose(1, 2), p], -1), s)
        x = self.blocks[1](torch.cat([x, p], -1), s)
        x = self.blocks[2](x, s)
        return self.conv_post(x).transpose(1, 2)


def sanitize(sd):
    names = {
        "F0_conv": "f0",
        "encode": "blocks.0",
        "decode.0": "blocks.1",
        "decode.1": "blocks.2",
        "post": "conv_post",
        "norm1.fc": "ada1.proj",
        "norm2.fc": "ada2.proj",
        "conv1x1": "skip",
        "conv1.": "c1.",
        "conv2.": "c2.",
        "pool.": "up.conv_t.",
    }
    out = {}
    for k, v in sd.items():
        for a, b in names.items():
            k = k.replace(a, b)
        out[k] = v.transpose(1, 2) if v.dim() == 3 else v
    return out


def build(fixed):
    torch.manual_seed(5)
    original = Decoder().eval()
    port = KokoroDecoder(UpPoolMended if fixed else UpPool).eval()
    port.load_state_dict(sanitize(original.state_dict()))
    return original, port, (torch.randn(2, 16, 20), torch.rand(2, 40) * 3, torch.randn(2, 12))
