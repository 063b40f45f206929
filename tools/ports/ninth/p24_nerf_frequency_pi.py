"""NVlabs/tiny-cuda-nn#298

The field of the first NeRF code was moved to the frequency encoding and fused
MLPs of another library (inputs ordered by coordinate, biases as an extra row).  The
colours and densities of the moved field are noise.
"""

import itertools

import torch
import torch.nn.functional as F
from torch import nn


class Embedder(nn.Module):
    def __init__(self, n_freqs):
        super().__init__()
        self.freq_bands = [2.0**i for i in range(n_freqs)]

    def forward(self, x):
        out = [x]
        for freq in self.freq_bands:
            for fn in (torch.sin, torch.cos):
                out.append(fn(x * freq))
        return torch.cat(out, -1)


class NeRF(nn.Module):
    def __init__(self, D=4, W=24, multires=4, multires_views=2, skip=2):
        super().__init__()
        self.embed_fn, self.embeddirs_fn = Embedder(multires), Embedder(multires_views)
        ch, views = 3 + 6 * multires, 3 + 6 * multires_views
        self.pts_linears = nn.ModuleList(
            [nn.Linear(ch, W)] + [nn.Linear(W + ch if i == skip else W, W) for i in range(1, D)]
        )
        self.feature_linear, self.alpha_linear = nn.Linear(W, W), nn.Linear(W, 1)
        self.views_linear, self.rgb_linear = nn.Linear(W + views, W // 2), nn.Linear(W // 2, 3)
        self.skip = skip

    def forward(self, pts, viewdirs):
        input_pts, input_views = self.embed_fn(pts), self.embeddirs_fn(viewdirs)
        h = input_pts
        for i, linear in enumerate(self.pts_linears):
            if i == self.skip:
                h = torch.cat([input_pts, h], -1)
            h = F.relu(linear(h))
        alpha = self.alpha_linear(h)
        h = F.relu(self.views_linear(torch.cat([self.feature_linear(h), input_views], -1)))
        return torch.cat([torch.sigmoid(self.rgb_linear(h)), F.relu(alpha)], -1)


class FrequencyEncoding(nn.Module):
    def __init__(self, n_frequencies, base):
        super().__init__()
        self.register_buffer("scales", base * 2.0 ** torch.arange(n_frequencies), persistent=False)

    def forward(self, x):
        arg = x.unsqueeze(-1) * self.scales
        waves = torch.stack([arg.sin(), arg.cos()], dim=-1)
        return torch.cat([waves.flatten(-3), x], dim=-1)


class FullyFusedMLP(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.weights = nn.ParameterList(nn.Parameter(torch.empty(a + 1, b)) for a, b in itertools.pairwise(sizes))

    def forward(self, x):
        for w in self.weights:
            x = F.relu(F.pad(x, (0, 1), value=1.0) @ w)
        return x


class OutputHead(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_in + 1, n_out))

    def forward(self, x):
        return F.pad(x, (0, 1), value=1.0) @ self.weight


class TcnnNeRF(nn.Module):
    def __init__(self, W=24, n_freq=4, n_freq_dir=2, base=torch.pi):
        super().__init__()
        self.pos_encoding, self.dir_encoding = FrequencyEncoding(n_freq, base), FrequencyEncoding(n_freq_dir, base)
        ch, views = 3 + 6 * n_freq, 3 + 6 * n_freq_dir
        self.trunk_in, self.trunk_out = FullyFusedMLP([ch, W, W]), FullyFusedMLP([W + ch, W, W])
        self.sigma_and_feature = OutputHead(W, 1 + W)
        self.color_net, self.color_out = FullyFusedMLP([W + views, W // 2]), OutputHead(W // 2, 3)

    def forward(self, positions, directions):
        enc = self.pos_encoding(positions)
        h = self.trunk_out(torch.cat([self.trunk_in(enc), enc], -1))
        sigma, feature = self.sigma_and_feature(h).split([1, h.shape[-1]], -1)
        rgb = self.color_out(self.color_net(torch.cat([feature, self.dir_encoding(directions)], -1)))
        return torch.cat([rgb.sigmoid(), sigma.clamp(min=0)], -1)


def encoding_order(n_freqs):
    waves = [3 + 6 * f + 3 * s + c for c in range(3) for f in range(n_freqs) for s in range(2)]
    return torch.tensor(waves + [0, 1, 2])


def stacked(w, b):
    return torch.cat([w.t(), b[None]])


def convert(sd, W=24):
    pos, dirs = encoding_order(4), encoding_order(2)

    def lin(name):
        return (sd[name + ".weight"], sd[name + ".bias"])

    w0, b0 = lin("pts_linears.0")
    w2, b2 = lin("pts_linears.2")
    ch = len(pos)
    out = {
        "trunk_in.weights.0": stacked(w0[:, pos], b0),
        "trunk_in.weights.1": stacked(*lin("pts_linears.1")),
        "trunk_out.weights.0": stacked(torch.cat([w2[:, ch:], w2[:, :ch][:, pos]], 1), b2),
        "trunk_out.weights.1": stacked(*lin("pts_linears.3")),
    }
    (wa, ba), (wf, bf), (wv, bv) = lin("alpha_linear"), lin("feature_linear"), lin("views_linear")
    out["sigma_and_feature.weight"] = stacked(torch.cat([wa, wf]), torch.cat([ba, bf]))
    out["color_net.weights.0"] = stacked(torch.cat([wv[:, :W], wv[:, W:][:, dirs]], 1), bv)
    out["color_out.weight"] = stacked(*lin("rgb_linear"))
    return {k: v.clone() for k, v in out.items()}


def build(fixed):
    torch.manual_seed(23)
    original = NeRF().eval()
    for p in original.parameters():
        nn.init.normal_(p, 0.0, 0.25)
    port = TcnnNeRF(base=1.0 if fixed else torch.pi).eval()
    port.load_state_dict(convert(original.state_dict()))
    dirs = F.normalize(torch.randn(16, 3), dim=-1)
    return original, port, (torch.rand(16, 3) * 2 - 1, dirs)
