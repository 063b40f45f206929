"""After seisbench/seisbench#96.

EQTransformer (Keras) was moved to PyTorch inside SeisBench.  Weights load without
complaint, yet the phase pick curves of the converted network do not lie on the
original curves.  Below: a small detection branch in the original's channels-last
style, and the port with nn.Conv1d / nn.Upsample.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

IN_SAMPLES = 60


def _k_conv(x, kernel, bias):
    # channels-last 'same' convolution, kernel (width, in, out)
    width = kernel.shape[0]
    xp = F.pad(x, (0, 0, width // 2, width // 2))
    win = xp.unfold(1, width, 1)  # B T C W
    return torch.einsum("btcw,wco->bto", win, kernel) + bias


class KConv(nn.Module):
    def __init__(self, cin, cout, width):
        super().__init__()
        self.kernel = nn.Parameter(torch.randn(width, cin, cout) * (1.3 / (width * cin) ** 0.5))
        self.bias = nn.Parameter(torch.randn(cout) * 0.1)

    def forward(self, x):
        return _k_conv(x, self.kernel, self.bias)


class KerasEQT(nn.Module):
    """x: (batch, samples, components)."""

    def __init__(self):
        super().__init__()
        self.enc_1 = KConv(3, 8, 7)
        self.enc_2 = KConv(8, 12, 5)
        self.enc_3 = KConv(12, 16, 3)
        self.dec_1 = KConv(16, 12, 3)
        self.dec_2 = KConv(12, 8, 5)
        self.dec_3 = KConv(8, 8, 7)
        self.head = KConv(8, 1, 11)

    @staticmethod
    def _pool(x):
        b, t, c = x.shape
        if t % 2:
            x = torch.cat([x, torch.full((b, 1, c), -1e10)], 1)
            t += 1
        return x.view(b, t // 2, 2, c).amax(2)

    def forward(self, x):
        x = x.transpose(1, 2)
        for layer in (self.enc_1, self.enc_2, self.enc_3):
            x = self._pool(torch.relu(layer(x)))
        for i, layer in enumerate((self.dec_1, self.dec_2, self.dec_3)):
            x = x.repeat_interleave(2, dim=1)
            if i == 1:
                x = x[:, 1:-1]
            x = torch.relu(layer(x))
        return torch.sigmoid(self.head(x)).squeeze(-1)


class PickEncoder(nn.Module):
    def __init__(self, filters=(8, 12, 16), widths=(7, 5, 3), cin=3):
        super().__init__()
        ins = (cin,) + filters[:-1]
        self.convs = nn.ModuleList(nn.Conv1d(i, o, w, padding=w // 2) for i, o, w in zip(ins, filters, widths))
        self.pool = nn.MaxPool1d(2)

    def forward(self, x):
        for conv in self.convs:
            x = torch.relu(conv(x))
            if x.shape[-1] % 2:
                x = F.pad(x, (0, 1), "constant", -1e10)
            x = self.pool(x)
        return x


class PickDecoder(nn.Module):
    def __init__(self, filters=(12, 8, 8), widths=(3, 5, 7), cin=16, crops=None):
        super().__init__()
        ins = (cin,) + filters[:-1]
        self.crops = crops or {}
        self.upsample = nn.Upsample(scale_factor=2, mode="nearest")
        self.convs = nn.ModuleList(nn.Conv1d(i, o, w, padding=w // 2) for i, o, w in zip(ins, filters, widths))

    def forward(self, x):
        for i, conv in enumerate(self.convs):
            x = self.upsample(x)
            lo, hi = self.crops.get(i, (0, 0))
            x = x[:, :, lo : x.shape[-1] - hi]
            x = F.relu(conv(x))
        return x


class SeisBenchEQT(nn.Module):
    def __init__(self, crops):
        super().__init__()
        self.encoder = PickEncoder()
        self.decoder_d = PickDecoder(crops=crops)
        self.conv_d = nn.Conv1d(8, 1, 11, padding=5)

    def forward(self, x):
        x = self.decoder_d(self.encoder(x))
        return torch.sigmoid(self.conv_d(x)).squeeze(1)


def convert(sd):
    new = {}
    names = {
        "enc_1": "encoder.convs.0",
        "enc_2": "encoder.convs.1",
        "enc_3": "encoder.convs.2",
        "dec_1": "decoder_d.convs.0",
        "dec_2": "decoder_d.convs.1",
        "dec_3": "decoder_d.convs.2",
        "head": "conv_d",
    }
    for old, name in names.items():
        new[name + ".weight"] = sd[old + ".kernel"].permute(2, 1, 0).contiguous()
        new[name + ".bias"] = sd[old + ".bias"]
    return new


def build(fixed):
    torch.manual_seed(96)
    original = KerasEQT().eval()
    port = SeisBenchEQT({1: (1, 1)} if fixed else {0: (0, 1)}).eval()
    port.load_state_dict(convert(original.state_dict()))
    x = torch.randn(2, 3, IN_SAMPLES)
    return original, port, (x,)
