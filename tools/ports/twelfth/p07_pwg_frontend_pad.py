"""After kan-bayashi/ParallelWaveGAN#186: a small neural vocoder with its analysis front end was
packaged again in one module that pads the audio itself before framing. Inside the clip the
frames agree, and the resynthesised audio differs from the training repository's at the ends."""

import math
import torch
import torch.nn as nn
import torch.nn.functional as F

NFFT, HOP, MELS, CH = 32, 8, 10, 16


def mel_matrix():
    freqs = torch.linspace(0, 1, NFFT // 2 + 1)
    centres = torch.linspace(0.03, 0.95, MELS)
    return (1 - (freqs[None] - centres[:, None]).abs() * MELS / 1.2).clamp_min(0)


class LogMel(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("window", torch.hann_window(NFFT))
        self.register_buffer("fbank", mel_matrix())

    def forward(self, wav):
        spec = torch.stft(wav, NFFT, HOP, window=self.window, center=True, pad_mode="reflect", return_complex=True)
        return torch.log10((self.fbank @ spec.abs()).clamp_min(1e-4))


class ResStack(nn.Module):
    def __init__(self, dilation):
        super().__init__()
        self.conv = nn.Conv1d(CH, 2 * CH, 3, dilation=dilation, padding=dilation)
        self.out = nn.Conv1d(CH, CH, 1)

    def forward(self, x):
        a, b = self.conv(x).chunk(2, 1)
        return x + self.out(torch.tanh(a) * torch.sigmoid(b))


class PWGVocoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.logmel = LogMel()
        self.register_buffer("mean", torch.linspace(-0.5, 0.5, MELS))
        self.register_buffer("scale", torch.linspace(0.5, 1.0, MELS))
        self.first_conv = nn.Conv1d(MELS, CH, 1)
        self.conv_layers = nn.ModuleList(ResStack(2**i) for i in range(3))
        self.last_conv = nn.Conv1d(CH, HOP, 1)

    def forward(self, wav):
        c = (self.logmel(wav) - self.mean[:, None]) / self.scale[:, None]
        x = self.first_conv(c)
        for layer in self.conv_layers:
            x = layer(x)
        return self.last_conv(F.relu(x)).transpose(1, 2).flatten(1)


class FrameAnalyzer(nn.Module):
    """Framing and DFT written as one strided convolution with fixed cosine and sine rows."""

    def __init__(self, pad_mode):
        super().__init__()
        n = torch.arange(NFFT).float()
        k = torch.arange(NFFT // 2 + 1).float()
        ang = 2 * math.pi * k[:, None] * n[None] / NFFT
        win = 0.5 - 0.5 * torch.cos(2 * math.pi * n / NFFT)
        basis = torch.cat([ang.cos() * win, -ang.sin() * win]).unsqueeze(1)
        self.register_buffer("basis", basis, persistent=False)
        self.pad_mode = pad_mode

    def forward(self, audio):
        a = F.pad(audio.unsqueeze(1), (NFFT // 2, NFFT // 2), mode=self.pad_mode)
        re, im = F.conv1d(a, self.basis, stride=HOP).chunk(2, 1)
        return torch.sqrt(re * re + im * im + 1e-14)


class MelNormalizer(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Parameter(torch.empty(NFFT // 2 + 1, MELS), requires_grad=False)
        self.gain = nn.Parameter(torch.empty(MELS))
        self.shift = nn.Parameter(torch.empty(MELS))

    def forward(self, mag):
        mel = torch.einsum("bft,fm->bmt", mag, self.proj).clamp_min(1e-4).log10()
        return mel * self.gain[:, None] + self.shift[:, None]


class GatedLayer(nn.Module):
    def __init__(self, dilation):
        super().__init__()
        self.filter = nn.Conv1d(CH, CH, 3, dilation=dilation, padding=dilation)
        self.gate = nn.Conv1d(CH, CH, 3, dilation=dilation, padding=dilation)
        self.mix = nn.Linear(CH, CH)

    def forward(self, x):
        g = self.filter(x).tanh() * self.gate(x).sigmoid()
        return x + self.mix(g.transpose(1, 2)).transpose(1, 2)


class BundledVocoder(nn.Module):
    def __init__(self, pad_mode):
        super().__init__()
        self.analyzer = FrameAnalyzer(pad_mode)
        self.normalizer = MelNormalizer()
        self.stem = nn.Conv1d(MELS, CH, 1)
        self.body = nn.Sequential(*[GatedLayer(d) for d in (1, 2, 4)])
        self.head = nn.Linear(CH, HOP)

    def forward(self, audio):
        h = self.body(self.stem(self.normalizer(self.analyzer(audio))))
        return self.head(h.clamp_min(0).transpose(1, 2)).reshape(audio.shape[0], -1)


def convert(sd):
    out = {
        "normalizer.proj": sd["logmel.fbank"].t(),
        "normalizer.gain": 1 / sd["scale"],
        "normalizer.shift": -sd["mean"] / sd["scale"],
        "head.weight": sd["last_conv.weight"].squeeze(-1),
        "head.bias": sd["last_conv.bias"],
    }
    for p in ("weight", "bias"):
        out[f"stem.{p}"] = sd[f"first_conv.{p}"]
        for i in range(3):
            f, g = sd[f"conv_layers.{i}.conv.{p}"].chunk(2)
            out[f"body.{i}.filter.{p}"], out[f"body.{i}.gate.{p}"] = f, g
            m = sd[f"conv_layers.{i}.out.{p}"]
            out[f"body.{i}.mix.{p}"] = m.squeeze(-1) if m.dim() == 3 else m
    return out


def build(fixed):
    torch.manual_seed(186)
    original = PWGVocoder().eval()
    port = BundledVocoder("reflect" if fixed else "replicate").eval()
    port.load_state_dict(convert(original.state_dict()))
    t = torch.arange(160) / 160.0
    wav = torch.stack([torch.sin(60 * t + 0.7) + 0.4 * torch.cos(190 * t), torch.cos(35 * t * (1 + t))])
    return original, port, (wav + 0.05 * torch.randn(2, 160),)
