"""ooples/AiDotNet#2074

A Llama-family checkpoint in the layout of Hugging Face is loaded into a runtime
whose rotary kernel turns neighbouring lanes.  GGUF files of the same model work, the
safetensors file gives silently wrong logits.
"""

import torch
import torch.nn.functional as F
from torch import nn


class LlamaRMSNorm(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d))

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5))


def rotate_half(x):
    x1, x2 = x.chunk(2, dim=-1)
    return torch.cat((-x2, x1), dim=-1)


class LlamaAttention(nn.Module):
    def __init__(self, d, heads, kv_heads):
        super().__init__()
        self.head_dim = d // heads
        self.q_proj = nn.Linear(d, d)
        self.k_proj = nn.Linear(d, kv_heads * self.head_dim)
        self.v_proj = nn.Linear(d, kv_heads * self.head_dim)
        self.o_proj = nn.Linear(d, d, bias=False)
        self.rep = heads // kv_heads

    def forward(self, x, cos, sin):
        b, n, d = x.shape
        q, k, v = (p(x).view(b, n, -1, self.head_dim).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        q, k = q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin
        k, v = k.repeat_interleave(self.rep, 1), v.repeat_interleave(self.rep, 1)
        return self.o_proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, n, d))


class LlamaMLP(nn.Module):
    def __init__(self, d, ff):
        super().__init__()
        self.gate_proj, self.up_proj = nn.Linear(d, ff, bias=False), nn.Linear(d, ff, bias=False)
        self.down_proj = nn.Linear(ff, d, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class LlamaLayer(nn.Module):
    def __init__(self, d, heads, kv_heads, ff):
        super().__init__()
        self.input_layernorm, self.self_attn = LlamaRMSNorm(d), LlamaAttention(d, heads, kv_heads)
        self.post_attention_layernorm, self.mlp = LlamaRMSNorm(d), LlamaMLP(d, ff)

    def forward(self, x, cos, sin):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class LlamaForCausalLM(nn.Module):
    def __init__(self, vocab=40, d=32, heads=4, kv_heads=2, ff=48, layers=3):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocab, d)
        self.layers = nn.ModuleList(LlamaLayer(d, heads, kv_heads, ff) for _ in range(layers))
        self.norm = LlamaRMSNorm(d)
        self.head_dim = d // heads

    def forward(self, input_ids):
        inv = 1.0 / 10000 ** (torch.arange(0, self.head_dim, 2) / self.head_dim)
        ang = torch.arange(input_ids.shape[1])[:, None] * inv
        emb = torch.cat([ang, ang], dim=-1)
        x = self.embed_tokens(input_ids)
        for layer in self.layers:
            x = layer(x, emb.cos(), emb.sin())
        return F.linear(self.norm(x), self.embed_tokens.weight)


class InterleavedRope(nn.Module):
    def __init__(self, dim, theta=10000.0):
        super().__init__()
        self.register_buffer("freqs", theta ** (-torch.arange(0, dim, 2).float() / dim), persistent=False)

    def forward(self, x):
        phase = torch.outer(torch.arange(x.shape[1]).float(), self.freqs)
        turn = torch.polar(torch.ones_like(phase), phase)[:, None]
        z = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
        return torch.view_as_real(z * turn).flatten(-2)


class GroupedQueryAttention(nn.Module):
    def __init__(self, d, heads, kv_heads):
        super().__init__()
        self.sizes, self.hd, self.kv_heads = [d, kv_heads * d // heads, kv_heads * d // heads], d // heads, kv_heads
        self.in_weight = nn.Parameter(torch.empty(sum(self.sizes), d))
        self.in_bias = nn.Parameter(torch.empty(sum(self.sizes)))
        self.out_weight = nn.Parameter(torch.empty(d, d))
        self.rope = InterleavedRope(self.hd)

    def forward(self, x):
        b, n, _ = x.shape
        q, k, v = (t.view(b, n, -1, self.hd) for t in F.linear(x, self.in_weight, self.in_bias).split(self.sizes, -1))
        q = self.rope(q).view(b, n, self.kv_heads, -1, self.hd)
        k = self.rope(k)
        s = torch.einsum("bigrd,bjgd->bgrij", q, k) / self.hd**0.5
        s = s.masked_fill(torch.ones(n, n).triu(1).bool(), float("-inf")).softmax(-1)
        return torch.einsum("bgrij,bjgd->bigrd", s, v).flatten(2) @ self.out_weight.t()


class DecoderBlock(nn.Module):
    def __init__(self, d, heads, kv_heads, ff):
        super().__init__()
        self.attn_norm, self.ffn_norm = nn.RMSNorm(d, eps=1e-5), nn.RMSNorm(d, eps=1e-5)
        self.attn = GroupedQueryAttention(d, heads, kv_heads)
        self.w_in, self.w_out = nn.Linear(d, 2 * ff, bias=False), nn.Linear(ff, d, bias=False)

    def forward(self, x):
        x = x + self.attn(self.attn_norm(x))
        g, u = self.w_in(self.ffn_norm(x)).chunk(2, -1)
        return x + self.w_out(u * F.silu(g))


class PretrainedDecoder(nn.Module):
    def __init__(self, vocab=40, d=32, heads=4, kv_heads=2, ff=48, layers=3):
        super().__init__()
        self.token_embedding = nn.Embedding(vocab, d)
        self.blocks = nn.Sequential(*[DecoderBlock(d, heads, kv_heads, ff) for _ in range(layers)])
        self.output_norm = nn.RMSNorm(d, eps=1e-5)

    def forward(self, tokens):
        return self.output_norm(self.blocks(self.token_embedding(tokens))) @ self.token_embedding.weight.t()


def to_interleaved(w, head_dim):
    return w.unflatten(0, (-1, 2, head_dim // 2)).transpose(1, 2).flatten(0, 2)


def convert(sd, permute_rope=False, head_dim=8):
    out = {"token_embedding.weight": sd["embed_tokens.weight"], "output_norm.weight": sd["norm.weight"]}
    for i in range(3):
        s, t = f"layers.{i}.", f"blocks.{i}."
        for w in ("weight", "bias"):
            q, k, v = (sd[f"{s}self_attn.{c}_proj.{w}"] for c in "qkv")
            if permute_rope:
                q, k = to_interleaved(q, head_dim), to_interleaved(k, head_dim)
            out[f"{t}attn.in_{w}"] = torch.cat([q, k, v])
        out[t + "attn.out_weight"] = sd[s + "self_attn.o_proj.weight"]
        out[t + "attn_norm.weight"] = sd[s + "input_layernorm.weight"]
        out[t + "ffn_norm.weight"] = sd[s + "post_attention_layernorm.weight"]
        out[t + "w_in.weight"] = torch.cat([sd[s + "mlp.gate_proj.weight"], sd[s + "mlp.up_proj.weight"]])
        out[t + "w_out.weight"] = sd[s + "mlp.down_proj.weight"]
    return {k: v.clone() for k, v in out.items()}


def build(fixed):
    torch.manual_seed(9)
    original = LlamaForCausalLM().eval()
    for n, p in original.named_parameters():
        nn.init.normal_(p, 1.0 if "norm" in n else 0.0, 0.2)
    port = PretrainedDecoder().eval()
    port.load_state_dict(convert(original.state_dict(), permute_rope=fixed))
    return original, port, (torch.randint(0, 40, (2, 10)),)
