"""After google-research/timesfm#341.

Forecasts of a time-series model in its PyTorch version went wrong for series whose values hardly
move within a patch; series with larger movement were forecast as before.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

TOLERANCE = 1e-6


class PatchScaler(nn.Module):
    """Scale the whole context by the statistics of the first patch that has observations."""

    def __init__(self, patch_len, tolerance=TOLERANCE):
        super().__init__()
        self.patch_len, self.tolerance = patch_len, tolerance

    def forward(self, x, padding):
        out, stats = torch.zeros_like(x), []
        for b in range(x.shape[0]):
            obs = (1 - padding[b]).unflatten(0, (-1, self.patch_len))
            first = int((obs.sum(-1) >= 3).float().argmax())
            keep = obs[first].bool()
            ref = x[b].unflatten(0, (-1, self.patch_len))[first][keep]
            mu = ref.mean()
            sigma = (ref - mu).square().mean().sqrt().clamp_min(self.tolerance)
            out[b] = (x[b] - mu) / sigma
            stats.append(torch.stack([mu, sigma]))
        return out * (1 - padding), torch.stack(stats)


class ResidualMLP(nn.Module):
    def __init__(self, cin, hidden, cout):
        super().__init__()
        self.hidden_layer, self.output_layer, self.residual_layer = (
            nn.Linear(cin, hidden),
            nn.Linear(hidden, cout),
            nn.Linear(cin, cout),
        )

    def forward(self, x):
        return self.output_layer(F.silu(self.hidden_layer(x))) + self.residual_layer(x)


class DecoderBlock(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.input_layernorm, self.layer_norm = nn.RMSNorm(dim, eps=1e-6), nn.LayerNorm(dim, eps=1e-6)
        self.qkv_proj, self.o_proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.gate_proj, self.down_proj = nn.Linear(dim, dim), nn.Linear(dim, dim)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv_proj(self.input_layernorm(x)).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        x = x + self.o_proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, n, d))
        return x + self.down_proj(F.relu(self.gate_proj(self.layer_norm(x))))


class PatchedTimeSeriesDecoder(nn.Module):
    def __init__(self, patch_len=8, horizon=12, dim=32, heads=4, depth=2):
        super().__init__()
        self.scaler, self.patch_len = PatchScaler(patch_len), patch_len
        self.input_ff_layer, self.horizon_ff_layer = ResidualMLP(2 * patch_len, 48, dim), ResidualMLP(dim, 48, horizon)
        self.stacked_transformer = nn.ModuleList([DecoderBlock(dim, heads) for _ in range(depth)])

    def forward(self, ts, padding):
        x, stats = self.scaler(ts, padding)
        x = torch.cat([t.unflatten(1, (-1, self.patch_len)) for t in (x, padding)], dim=-1)
        x = self.input_ff_layer(x)
        for blk in self.stacked_transformer:
            x = blk(x)
        return self.horizon_ff_layer(x[:, -1]) * stats[:, 1:] + stats[:, :1]


class TimesFmResidualBlock(nn.Module):
    def __init__(self, d_in, d_hidden, d_out):
        super().__init__()
        self.input_layer, self.output_layer, self.residual_layer = (
            nn.Linear(d_in, d_hidden),
            nn.Linear(d_hidden, d_out),
            nn.Linear(d_in, d_out),
        )
        self.activation = nn.SiLU()

    def forward(self, x):
        return self.residual_layer(x) + self.output_layer(self.activation(self.input_layer(x)))


class TimesFmAttention(nn.Module):
    def __init__(self, hidden_size, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(hidden_size, hidden_size) for _ in range(4))

    def forward(self, x):
        q, k, v = (
            p(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj)
        )
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        w = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(mask, -1e9).softmax(-1)
        return self.o_proj((w @ v).transpose(1, 2).flatten(2))


class TimesFmDecoderLayer(nn.Module):
    def __init__(self, hidden_size, num_heads):
        super().__init__()
        self.self_attn, self.input_layernorm = (
            TimesFmAttention(hidden_size, num_heads),
            nn.RMSNorm(hidden_size, eps=1e-6),
        )
        self.mlp_norm, self.fc1, self.fc2 = (
            nn.LayerNorm(hidden_size, eps=1e-6),
            nn.Linear(hidden_size, hidden_size),
            nn.Linear(hidden_size, hidden_size),
        )

    def forward(self, x):
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.fc2(torch.relu(self.fc1(self.mlp_norm(x))))


class TimesFmForPrediction(nn.Module):
    def __init__(
        self, patch_length=8, horizon_length=12, hidden_size=32, num_heads=4, num_layers=2, tolerance=TOLERANCE
    ):
        super().__init__()
        self.patch_length, self.tolerance = patch_length, tolerance
        self.input_ff_layer = TimesFmResidualBlock(2 * patch_length, 48, hidden_size)
        self.layers = nn.ModuleList([TimesFmDecoderLayer(hidden_size, num_heads) for _ in range(num_layers)])
        self.horizon_ff_layer = TimesFmResidualBlock(hidden_size, 48, horizon_length)

    def _masked_mean_std(self, inputs, padding):
        mask = 1 - padding
        rows = torch.arange(inputs.shape[0])
        first = (mask.sum(2) >= 3).int().argmax(dim=1)
        arr, m = inputs[rows, first], mask[rows, first]
        count = m.sum(dim=1).clamp(min=1.0)
        mean = (arr * m).sum(1) / count
        var = ((arr - mean[:, None]).pow(2) * m).sum(1) / count
        return mean, var.clamp(min=0.0).sqrt()

    def _clip(self, sigma):
        return torch.where(sigma < self.tolerance, torch.tensor(1.0, dtype=sigma.dtype), sigma)

    def _forward_transform(self, inputs, padding):
        mu, sigma = self._masked_mean_std(inputs, padding)
        sigma = self._clip(sigma)
        return (inputs - mu[:, None, None]) / sigma[:, None, None] * (1 - padding), (mu, sigma)

    def forward(self, past_values, past_values_padding):
        values = past_values.view(past_values.shape[0], -1, self.patch_length)
        padding = past_values_padding.view(values.shape)
        values, (mu, sigma) = self._forward_transform(values, padding)
        h = self.input_ff_layer(torch.cat([values, padding], dim=-1))
        for layer in self.layers:
            h = layer(h)
        return self.horizon_ff_layer(h[:, -1]) * sigma[:, None] + mu[:, None]


class TimesFmForPredictionMended(TimesFmForPrediction):
    def _clip(self, sigma):
        return torch.clamp(sigma, min=self.tolerance)


def convert(sd):
    out = {}
    for k, v in sd.items():
        k = (
            k.replace("hidden_layer", "input_layer")
            .replace("stacked_transformer", "layers")
            .replace("o_proj", "self_attn.o_proj")
        )
        k = k.replace("layers.0.layer_norm", "layers.0.mlp_norm").replace("layers.1.layer_norm", "layers.1.mlp_norm")
        k = k.replace("gate_proj", "fc1").replace("down_proj", "fc2")
        if "qkv_proj" in k:
            for c, part in zip("qkv", v.chunk(3)):
                out[k.replace("qkv_proj", f"self_attn.{c}_proj")] = part
        else:
            out[k] = v
    return out


def build(fixed):
    torch.manual_seed(19)
    original = PatchedTimeSeriesDecoder().eval()
    port = (TimesFmForPredictionMended if fixed else TimesFmForPrediction)().eval()
    port.load_state_dict(convert(original.state_dict()))
    t = torch.arange(40).float()
    level = torch.tensor([[3.0], [0.0], [0.0]])
    amp = torch.tensor([[1.0], [0.5], [4e-7]])
    ts = level + amp * (torch.sin(t / 3) + 0.3 * torch.randn(3, 40)).cumsum(1)
    padding = torch.zeros(3, 40)
    padding[1, :5] = 1
    return original, port, (ts, padding)
