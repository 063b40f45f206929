"""CrispStrobe/CrispASR#246: wav2vec2 (base) run by a native speech engine.

Large checkpoints decode well with the engine, the base checkpoint gives only blanks; the engine's
states and the framework's differ already at the CNN.
"""

import torch
import torch.nn.functional as F
from torch import nn


class ConvLayer(nn.Module):
    def __init__(self, c_in, c_out, k, stride, group_norm):
        super().__init__()
        self.conv = nn.Conv1d(c_in, c_out, k, stride, bias=False)
        self.layer_norm = nn.GroupNorm(c_out, c_out) if group_norm else None

    def forward(self, x):
        x = self.conv(x)
        if self.layer_norm is not None:
            x = self.layer_norm(x)
        return F.gelu(x)


class EncoderLayer(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.attention = nn.MultiheadAttention(d, heads, batch_first=True)
        self.layer_norm, self.final_layer_norm = nn.LayerNorm(d), nn.LayerNorm(d)
        self.intermediate_dense, self.output_dense = nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

    def forward(self, x):
        x = self.layer_norm(x + self.attention(x, x, x, need_weights=False)[0])
        return self.final_layer_norm(x + self.output_dense(F.gelu(self.intermediate_dense(x))))


class Wav2Vec2ForCTC(nn.Module):
    def __init__(self, conv_dim=8, d=12, heads=2, vocab=7, depth=2):
        super().__init__()
        self.conv_layers = nn.ModuleList(
            [ConvLayer(1, conv_dim, 10, 5, True), ConvLayer(conv_dim, conv_dim, 3, 2, False)]
        )
        self.fp_norm, self.projection = nn.LayerNorm(conv_dim), nn.Linear(conv_dim, d)
        self.pos_conv_embed = nn.Conv1d(d, d, 6, padding=3, groups=3)
        self.encoder_norm = nn.LayerNorm(d)
        self.layers = nn.ModuleList([EncoderLayer(d, heads) for _ in range(depth)])
        self.lm_head = nn.Linear(d, vocab)

    def forward(self, wav):
        x = wav[:, None]
        for conv in self.conv_layers:
            x = conv(x)
        x = self.projection(self.fp_norm(x.transpose(1, 2)))
        x = x + F.gelu(self.pos_conv_embed(x.transpose(1, 2))[..., :-1]).transpose(1, 2)
        x = self.encoder_norm(x)
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(x)


class ChannelNorm(nn.Module):
    """On (batch, frames, channels)."""

    def __init__(self, channels, over):
        super().__init__()
        self.over = over
        self.w, self.b = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))

    def forward(self, x):
        var, mean = torch.var_mean(x, dim=self.over, keepdim=True, correction=0)
        return (x - mean) * (var + 1e-5).rsqrt() * self.w + self.b


class FrameConv(nn.Module):
    """Strided convolution as a matrix product over frames of the signal."""

    def __init__(self, c_in, c_out, k, hop, norm):
        super().__init__()
        self.k, self.hop = k, hop
        self.mat = nn.Parameter(torch.empty(c_in * k, c_out))
        self.norm = norm

    def forward(self, x):
        return F.gelu(self.norm(x.unfold(1, self.k, self.hop).flatten(2) @ self.mat))


class GroupedPos(nn.Module):
    def __init__(self, d, k, groups):
        super().__init__()
        self.k, self.groups = k, groups
        self.w = nn.Parameter(torch.empty(groups, d // groups, d // groups, k))
        self.b = nn.Parameter(torch.empty(d))

    def forward(self, x):
        win = F.pad(x, (0, 0, self.k // 2, self.k // 2 - 1)).unfold(1, self.k, 1)
        win = win.unflatten(2, (self.groups, -1))
        return F.gelu(torch.einsum("btgik,goik->btgo", win, self.w).flatten(2) + self.b)


class PostNormLayer(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.h = h
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(d, d) for _ in range(4))
        self.ln_a, self.ln_f = nn.LayerNorm(d), nn.LayerNorm(d)
        self.ffn = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))

    def forward(self, x):
        q, k, v = (f(x).unflatten(-1, (self.h, -1)).transpose(1, 2) for f in (self.wq, self.wk, self.wv))
        p = torch.softmax(q @ k.mT * q.size(-1) ** -0.5, dim=-1)
        x = self.ln_a(self.wo((p @ v).transpose(1, 2).flatten(2)) + x)
        return self.ln_f(self.ffn(x) + x)


class NativeWav2Vec(nn.Module):
    def __init__(self, c=8, d=12, h=2, vocab=7, depth=2, over=-1):
        super().__init__()
        self.cnn = nn.Sequential(FrameConv(1, c, 10, 5, ChannelNorm(c, over)), FrameConv(c, c, 3, 2, nn.Identity()))
        self.proj = nn.Sequential(nn.LayerNorm(c), nn.Linear(c, d))
        self.pos = GroupedPos(d, 6, 3)
        self.global_ln = nn.LayerNorm(d)
        self.stack = nn.Sequential(*[PostNormLayer(d, h) for _ in range(depth)])
        self.ctc = nn.Linear(d, vocab)

    def forward(self, wav):
        x = self.proj(self.cnn(wav.unsqueeze(-1)))
        return self.ctc(self.stack(self.global_ln(x + self.pos(x))))


def convert(sd):
    out = {}
    for i in range(2):
        out[f"cnn.{i}.mat"] = sd[f"conv_layers.{i}.conv.weight"].flatten(1).t()
    out["cnn.0.norm.w"], out["cnn.0.norm.b"] = (
        sd["conv_layers.0.layer_norm.weight"],
        sd["conv_layers.0.layer_norm.bias"],
    )
    out["pos.w"], out["pos.b"] = sd["pos_conv_embed.weight"].unflatten(0, (3, -1)), sd["pos_conv_embed.bias"]
    names = {"fp_norm": "proj.0", "projection": "proj.1", "encoder_norm": "global_ln", "lm_head": "ctc"}
    for i in range(2):
        s, d = f"layers.{i}.", f"stack.{i}."
        names.update(
            {
                s + "attention.out_proj": d + "wo",
                s + "layer_norm": d + "ln_a",
                s + "final_layer_norm": d + "ln_f",
                s + "intermediate_dense": d + "ffn.0",
                s + "output_dense": d + "ffn.2",
            }
        )
        for k in ("weight", "bias"):
            for n, part in zip("qkv", sd[s + "attention.in_proj_" + k].chunk(3)):
                out[f"{d}w{n}.{k}"] = part
    for src, dst in names.items():
        out[dst + ".weight"], out[dst + ".bias"] = sd[src + ".weight"], sd[src + ".bias"]
    return out


def build(fixed):
    torch.manual_seed(66)
    original = Wav2Vec2ForCTC().eval()
    with torch.no_grad():
        gn = original.conv_layers[0].layer_norm
        gn.weight.uniform_(0.5, 1.5)
        gn.bias.normal_(0, 0.3)
    port = NativeWav2Vec(over=1 if fixed else -1).eval()
    port.load_state_dict(convert(original.state_dict()))
    t = torch.arange(150) / 150
    return original, port, (torch.sin(60 * t)[None] * t + 0.2 * torch.randn(2, 150),)
