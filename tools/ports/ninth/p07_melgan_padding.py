"""seungwonpark/melgan#17

An unofficial MelGAN generator was given the official weights (weight norm removed).
The waveform is right in its middle and wrong towards both ends of every segment.
"""

import torch
import torch.nn.functional as F
from torch import nn


class ResnetBlock(nn.Module):
    def __init__(self, dim, dilation):
        super().__init__()
        self.block = nn.Sequential(
            nn.LeakyReLU(0.2),
            nn.ReflectionPad1d(dilation),
            nn.Conv1d(dim, dim, 3, dilation=dilation),
            nn.LeakyReLU(0.2),
            nn.Conv1d(dim, dim, 1),
        )
        self.shortcut = nn.Conv1d(dim, dim, 1)

    def forward(self, x):
        return self.shortcut(x) + self.block(x)


class Generator(nn.Module):
    def __init__(self, n_mel=10, ngf=6, ratios=(4, 2), n_residual_layers=2):
        super().__init__()
        mult = 2 ** len(ratios)
        model = [nn.ReflectionPad1d(3), nn.Conv1d(n_mel, mult * ngf, 7)]
        for r in ratios:
            model += [
                nn.LeakyReLU(0.2),
                nn.ConvTranspose1d(mult * ngf, mult * ngf // 2, 2 * r, stride=r, padding=r // 2),
            ]
            model += [ResnetBlock(mult * ngf // 2, 3**j) for j in range(n_residual_layers)]
            mult //= 2
        model += [nn.LeakyReLU(0.2), nn.ReflectionPad1d(3), nn.Conv1d(ngf, 1, 7), nn.Tanh()]
        self.model = nn.Sequential(*model)

    def forward(self, mel):
        return self.model(mel)


class PaddedConv(nn.Module):
    def __init__(self, cin, cout, kernel, dilation=1, mode="constant"):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.empty(cout, cin, kernel)), nn.Parameter(torch.empty(cout))
        self.dilation, self.mode = dilation, mode

    def forward(self, x):
        side = (self.weight.shape[-1] - 1) // 2 * self.dilation
        if side:
            x = F.pad(x, (side, side), mode=self.mode)
        return F.conv1d(x, self.weight, self.bias, dilation=self.dilation)


class ResStack(nn.Module):
    def __init__(self, channel, depth, mode):
        super().__init__()
        self.dilated = nn.ModuleList(PaddedConv(channel, channel, 3, 3**i, mode) for i in range(depth))
        self.pointwise = nn.ModuleList(PaddedConv(channel, channel, 1) for _ in range(depth))
        self.skip = nn.ModuleList(PaddedConv(channel, channel, 1) for _ in range(depth))

    def forward(self, x):
        for dilated, pointwise, skip in zip(self.dilated, self.pointwise, self.skip):
            y = dilated(F.leaky_relu(x, 0.2))
            x = pointwise(F.leaky_relu(y, 0.2)) + skip(x)
        return x


class UpStage(nn.Module):
    def __init__(self, cin, cout, rate, depth, mode):
        super().__init__()
        self.up = nn.ConvTranspose1d(cin, cout, 2 * rate, rate, rate // 2)
        self.stack = ResStack(cout, depth, mode)

    def forward(self, x):
        return self.stack(self.up(F.leaky_relu(x, 0.2)))


class MelGANGenerator(nn.Module):
    def __init__(self, mel_channel=10, base=6, rates=(4, 2), depth=2, mode="constant"):
        super().__init__()
        widths = [base * 2**i for i in reversed(range(len(rates) + 1))]
        self.conv_pre = PaddedConv(mel_channel, widths[0], 7, mode=mode)
        self.stages = nn.ModuleList(UpStage(a, b, r, depth, mode) for a, b, r in zip(widths, widths[1:], rates))
        self.conv_post = PaddedConv(widths[-1], 1, 7, mode=mode)

    def forward(self, mel):
        x = self.conv_pre(mel)
        for stage in self.stages:
            x = stage(x)
        return torch.tanh(self.conv_post(F.leaky_relu(x, 0.2)))


def convert(sd, depth=2, stages=2):
    names = {"conv_pre": "model.1", "conv_post": f"model.{2 + stages * (2 + depth) + 2}"}
    for s in range(stages):
        at = 2 + s * (2 + depth)
        names[f"stages.{s}.up"] = f"model.{at + 1}"
        for j in range(depth):
            block = f"model.{at + 2 + j}."
            names[f"stages.{s}.stack.dilated.{j}"] = block + "block.2"
            names[f"stages.{s}.stack.pointwise.{j}"] = block + "block.4"
            names[f"stages.{s}.stack.skip.{j}"] = block + "shortcut"
    return {f"{new}.{w}": sd[f"{old}.{w}"].clone() for new, old in names.items() for w in ("weight", "bias")}


def build(fixed):
    torch.manual_seed(6)
    original = Generator().eval()
    for p in original.parameters():
        nn.init.normal_(p, 0.0, 0.15)
    port = MelGANGenerator(mode="reflect" if fixed else "constant").eval()
    port.load_state_dict(convert(original.state_dict()))
    return original, port, (torch.randn(2, 10, 14),)
