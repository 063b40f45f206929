"""After thuml/Autoformer#170: the auto-correlation mechanism of a long-horizon forecaster, once
with gather indices as in the inference code of the authors and once rebuilt around torch.roll.
The picked delays and their weights agree, the forecasts do not."""

import torch
import torch.nn as nn
import torch.nn.functional as F

L, VARS, DIM, HEADS, TOP = 24, 3, 16, 2, 3


class SeriesDecomp(nn.Module):
    def forward(self, x, k=5):
        pad = torch.cat([x[:, :1].repeat(1, k // 2, 1), x, x[:, -1:].repeat(1, k // 2, 1)], 1)
        trend = F.avg_pool1d(pad.transpose(1, 2), k, 1).transpose(1, 2)
        return x - trend, trend


class AutoCorrelation(nn.Module):
    def __init__(self):
        super().__init__()
        self.query_projection, self.key_projection = nn.Linear(DIM, DIM), nn.Linear(DIM, DIM)
        self.value_projection, self.out_projection = nn.Linear(DIM, DIM), nn.Linear(DIM, DIM)

    def forward(self, x):
        q, k, v = (f(x).transpose(1, 2) for f in (self.query_projection, self.key_projection, self.value_projection))
        corr = torch.fft.irfft(torch.fft.rfft(q) * torch.conj(torch.fft.rfft(k)), n=L)
        weights, delay = corr.mean(1).topk(TOP, -1)
        weights = weights.softmax(-1)
        doubled = v.repeat(1, 1, 2)
        out = torch.zeros_like(v)
        for i in range(TOP):
            index = torch.arange(L)[None] + delay[:, i : i + 1]
            out = out + doubled.gather(-1, index[:, None].expand(-1, DIM, -1)) * weights[:, i, None, None]
        return self.out_projection(out.transpose(1, 2))


class EncoderLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention, self.decomp = AutoCorrelation(), SeriesDecomp()
        self.conv1, self.conv2 = nn.Conv1d(DIM, 2 * DIM, 1, bias=False), nn.Conv1d(2 * DIM, DIM, 1, bias=False)

    def forward(self, x):
        x, _ = self.decomp(x + self.attention(x))
        y = self.conv2(F.gelu(self.conv1(x.transpose(1, 2)))).transpose(1, 2)
        return self.decomp(x + y)[0]


class AutoformerRef(nn.Module):
    def __init__(self):
        super().__init__()
        self.token = nn.Conv1d(VARS, DIM, 3, padding=1, padding_mode="circular", bias=False)
        self.layers = nn.ModuleList(EncoderLayer() for _ in range(2))
        self.decomp = SeriesDecomp()
        self.seasonal, self.trend = nn.Linear(DIM, VARS), nn.Linear(L, L)

    def forward(self, series):
        _, trend = self.decomp(series)
        h = self.token(series.transpose(1, 2)).transpose(1, 2)
        for layer in self.layers:
            h = layer(h)
        return self.seasonal(h) + self.trend(trend.transpose(1, 2)).transpose(1, 2)


class MovingAverage(nn.Module):
    def __init__(self, k=5):
        super().__init__()
        i = torch.arange(L)
        idx = (i[:, None] + torch.arange(k) - k // 2).clamp(0, L - 1)
        self.register_buffer(
            "matrix", torch.zeros(L, L).scatter_add_(1, idx, torch.full((L, k), 1 / k)), persistent=False
        )

    def forward(self, x):
        return torch.einsum("ts,bsc->btc", self.matrix, x)


class DelayAggregation(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.direction = -1 if fixed else 1

    def forward(self, values, weights, delays):
        rows = []
        for v, w, d in zip(values, weights, delays):
            rows.append(sum(w[i] * torch.roll(v, self.direction * int(d[i]), 0) for i in range(TOP)))
        return torch.stack(rows)


class PeriodAttention(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.qkv, self.proj = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
        self.aggregate = DelayAggregation(fixed)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        spectrum = torch.fft.fft(q, dim=1) * torch.fft.fft(k, dim=1).conj()
        score = torch.fft.ifft(spectrum.sum(-1) / DIM, dim=1).real
        top = torch.topk(score, TOP, dim=1)
        return self.proj(self.aggregate(v, F.softmax(top.values, 1), top.indices))


class SeasonalBlock(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.attn, self.trend = PeriodAttention(fixed), MovingAverage()
        self.ffn = nn.Sequential(nn.Linear(DIM, 2 * DIM, bias=False), nn.GELU(), nn.Linear(2 * DIM, DIM, bias=False))

    def forward(self, x):
        for sub in (self.attn, self.ffn):
            x = x + sub(x)
            x = x - self.trend(x)
        return x


class NeuralForecaster(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.embed = nn.Linear(3 * VARS, DIM, bias=False)
        self.encoder = nn.Sequential(SeasonalBlock(fixed), SeasonalBlock(fixed))
        self.trend = MovingAverage()
        self.head_seasonal = nn.Linear(DIM, VARS)
        self.head_trend = nn.Linear(L, L)

    def forward(self, series):
        taps = torch.stack([series.roll(1, 1), series, series.roll(-1, 1)], -1).flatten(2)
        h = self.encoder(self.embed(taps))
        t = self.head_trend(self.trend(series).mT).mT
        return self.head_seasonal(h) + t


def convert(sd):
    out = {"embed.weight": sd["token.weight"].flatten(1)}
    for p in ("weight", "bias"):
        out[f"head_seasonal.{p}"], out[f"head_trend.{p}"] = sd[f"seasonal.{p}"], sd[f"trend.{p}"]
        for i in range(2):
            a = f"layers.{i}.attention."
            out[f"encoder.{i}.attn.qkv.{p}"] = torch.cat(
                [sd[a + f"{n}_projection.{p}"] for n in ("query", "key", "value")]
            )
            out[f"encoder.{i}.attn.proj.{p}"] = sd[a + f"out_projection.{p}"]
    for i in range(2):
        out[f"encoder.{i}.ffn.0.weight"] = sd[f"layers.{i}.conv1.weight"].squeeze(-1)
        out[f"encoder.{i}.ffn.2.weight"] = sd[f"layers.{i}.conv2.weight"].squeeze(-1)
    return out


def build(fixed):
    torch.manual_seed(170)
    original = AutoformerRef().eval()
    for p in original.parameters():
        p.data.mul_(1.8)
    port = NeuralForecaster(fixed).eval()
    port.load_state_dict(convert(original.state_dict()))
    t = torch.arange(L).float()[None, :, None]
    series = torch.sin(t * torch.tensor([0.7, 1.1, 0.4])) + 0.05 * t + 0.2 * torch.randn(2, L, VARS)
    return original, port, (series,)
