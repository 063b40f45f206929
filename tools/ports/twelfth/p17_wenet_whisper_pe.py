"""After wenet-e2e/wenet#2141: a Whisper-like speech encoder brought into another toolkit, whose
own encoder layers and own sinusoidal position class were used. The weights map one to one; the
encoder output does not match the reference."""

import math
import torch
import torch.nn as nn
import torch.nn.functional as F

MELS, DIM, HEADS, FRAMES = 10, 24, 4, 30


def sinusoids(length, channels, max_timescale=10000):
    inc = math.log(max_timescale) / (channels // 2 - 1)
    inv = torch.exp(-inc * torch.arange(channels // 2))
    scaled = torch.arange(length)[:, None] * inv[None]
    return torch.cat([scaled.sin(), scaled.cos()], 1)


class WhisperAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.value, self.out = nn.Linear(DIM, DIM), nn.Linear(DIM, DIM), nn.Linear(DIM, DIM)
        self.key = nn.Linear(DIM, DIM, bias=False)

    def forward(self, x):
        q, k, v = (f(x).unflatten(-1, (HEADS, -1)).transpose(1, 2) for f in (self.query, self.key, self.value))
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class WhisperBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn, self.attn_ln = WhisperAttention(), nn.LayerNorm(DIM)
        self.mlp = nn.Sequential(nn.Linear(DIM, 4 * DIM), nn.GELU(), nn.Linear(4 * DIM, DIM))
        self.mlp_ln = nn.LayerNorm(DIM)

    def forward(self, x):
        x = x + self.attn(self.attn_ln(x))
        return x + self.mlp(self.mlp_ln(x))


class AudioEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv1d(MELS, DIM, 3, padding=1)
        self.conv2 = nn.Conv1d(DIM, DIM, 3, stride=2, padding=1)
        self.blocks = nn.ModuleList(WhisperBlock() for _ in range(2))
        self.ln_post = nn.LayerNorm(DIM)

    def forward(self, mel):
        x = F.gelu(self.conv2(F.gelu(self.conv1(mel)))).transpose(1, 2)
        x = x + sinusoids(x.shape[1], DIM)
        for block in self.blocks:
            x = block(x)
        return self.ln_post(x)


class PositionalEncoding(nn.Module):
    def __init__(self, max_len=200):
        super().__init__()
        position = torch.arange(max_len).float()[:, None]
        div_term = torch.exp(torch.arange(0, DIM, 2).float() * -(math.log(10000.0) / DIM))
        pe = torch.zeros(max_len, DIM)
        pe[:, 0::2] = torch.sin(position * div_term)
        pe[:, 1::2] = torch.cos(position * div_term)
        self.register_buffer("pe", pe, persistent=False)

    def forward(self, x):
        return x + self.pe[: x.size(1)]


class WhisperPositionalEncoding(PositionalEncoding):
    def __init__(self, max_len=200):
        super().__init__(max_len)
        half = DIM // 2
        rate = 10000.0 ** (-torch.arange(half) / (half - 1))
        phase = torch.outer(torch.arange(max_len).float(), rate)
        self.pe = torch.stack([phase.sin(), phase.cos()], 1).flatten(1)


class Conv1dSubsampling2(nn.Module):
    def __init__(self, pos_enc):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv1d(MELS, DIM, 3, padding=1), nn.GELU(), nn.Conv1d(DIM, DIM, 3, padding=1, stride=2), nn.GELU()
        )
        self.pos_enc = pos_enc

    def forward(self, feats):
        return self.pos_enc(self.conv(feats.transpose(1, 2)).transpose(1, 2))


class MultiHeadedAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear_q, self.linear_k, self.linear_v, self.linear_out = (nn.Linear(DIM, DIM) for _ in range(4))

    def forward(self, x):
        n, t, _ = x.shape
        q, k, v = (f(x).view(n, t, HEADS, -1) for f in (self.linear_q, self.linear_k, self.linear_v))
        scores = torch.einsum("nthd,nshd->nhts", q, k) / math.sqrt(DIM // HEADS)
        return self.linear_out(torch.einsum("nhts,nshd->nthd", scores.softmax(-1), v).flatten(2))


class TransformerEncoderLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.self_attn, self.norm1, self.norm2 = MultiHeadedAttention(), nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.w_1, self.w_2 = nn.Linear(DIM, 4 * DIM), nn.Linear(4 * DIM, DIM)

    def forward(self, x):
        x = x + self.self_attn(self.norm1(x))
        return x + self.w_2(F.gelu(self.w_1(self.norm2(x))))


class ToolkitEncoder(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.embed = Conv1dSubsampling2(WhisperPositionalEncoding() if fixed else PositionalEncoding())
        self.encoders = nn.ModuleList(TransformerEncoderLayer() for _ in range(2))
        self.after_norm = nn.LayerNorm(DIM)

    def forward(self, mel):
        xs = self.embed(mel.transpose(1, 2))
        for layer in self.encoders:
            xs = layer(xs)
        return self.after_norm(xs)


def convert(sd):
    out = {}
    for p in ("weight", "bias"):
        out[f"embed.conv.0.{p}"], out[f"embed.conv.2.{p}"] = sd[f"conv1.{p}"], sd[f"conv2.{p}"]
        out[f"after_norm.{p}"] = sd[f"ln_post.{p}"]
        for i in range(2):
            s, d = f"blocks.{i}.", f"encoders.{i}."
            for a, b in (("query", "q"), ("key", "k"), ("value", "v"), ("out", "out")):
                out[d + f"self_attn.linear_{b}.{p}"] = sd.get(s + f"attn.{a}.{p}", torch.zeros(DIM))
            out[d + f"norm1.{p}"], out[d + f"norm2.{p}"] = sd[s + f"attn_ln.{p}"], sd[s + f"mlp_ln.{p}"]
            out[d + f"w_1.{p}"], out[d + f"w_2.{p}"] = sd[s + f"mlp.0.{p}"], sd[s + f"mlp.2.{p}"]
    return out


def build(fixed):
    torch.manual_seed(2141)
    original = AudioEncoder().eval()
    for p in original.parameters():
        p.data.add_(torch.randn_like(p) * 0.1)
    port = ToolkitEncoder(fixed).eval()
    port.load_state_dict(convert(original.state_dict()))
    return original, port, (torch.randn(2, MELS, FRAMES),)
