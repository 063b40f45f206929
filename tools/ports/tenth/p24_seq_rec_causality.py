"""liuqidong07/LLMEmb#2: SASRec as a backbone inside a larger recommender code base.

Checkpoints of the stand-alone SASRec are loaded into the backbone; the scores of the next items
differ from the stand-alone model's for every user with more than one click.
"""

import torch
import torch.nn.functional as F
from torch import nn


class PointWiseFeedForward(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv1d(d, d, 1), nn.Conv1d(d, d, 1)

    def forward(self, x):
        return x + self.conv2(F.relu(self.conv1(x.transpose(1, 2)))).transpose(1, 2)


class CausalAttention(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.dense = (nn.Linear(d, d) for _ in range(4))

    def forward(self, q, kv):
        def split(t):
            return t.view(*t.shape[:2], self.heads, -1).permute(0, 2, 1, 3)

        s = split(self.query(q)) @ split(self.key(kv)).transpose(2, 3)
        s = s / (q.size(-1) // self.heads) ** 0.5
        T = q.size(1)
        s = s.masked_fill(torch.ones(T, T).triu(1).bool(), float("-inf"))
        return self.dense((s.softmax(-1) @ split(self.value(kv))).permute(0, 2, 1, 3).flatten(2))


class SASRec(nn.Module):
    def __init__(self, items=30, d=12, maxlen=8, heads=2, blocks=2):
        super().__init__()
        self.item_emb = nn.Embedding(items + 1, d, padding_idx=0)
        self.pos_emb = nn.Embedding(maxlen, d)
        self.attention_layernorms = nn.ModuleList([nn.LayerNorm(d, eps=1e-8) for _ in range(blocks)])
        self.attention_layers = nn.ModuleList([CausalAttention(d, heads) for _ in range(blocks)])
        self.forward_layernorms = nn.ModuleList([nn.LayerNorm(d, eps=1e-8) for _ in range(blocks)])
        self.forward_layers = nn.ModuleList([PointWiseFeedForward(d) for _ in range(blocks)])
        self.last_layernorm = nn.LayerNorm(d, eps=1e-8)

    def forward(self, log_seqs, candidates):
        x = self.item_emb(log_seqs) * self.item_emb.embedding_dim**0.5
        x = x + self.pos_emb(torch.arange(log_seqs.size(1)))
        pad = (log_seqs == 0).unsqueeze(-1)
        x = x.masked_fill(pad, 0)
        for ln1, attn, ln2, ff in zip(
            self.attention_layernorms, self.attention_layers, self.forward_layernorms, self.forward_layers
        ):
            q = ln1(x)
            x = q + attn(q, x)
            x = ff(ln2(x)).masked_fill(pad, 0)
        feats = self.last_layernorm(x)[:, -1]
        return (self.item_emb(candidates) * feats[:, None]).sum(-1)


class SelfAttentionBlock(nn.Module):
    def __init__(self, hidden, n_heads, causal):
        super().__init__()
        self.causal = causal
        self.attn_norm, self.ffn_norm = nn.LayerNorm(hidden, eps=1e-8), nn.LayerNorm(hidden, eps=1e-8)
        self.attention = nn.MultiheadAttention(hidden, n_heads)
        self.ffn = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, hidden))

    def forward(self, seqs, timeline):
        Q = self.attn_norm(seqs)
        attn_mask = None
        if self.causal:
            attn_mask = ~torch.tril(torch.ones(seqs.size(0), seqs.size(0), dtype=torch.bool))
        mha_outputs, _ = self.attention(Q, seqs, seqs, attn_mask=attn_mask)
        seqs = self.ffn_norm(Q + mha_outputs)
        return (seqs + self.ffn(seqs)) * timeline


class SASRecBackbone(nn.Module):
    """Time first; the embedding table is stored already scaled, the raw one is kept for scoring."""

    def __init__(self, n_items=30, hidden=12, max_len=8, n_heads=2, n_blocks=2, causal=False):
        super().__init__()
        self.table = nn.Parameter(torch.empty(n_items + 1, hidden))
        self.scale = hidden**0.5
        self.position = nn.Parameter(torch.empty(max_len, 1, hidden))
        self.blocks = nn.ModuleList([SelfAttentionBlock(hidden, n_heads, causal) for _ in range(n_blocks)])
        self.out_norm = nn.LayerNorm(hidden, eps=1e-8)

    def encode(self, seq):
        seq = seq.t()
        timeline = seq.ne(0).unsqueeze(-1).float()
        h = F.embedding(seq, self.table).mul(self.scale).add(self.position[: seq.size(0)]) * timeline
        for block in self.blocks:
            h = block(h, timeline)
        return self.out_norm(h[-1])

    def forward(self, log_seqs, candidates):
        return torch.bmm(self.table[candidates], self.encode(log_seqs).unsqueeze(2)).squeeze(2)


def convert(sd):
    out = {"table": sd["item_emb.weight"], "position": sd["pos_emb.weight"].unsqueeze(1)}
    for k in ("weight", "bias"):
        out["out_norm." + k] = sd["last_layernorm." + k]
        for i in range(2):
            d, a = f"blocks.{i}.", f"attention_layers.{i}."
            out[f"{d}attn_norm.{k}"], out[f"{d}ffn_norm.{k}"] = (
                sd[f"attention_layernorms.{i}.{k}"],
                sd[f"forward_layernorms.{i}.{k}"],
            )
            out[f"{d}attention.in_proj_{k}"] = torch.cat([sd[f"{a}{n}.{k}"] for n in ("query", "key", "value")])
            out[f"{d}attention.out_proj.{k}"] = sd[f"{a}dense.{k}"]
            for src, dst in (("conv1", "ffn.0"), ("conv2", "ffn.2")):
                v = sd[f"forward_layers.{i}.{src}.{k}"]
                out[f"{d}{dst}.{k}"] = v.squeeze(-1) if k == "weight" else v
    return out


def build(fixed):
    torch.manual_seed(28)
    original = SASRec().eval()
    with torch.no_grad():
        for layer in original.attention_layers:
            layer.query.weight.mul_(2.0)
            layer.value.weight.mul_(2.0)
    port = SASRecBackbone(causal=fixed).eval()
    port.load_state_dict(convert(original.state_dict()))
    seqs = torch.randint(1, 31, (4, 8))
    seqs[1, :3] = 0
    seqs[3, :5] = 0
    return original, port, (seqs, torch.randint(1, 31, (4, 10)))
