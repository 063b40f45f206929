"""pytorch/audio#1740: the WaveRNN example moved from librosa mel bands to its own and lost the Slaney area norm.

Both models take raw audio, compute log mel frames and upsample them into vocoder conditioning.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

RATE, N_FFT, HOP, MELS = 8000, 128, 32, 12


def librosa_style_filters(sample_rate: int, n_fft: int, n_mels: int, fmin: float) -> Tensor:
    """Triangles over HTK mel points, each with unit area (Slaney norm). Returns (n_mels, bins)."""
    fft_freqs = torch.linspace(0, sample_rate / 2, n_fft // 2 + 1)
    lo, hi = (2595.0 * math.log10(1.0 + f / 700.0) for f in (fmin, sample_rate / 2))
    hz = 700.0 * (10.0 ** (torch.linspace(lo, hi, n_mels + 2) / 2595.0) - 1.0)
    rows = []
    for i in range(n_mels):
        up = (fft_freqs - hz[i]) / (hz[i + 1] - hz[i])
        down = (hz[i + 2] - fft_freqs) / (hz[i + 2] - hz[i + 1])
        triangle = torch.minimum(up, down).clamp(min=0)
        rows.append(triangle * 2.0 / (hz[i + 2] - hz[i]))
    return torch.stack(rows)


class LinearToMel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(N_FFT))
        self.register_buffer("basis", librosa_style_filters(RATE, N_FFT, MELS, 40.0))

    def forward(self, wave: Tensor) -> Tensor:
        spec = torch.stft(wave, N_FFT, HOP, N_FFT, self.window, center=True, return_complex=True).abs()
        mel = self.basis @ spec
        return torch.clamp(20.0 * torch.log10(mel.clamp(min=1e-5)) / 100.0 + 1.0, 0.0, 1.0)


class ResBlock(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(dim, dim, 1, bias=False)
        self.bn1 = nn.BatchNorm1d(dim)
        self.conv2 = nn.Conv1d(dim, dim, 1, bias=False)
        self.bn2 = nn.BatchNorm1d(dim)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))


class Conditioner(nn.Module):
    def __init__(self, dim: int = 16, blocks: int = 2) -> None:
        super().__init__()
        self.frontend = LinearToMel()
        self.conv_in = nn.Conv1d(MELS, dim, 5, padding=2, bias=False)
        self.bn = nn.BatchNorm1d(dim)
        self.layers = nn.ModuleList([ResBlock(dim) for _ in range(blocks)])
        self.conv_out = nn.Conv1d(dim, 8, 1)
        self.rnn = nn.GRU(8, 10, batch_first=True)

    def forward(self, wave: Tensor) -> Tensor:
        x = F.relu(self.bn(self.conv_in(self.frontend(wave))))
        for layer in self.layers:
            x = layer(x)
        x = self.conv_out(x).repeat_interleave(2, dim=2)
        out, _ = self.rnn(x.transpose(1, 2))
        return out


def melscale_fbanks(n_freqs: int, f_min: float, f_max: float, n_mels: int, rate: int, norm: str | None) -> Tensor:
    """Torch-only filterbank, (n_freqs, n_mels); ``norm`` is None or "slaney"."""
    all_freqs = torch.linspace(0, rate // 2, n_freqs)
    m_min = 2595.0 * math.log10(1.0 + f_min / 700.0)
    m_max = 2595.0 * math.log10(1.0 + f_max / 700.0)
    f_pts = 700.0 * (10.0 ** (torch.linspace(m_min, m_max, n_mels + 2) / 2595.0) - 1.0)
    diff = f_pts[1:] - f_pts[:-1]
    slopes = f_pts[None, :] - all_freqs[:, None]
    falling = -slopes[:, :-2] / diff[:-1]
    rising = slopes[:, 2:] / diff[1:]
    bank = torch.clamp(torch.minimum(falling, rising), min=0.0)
    if norm == "slaney":
        bank = bank * (2.0 / (f_pts[2:] - f_pts[:-2]))
    return bank


class MelFrontend(nn.Module):
    def __init__(self, norm: str | None) -> None:
        super().__init__()
        bank = melscale_fbanks(N_FFT // 2 + 1, 40.0, RATE / 2, MELS, RATE, norm)
        self.register_buffer("fb", bank, persistent=False)
        self.register_buffer("taper", torch.hann_window(N_FFT), persistent=False)

    def forward(self, audio: Tensor) -> Tensor:
        padded = F.pad(audio[:, None], (N_FFT // 2, N_FFT // 2), mode="reflect")[:, 0]
        frames = padded.unfold(-1, N_FFT, HOP) * self.taper
        magnitude = torch.fft.rfft(frames).abs()
        mel = torch.einsum("btf,fm->bmt", magnitude, self.fb)
        decibel = 20.0 * torch.log10(torch.clamp(mel, min=1e-5))
        return torch.clamp((100.0 + decibel) / 100.0, min=0.0, max=1.0)


class MelResNet(nn.Module):
    """Same network after batch norm folding."""

    def __init__(self, dim: int = 16, blocks: int = 2, norm: str | None = "slaney") -> None:
        super().__init__()
        self.mel = MelFrontend(norm)
        self.first = nn.Conv1d(MELS, dim, 5, padding=2)
        self.res = nn.ModuleList([nn.Sequential(nn.Conv1d(dim, dim, 1), nn.ReLU(), nn.Conv1d(dim, dim, 1))])
        for _ in range(blocks - 1):
            self.res.append(nn.Sequential(nn.Conv1d(dim, dim, 1), nn.ReLU(), nn.Conv1d(dim, dim, 1)))
        self.last = nn.Conv1d(dim, 8, 1)
        self.stretch = nn.Upsample(scale_factor=2, mode="nearest")
        self.gru = nn.GRU(8, 10, batch_first=True)

    def forward(self, audio: Tensor) -> Tensor:
        h = self.first(self.mel(audio)).relu()
        for block in self.res:
            h = h + block(h)
        return self.gru(self.stretch(self.last(h)).permute(0, 2, 1))[0]


@torch.no_grad()
def fuse(conv: nn.Conv1d, bn: nn.BatchNorm1d, out: nn.Conv1d) -> None:
    gain = bn.weight * torch.rsqrt(bn.running_var + bn.eps)
    out.weight.copy_(conv.weight * gain.view(-1, 1, 1))
    out.bias.copy_(bn.bias - gain * bn.running_mean)


def transfer(src: Conditioner, dst: MelResNet) -> None:
    fuse(src.conv_in, src.bn, dst.first)
    for a, b in zip(src.layers, dst.res):
        fuse(a.conv1, a.bn1, b[0])
        fuse(a.conv2, a.bn2, b[2])
    dst.last.load_state_dict(src.conv_out.state_dict())
    dst.gru.load_state_dict(src.rnn.state_dict())


def build(fixed: bool = False) -> tuple[nn.Module, nn.Module, tuple]:
    torch.manual_seed(5)
    original = Conditioner()
    for m in original.modules():
        if isinstance(m, nn.BatchNorm1d):
            m.running_mean.normal_(0, 0.1)
            m.running_var.uniform_(0.6, 1.4)
            m.weight.data.uniform_(0.8, 1.2)
    port = MelResNet(norm="slaney" if fixed else None)
    transfer(original, port)
    t = torch.arange(640) / RATE
    wave = 0.4 * torch.sin(2 * math.pi * torch.tensor([[440.0], [900.0]]) * t) + 0.05 * torch.randn(2, 640)
    return original.eval(), port.eval(), (wave,)
