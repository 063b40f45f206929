"""timeseriesAI/tsai#907

PatchTST was re-implemented in another time-series library (strided convolution for
the patches, fused qkv).  Forecasts from the official weights are wrong there, though
every encoder layer was checked by itself.
"""

import torch
import torch.nn.functional as F
from torch import nn


class TSTEncoderLayer(nn.Module):
    def __init__(self, d_model, n_heads, d_ff):
        super().__init__()
        self.W_Q, self.W_K, self.W_V = (nn.Linear(d_model, d_model) for _ in range(3))
        self.to_out = nn.Linear(d_model, d_model)
        self.norm_attn, self.norm_ffn = nn.BatchNorm1d(d_model), nn.BatchNorm1d(d_model)
        self.ff = nn.Sequential(nn.Linear(d_model, d_ff), nn.GELU(), nn.Linear(d_ff, d_model))
        self.n_heads = n_heads

    def forward(self, src):
        b, n, d = src.shape
        q, k, v = (w(src).view(b, n, self.n_heads, -1).transpose(1, 2) for w in (self.W_Q, self.W_K, self.W_V))
        a = (q @ k.transpose(-1, -2) * (d // self.n_heads) ** -0.5).softmax(-1)
        src = src + self.to_out((a @ v).transpose(1, 2).reshape(b, n, d))
        src = self.norm_attn(src.transpose(1, 2)).transpose(1, 2)
        src = src + self.ff(src)
        return self.norm_ffn(src.transpose(1, 2)).transpose(1, 2)


class PatchTST(nn.Module):
    def __init__(self, c_in=3, seq_len=32, pred_len=8, patch_len=8, stride=4, d_model=16, n_heads=2, layers=2):
        super().__init__()
        self.affine_weight, self.affine_bias = nn.Parameter(torch.ones(c_in)), nn.Parameter(torch.zeros(c_in))
        self.padding_patch_layer = nn.ReplicationPad1d((0, stride))
        self.patch_len, self.stride = patch_len, stride
        n = (seq_len - patch_len) // stride + 2
        self.W_P, self.W_pos = nn.Linear(patch_len, d_model), nn.Parameter(torch.zeros(n, d_model))
        self.layers = nn.ModuleList(TSTEncoderLayer(d_model, n_heads, 2 * d_model) for _ in range(layers))
        self.head = nn.Linear(d_model * n, pred_len)

    def forward(self, x):
        mean = x.mean(1, keepdim=True)
        std = torch.sqrt(x.var(1, keepdim=True, unbiased=False) + 1e-5)
        z = ((x - mean) / std * self.affine_weight + self.affine_bias).permute(0, 2, 1)
        z = self.padding_patch_layer(z).unfold(-1, self.patch_len, self.stride)
        b, c, n, _p = z.shape
        u = self.W_P(z).view(b * c, n, -1) + self.W_pos
        for layer in self.layers:
            u = layer(u)
        u = u.view(b, c, n, -1).permute(0, 1, 3, 2).flatten(2)
        y = self.head(u).permute(0, 2, 1)
        return (y - self.affine_bias) / (self.affine_weight + 1e-10) * std + mean


class RevIN(nn.Module):
    def __init__(self, c_in):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(c_in, 1)), nn.Parameter(torch.zeros(c_in, 1))

    def forward(self, x):
        centre = x.mean(-1, keepdim=True)
        spread = (x.std(-1, keepdim=True, correction=0) ** 2 + 1e-5) ** 0.5
        return self.weight * (x - centre) / spread + self.bias, (centre, spread)

    def denormalize(self, y, stats):
        return (y - self.bias) / (self.weight + 1e-10) * stats[1] + stats[0]


class Patchify(nn.Module):
    def __init__(self, patch_len, stride, d_model, pad):
        super().__init__()
        self.pad, self.proj = pad, nn.Conv1d(1, d_model, patch_len, stride=stride)

    def forward(self, x):
        b, c, _ = x.shape
        x = F.pad(x, self.pad, mode="replicate")
        return self.proj(x.reshape(b * c, 1, -1))


class ScaleShift(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.a, self.s = nn.Parameter(torch.ones(d)), nn.Parameter(torch.zeros(d))

    def forward(self, x):
        return torch.addcmul(self.s, x, self.a)


class EncoderBlock(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.fc1, self.fc2 = nn.Linear(d, 2 * d), nn.Linear(2 * d, d)
        self.bn1, self.bn2 = ScaleShift(d), ScaleShift(d)
        self.heads = heads

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        att = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = self.bn1(self.out(att) + x)
        return self.bn2(self.fc2(F.gelu(self.fc1(x))) + x)


class TSPatchTransformer(nn.Module):
    def __init__(self, c_in=3, c_out=8, seq_len=32, patch_len=8, stride=4, d=16, heads=2, layers=2, pad=(4, 0)):
        super().__init__()
        n = (seq_len - patch_len) // stride + 2
        self.revin = RevIN(c_in)
        self.patchify = Patchify(patch_len, stride, d, pad)
        self.pos = nn.Parameter(torch.zeros(d, n))
        self.blocks = nn.Sequential(*[EncoderBlock(d, heads) for _ in range(layers)])
        self.head_weight, self.head_bias = nn.Parameter(torch.empty(c_out, n, d)), nn.Parameter(torch.empty(c_out))

    def forward(self, x):
        b = x.shape[0]
        x, stats = self.revin(x.transpose(1, 2))
        tokens = (self.patchify(x) + self.pos).transpose(1, 2)
        y = torch.einsum("bnd,ond->bo", self.blocks(tokens), self.head_weight) + self.head_bias
        return self.revin.denormalize(y.view(b, -1, y.shape[-1]), stats).transpose(1, 2)


def convert(sd):
    out = {
        "revin.weight": sd["affine_weight"][:, None],
        "revin.bias": sd["affine_bias"][:, None],
        "patchify.proj.weight": sd["W_P.weight"][:, None],
        "patchify.proj.bias": sd["W_P.bias"],
        "pos": sd["W_pos"].t(),
        "head_bias": sd["head.bias"],
    }
    n, d = sd["W_pos"].shape
    out["head_weight"] = sd["head.weight"].view(-1, d, n).transpose(1, 2)
    for i in range(2):
        s, t = f"layers.{i}.", f"blocks.{i}."
        for w in ("weight", "bias"):
            out[t + "qkv." + w] = torch.cat([sd[f"{s}W_{c}.{w}"] for c in "QKV"])
            out[t + "out." + w] = sd[s + "to_out." + w]
            out[t + "fc1." + w], out[t + "fc2." + w] = sd[s + "ff.0." + w], sd[s + "ff.2." + w]
        for new, old in (("bn1", "norm_attn"), ("bn2", "norm_ffn")):
            a = sd[f"{s}{old}.weight"] / (sd[f"{s}{old}.running_var"] + 1e-5).sqrt()
            out[t + new + ".a"], out[t + new + ".s"] = a, sd[f"{s}{old}.bias"] - sd[f"{s}{old}.running_mean"] * a
    return {k: v.clone() for k, v in out.items()}


def build(fixed):
    torch.manual_seed(11)
    original = PatchTST()
    for n, p in original.named_parameters():
        nn.init.normal_(p, 1.0 if ("norm" in n and n.endswith("weight")) or n == "affine_weight" else 0.0, 0.2)
    series = torch.randn(16, 32, 3).cumsum(1)
    for _ in range(10):
        original(series)
    original.eval()
    port = TSPatchTransformer(pad=(0, 4) if fixed else (4, 0)).eval()
    port.load_state_dict(convert(original.state_dict()))
    return original, port, (series[:4],)
