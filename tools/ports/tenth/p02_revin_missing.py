"""WenjieDu/PyPOTS#453: RevIN for partially observed time series, ported from the reference layer.

For complete series port and reference agree; as soon as a missing-value mask is handed in, the
normalised values have another scale than the reference's.
"""

import torch
import torch.nn.functional as F
from torch import nn


class RevIN(nn.Module):
    def __init__(self, num_features, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.affine_weight = nn.Parameter(torch.ones(num_features))
        self.affine_bias = nn.Parameter(torch.zeros(num_features))

    def norm(self, x, mask):
        n = mask.sum(1, keepdim=True)
        self.mean = (x * mask).sum(1, keepdim=True) / n
        var = (((x - self.mean) * mask) ** 2).sum(1, keepdim=True) / n
        self.stdev = torch.sqrt(var + self.eps)
        x = (x - self.mean) / self.stdev
        return (x * self.affine_weight + self.affine_bias) * mask

    def denorm(self, x):
        x = (x - self.affine_bias) / self.affine_weight
        return x * self.stdev + self.mean


class Forecaster(nn.Module):
    """(batch, time, features) in, (batch, horizon, features) out."""

    def __init__(self, n_features=5, n_steps=24, horizon=6, d_model=12):
        super().__init__()
        self.revin = RevIN(n_features)
        self.token = nn.Conv1d(n_features, d_model, kernel_size=3)
        self.norm = nn.LayerNorm(d_model)
        self.time_mixer = nn.Linear(n_steps, horizon)
        self.projection = nn.Linear(d_model, n_features)

    def forward(self, x, missing_mask):
        h = self.revin.norm(x, missing_mask)
        h = self.token(F.pad(h.transpose(1, 2), (2, 0))).transpose(1, 2)
        h = F.gelu(self.norm(h))
        h = self.time_mixer(h.transpose(1, 2)).transpose(1, 2)
        return self.revin.denorm(self.projection(h))


class ReversibleNorm(nn.Module):
    """Channel-first; statistics are handed back to the caller."""

    def __init__(self, channels, eps=1e-5, rescale_observed=False):
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(channels, 1))
        self.beta = nn.Parameter(torch.zeros(channels, 1))
        self.eps = eps
        self.rescale_observed = rescale_observed

    def encode(self, series, observed=None):
        if observed is None:
            loc = series.mean(-1, keepdim=True)
            scale = (series.var(-1, keepdim=True, unbiased=False) + self.eps).sqrt()
            centred = (series - loc) / scale
        else:
            count = observed.sum(-1, keepdim=True)
            loc = (series * observed).sum(-1, keepdim=True) / count
            centred = (series - loc) * observed
            scale = (centred.square().sum(-1, keepdim=True) / count + self.eps).sqrt()
            if self.rescale_observed:
                centred = centred / scale
        out = torch.addcmul(self.beta, centred, self.gamma)
        if observed is not None:
            out = out * observed
        return out, (loc, scale)

    def decode(self, series, stats):
        loc, scale = stats
        return torch.addcmul(loc, (series - self.beta) / self.gamma, scale)


class ChannelFirstForecaster(nn.Module):
    def __init__(self, channels=5, length=24, steps_ahead=6, width=12, rescale_observed=False):
        super().__init__()
        self.instance_norm = ReversibleNorm(channels, rescale_observed=rescale_observed)
        self.embed = nn.Linear(channels * 3, width)
        self.ln = nn.LayerNorm(width)
        self.ahead = nn.Parameter(torch.empty(length, steps_ahead))
        self.ahead_bias = nn.Parameter(torch.empty(steps_ahead))
        self.out = nn.Conv1d(width, channels, 1)

    def forward(self, x, missing_mask):
        z, stats = self.instance_norm.encode(x.mT, missing_mask.mT)
        windows = F.pad(z, (2, 0)).unfold(2, 3, 1)
        tokens = self.embed(windows.permute(0, 2, 1, 3).flatten(2))
        tokens = F.gelu(self.ln(tokens))
        ahead = torch.einsum("btd,th->bdh", tokens, self.ahead) + self.ahead_bias
        return self.instance_norm.decode(self.out(ahead), stats).mT


def convert(sd):
    return {
        "instance_norm.gamma": sd["revin.affine_weight"][:, None],
        "instance_norm.beta": sd["revin.affine_bias"][:, None],
        "embed.weight": sd["token.weight"].flatten(1),
        "embed.bias": sd["token.bias"],
        "ln.weight": sd["norm.weight"],
        "ln.bias": sd["norm.bias"],
        "ahead": sd["time_mixer.weight"].t(),
        "ahead_bias": sd["time_mixer.bias"],
        "out.weight": sd["projection.weight"][:, :, None],
        "out.bias": sd["projection.bias"],
    }


def build(fixed):
    torch.manual_seed(11)
    original = Forecaster().eval()
    with torch.no_grad():
        for name, p in original.named_parameters():
            if "norm" in name or "affine" in name:
                p.add_(0.15 * torch.randn_like(p))
    port = ChannelFirstForecaster(rescale_observed=fixed).eval()
    port.load_state_dict(convert(original.state_dict()))
    x = torch.randn(3, 24, 5) * torch.tensor([0.5, 2.0, 3.0, 1.5, 4.0]) + torch.tensor([1.0, -2.0, 0.5, 3.0, 0.0])
    mask = (torch.rand(3, 24, 5) > 0.25).float()
    return original, port, (x * mask, mask)
