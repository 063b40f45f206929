"""After Blaizzy/mlx-audio#391.

The codec decoder of a TTS model was ported.  Lengths are right at every stage, but the
end of each utterance carries a perturbation which the reference does not have.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

CODES, CODEBOOK, D = 2, 20, 16
RATES = (4, 3)


class SnakeBeta(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.alpha, self.beta = nn.Parameter(torch.randn(c) * 0.3), nn.Parameter(torch.randn(c) * 0.3)

    def forward(self, x):
        a, b = self.alpha.exp()[:, None], self.beta.exp()[:, None]
        return x + torch.sin(x * a).pow(2) / (b + 1e-9)


class CausalConvNet(nn.Module):
    def __init__(self, cin, cout, k, dilation=1):
        super().__init__()
        self.conv = nn.Conv1d(cin, cout, k, dilation=dilation)
        self.padding = (k - 1) * dilation

    def forward(self, x):
        return self.conv(F.pad(x, (self.padding, 0)))


class CausalTransConvNet(nn.Module):
    def __init__(self, cin, cout, k, stride):
        super().__init__()
        self.conv = nn.ConvTranspose1d(cin, cout, k, stride)
        self.right = k - stride

    def forward(self, x):
        y = self.conv(x)
        return y[..., : y.shape[-1] - self.right]


class ResidualUnit(nn.Module):
    def __init__(self, c, dilation):
        super().__init__()
        self.act1, self.conv1 = SnakeBeta(c), CausalConvNet(c, c, 5, dilation)
        self.act2, self.conv2 = SnakeBeta(c), CausalConvNet(c, c, 1)

    def forward(self, x):
        return x + self.conv2(self.act2(self.conv1(self.act1(x))))


class RefDecoderBlock(nn.Module):
    def __init__(self, cin, cout, rate):
        super().__init__()
        self.block = nn.Sequential(
            SnakeBeta(cin), CausalTransConvNet(cin, cout, 2 * rate, rate), ResidualUnit(cout, 1), ResidualUnit(cout, 3)
        )

    def forward(self, x):
        return self.block(x)


class RefCodecDecoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.codebooks = nn.ModuleList(nn.Embedding(CODEBOOK, D) for _ in range(CODES))
        self.pre_conv = CausalConvNet(D, D, 3)
        self.decoder = nn.ModuleList(RefDecoderBlock(D >> i, D >> (i + 1), r) for i, r in enumerate(RATES))
        self.act, self.out = SnakeBeta(D >> 2), CausalConvNet(D >> 2, 1, 7)

    def forward(self, codes):
        x = sum(cb(c) for cb, c in zip(self.codebooks, codes.unbind(1))).transpose(1, 2)
        x = self.pre_conv(x)
        for blk in self.decoder:
            x = blk(x)
        return torch.tanh(0.3 * self.out(self.act(x)))


class SnakeLast(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.a, self.inv_b = nn.Parameter(torch.empty(c)), nn.Parameter(torch.empty(c))

    def forward(self, x):
        return x + self.inv_b * 0.5 * (1 - torch.cos(2 * self.a * x))


class CausalConv1d(nn.Module):
    """(B, T, C) input, weight (out, k, in)."""

    def __init__(self, cin, cout, k, dilation=1):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.empty(cout, k, cin)), nn.Parameter(torch.empty(cout))
        self.dilation = dilation

    def forward(self, x):
        k, t, y = self.weight.shape[1], x.shape[1], self.bias
        x = F.pad(x, (0, 0, (k - 1) * self.dilation, 0))
        for j in range(k):
            y = y + x[:, j * self.dilation : j * self.dilation + t] @ self.weight[:, j].T
        return y


class CausalTransposeConv1d(nn.Module):
    def __init__(self, cin, cout, k, stride, trim):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.empty(cout, k, cin)), nn.Parameter(torch.empty(cout))
        self.stride = stride
        extra = k - stride
        self.left_trim, self.right_trim = (extra, 0) if trim == "left" else (0, extra)

    def forward(self, x):
        b, t, _ = x.shape
        o, k, _ = self.weight.shape
        y = x.new_zeros(b, (t - 1) * self.stride + k, o)
        taps = torch.einsum("btc,okc->btko", x, self.weight)
        for j in range(k):
            y[:, j : j + (t - 1) * self.stride + 1 : self.stride] += taps[:, :, j]
        return y[:, self.left_trim : y.shape[1] - self.right_trim] + self.bias


class DecoderBlockUpsample(nn.Module):
    def __init__(self, cin, cout, rate, trim):
        super().__init__()
        self.snake = SnakeLast(cin)
        self.up = CausalTransposeConv1d(cin, cout, 2 * rate, rate, trim)
        self.res = nn.ModuleList(
            nn.Sequential(SnakeLast(cout), CausalConv1d(cout, cout, 5, d), SnakeLast(cout), CausalConv1d(cout, cout, 1))
            for d in (1, 3)
        )

    def forward(self, x):
        x = self.up(self.snake(x))
        for r in self.res:
            x = r(x) + x
        return x


class MlxCodecDecoder(nn.Module):
    def __init__(self, trim):
        super().__init__()
        self.table = nn.Parameter(torch.empty(CODES * CODEBOOK, D))
        self.first = CausalConv1d(D, D, 3)
        self.stages = nn.Sequential(*[DecoderBlockUpsample(D >> i, D >> (i + 1), r, trim) for i, r in enumerate(RATES)])
        self.tail = nn.Sequential(SnakeLast(D >> 2), CausalConv1d(D >> 2, 1, 7))

    def forward(self, codes):
        x = self.table[codes + CODEBOOK * torch.arange(CODES)[:, None]].sum(1)
        return (self.tail(self.stages(self.first(x))) * 0.3).tanh().transpose(1, 2)


def convert(sd):
    new = {"table": torch.cat([sd[f"codebooks.{i}.weight"] for i in range(CODES)])}

    def snake(o, n):
        new[n + ".a"], new[n + ".inv_b"] = sd[o + ".alpha"].exp(), 1.0 / (sd[o + ".beta"].exp() + 1e-9)

    def conv(o, n, axes=(0, 2, 1)):
        new[n + ".weight"], new[n + ".bias"] = sd[o + ".conv.weight"].permute(axes).contiguous(), sd[o + ".conv.bias"]

    conv("pre_conv", "first"), snake("act", "tail.0"), conv("out", "tail.1")
    for i in range(len(RATES)):
        o, n = f"decoder.{i}.block.", f"stages.{i}."
        snake(o + "0", n + "snake"), conv(o + "1", n + "up", (1, 2, 0))
        for j in range(2):
            u, r = f"{o}{j + 2}.", f"{n}res.{j}."
            (
                snake(u + "act1", r + "0"),
                conv(u + "conv1", r + "1"),
                snake(u + "act2", r + "2"),
                conv(u + "conv2", r + "3"),
            )
    return new


def build(fixed):
    torch.manual_seed(391)
    original = RefCodecDecoder().eval()
    port = MlxCodecDecoder("right" if fixed else "left").eval()
    port.load_state_dict(convert(original.state_dict()))
    return original, port, (torch.randint(0, CODEBOOK, (2, CODES, 9)),)
