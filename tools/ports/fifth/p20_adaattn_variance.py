"""Huage001/AdaAttN#8: its mean-variance norm divides by the unbiased deviation, nn.InstanceNorm2d by the biased one.

Replacing one by the other looks harmless, but the deepest feature map has 3 x 3 positions only.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def mean_variance_norm(feat: Tensor, eps: float = 1e-5) -> Tensor:
    flat = feat.flatten(2)
    var = flat.var(dim=2) + eps
    return (feat - flat.mean(dim=2)[:, :, None, None]) / var.sqrt()[:, :, None, None]


class AdaAttN(nn.Module):
    def __init__(self, v_dim: int, qk_dim: int) -> None:
        super().__init__()
        self.f = nn.Conv2d(qk_dim, qk_dim, 1)
        self.g = nn.Conv2d(qk_dim, qk_dim, 1)
        self.h = nn.Conv2d(v_dim, v_dim, 1)

    def forward(self, c: Tensor, s: Tensor, c_key: Tensor, s_key: Tensor) -> Tensor:
        q = self.f(mean_variance_norm(c_key)).flatten(2).transpose(1, 2)
        k = self.g(mean_variance_norm(s_key)).flatten(2)
        v = self.h(s).flatten(2).transpose(1, 2)
        attn = torch.softmax(q @ k, dim=-1)
        mean = attn @ v
        std = torch.sqrt(torch.relu(attn @ v**2 - mean**2) + 1e-6)
        b, _, height, width = c.shape
        mean, std = (t.view(b, height, width, -1).permute(0, 3, 1, 2) for t in (mean, std))
        return std * mean_variance_norm(c) + mean


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, 2, 1, padding_mode="reflect")
        self.conv2 = nn.Conv2d(8, 12, 3, 2, 1, padding_mode="reflect")

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        a = F.relu(self.conv1(x))
        return a, F.relu(self.conv2(a))


class StyleNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = Encoder()
        self.attn_low = AdaAttN(8, 8)
        self.attn_high = AdaAttN(12, 20)
        self.merge = nn.Conv2d(12, 8, 3, 1, 1, padding_mode="reflect")
        self.decode = nn.Conv2d(16, 3, 3, 1, 1, padding_mode="reflect")

    @staticmethod
    def key(low: Tensor, high: Tensor) -> Tensor:
        return torch.cat((mean_variance_norm(F.adaptive_avg_pool2d(low, high.shape[-2:])), mean_variance_norm(high)), 1)

    def forward(self, content: Tensor, style: Tensor) -> Tensor:
        c1, c2 = self.encoder(content)
        s1, s2 = self.encoder(style)
        high = self.attn_high(c2, s2, self.key(c1, c2), self.key(s1, s2))
        low = self.attn_low(c1, s1, c1, s1)
        up = F.interpolate(F.relu(self.merge(high)), scale_factor=2, mode="nearest")
        return self.decode(torch.cat((up, low), 1))


class SampleNorm2d(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.channels = channels

    def forward(self, x: Tensor) -> Tensor:
        var, mean = torch.var_mean(x, dim=(2, 3), keepdim=True, correction=1)
        return (x - mean) * torch.rsqrt(var + 1e-5)


class AttentionStylizer(nn.Module):
    def __init__(self, channels: int, key_channels: int, norm: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.norm = norm(channels)
        self.key_norm = norm(key_channels)
        self.query = nn.Linear(key_channels, key_channels)
        self.key = nn.Linear(key_channels, key_channels)
        self.value = nn.Linear(channels, channels)

    def forward(self, content: Tensor, style: Tensor, content_key: Tensor, style_key: Tensor) -> Tensor:
        size = content.shape[2:]
        content_key, style_key = self.key_norm(content_key), self.key_norm(style_key)
        query = self.query(content_key.flatten(2).mT)
        key = self.key(style_key.flatten(2).mT)
        value = self.value(style.flatten(2).mT)
        moments = torch.cat([value, value.square()], dim=-1)
        first, second = F.scaled_dot_product_attention(query, key, moments, scale=1.0).chunk(2, dim=-1)
        spread = ((second - first.square()).clamp(min=0) + 1e-6).sqrt()
        spread, first = (t.mT.unflatten(2, size) for t in (spread, first))
        return torch.addcmul(first, spread, self.norm(content))


class StylePort(nn.Module):
    def __init__(self, norm: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.pad = nn.ReflectionPad2d(1)
        self.enc = nn.ModuleList([nn.Conv2d(3, 8, 3, stride=2), nn.Conv2d(8, 12, 3, stride=2)])
        self.low = AttentionStylizer(8, 8, norm)
        self.high = AttentionStylizer(12, 20, norm)
        self.key_norms = nn.ModuleList([norm(8), norm(12)])
        self.dec = nn.ModuleList([nn.Conv2d(12, 8, 3), nn.Conv2d(16, 3, 3)])

    def forward(self, content: Tensor, style: Tensor) -> Tensor:
        images = torch.cat([content, style])
        shallow = self.enc[0](self.pad(images)).relu()
        deep = self.enc[1](self.pad(shallow)).relu()
        keys = torch.cat([self.key_norms[0](F.avg_pool2d(shallow, 2)), self.key_norms[1](deep)], dim=1)
        (c1, s1), (c2, s2), (ck, sk) = (t.chunk(2) for t in (shallow, deep, keys))
        coarse = self.dec[0](self.pad(self.high(c2, s2, ck, sk))).relu()
        coarse = coarse.repeat_interleave(2, dim=2).repeat_interleave(2, dim=3)
        return self.dec[1](self.pad(torch.cat([coarse, self.low(c1, s1, c1, s1)], dim=1)))


@torch.no_grad()
def convert(src: StyleNet, dst: StylePort) -> None:
    pairs = [(src.encoder.conv1, dst.enc[0]), (src.encoder.conv2, dst.enc[1])]
    pairs += [(src.merge, dst.dec[0]), (src.decode, dst.dec[1])]
    for a, b in ((src.attn_low, dst.low), (src.attn_high, dst.high)):
        pairs += [(a.f, b.query), (a.g, b.key), (a.h, b.value)]
    for conv, target in pairs:
        target.weight.copy_(conv.weight.view_as(target.weight))
        target.bias.copy_(conv.bias)


def build(fixed: bool = False) -> tuple[nn.Module, nn.Module, tuple]:
    torch.manual_seed(8)
    original = StyleNet()
    with torch.no_grad():
        for attn in (original.attn_low, original.attn_high):
            attn.h.weight.mul_(8.0)
    port = StylePort(SampleNorm2d if fixed else nn.InstanceNorm2d)
    convert(original, port)
    return original.eval(), port.eval(), (torch.randn(2, 3, 12, 12), torch.randn(2, 3, 12, 12))
