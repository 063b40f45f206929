"""dmlc/gluon-nlp#1470: relative positions are query minus memory where mesh-tensorflow (and T5) use memory minus query.

A T5 v1.1 style encoder with one shared bias table.  The port packs q, k, v, folds the missing 1/sqrt(d) into the scale
argument of scaled_dot_product_attention, and writes the bucket function with torch.where / floor.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class T5LayerNorm(nn.Module):
    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(d_model) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


class T5Attention(nn.Module):
    def __init__(self, d_model: int, heads: int, d_kv: int, buckets: int, has_bias: bool) -> None:
        super().__init__()
        self.heads, self.d_kv, self.buckets = heads, d_kv, buckets
        self.q = nn.Linear(d_model, heads * d_kv, bias=False)
        self.k = nn.Linear(d_model, heads * d_kv, bias=False)
        self.v = nn.Linear(d_model, heads * d_kv, bias=False)
        self.o = nn.Linear(heads * d_kv, d_model, bias=False)
        if has_bias:
            self.relative_attention_bias = nn.Embedding(buckets, heads)

    def bucket(self, relative: Tensor, max_distance: int = 20) -> Tensor:
        half = self.buckets // 2
        offset = (relative > 0).long() * half
        distance = relative.abs()
        exact = half // 2
        large = (
            exact + (torch.log(distance.clamp(min=1) / exact) / math.log(max_distance / exact) * (half - exact)).long()
        )
        large = large.clamp(max=half - 1)
        return offset + torch.where(distance < exact, distance, large)

    def compute_bias(self, length: int) -> Tensor:
        context = torch.arange(length)[:, None]
        memory = torch.arange(length)[None, :]
        return self.relative_attention_bias(self.bucket(memory - context)).permute(2, 0, 1).unsqueeze(0)

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        batch, length, _ = x.shape
        q, k, v = (m(x).view(batch, length, self.heads, self.d_kv).transpose(1, 2) for m in (self.q, self.k, self.v))
        weights = F.softmax(q @ k.transpose(3, 2) + bias, dim=-1)
        return self.o((weights @ v).transpose(1, 2).reshape(batch, length, -1))


class T5Block(nn.Module):
    def __init__(self, d_model: int, heads: int, d_kv: int, d_ff: int, buckets: int, has_bias: bool) -> None:
        super().__init__()
        self.norm_a = T5LayerNorm(d_model)
        self.attention = T5Attention(d_model, heads, d_kv, buckets, has_bias)
        self.norm_f = T5LayerNorm(d_model)
        self.wi_0 = nn.Linear(d_model, d_ff, bias=False)
        self.wi_1 = nn.Linear(d_model, d_ff, bias=False)
        self.wo = nn.Linear(d_ff, d_model, bias=False)

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        x = x + self.attention(self.norm_a(x), bias)
        h = self.norm_f(x)
        return x + self.wo(F.gelu(self.wi_0(h), approximate="tanh") * self.wi_1(h))


class T5Encoder(nn.Module):
    def __init__(self, vocab: int = 36, d_model: int = 24, depth: int = 3) -> None:
        super().__init__()
        self.shared = nn.Embedding(vocab, d_model)
        self.block = nn.ModuleList(T5Block(d_model, 3, 6, 32, 12, i == 0) for i in range(depth))
        self.final_layer_norm = T5LayerNorm(d_model)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.shared(ids)
        bias = self.block[0].attention.compute_bias(ids.shape[1])
        for block in self.block:
            x = block(x, bias)
        return self.final_layer_norm(x)


def relative_position_bucket(relative_position: Tensor, num_buckets: int, max_distance: int) -> Tensor:
    """Bidirectional buckets; a positive relative position goes to the upper half."""
    per_side = num_buckets // 2
    upper = torch.where(relative_position > 0, per_side, 0)
    n = relative_position.abs().float()
    max_exact = per_side // 2
    ratio = torch.log(n.clamp(min=1.0) / max_exact) / math.log(max_distance / max_exact)
    log_bucket = (max_exact + torch.floor(ratio * (per_side - max_exact))).clamp(max=per_side - 1)
    return upper + torch.where(n < max_exact, n, log_bucket).long()


class RelAttentionScoreCell(nn.Module):
    def __init__(self, num_buckets: int, num_heads: int, memory_minus_query: bool) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.empty(num_heads, num_buckets))
        self.memory_minus_query = memory_minus_query

    def forward(self, query_positions: Tensor, mem_positions: Tensor) -> Tensor:
        if self.memory_minus_query:
            relative = mem_positions.unsqueeze(-2) - query_positions.unsqueeze(-1)
        else:
            relative = query_positions.unsqueeze(-1) - mem_positions.unsqueeze(-2)
        return self.table[:, relative_position_bucket(relative, self.table.shape[1], 20)]


class GluonLayer(nn.Module):
    def __init__(self, units: int, heads: int, d_kv: int, hidden: int) -> None:
        super().__init__()
        self.heads = heads
        self.self_attn_layer_norm = nn.RMSNorm(units, eps=1e-6)
        self.self_attn_qkv = nn.Linear(units, 3 * heads * d_kv, bias=False)
        self.self_attn_proj = nn.Linear(heads * d_kv, units, bias=False)
        self.ffn_layer_norm = nn.RMSNorm(units, eps=1e-6)
        self.ffn_in = nn.Linear(units, 2 * hidden, bias=False)
        self.ffn_out = nn.Linear(hidden, units, bias=False)

    def forward(self, x: Tensor, scores: Tensor) -> Tensor:
        qkv = self.self_attn_qkv(self.self_attn_layer_norm(x))
        q, k, v = qkv.unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        context = F.scaled_dot_product_attention(q, k, v, attn_mask=scores.unsqueeze(0), scale=1.0)
        x = x + self.self_attn_proj(context.transpose(1, 2).flatten(2))
        gate, linear = self.ffn_in(self.ffn_layer_norm(x)).tensor_split(2, dim=-1)
        return x + self.ffn_out(F.gelu(gate, approximate="tanh") * linear)


class GluonT5Encoder(nn.Module):
    def __init__(self, source: T5Encoder, memory_minus_query: bool) -> None:
        super().__init__()
        first = source.block[0]
        units, att = source.shared.embedding_dim, first.attention
        self.input_embedding_layer = nn.Embedding(source.shared.num_embeddings, units)
        self.relative_scores = RelAttentionScoreCell(att.buckets, att.heads, memory_minus_query)
        self.layers = nn.ModuleList(
            GluonLayer(units, att.heads, att.d_kv, first.wo.in_features) for _ in range(len(source.block))
        )
        self.final_norm = nn.RMSNorm(units, eps=1e-6)
        with torch.no_grad():
            self.input_embedding_layer.weight.copy_(source.shared.weight)
            self.relative_scores.table.copy_(att.relative_attention_bias.weight.T)
            self.final_norm.weight.copy_(source.final_layer_norm.weight)
            for src, dst in zip(source.block, self.layers, strict=True):
                a = src.attention
                dst.self_attn_layer_norm.weight.copy_(src.norm_a.weight)
                dst.self_attn_qkv.weight.copy_(torch.cat([a.q.weight, a.k.weight, a.v.weight]))
                dst.self_attn_proj.weight.copy_(a.o.weight)
                dst.ffn_layer_norm.weight.copy_(src.norm_f.weight)
                dst.ffn_in.weight.copy_(torch.cat([src.wi_0.weight, src.wi_1.weight]))
                dst.ffn_out.weight.copy_(src.wo.weight)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.input_embedding_layer(ids)
        positions = torch.arange(ids.shape[1])
        scores = self.relative_scores(positions, positions)
        for layer in self.layers:
            x = layer(x, scores)
        return self.final_norm(x)


def build(fixed: bool = False) -> tuple[nn.Module, nn.Module, tuple[Tensor, ...]]:
    torch.manual_seed(106)
    original = T5Encoder().eval()
    port = GluonT5Encoder(original, memory_minus_query=fixed).eval()
    return original, port, (torch.randint(0, 36, (2, 18)),)


if __name__ == "__main__":
    reference, ported, inputs = build()
    print((reference(*inputs) - ported(*inputs)).abs().max().item())
