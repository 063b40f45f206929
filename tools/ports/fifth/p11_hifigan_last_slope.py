"""jik876/hifi-gan#48: the slope before the last convolution is the default 0.01, everywhere else it is 0.1.

A port that uses one LRELU_SLOPE for the whole generator is wrong in this single activation.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

LRELU_SLOPE = 0.1


def same(kernel: int, dilation: int) -> int:
    return (kernel * dilation - dilation) // 2


class ResBlock(nn.Module):
    def __init__(self, channels: int, kernel: int, dilations: tuple[int, ...]) -> None:
        super().__init__()
        self.convs1 = nn.ModuleList(
            [
                weight_norm(nn.Conv1d(channels, channels, kernel, 1, dilation=d, padding=same(kernel, d)))
                for d in dilations
            ]
        )
        self.convs2 = nn.ModuleList(
            [weight_norm(nn.Conv1d(channels, channels, kernel, 1, padding=same(kernel, 1))) for _ in dilations]
        )

    def forward(self, x: Tensor) -> Tensor:
        for c1, c2 in zip(self.convs1, self.convs2):
            xt = c1(F.leaky_relu(x, LRELU_SLOPE))
            xt = c2(F.leaky_relu(xt, LRELU_SLOPE))
            x = xt + x
        return x


class Generator(nn.Module):
    def __init__(self, mels: int = 10, base: int = 16) -> None:
        super().__init__()
        self.kernels = (3, 5)
        self.conv_pre = weight_norm(nn.Conv1d(mels, base, 7, 1, padding=3))
        self.ups = nn.ModuleList()
        self.resblocks = nn.ModuleList()
        for i, (rate, kernel) in enumerate(((4, 8), (2, 4))):
            ch = base // 2 ** (i + 1)
            up = nn.ConvTranspose1d(2 * ch, ch, kernel, rate, padding=(kernel - rate) // 2)
            self.ups.append(weight_norm(up))
            self.resblocks.extend([ResBlock(ch, k, (1, 3)) for k in self.kernels])
        self.conv_post = weight_norm(nn.Conv1d(base // 4, 1, 7, 1, padding=3))

    def forward(self, mel: Tensor) -> Tensor:
        x = self.conv_pre(mel)
        count = len(self.kernels)
        for i, up in enumerate(self.ups):
            x = up(F.leaky_relu(x, LRELU_SLOPE))
            x = sum(self.resblocks[i * count + j](x) for j in range(count)) / count
        x = F.leaky_relu(x)
        return torch.tanh(self.conv_post(x))


class ResidualUnit(nn.Module):
    """act, dilated conv, act, conv; weight norm already removed."""

    def __init__(self, channels: int, kernel: int, dilation: int) -> None:
        super().__init__()
        self.dilated = nn.Conv1d(channels, channels, kernel, dilation=dilation, padding="same")
        self.plain = nn.Conv1d(channels, channels, kernel, padding="same")

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.dilated(torch.maximum(x, LRELU_SLOPE * x))
        return torch.add(self.plain(torch.maximum(hidden, LRELU_SLOPE * hidden)), x)


class HifiGan(nn.Module):
    def __init__(self, mels: int = 10, base: int = 16, output_slope: float = 0.01) -> None:
        super().__init__()
        self.input_conv = nn.Conv1d(mels, base, 7, padding="same")
        self.upsamples = nn.ModuleList()
        self.mrf = nn.ModuleList()
        for rate, kernel in ((4, 8), (2, 4)):
            deconv = nn.ConvTranspose1d(base, base // 2, kernel, rate, padding=rate // 2)
            self.upsamples.append(nn.Sequential(nn.LeakyReLU(LRELU_SLOPE), deconv))
            base //= 2
            branches = [nn.Sequential(*[ResidualUnit(base, k, d) for d in (1, 3)]) for k in (3, 5)]
            self.mrf.append(nn.ModuleList(branches))
        self.output_conv = nn.Sequential(nn.LeakyReLU(output_slope), nn.Conv1d(base, 1, 7, padding="same"), nn.Tanh())

    def forward(self, mel: Tensor) -> Tensor:
        hidden = self.input_conv(mel)
        for up, branches in zip(self.upsamples, self.mrf):
            hidden = up(hidden)
            hidden = torch.stack([branch(hidden) for branch in branches]).mean(dim=0)
        return self.output_conv(hidden)


@torch.no_grad()
def strip_weight_norm(src: Generator, dst: HifiGan) -> None:
    pairs = [(src.conv_pre, dst.input_conv), (src.conv_post, dst.output_conv[1])]
    pairs += [(a, b[1]) for a, b in zip(src.ups, dst.upsamples)]
    branches = [branch for level in dst.mrf for branch in level]
    for block, branch in zip(src.resblocks, branches):
        for c1, c2, unit in zip(block.convs1, block.convs2, branch):
            pairs += [(c1, unit.dilated), (c2, unit.plain)]
    for a, b in pairs:
        b.weight.copy_(a.weight)
        b.bias.copy_(a.bias)


def build(fixed: bool = False) -> tuple[nn.Module, nn.Module, tuple]:
    torch.manual_seed(48)
    original = Generator()
    port = HifiGan(output_slope=0.01 if fixed else LRELU_SLOPE)
    strip_weight_norm(original, port)
    return original.eval(), port.eval(), (torch.randn(2, 10, 12) - 1.0,)
