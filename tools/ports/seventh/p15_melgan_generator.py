"""After seungwonpark/melgan#17: an early MelGAN re-implementation gives another waveform than the
official generator for the same parameters."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.parametrizations import weight_norm


def WNConv1d(*a, **k):
    return weight_norm(nn.Conv1d(*a, **k))


def WNConvTranspose1d(*a, **k):
    return weight_norm(nn.ConvTranspose1d(*a, **k))


class OfficialResnetBlock(nn.Module):
    def __init__(self, dim, dilation=1):
        super().__init__()
        self.block = nn.Sequential(
            nn.LeakyReLU(0.2),
            nn.ReflectionPad1d(dilation),
            WNConv1d(dim, dim, 3, dilation=dilation),
            nn.LeakyReLU(0.2),
            WNConv1d(dim, dim, 1),
        )
        self.shortcut = WNConv1d(dim, dim, 1)

    def forward(self, x):
        return self.shortcut(x) + self.block(x)


class OfficialGenerator(nn.Module):
    def __init__(self, n_mel=10, ngf=4, ratios=(4, 2), n_res=2):
        super().__init__()
        mult = 2 ** len(ratios)
        model = [nn.ReflectionPad1d(3), WNConv1d(n_mel, mult * ngf, 7)]
        for r in ratios:
            model += [
                nn.LeakyReLU(0.2),
                WNConvTranspose1d(mult * ngf, mult * ngf // 2, r * 2, stride=r, padding=r // 2),
            ]
            model += [OfficialResnetBlock(mult * ngf // 2, 3**j) for j in range(n_res)]
            mult //= 2
        model += [nn.LeakyReLU(0.2), nn.ReflectionPad1d(3), WNConv1d(ngf, 1, 7), nn.Tanh()]
        self.model = nn.Sequential(*model)

    def forward(self, mel):
        return self.model(mel)


class ResStack(nn.Module):
    def __init__(self, channel, act, n_res=2):
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(
                act(),
                nn.ReflectionPad1d(3**i),
                nn.Conv1d(channel, channel, 3, dilation=3**i),
                act(),
                nn.Conv1d(channel, channel, 1),
            )
            for i in range(n_res)
        )
        self.shortcuts = nn.ModuleList(nn.Conv1d(channel, channel, 1) for _ in range(n_res))

    def forward(self, x):
        for block, shortcut in zip(self.blocks, self.shortcuts):
            x = block(x) + shortcut(x)
        return x


class Generator(nn.Module):
    def __init__(self, n_mel=10, ngf=4, ratios=(4, 2), slope=None):
        super().__init__()
        act = nn.LeakyReLU if slope is None else (lambda: nn.LeakyReLU(slope))
        c = ngf * 2 ** len(ratios)
        self.mel_channel = n_mel
        self.pre = nn.Conv1d(n_mel, c, 7)
        self.ups, self.stacks = nn.ModuleList(), nn.ModuleList()
        for r in ratios:
            self.ups.append(nn.Sequential(act(), nn.ConvTranspose1d(c, c // 2, 2 * r, stride=r, padding=r // 2)))
            self.stacks.append(ResStack(c // 2, act))
            c //= 2
        self.post = nn.Sequential(act(), nn.ReflectionPad1d(3), nn.Conv1d(c, 1, 7))

    def forward(self, mel):
        x = self.pre(F.pad(mel, (3, 3), mode="reflect"))
        for up, stack in zip(self.ups, self.stacks):
            x = stack(up(x))
        return torch.tanh(self.post(x))


def plain(conv):
    return {"weight": conv.weight.detach().clone(), "bias": conv.bias.detach().clone()}


def remove_weight_norm_and_load(official, gen):
    layers = [m for m in official.model if not isinstance(m, (nn.LeakyReLU, nn.ReflectionPad1d, nn.Tanh))]
    it = iter(layers)
    gen.pre.load_state_dict(plain(next(it)))
    for up, stack in zip(gen.ups, gen.stacks):
        up[1].load_state_dict(plain(next(it)))
        for block, shortcut in zip(stack.blocks, stack.shortcuts):
            res = next(it)
            block[2].load_state_dict(plain(res.block[2]))
            block[4].load_state_dict(plain(res.block[4]))
            shortcut.load_state_dict(plain(res.shortcut))
    gen.post[2].load_state_dict(plain(next(it)))


def build(fixed):
    torch.manual_seed(17)
    original = OfficialGenerator().eval()
    port = Generator(slope=0.2 if fixed else None).eval()
    remove_weight_norm_and_load(original, port)
    return original, port, (torch.randn(2, 10, 14) * 3 - 2,)
