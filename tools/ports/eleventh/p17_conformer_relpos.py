"""After sooftware/conformer#55.

A stand-alone Conformer is checked against fairseq's (ESPnet-style) relative
multi-head self-attention on shared weights; encoder outputs do not match.
"""

import math
import torch
import torch.nn as nn
import torch.nn.functional as F

FEAT, D, H, FF, K, L, NV = 16, 24, 4, 48, 5, 2, 12
DK = D // H


def rel_table(t):
    pos = torch.arange(t - 1, -t, -1).float()[:, None]
    div = torch.exp(torch.arange(0, D, 2).float() * -(math.log(10000.0) / D))
    pe = torch.zeros(2 * t - 1, D)
    pe[:, 0::2], pe[:, 1::2] = torch.sin(pos * div), torch.cos(pos * div)
    return pe


class RelPositionMultiHeadedAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear_q, self.linear_k, self.linear_v, self.linear_out = (nn.Linear(D, D) for _ in range(4))
        self.linear_pos = nn.Linear(D, D, bias=False)
        self.pos_bias_u, self.pos_bias_v = (nn.Parameter(torch.randn(H, DK) * 0.5) for _ in range(2))

    @staticmethod
    def rel_shift(x):
        b, h, t, n = x.shape
        x = torch.cat([x.new_zeros(b, h, t, 1), x], -1).view(b, h, n + 1, t)
        return x[:, :, 1:].view(b, h, t, n)[..., : n // 2 + 1]

    def forward(self, x, pe):
        b, t, _ = x.shape
        q = self.linear_q(x).view(b, t, H, DK)
        k, v = (f(x).view(b, t, H, DK).transpose(1, 2) for f in (self.linear_k, self.linear_v))
        p = self.linear_pos(pe).view(1, -1, H, DK).transpose(1, 2)
        ac = (q + self.pos_bias_u).transpose(1, 2) @ k.mT
        bd = self.rel_shift((q + self.pos_bias_v).transpose(1, 2) @ p.mT)
        a = torch.softmax((ac + bd) / math.sqrt(DK), -1)
        return self.linear_out((a @ v).transpose(1, 2).reshape(b, t, D))


class FairseqConformerLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.ffn1 = nn.ModuleList([nn.LayerNorm(D), nn.Linear(D, FF), nn.Linear(FF, D)])
        self.attn_norm = nn.LayerNorm(D)
        self.attn = RelPositionMultiHeadedAttention()
        self.conv_norm = nn.LayerNorm(D)
        self.pw1 = nn.Conv1d(D, 2 * D, 1, bias=False)
        self.dw = nn.Conv1d(D, D, K, padding=K // 2, groups=D, bias=False)
        self.bn = nn.BatchNorm1d(D)
        self.pw2 = nn.Conv1d(D, D, 1, bias=False)
        self.final_norm = nn.LayerNorm(D)

    def forward(self, x, pe):
        n, a, b = self.ffn1
        x = x + 0.5 * b(F.silu(a(n(x))))
        x = x + self.attn(self.attn_norm(x), pe)
        y = F.glu(self.pw1(self.conv_norm(x).transpose(1, 2)), 1)
        x = x + self.pw2(F.silu(self.bn(self.dw(y)))).transpose(1, 2)
        return self.final_norm(x)


class FairseqConformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(FEAT, D)
        self.layers = nn.ModuleList(FairseqConformerLayer() for _ in range(L))
        self.ctc_proj = nn.Linear(D, NV)

    def forward(self, feats):
        x, pe = self.linear(feats), rel_table(feats.shape[1])
        for layer in self.layers:
            x = layer(x, pe)
        return self.ctc_proj(x)


class RelativeMHA(nn.Module):
    def __init__(self, scale_dim):
        super().__init__()
        self.qkv = nn.Linear(D, 3 * D)
        self.pos_proj = nn.Linear(D, D, bias=False)
        self.u_bias, self.v_bias = nn.Parameter(torch.empty(D)), nn.Parameter(torch.empty(D))
        self.out_proj = nn.Linear(D, D)
        self.sqrt_dim = math.sqrt(scale_dim)

    def heads(self, x):
        return x.unflatten(-1, (H, DK)).transpose(-2, -3)

    def forward(self, x, pe):
        t = x.shape[1]
        q, k, v = self.qkv(x).chunk(3, -1)
        content = self.heads(q + self.u_bias) @ self.heads(k).mT
        position = self.heads(q + self.v_bias) @ self.heads(self.pos_proj(pe)).mT
        idx = torch.arange(t)[:, None] - torch.arange(t)[None, :] + t - 1
        position = position.gather(-1, idx.expand(*position.shape[:2], t, t))
        score = (content + position) / self.sqrt_dim
        ctx = F.softmax(score, -1) @ self.heads(v)
        return self.out_proj(ctx.transpose(1, 2).flatten(2))


class ConvModule(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(D)
        self.value, self.gate = nn.Linear(D, D, bias=False), nn.Linear(D, D, bias=False)
        self.depthwise = nn.Conv1d(D, D, K, padding=K // 2, groups=D)
        self.out = nn.Linear(D, D, bias=False)

    def forward(self, x):
        y = self.norm(x)
        y = self.value(y) * torch.sigmoid(self.gate(y))
        y = self.depthwise(y.mT).mT
        return self.out(y * torch.sigmoid(y))


class ConformerBlock(nn.Module):
    def __init__(self, scale_dim):
        super().__init__()
        self.ff = nn.Sequential(nn.LayerNorm(D), nn.Linear(D, FF), nn.SiLU(), nn.Linear(FF, D))
        self.mha_norm, self.mha = nn.LayerNorm(D), RelativeMHA(scale_dim)
        self.conv = ConvModule()
        self.norm = nn.LayerNorm(D)

    def forward(self, x, pe):
        x = torch.add(x, self.ff(x), alpha=0.5)
        x = x + self.mha(self.mha_norm(x), pe)
        return self.norm(x + self.conv(x))


class Conformer(nn.Module):
    def __init__(self, scale_dim):
        super().__init__()
        self.input_projection = nn.Linear(FEAT, D)
        self.blocks = nn.ModuleList(ConformerBlock(scale_dim) for _ in range(L))
        self.fc = nn.Linear(D, NV)

    def forward(self, feats):
        x, pe = self.input_projection(feats), rel_table(feats.shape[1]).flip(0)[None]
        for block in self.blocks:
            x = block(x, pe)
        return self.fc(x)


def convert(sd):
    new = {}

    def put(o, n):
        for s in ("weight", "bias"):
            if f"{o}.{s}" in sd:
                new[f"{n}.{s}"] = sd[f"{o}.{s}"]

    put("linear", "input_projection"), put("ctc_proj", "fc")
    for i in range(L):
        o, n = f"layers.{i}.", f"blocks.{i}."
        put(o + "ffn1.0", n + "ff.0"), put(o + "ffn1.1", n + "ff.1"), put(o + "ffn1.2", n + "ff.3")
        put(o + "attn_norm", n + "mha_norm"), put(o + "attn.linear_out", n + "mha.out_proj")
        (
            put(o + "attn.linear_pos", n + "mha.pos_proj"),
            put(o + "conv_norm", n + "conv.norm"),
            put(o + "final_norm", n + "norm"),
        )
        for s in ("weight", "bias"):
            new[n + "mha.qkv." + s] = torch.cat([sd[o + f"attn.linear_{c}.{s}"] for c in "qkv"])
        new[n + "mha.u_bias"], new[n + "mha.v_bias"] = (
            sd[o + "attn.pos_bias_u"].flatten(),
            sd[o + "attn.pos_bias_v"].flatten(),
        )
        new[n + "conv.value.weight"], new[n + "conv.gate.weight"] = sd[o + "pw1.weight"].squeeze(-1).chunk(2)
        g = sd[o + "bn.weight"] / (sd[o + "bn.running_var"] + 1e-5).sqrt()
        new[n + "conv.depthwise.weight"] = sd[o + "dw.weight"] * g[:, None, None]
        new[n + "conv.depthwise.bias"] = sd[o + "bn.bias"] - g * sd[o + "bn.running_mean"]
        new[n + "conv.out.weight"] = sd[o + "pw2.weight"].squeeze(-1)
    return new


def build(fixed):
    torch.manual_seed(55)
    original = FairseqConformer().eval()
    with torch.no_grad():
        for layer in original.layers:
            layer.attn.linear_q.weight.mul_(2), layer.attn.linear_k.weight.mul_(2), layer.attn.linear_v.weight.mul_(2)
            layer.bn.running_mean.normal_(0, 0.1), layer.bn.running_var.uniform_(0.05, 0.3)
    port = Conformer(DK if fixed else D).eval()
    port.load_state_dict(convert(original.state_dict()))
    return original, port, (torch.randn(2, 11, FEAT),)
