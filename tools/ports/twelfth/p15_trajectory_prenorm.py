"""After Howuhh/faster-trajectory-transformer#3: a trajectory transformer for offline RL written
again with a flash-style block and key-value dictionaries, from the minGPT-like original. Loaded
with the same parameters it scores the discretised transitions differently."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BINS, OBS, ACT, DIM, HEADS = 16, 3, 2, 24, 3
STEP = OBS + ACT + 2


class CausalSelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.key, self.query, self.value = nn.Linear(DIM, DIM), nn.Linear(DIM, DIM), nn.Linear(DIM, DIM)
        self.proj = nn.Linear(DIM, DIM)
        mask = torch.tril(torch.ones(64, 64))
        mask[:, STEP - 1 :: STEP] = 0
        mask.fill_diagonal_(1)
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, x):
        B, T, C = x.shape
        k, q, v = (f(x).view(B, T, HEADS, -1).transpose(1, 2) for f in (self.key, self.query, self.value))
        att = (q @ k.transpose(-2, -1)) * (C // HEADS) ** -0.5
        att = att.masked_fill(self.mask[:T, :T] == 0, float("-inf")).softmax(-1)
        return self.proj((att @ v).transpose(1, 2).reshape(B, T, C))


class GPTBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.attn = CausalSelfAttention()
        self.mlp = nn.Sequential(nn.Linear(DIM, 4 * DIM), nn.GELU(), nn.Linear(4 * DIM, DIM))

    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class TrajectoryGPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok_emb = nn.Embedding(BINS * STEP, DIM)
        self.pos_emb = nn.Parameter(torch.randn(1, 64, DIM) * 0.3)
        self.blocks = nn.Sequential(*[GPTBlock() for _ in range(3)])
        self.ln_f = nn.LayerNorm(DIM)
        self.head = nn.Linear(DIM, BINS)

    def forward(self, tokens):
        T = tokens.shape[1]
        offset = torch.arange(T) % STEP * BINS
        x = self.tok_emb(tokens + offset) + self.pos_emb[:, :T]
        return self.head(self.ln_f(self.blocks(x)))


class TransformerBlock(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.norm_attn, self.norm_ff = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.attention = nn.MultiheadAttention(DIM, HEADS, batch_first=True)
        self.lin1, self.lin2 = nn.Linear(DIM, 4 * DIM), nn.Linear(4 * DIM, DIM)
        self.fixed = fixed

    def mix(self, x, blocked):
        normed = self.norm_attn(x)
        y, _ = self.attention(normed, normed, normed, attn_mask=blocked, need_weights=False)
        return (x if self.fixed else normed) + y

    def forward(self, x, blocked):
        x = self.mix(x, blocked)
        return x + self.lin2(F.gelu(self.lin1(self.norm_ff(x))))


class TransitionEmbedding(nn.Module):
    """One table per position inside a transition."""

    def __init__(self):
        super().__init__()
        self.tables = nn.Parameter(torch.empty(STEP, BINS, DIM))
        self.positions = nn.Embedding(64, DIM)

    def forward(self, tokens):
        t = torch.arange(tokens.shape[1])
        return self.tables[t % STEP, tokens] + self.positions(t)


class FasterTrajectory(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.embed = TransitionEmbedding()
        self.layers = nn.ModuleList(TransformerBlock(fixed) for _ in range(3))
        self.out = nn.Sequential(nn.LayerNorm(DIM), nn.Linear(DIM, BINS))

    @staticmethod
    def blocked(n):
        i = torch.arange(n)
        future = i[None] > i[:, None]
        value_col = ((i % STEP) == STEP - 1)[None] & (i[None] != i[:, None])
        return future | value_col

    def forward(self, tokens):
        x, blocked = self.embed(tokens), self.blocked(tokens.shape[1])
        for layer in self.layers:
            x = layer(x, blocked)
        return self.out(x)


def convert(sd):
    out = {"embed.tables": sd["tok_emb.weight"].view(STEP, BINS, DIM), "embed.positions.weight": sd["pos_emb"][0]}
    for p in ("weight", "bias"):
        out[f"out.0.{p}"], out[f"out.1.{p}"] = sd[f"ln_f.{p}"], sd[f"head.{p}"]
        for i in range(3):
            s, d = f"blocks.{i}.", f"layers.{i}."
            out[d + f"norm_attn.{p}"], out[d + f"norm_ff.{p}"] = sd[s + f"ln1.{p}"], sd[s + f"ln2.{p}"]
            out[d + f"attention.in_proj_{p}"] = torch.cat([sd[s + f"attn.{n}.{p}"] for n in ("query", "key", "value")])
            out[d + f"attention.out_proj.{p}"] = sd[s + f"attn.proj.{p}"]
            out[d + f"lin1.{p}"], out[d + f"lin2.{p}"] = sd[s + f"mlp.0.{p}"], sd[s + f"mlp.2.{p}"]
    return out


def build(fixed):
    torch.manual_seed(3)
    original = TrajectoryGPT().eval()
    for p in original.parameters():
        p.data.add_(torch.randn_like(p) * 0.1)
    port = FasterTrajectory(fixed).eval()
    port.load_state_dict(convert(original.state_dict()))
    return original, port, (torch.randint(0, BINS, (2, 3 * STEP)),)
