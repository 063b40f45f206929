"""JusperLee/Conv-TasNet#30: the cLN of the causal separator is not cumulative, each frame is normalised on its own.

The statistics have to run over all channels and all frames up to the current one.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class CumulativeLayerNorm(nn.Module):
    def __init__(self, channels: int, eps: float = 1e-8) -> None:
        super().__init__()
        self.eps = eps
        self.gain = nn.Parameter(torch.ones(1, channels, 1))
        self.bias = nn.Parameter(torch.zeros(1, channels, 1))

    def forward(self, x: Tensor) -> Tensor:
        _, channels, frames = x.shape
        count = torch.arange(1, frames + 1) * channels
        mean = x.sum(1).cumsum(1) / count
        power = x.pow(2).sum(1).cumsum(1) / count
        var = power - mean.pow(2)
        x = (x - mean.unsqueeze(1)) / (var + self.eps).sqrt().unsqueeze(1)
        return x * self.gain + self.bias


class DepthConv1d(nn.Module):
    def __init__(self, channels: int, hidden: int, dilation: int) -> None:
        super().__init__()
        self.left = 2 * dilation
        self.conv1d = nn.Conv1d(channels, hidden, 1)
        self.nonlinearity1 = nn.PReLU()
        self.reg1 = CumulativeLayerNorm(hidden)
        self.dconv1d = nn.Conv1d(hidden, hidden, 3, dilation=dilation, groups=hidden)
        self.nonlinearity2 = nn.PReLU()
        self.reg2 = CumulativeLayerNorm(hidden)
        self.res_out = nn.Conv1d(hidden, channels, 1)
        self.skip_out = nn.Conv1d(hidden, channels, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.reg1(self.nonlinearity1(self.conv1d(x)))
        y = self.reg2(self.nonlinearity2(self.dconv1d(F.pad(y, (self.left, 0)))))
        return x + self.res_out(y), self.skip_out(y)


class TasNet(nn.Module):
    def __init__(self, enc: int = 12, feature: int = 8, sources: int = 2, layers: int = 2) -> None:
        super().__init__()
        self.sources = sources
        self.encoder = nn.Conv1d(1, enc, 8, 4, bias=False)
        self.ln = CumulativeLayerNorm(enc)
        self.bottleneck = nn.Conv1d(enc, feature, 1)
        self.tcn = nn.ModuleList([DepthConv1d(feature, 12, 2**i) for i in range(layers)])
        self.output = nn.Sequential(nn.PReLU(), nn.Conv1d(feature, enc * sources, 1))
        self.decoder = nn.ConvTranspose1d(enc, 1, 8, 4, bias=False)

    def forward(self, mixture: Tensor) -> Tensor:
        w = self.encoder(mixture.unsqueeze(1))
        x = self.bottleneck(self.ln(w))
        total = torch.zeros_like(x)
        for block in self.tcn:
            x, skip = block(x)
            total = total + skip
        masks = torch.sigmoid(self.output(total)).view(x.shape[0], self.sources, -1, x.shape[2])
        separated = (w.unsqueeze(1) * masks).flatten(0, 1)
        return self.decoder(separated).view(x.shape[0], self.sources, -1)


class CLN(nn.LayerNorm):
    """Layer norm over channels of every frame, (B, C, T) in and out."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.transpose(1, 2)).transpose(1, 2)


class RunningNorm(nn.Module):
    """Mean and variance over channels and all frames so far."""

    def __init__(self, channels: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        steps = torch.arange(1, x.shape[-1] + 1, dtype=x.dtype)
        mean = x.mean(dim=1, keepdim=True).cumsum(-1) / steps
        second = x.square().mean(dim=1, keepdim=True).cumsum(-1) / steps
        scaled = (x - mean) * torch.rsqrt(second - mean.square() + self.eps)
        return torch.addcmul(self.bias[:, None], scaled, self.weight[:, None])


def select_norm(norm: str, dim: int) -> nn.Module:
    return {"cln": CLN, "cumulative": RunningNorm}[norm](dim, 1e-8)


class Conv1DBlock(nn.Module):
    def __init__(self, in_channels: int, out_channels: int, dilation: int, norm: str) -> None:
        super().__init__()
        self.dilation = dilation
        self.conv1x1 = nn.Conv1d(in_channels, out_channels, 1)
        self.slopes = nn.Parameter(torch.full((2,), 0.25))
        self.norm_1 = select_norm(norm, out_channels)
        self.dwconv = nn.Conv1d(
            out_channels, out_channels, 3, groups=out_channels, padding=2 * dilation, dilation=dilation
        )
        self.norm_2 = select_norm(norm, out_channels)
        self.both_out = nn.Conv1d(out_channels, 2 * in_channels, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        c = self.norm_1(F.prelu(self.conv1x1(x), self.slopes[:1]))
        c = self.dwconv(c)[:, :, : -2 * self.dilation]
        c = self.norm_2(F.prelu(c, self.slopes[1:]))
        residual, skip = self.both_out(c).chunk(2, dim=1)
        return x + residual, skip


class ConvTasNet(nn.Module):
    def __init__(self, n: int = 12, b: int = 8, h: int = 12, x: int = 2, num_spks: int = 2, norm: str = "cln") -> None:
        super().__init__()
        self.num_spks = num_spks
        self.encoder = nn.Conv1d(1, n, kernel_size=8, stride=4, bias=False)
        self.layer_n_s = select_norm(norm, n)
        self.bottleneck_n_b = nn.Linear(n, b)
        self.separation = nn.ModuleList([Conv1DBlock(b, h, 2**i, norm) for i in range(x)])
        self.prelu = nn.PReLU()
        self.gen_masks = nn.Linear(b, num_spks * n)
        self.decoder = nn.ConvTranspose1d(n, 1, kernel_size=8, stride=4, bias=False)

    def forward(self, mix: Tensor) -> Tensor:
        w = self.encoder(mix[:, None])
        e = self.bottleneck_n_b(self.layer_n_s(w).mT).mT
        skips = []
        for block in self.separation:
            e, skip = block(e)
            skips.append(skip)
        m = self.gen_masks(self.prelu(torch.stack(skips).sum(0)).mT).mT.sigmoid()
        speakers = [self.decoder(w * mask).squeeze(1) for mask in torch.chunk(m, self.num_spks, dim=1)]
        return torch.stack(speakers, dim=1)


@torch.no_grad()
def convert(src: TasNet, dst: ConvTasNet) -> None:
    norms = [(src.ln, dst.layer_n_s)]
    weights = [(src.encoder.weight, dst.encoder.weight), (src.decoder.weight, dst.decoder.weight)]
    for a, b in ((src.bottleneck, dst.bottleneck_n_b), (src.output[1], dst.gen_masks)):
        weights += [(a.weight, b.weight), (a.bias, b.bias)]
    for a, b in zip(src.tcn, dst.separation):
        norms += [(a.reg1, b.norm_1), (a.reg2, b.norm_2)]
        b.conv1x1.load_state_dict(a.conv1d.state_dict())
        b.dwconv.load_state_dict(a.dconv1d.state_dict())
        b.both_out.weight.copy_(torch.cat([a.res_out.weight, a.skip_out.weight]))
        b.both_out.bias.copy_(torch.cat([a.res_out.bias, a.skip_out.bias]))
        b.slopes.copy_(torch.cat([a.nonlinearity1.weight, a.nonlinearity2.weight]))
    for a, b in norms:
        weights += [(a.gain, b.weight), (a.bias, b.bias)]
    for a, b in weights:
        b.copy_(a.view_as(b))
    dst.prelu.load_state_dict(src.output[0].state_dict())


def build(fixed: bool = False) -> tuple[nn.Module, nn.Module, tuple]:
    torch.manual_seed(30)
    original = TasNet()
    for m in original.modules():
        if isinstance(m, CumulativeLayerNorm):
            nn.init.uniform_(m.gain, 0.7, 1.3)
            nn.init.normal_(m.bias, std=0.1)
    port = ConvTasNet(norm="cumulative" if fixed else "cln")
    convert(original, port)
    return original.eval(), port.eval(), (torch.randn(2, 68),)
