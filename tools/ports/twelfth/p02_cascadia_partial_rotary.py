"""After labscommunity/cascadia#69: an exporter for decoder shards re-implements the reference
attention of models with partial_rotary_factor < 1. The cosine and sine tables agree with the
reference, yet the exported shard's hidden states do not."""

import torch
import torch.nn as nn
import torch.nn.functional as F

VOCAB, DIM, HEADS, FACTOR, THETA = 50, 32, 2, 0.5, 10000.0
HEAD_DIM = DIM // HEADS
ROTARY_DIM = int(HEAD_DIM * FACTOR)


def rotate_half(x):
    a, b = x.chunk(2, dim=-1)
    return torch.cat((-b, a), dim=-1)


class RefAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(DIM, DIM) for _ in range(3))
        self.dense = nn.Linear(DIM, DIM)
        inv = 1.0 / THETA ** (torch.arange(0, ROTARY_DIM, 2).float() / ROTARY_DIM)
        self.register_buffer("inv_freq", inv, persistent=False)

    def rope(self, x, cos, sin):
        rot, keep = x[..., :ROTARY_DIM], x[..., ROTARY_DIM:]
        return torch.cat((rot * cos + rotate_half(rot) * sin, keep), dim=-1)

    def forward(self, x):
        b, s, _ = x.shape
        q, k, v = (m(x).view(b, s, HEADS, HEAD_DIM).transpose(1, 2) for m in (self.q_proj, self.k_proj, self.v_proj))
        freqs = torch.outer(torch.arange(s).float(), self.inv_freq)
        emb = torch.cat((freqs, freqs), -1)
        q, k = self.rope(q, emb.cos(), emb.sin()), self.rope(k, emb.cos(), emb.sin())
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.dense(o.transpose(1, 2).reshape(b, s, DIM))


class RefLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.input_layernorm = nn.LayerNorm(DIM)
        self.self_attn = RefAttention()
        self.fc1, self.fc2 = nn.Linear(DIM, 4 * DIM), nn.Linear(4 * DIM, DIM)

    def forward(self, x):
        h = self.input_layernorm(x)
        return x + self.self_attn(h) + self.fc2(F.gelu(self.fc1(h)))


class PhiLikeModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.layers = nn.ModuleList(RefLayer() for _ in range(2))
        self.final_layernorm = nn.LayerNorm(DIM)

    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return self.final_layernorm(x)


class RotaryTable(nn.Module):
    def __init__(self, width):
        super().__init__()
        inv = 1.0 / THETA ** (torch.arange(0, ROTARY_DIM, 2).float() / ROTARY_DIM)
        pad = torch.zeros(width // 2 - inv.numel())
        self.register_buffer("inv_freq", torch.cat([inv, pad]), persistent=False)

    def forward(self, n):
        ang = torch.arange(n).float()[:, None] * self.inv_freq
        return ang.cos(), ang.sin()


class ShardAttention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.wqkv = nn.Linear(DIM, 3 * DIM)
        self.wo = nn.Linear(DIM, DIM)
        self.table = RotaryTable(width)
        self.width = width

    def apply_rotary(self, x, cos, sin):
        half = self.width // 2
        lo, hi, rest = x[..., :half], x[..., half : self.width], x[..., self.width :]
        return torch.cat([lo * cos - hi * sin, hi * cos + lo * sin, rest], -1)

    def forward(self, x):
        b, s, _ = x.shape
        q, k, v = self.wqkv(x).view(b, s, 3, HEADS, HEAD_DIM).permute(2, 0, 3, 1, 4)
        cos, sin = self.table(s)
        q, k = self.apply_rotary(q, cos, sin), self.apply_rotary(k, cos, sin)
        att = (q @ k.transpose(-1, -2)) * HEAD_DIM**-0.5
        att = att + torch.full((s, s), float("-inf")).triu(1)
        return self.wo((att.softmax(-1) @ v).transpose(1, 2).flatten(2))


class ShardBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.ln = nn.LayerNorm(DIM)
        self.attn = ShardAttention(width)
        self.ffn = nn.Sequential(nn.Linear(DIM, 4 * DIM), nn.GELU(), nn.Linear(4 * DIM, DIM))

    def forward(self, x):
        y = self.ln(x)
        return x + self.ffn(y) + self.attn(y)


class ShardedDecoder(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, DIM)
        self.blocks = nn.Sequential(*[ShardBlock(width) for _ in range(2)])
        self.ln_out = nn.LayerNorm(DIM)

    def forward(self, ids):
        return self.ln_out(self.blocks(self.tok(ids)))


def convert(sd):
    out = {"tok.weight": sd["embed.weight"]}
    for p in ("weight", "bias"):
        out[f"ln_out.{p}"] = sd[f"final_layernorm.{p}"]
        for i in range(2):
            s, d = f"layers.{i}.", f"blocks.{i}."
            out[d + f"ln.{p}"] = sd[s + f"input_layernorm.{p}"]
            out[d + f"attn.wqkv.{p}"] = torch.cat([sd[s + f"self_attn.{n}_proj.{p}"] for n in "qkv"])
            out[d + f"attn.wo.{p}"] = sd[s + f"self_attn.dense.{p}"]
            out[d + f"ffn.0.{p}"] = sd[s + f"fc1.{p}"]
            out[d + f"ffn.2.{p}"] = sd[s + f"fc2.{p}"]
    return out


def build(fixed):
    torch.manual_seed(69)
    original = PhiLikeModel().eval()
    for p in original.parameters():
        p.data.add_(torch.randn_like(p) * 0.12)
    port = ShardedDecoder(ROTARY_DIM if fixed else HEAD_DIM).eval()
    port.load_state_dict(convert(original.state_dict()))
    return original, port, (torch.randint(0, VOCAB, (2, 14)),)
