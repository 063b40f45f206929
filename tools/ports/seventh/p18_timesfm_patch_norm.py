"""After huggingface/transformers#42099: forecasts of the ported time-series foundation model are wrong
for series of low variance and right for all others."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class ResidualMLP(nn.Module):
    def __init__(self, n_in, hidden, n_out):
        super().__init__()
        self.hidden_layer = nn.Sequential(nn.Linear(n_in, hidden), nn.SiLU())
        self.output_layer, self.residual_layer = nn.Linear(hidden, n_out), nn.Linear(n_in, n_out)

    def forward(self, x):
        return self.output_layer(self.hidden_layer(x)) + self.residual_layer(x)


class StackedLayer(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.input_layernorm = nn.RMSNorm(d, eps=1e-6)
        self.qkv_proj, self.o_proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.scaling = nn.Parameter(torch.rand(d // heads))
        self.mlp_norm = nn.LayerNorm(d, eps=1e-6)
        self.gate_proj, self.down_proj = nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = (
            t.view(b, n, self.heads, -1).transpose(1, 2) for t in self.qkv_proj(self.input_layernorm(x)).chunk(3, -1)
        )
        q = q * F.softplus(self.scaling) * (1.442695041 / math.sqrt(d // self.heads))
        s = (q @ k.transpose(-1, -2)).masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), -1e9)
        x = x + self.o_proj((s.softmax(-1) @ v).transpose(1, 2).reshape(b, n, d))
        return x + self.down_proj(F.relu(self.gate_proj(self.mlp_norm(x))))


class PatchedTimeSeriesDecoder(nn.Module):
    def __init__(self, patch=8, horizon=8, d=24, heads=3, depth=2, tolerance=1e-6):
        super().__init__()
        self.patch, self.tolerance = patch, tolerance
        self.input_ff_layer = ResidualMLP(2 * patch, 32, d)
        self.stacked_transformer = nn.ModuleList(StackedLayer(d, heads) for _ in range(depth))
        self.horizon_ff_layer = ResidualMLP(d, 32, horizon)

    def _forward_transform(self, p):
        mu = p[:, 0].mean(-1)
        sigma = (p[:, 0] - mu[:, None]).square().mean(-1).sqrt()
        sigma = torch.clamp(sigma, min=self.tolerance)
        return (p - mu[:, None, None]) / sigma[:, None, None], (mu, sigma)

    def forward(self, series):
        p = series.view(series.shape[0], -1, self.patch)
        p, (mu, sigma) = self._forward_transform(p)
        x = self.input_ff_layer(torch.cat([p, torch.zeros_like(p)], -1))
        for lyr in self.stacked_transformer:
            x = lyr(x)
        y = self.horizon_ff_layer(x)[:, -1]
        return (y * sigma[:, None] + mu[:, None]) / series.std(1, keepdim=True)


class TimesFmResidualBlock(nn.Module):
    def __init__(self, n_in, hidden, n_out):
        super().__init__()
        self.input_layer, self.activation = nn.Linear(n_in, hidden), nn.SiLU()
        self.output_layer, self.residual_layer = nn.Linear(hidden, n_out), nn.Linear(n_in, n_out)

    def forward(self, x):
        return self.output_layer(self.activation(self.input_layer(x))) + self.residual_layer(x)


class TimesFmDecoderLayer(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads, self.d = heads, d
        self.rms = nn.Parameter(torch.ones(d))
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(d, d) for _ in range(4))
        self.scaling = nn.Parameter(torch.empty(d // heads))
        self.layer_norm = nn.LayerNorm(d, eps=1e-6)
        self.up, self.down = nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

    def forward(self, h):
        y = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6) * self.rms
        q, k, v = (
            f(y).unflatten(-1, (self.heads, -1)).transpose(1, 2) for f in (self.q_proj, self.k_proj, self.v_proj)
        )
        scale = F.softplus(self.scaling).mul(1.442695041 / math.sqrt(self.d // self.heads))
        a = F.scaled_dot_product_attention(q * scale, k, v, is_causal=True, scale=1.0)
        h = h + self.o_proj(a.transpose(1, 2).flatten(2))
        return h + self.down(self.up(self.layer_norm(h)).relu())


class TimesFmModelForPrediction(nn.Module):
    def __init__(self, sigma_floor, patch=8, horizon=8, d=24, heads=3, depth=2, tolerance=1e-6):
        super().__init__()
        self.patch_length, self.tolerance, self.sigma_floor = patch, tolerance, sigma_floor
        self.input_ff_layer = TimesFmResidualBlock(2 * patch, 32, d)
        self.layers = nn.ModuleList(TimesFmDecoderLayer(d, heads) for _ in range(depth))
        self.horizon_ff_layer = TimesFmResidualBlock(d, 32, horizon)

    def _timesfm_masked_mean_std(self, patches):
        arr = patches[:, 0, :]
        mean = arr.sum(-1) / arr.shape[-1]
        centered = arr - mean.unsqueeze(-1)
        var = (centered**2).sum(-1) / arr.shape[-1]
        return mean, var.clamp(min=0.0).sqrt()

    def forward(self, past_values):
        bsize = past_values.shape[0]
        patched = past_values.view(bsize, -1, self.patch_length)
        loc, scale = self._timesfm_masked_mean_std(patched)
        scale = torch.where(scale < self.tolerance, torch.full_like(scale, self.sigma_floor), scale)
        x = (patched - loc.view(-1, 1, 1)) / scale.view(-1, 1, 1)
        h = self.input_ff_layer(torch.cat((x, torch.zeros_like(x)), dim=-1))
        for lyr in self.layers:
            h = lyr(h)
        out = self.horizon_ff_layer(h[:, -1])
        return (out * scale.unsqueeze(1) + loc.unsqueeze(1)) / past_values.std(1, keepdim=True)


def convert(src):
    s, o = src.state_dict(), {}
    for k, v in s.items():
        if k.startswith(("input_ff", "horizon_ff")):
            o[k.replace("hidden_layer.0", "input_layer")] = v
    for i in range(len(src.stacked_transformer)):
        a, b = f"stacked_transformer.{i}.", f"layers.{i}."
        o[b + "rms"], o[b + "scaling"] = s[a + "input_layernorm.weight"], s[a + "scaling"]
        for p in ("weight", "bias"):
            for n, w in zip("qkv", s[f"{a}qkv_proj.{p}"].chunk(3)):
                o[f"{b}{n}_proj.{p}"] = w
            for x, y in (("o_proj", "o_proj"), ("mlp_norm", "layer_norm"), ("gate_proj", "up"), ("down_proj", "down")):
                o[f"{b}{y}.{p}"] = s[f"{a}{x}.{p}"]
    return o


def build(fixed):
    torch.manual_seed(420)
    tol = 1e-3
    original = PatchedTimeSeriesDecoder(tolerance=tol).eval()
    port = TimesFmModelForPrediction(tol if fixed else 1.0, tolerance=tol).eval()
    port.load_state_dict(convert(original))
    series = torch.randn(3, 40).cumsum(1) * torch.tensor([[1.0], [3e-4], [0.1]])
    return original, port, (series,)
