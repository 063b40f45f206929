"""codertimo/BERT-pytorch#30

A BERT encoder was written anew after the Annotated Transformer, with its own layer
normalisation and a fused qkv matrix.  The weights of the reference encoder were
loaded into it, and the hidden states are off by some per cent.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn


class BertSelfAttention(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.query, self.key, self.value = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d)
        self.heads = heads

    def forward(self, x, mask):
        b, n, d = x.shape
        q, k, v = (m(x).view(b, n, self.heads, -1).transpose(1, 2) for m in (self.query, self.key, self.value))
        scores = q @ k.transpose(-1, -2) / math.sqrt(d // self.heads) + mask
        return (scores.softmax(-1) @ v).transpose(1, 2).reshape(b, n, d)


class BertLayer(nn.Module):
    def __init__(self, d, heads, ff):
        super().__init__()
        self.self_attn = BertSelfAttention(d, heads)
        self.attn_output = nn.Linear(d, d)
        self.attn_norm = nn.LayerNorm(d, eps=1e-12)
        self.intermediate, self.output = nn.Linear(d, ff), nn.Linear(ff, d)
        self.output_norm = nn.LayerNorm(d, eps=1e-12)

    def forward(self, x, mask):
        x = self.attn_norm(x + self.attn_output(self.self_attn(x, mask)))
        return self.output_norm(x + self.output(F.gelu(self.intermediate(x))))


class BertModel(nn.Module):
    def __init__(self, vocab=50, d=24, heads=3, layers=3, max_len=16):
        super().__init__()
        self.word_embeddings = nn.Embedding(vocab, d)
        self.position_embeddings = nn.Embedding(max_len, d)
        self.token_type_embeddings = nn.Embedding(2, d)
        self.embed_norm = nn.LayerNorm(d, eps=1e-12)
        self.layer = nn.ModuleList(BertLayer(d, heads, 2 * d) for _ in range(layers))
        self.pooler = nn.Linear(d, d)

    def forward(self, input_ids, segment_ids):
        pos = torch.arange(input_ids.shape[1])
        x = self.word_embeddings(input_ids) + self.position_embeddings(pos) + self.token_type_embeddings(segment_ids)
        x = self.embed_norm(x)
        mask = (input_ids == 0)[:, None, None].float() * -1e4
        for layer in self.layer:
            x = layer(x, mask)
        return torch.tanh(self.pooler(x[:, 0])), x


class LayerNorm(nn.Module):
    def __init__(self, features, eps=1e-12):
        super().__init__()
        self.a_2 = nn.Parameter(torch.ones(features))
        self.b_2 = nn.Parameter(torch.zeros(features))
        self.eps = eps

    def forward(self, x):
        mean = x.mean(-1, keepdim=True)
        std = x.std(-1, keepdim=True)
        return self.a_2 * (x - mean) / (std + self.eps) + self.b_2


class TorchLayerNorm(LayerNorm):
    def forward(self, x):
        mean = x.mean(-1, keepdim=True)
        var = (x - mean).pow(2).mean(-1, keepdim=True)
        return self.a_2 * (x - mean) / torch.sqrt(var + self.eps) + self.b_2


class MultiHeadedAttention(nn.Module):
    def __init__(self, h, d_model):
        super().__init__()
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.output_linear = nn.Linear(d_model, d_model)
        self.h = h

    def forward(self, x, keep):
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.h, d // self.h).permute(2, 0, 3, 1, 4)
        scores = torch.einsum("bhid,bhjd->bhij", q, k) * (d // self.h) ** -0.5
        attn = F.softmax(scores.masked_fill(~keep, -1e9), dim=-1)
        return self.output_linear(torch.einsum("bhij,bhjd->bihd", attn, v).reshape(b, n, d))


class TransformerBlock(nn.Module):
    def __init__(self, hidden, heads, ff, norm):
        super().__init__()
        self.attention = MultiHeadedAttention(heads, hidden)
        self.feed_forward = nn.Sequential(nn.Linear(hidden, ff), nn.GELU(), nn.Linear(ff, hidden))
        self.input_sublayer_norm, self.output_sublayer_norm = norm(hidden), norm(hidden)

    def forward(self, x, keep):
        x = self.input_sublayer_norm(self.attention(x, keep) + x)
        return self.output_sublayer_norm(self.feed_forward(x) + x)


class BERT(nn.Module):
    def __init__(self, vocab_size=50, hidden=24, n_layers=3, attn_heads=3, max_len=16, norm=LayerNorm):
        super().__init__()
        self.token = nn.Embedding(vocab_size, hidden)
        self.position = nn.Parameter(torch.empty(max_len, hidden))
        self.segment = nn.Embedding(2, hidden)
        self.norm = norm(hidden)
        self.transformer_blocks = nn.ModuleList(
            TransformerBlock(hidden, attn_heads, 2 * hidden, norm) for _ in range(n_layers)
        )
        self.pool = nn.Sequential(nn.Linear(hidden, hidden), nn.Tanh())

    def forward(self, x, segment_info):
        keep = (x > 0)[:, None, None, :]
        h = self.norm(self.token(x) + self.position[: x.shape[1]] + self.segment(segment_info))
        for block in self.transformer_blocks:
            h = block(h, keep)
        return self.pool(h[:, 0]), h


def convert(sd):
    out = {
        "token.weight": sd["word_embeddings.weight"],
        "position": sd["position_embeddings.weight"],
        "segment.weight": sd["token_type_embeddings.weight"],
        "norm.a_2": sd["embed_norm.weight"],
        "norm.b_2": sd["embed_norm.bias"],
        "pool.0.weight": sd["pooler.weight"],
        "pool.0.bias": sd["pooler.bias"],
    }
    for i in range(sum(k.endswith("attn_norm.weight") for k in sd)):
        s, t = f"layer.{i}.", f"transformer_blocks.{i}."
        for w in ("weight", "bias"):
            out[t + "attention.qkv." + w] = torch.cat([sd[f"{s}self_attn.{n}.{w}"] for n in ("query", "key", "value")])
            out[t + "attention.output_linear." + w] = sd[s + "attn_output." + w]
            out[t + "feed_forward.0." + w] = sd[s + "intermediate." + w]
            out[t + "feed_forward.2." + w] = sd[s + "output." + w]
            ab = {"weight": "a_2", "bias": "b_2"}[w]
            out[t + "input_sublayer_norm." + ab] = sd[s + "attn_norm." + w]
            out[t + "output_sublayer_norm." + ab] = sd[s + "output_norm." + w]
    return {k: v.clone() for k, v in out.items()}


def build(fixed):
    torch.manual_seed(1)
    original = BertModel().eval()
    for n, p in original.named_parameters():
        nn.init.normal_(p, 1.0 if n.endswith("norm.weight") else 0.0, 0.2)
    port = BERT(norm=TorchLayerNorm if fixed else LayerNorm).eval()
    port.load_state_dict(convert(original.state_dict()))
    ids = torch.randint(1, 50, (2, 10))
    ids[1, 7:] = 0
    return original, port, (ids, (torch.arange(10) > 4).long().expand(2, 10))
