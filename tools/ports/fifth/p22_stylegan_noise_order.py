"""rosinality/style-based-gan-pytorch#4: noise is injected after the AdaIN, the official generator adds it before.

After instance normalisation the noise is neither normalised nor scaled by the style.
"""

import math
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class EqualLinear(nn.Module):
    def __init__(self, cin: int, cout: int, gain: float = 1.0, bias: float = 0.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(cout, cin))
        self.bias = nn.Parameter(torch.full((cout,), bias))
        self.coef = gain / math.sqrt(cin)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight * self.coef, self.bias)


class EqualConv(nn.Module):
    def __init__(self, cin: int, cout: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(cout, cin, 3, 3))
        self.coef = math.sqrt(2) / math.sqrt(9 * cin)

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(x, self.weight * self.coef, padding=1)


class Epilogue(nn.Module):
    """noise, bias, leaky relu, instance norm, style"""

    def __init__(self, channels: int, latent: int, size: int) -> None:
        super().__init__()
        self.noise_strength = nn.Parameter(torch.randn(channels) * 0.3)
        self.bias = nn.Parameter(torch.randn(channels) * 0.1)
        self.style = EqualLinear(latent, 2 * channels)
        self.register_buffer("noise", torch.randn(1, 1, size, size))

    def forward(self, x: Tensor, w: Tensor) -> Tensor:
        x = x + self.noise * self.noise_strength[:, None, None]
        x = F.leaky_relu(x + self.bias[:, None, None], 0.2)
        x = (x - x.mean((2, 3), keepdim=True)) * torch.rsqrt(x.var((2, 3), keepdim=True, correction=0) + 1e-8)
        scale, shift = self.style(w)[:, :, None, None].chunk(2, 1)
        return x * (scale + 1) + shift


class Generator(nn.Module):
    def __init__(self, latent: int = 12, channels: tuple[int, ...] = (16, 12, 8)) -> None:
        super().__init__()
        self.mapping = nn.Sequential(EqualLinear(latent, latent), nn.LeakyReLU(0.2), EqualLinear(latent, latent))
        self.const = nn.Parameter(torch.randn(1, channels[0], 4, 4))
        self.epilogues = nn.ModuleList([Epilogue(channels[0], latent, 4)])
        self.convs = nn.ModuleList()
        for i, (cin, cout) in enumerate(pairwise(channels)):
            self.convs.append(EqualConv(cin, cout))
            self.epilogues.append(Epilogue(cout, latent, 8 * 2**i))
        self.to_rgb = nn.Conv2d(channels[-1], 3, 1)

    def forward(self, z: Tensor) -> Tensor:
        w = self.mapping(z * torch.rsqrt(z.square().mean(1, keepdim=True) + 1e-8))
        x = self.epilogues[0](self.const.expand(z.shape[0], -1, -1, -1), w)
        for conv, epilogue in zip(self.convs, list(self.epilogues)[1:]):
            x = F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
            x = epilogue(conv(x), w)
        return self.to_rgb(x)


class AdaptiveInstanceNorm(nn.Module):
    def __init__(self, in_channel: int, style_dim: int) -> None:
        super().__init__()
        self.norm = nn.InstanceNorm2d(in_channel, eps=1e-8)
        self.style = nn.Linear(style_dim, in_channel * 2)

    def forward(self, x: Tensor, style: Tensor) -> Tensor:
        gamma, beta = self.style(style).unsqueeze(2).unsqueeze(3).chunk(2, 1)
        return gamma * self.norm(x) + beta


class NoiseInjection(nn.Module):
    def __init__(self, channel: int, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1, channel, 1, 1))
        self.register_buffer("image", torch.zeros(1, 1, size, size))

    def forward(self, x: Tensor) -> Tensor:
        return torch.addcmul(x, self.weight, self.image)


class StyledConvBlock(nn.Module):
    def __init__(self, in_channel: int | None, out_channel: int, style_dim: int, size: int, order: str) -> None:
        super().__init__()
        self.order = order
        self.conv = None if in_channel is None else nn.Conv2d(in_channel, out_channel, 3, padding=1)
        self.offset = nn.Parameter(torch.zeros(out_channel)) if in_channel is None else None
        self.upsample = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False)
        self.noise = NoiseInjection(out_channel, size)
        self.adain = AdaptiveInstanceNorm(out_channel, style_dim)
        self.lrelu = nn.LeakyReLU(0.2)

    def forward(self, x: Tensor, style: Tensor) -> Tensor:
        x = x + self.offset[:, None, None] if self.conv is None else self.conv(self.upsample(x))
        if self.order == "noise_first":
            return self.adain(self.lrelu(self.noise(x)), style)
        return self.noise(self.adain(self.lrelu(x), style))


class StyledGenerator(nn.Module):
    def __init__(self, order: str, code: int = 12) -> None:
        super().__init__()
        self.style = nn.ModuleList([nn.Linear(code, code), nn.Linear(code, code)])
        self.input = nn.Parameter(torch.zeros(1, 16, 4, 4))
        self.progression = nn.ModuleList(
            [
                StyledConvBlock(None, 16, code, 4, order),
                StyledConvBlock(16, 12, code, 8, order),
                StyledConvBlock(12, 8, code, 16, order),
            ]
        )
        self.to_rgb = nn.Conv2d(8, 3, 1)

    def forward(self, z: Tensor) -> Tensor:
        style = z / (z.pow(2).mean(dim=1, keepdim=True) + 1e-8).sqrt()
        style = self.style[1](F.leaky_relu(self.style[0](style), 0.2))
        out = self.input.repeat(z.shape[0], 1, 1, 1)
        for block in self.progression:
            out = block(out, style)
        return self.to_rgb(out)


@torch.no_grad()
def convert(src: Generator, dst: StyledGenerator) -> None:
    for a, b in ((src.mapping[0], dst.style[0]), (src.mapping[2], dst.style[1])):
        b.weight.copy_(a.weight * a.coef)
        b.bias.copy_(a.bias)
    dst.input.copy_(src.const)
    for i, (epilogue, block) in enumerate(zip(src.epilogues, dst.progression)):
        if block.conv is None:
            block.offset.copy_(epilogue.bias)
        else:
            block.conv.weight.copy_(src.convs[i - 1].weight * src.convs[i - 1].coef)
            block.conv.bias.copy_(epilogue.bias)
        block.noise.weight.copy_(epilogue.noise_strength.view(1, -1, 1, 1))
        block.noise.image.copy_(epilogue.noise)
        block.adain.style.weight.copy_(epilogue.style.weight * epilogue.style.coef)
        block.adain.style.bias.copy_(epilogue.style.bias)
        block.adain.style.bias[: epilogue.bias.shape[0]] += 1.0
    dst.to_rgb.load_state_dict(src.to_rgb.state_dict())


def build(fixed: bool = False) -> tuple[nn.Module, nn.Module, tuple]:
    torch.manual_seed(4)
    original = Generator()
    port = StyledGenerator("noise_first" if fixed else "noise_last")
    convert(original, port)
    return original.eval(), port.eval(), (torch.randn(2, 12),)
