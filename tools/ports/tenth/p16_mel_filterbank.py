"""paiml/whisper.apr#7: the Whisper encoder rewritten, with its own log-mel front end.

The original reads its filterbank from a file made with librosa; the rewrite computes the triangles
itself. Encoder states of the rewrite have little to do with the original's.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn

SR, N_FFT, HOP, MELS = 8000, 64, 32, 12


def hz_to_mel(f):
    return f / (200 / 3) if f < 1000 else 15 + math.log(f / 1000) / (math.log(6.4) / 27)


def mel_to_hz(m):
    return m * 200 / 3 if m < 15 else 1000 * math.exp(math.log(6.4) / 27 * (m - 15))


def librosa_mel():
    top = hz_to_mel(SR / 2)
    edges = torch.tensor([mel_to_hz(top * i / (MELS + 1)) for i in range(MELS + 2)])
    freqs = torch.linspace(0, SR / 2, N_FFT // 2 + 1)
    ramps = edges[:, None] - freqs[None]
    width = edges[1:] - edges[:-1]
    fb = torch.minimum(-ramps[:-2] / width[:-1, None], ramps[2:] / width[1:, None]).clamp(min=0)
    return fb * (2.0 / (edges[2:] - edges[:-2]))[:, None]


class EncoderLayer(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.attn_ln, self.mlp_ln = nn.LayerNorm(d), nn.LayerNorm(d)
        self.query, self.key, self.value = nn.Linear(d, d), nn.Linear(d, d, bias=False), nn.Linear(d, d)
        self.out = nn.Linear(d, d)
        self.mlp = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))

    def forward(self, x):
        h = self.attn_ln(x)

        def split(t):
            return t.unflatten(2, (self.heads, -1)).transpose(1, 2)

        q, k, v = split(self.query(h)), split(self.key(h)), split(self.value(h))
        att = (q @ k.mT / math.sqrt(q.size(-1))).softmax(-1)
        x = x + self.out((att @ v).transpose(1, 2).flatten(2))
        return x + self.mlp(self.mlp_ln(x))


class Whisper(nn.Module):
    def __init__(self, d=12, heads=2):
        super().__init__()
        self.register_buffer("mel_filters", librosa_mel())
        self.conv1 = nn.Conv1d(MELS, d, 3, padding=1)
        self.conv2 = nn.Conv1d(d, d, 3, stride=2, padding=1)
        self.positional_embedding = nn.Parameter(torch.randn(64, d) * 0.1)
        self.block = EncoderLayer(d, heads)
        self.ln_post = nn.LayerNorm(d)

    def forward(self, audio):
        stft = torch.stft(audio, N_FFT, HOP, window=torch.hann_window(N_FFT), return_complex=True)
        mel = self.mel_filters @ stft[..., :-1].abs() ** 2
        log = mel.clamp(min=1e-10).log10()
        log = torch.maximum(log, log.amax((1, 2), keepdim=True) - 8.0)
        x = F.gelu(self.conv2(F.gelu(self.conv1((log + 4.0) / 4.0)))).transpose(1, 2)
        return self.ln_post(self.block(x + self.positional_embedding[: x.size(1)]))


def triangles(normalise):
    points = [mel_to_hz(hz_to_mel(SR / 2) * i / (MELS + 1)) for i in range(MELS + 2)]
    bank = torch.zeros(N_FFT // 2 + 1, MELS)
    for b in range(bank.size(0)):
        f = b * SR / N_FFT
        for m, (lo, mid, hi) in enumerate(zip(points, points[1:], points[2:])):
            if lo < f < hi:
                area = 0.5 * (hi - lo) if normalise else 1.0
                bank[b, m] = ((f - lo) / (mid - lo) if f <= mid else (hi - f) / (hi - mid)) / area
    return bank


class MelFrontend(nn.Module):
    def __init__(self, normalise=False):
        super().__init__()
        n = torch.arange(N_FFT)
        self.register_buffer("bank", triangles(normalise), persistent=False)
        self.register_buffer("window", 0.5 - 0.5 * torch.cos(2 * math.pi * n / N_FFT), persistent=False)

    def forward(self, pcm):
        frames = F.pad(pcm[:, None], (N_FFT // 2, N_FFT // 2), mode="reflect")[:, 0].unfold(1, N_FFT, HOP)[:, :-1]
        spec = torch.fft.rfft(frames * self.window)
        energy = (spec.real.square() + spec.imag.square()) @ self.bank
        db = energy.clamp_min(1e-10).log() / math.log(10)
        floor = db.flatten(1).max(1).values[:, None, None] - 8
        return db.clamp_min(floor) * 0.25 + 1


class AprEncoder(nn.Module):
    def __init__(self, d=12, heads=2, normalise=False):
        super().__init__()
        self.frontend = MelFrontend(normalise)
        self.stem1, self.stem2 = nn.Linear(3 * MELS, d), nn.Linear(3 * d, d)
        self.pos = nn.Parameter(torch.empty(64, d))
        self.mha = nn.MultiheadAttention(d, heads, batch_first=True)
        self.norms = nn.ModuleList([nn.LayerNorm(d) for _ in range(3)])
        self.ff1, self.ff2 = nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

    def forward(self, pcm):
        x = self.frontend(pcm)
        for stem, step in ((self.stem1, 1), (self.stem2, 2)):
            x = F.gelu(stem(F.pad(x, (0, 0, 1, 1)).unfold(1, 3, step).flatten(2)))
        x = x + self.pos[: x.size(1)]
        h = self.norms[0](x)
        x = x + self.mha(h, h, h, need_weights=False)[0]
        x = x + self.ff2(F.gelu(self.ff1(self.norms[1](x))))
        return self.norms[2](x)


def convert(sd):
    out = {"pos": sd["positional_embedding"]}
    for src, dst in (("conv1", "stem1"), ("conv2", "stem2")):
        out[dst + ".weight"], out[dst + ".bias"] = sd[src + ".weight"].flatten(1), sd[src + ".bias"]
    b = "block."
    out["mha.in_proj_weight"] = torch.cat([sd[b + n + ".weight"] for n in ("query", "key", "value")])
    zero = torch.zeros_like(sd[b + "query.bias"])
    out["mha.in_proj_bias"] = torch.cat([sd[b + "query.bias"], zero, sd[b + "value.bias"]])
    pairs = {
        "block.out": "mha.out_proj",
        "block.attn_ln": "norms.0",
        "block.mlp_ln": "norms.1",
        "ln_post": "norms.2",
        "block.mlp.0": "ff1",
        "block.mlp.2": "ff2",
    }
    for src, dst in pairs.items():
        out[dst + ".weight"], out[dst + ".bias"] = sd[src + ".weight"], sd[src + ".bias"]
    return out


def build(fixed):
    torch.manual_seed(19)
    original = Whisper().eval()
    port = AprEncoder(normalise=fixed).eval()
    port.load_state_dict(convert(original.state_dict()))
    t = torch.arange(960) / SR
    audio = torch.stack([torch.sin(2 * math.pi * f * t * (1 + t)) for f in (300.0, 900.0)])
    return original, port, (audio * 0.5 + 0.1 * torch.randn(2, 960),)
