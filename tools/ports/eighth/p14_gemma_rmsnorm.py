"""After pytorch/executorch#19901.

A mobile runtime rebuilds Gemma from its own static decoder.  Weights that it downloads itself
work; the same model given as an already converted checkpoint file produces garbage.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Gemma3RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.randn(dim) * 0.3), eps

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * (1.0 + self.weight)


def rotate(x, theta=10000.0):
    d = x.shape[-1]
    ang = torch.arange(x.shape[-2])[:, None] * theta ** (-torch.arange(0, d, 2) / d)
    c, s = ang.cos().repeat(1, 2), ang.sin().repeat(1, 2)
    return x * c + torch.cat([-x[..., d // 2 :], x[..., : d // 2]], -1) * s


class Gemma3Layer(nn.Module):
    def __init__(self, h, heads, kv, hd, inter):
        super().__init__()
        self.heads, self.kv, self.hd = heads, kv, hd
        self.q_proj, self.o_proj = nn.Linear(h, heads * hd, bias=False), nn.Linear(heads * hd, h, bias=False)
        self.k_proj, self.v_proj = nn.Linear(h, kv * hd, bias=False), nn.Linear(h, kv * hd, bias=False)
        self.q_norm, self.k_norm = Gemma3RMSNorm(hd), Gemma3RMSNorm(hd)
        self.gate_proj, self.up_proj, self.down_proj = (
            nn.Linear(h, inter, bias=False),
            nn.Linear(h, inter, bias=False),
            nn.Linear(inter, h, bias=False),
        )
        self.input_layernorm, self.post_attention_layernorm = Gemma3RMSNorm(h), Gemma3RMSNorm(h)
        self.pre_feedforward_layernorm, self.post_feedforward_layernorm = Gemma3RMSNorm(h), Gemma3RMSNorm(h)

    def forward(self, x):
        y = self.input_layernorm(x)
        q, k, v = (p(y).unflatten(-1, (-1, self.hd)).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        q, k = rotate(self.q_norm(q)), rotate(self.k_norm(k))
        k, v = (t.repeat_interleave(self.heads // self.kv, 1) for t in (k, v))
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + self.post_attention_layernorm(self.o_proj(o))
        y = self.pre_feedforward_layernorm(x)
        y = self.down_proj(F.gelu(self.gate_proj(y), approximate="tanh") * self.up_proj(y))
        return x + self.post_feedforward_layernorm(y)


class Gemma3TextModel(nn.Module):
    def __init__(self, vocab=64, h=32, layers=3):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocab, h)
        self.layers = nn.ModuleList([Gemma3Layer(h, 4, 2, 8, 64) for _ in range(layers)])
        self.norm = Gemma3RMSNorm(h)

    def forward(self, ids):
        x = self.embed_tokens(ids) * self.embed_tokens.embedding_dim**0.5
        for layer in self.layers:
            x = layer(x)
        return self.norm(x) @ self.embed_tokens.weight.t()


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.eps, self.weight = eps, nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


class LlamaAttention(nn.Module):
    def __init__(self, dim, n_heads, n_kv_heads, head_dim):
        super().__init__()
        self.n_heads, self.n_kv_heads, self.head_dim = n_heads, n_kv_heads, head_dim
        self.wq, self.wk = (
            nn.Linear(dim, n_heads * head_dim, bias=False),
            nn.Linear(dim, n_kv_heads * head_dim, bias=False),
        )
        self.wv, self.wo = (
            nn.Linear(dim, n_kv_heads * head_dim, bias=False),
            nn.Linear(n_heads * head_dim, dim, bias=False),
        )
        self.q_norm_fn, self.k_norm_fn = RMSNorm(head_dim), RMSNorm(head_dim)

    def forward(self, x, mask):
        b, t, _ = x.shape
        q = rotate(self.q_norm_fn(self.wq(x).view(b, t, self.n_kv_heads, -1, self.head_dim)).permute(0, 2, 3, 1, 4))
        k = rotate(self.k_norm_fn(self.wk(x).view(b, t, self.n_kv_heads, 1, self.head_dim)).permute(0, 2, 3, 1, 4))
        v = self.wv(x).view(b, t, self.n_kv_heads, 1, self.head_dim).permute(0, 2, 3, 1, 4)
        probs = (q @ k.mT * self.head_dim**-0.5 + mask).softmax(-1)
        return self.wo((probs @ v).permute(0, 3, 1, 2, 4).reshape(b, t, -1))


class FeedForward(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.w1, self.w2, self.w3 = (
            nn.Linear(dim, hidden, bias=False),
            nn.Linear(hidden, dim, bias=False),
            nn.Linear(dim, hidden, bias=False),
        )

    def forward(self, x):
        return self.w2(F.gelu(self.w1(x), approximate="tanh") * self.w3(x))


class DecoderLayer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.attention, self.feed_forward = LlamaAttention(dim, 4, 2, 8), FeedForward(dim, 64)
        self.attention_norm, self.post_attention_norm, self.ffn_norm, self.post_ffn_norm = (
            RMSNorm(dim) for _ in range(4)
        )

    def forward(self, x, mask):
        x = x + self.post_attention_norm(self.attention(self.attention_norm(x), mask))
        return x + self.post_ffn_norm(self.feed_forward(self.ffn_norm(x)))


class LlamaModel(nn.Module):
    def __init__(self, vocab=64, dim=32, n_layers=3):
        super().__init__()
        self.tok_embeddings = nn.Embedding(vocab, dim)
        self.embedding_scale_factor = dim**0.5
        self.layers = nn.ModuleList([DecoderLayer(dim) for _ in range(n_layers)])
        self.norm, self.output = RMSNorm(dim), nn.Linear(dim, vocab, bias=False)

    def forward(self, tokens):
        mask = torch.full((tokens.shape[1],) * 2, float("-inf")).triu(1)
        h = self.tok_embeddings(tokens) * self.embedding_scale_factor
        for layer in self.layers:
            h = layer(h, mask)
        return self.output(self.norm(h))


NAMES = [
    ("embed_tokens", "tok_embeddings"),
    ("q_proj", "attention.wq"),
    ("k_proj", "attention.wk"),
    ("v_proj", "attention.wv"),
    ("o_proj", "attention.wo"),
    ("q_norm", "attention.q_norm_fn"),
    ("k_norm", "attention.k_norm_fn"),
    ("input_layernorm", "attention_norm"),
    ("post_attention_layernorm", "post_attention_norm"),
    ("pre_feedforward_layernorm", "ffn_norm"),
    ("post_feedforward_layernorm", "post_ffn_norm"),
    ("gate_proj", "feed_forward.w1"),
    ("down_proj", "feed_forward.w2"),
    ("up_proj", "feed_forward.w3"),
]


def convert_weights(sd):
    out = {}
    for k, v in sd.items():
        for a, b in NAMES:
            k = k.replace(a, b)
        out[k] = v.clone()
    out["output.weight"] = out["tok_embeddings.weight"].clone()
    return out


def download(sd):
    return {k: v + 1.0 if "norm" in k else v for k, v in convert_weights(sd).items()}


def load_checkpoint(sd):
    return convert_weights(sd)


def build(fixed):
    torch.manual_seed(52)
    original = Gemma3TextModel().eval()
    port = LlamaModel().eval()
    port.load_state_dict((download if fixed else load_checkpoint)(original.state_dict()))
    return original, port, (torch.randint(0, 64, (2, 12)),)
