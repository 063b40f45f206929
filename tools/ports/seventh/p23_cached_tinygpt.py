"""After TrenTorch/TrenTorch#192: the acceleration module promises that key/value caching does not
change results; the generated text changes."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class MultiHeadAttention(nn.Module):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(embed_dim, embed_dim) for _ in range(4))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (f(x).view(b, t, self.num_heads, -1).transpose(1, 2) for f in (self.q_proj, self.k_proj, self.v_proj))
        s = q @ k.transpose(-1, -2) / math.sqrt(d // self.num_heads)
        s = s.masked_fill(torch.ones(t, t).triu(1).bool(), -1e9)
        return self.out_proj((s.softmax(-1) @ v).transpose(1, 2).reshape(b, t, d))


class TransformerBlock(nn.Module):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(embed_dim), nn.LayerNorm(embed_dim)
        self.attention = MultiHeadAttention(embed_dim, num_heads)
        self.mlp = nn.Sequential(nn.Linear(embed_dim, 4 * embed_dim), nn.GELU(), nn.Linear(4 * embed_dim, embed_dim))

    def forward(self, x):
        x = x + self.attention(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class GPT(nn.Module):
    def __init__(self, vocab=36, embed_dim=24, num_heads=3, num_layers=2, max_len=16):
        super().__init__()
        self.token_embedding, self.position_embedding = nn.Embedding(vocab, embed_dim), nn.Embedding(max_len, embed_dim)
        self.blocks = nn.ModuleList(TransformerBlock(embed_dim, num_heads) for _ in range(num_layers))
        self.ln_f = nn.LayerNorm(embed_dim)
        self.lm_head = nn.Linear(embed_dim, vocab, bias=False)

    def forward(self, tokens):
        x = self.token_embedding(tokens) + self.position_embedding(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.lm_head(self.ln_f(x))


class KVCache:
    def __init__(self, batch, max_len, layers, heads, head_dim):
        self.seq_pos = 0
        self.keys = [torch.zeros(batch, heads, max_len, head_dim) for _ in range(layers)]
        self.values = [torch.zeros(batch, heads, max_len, head_dim) for _ in range(layers)]

    def update(self, layer, k, v):
        self.keys[layer][:, :, self.seq_pos : self.seq_pos + 1] = k
        self.values[layer][:, :, self.seq_pos : self.seq_pos + 1] = v

    def get(self, layer):
        end = self.seq_pos + 1
        return self.keys[layer][:, :, :end], self.values[layer][:, :, :end]

    def advance(self):
        self.seq_pos += 1


class CachedLayer(nn.Module):
    def __init__(self, d, heads, index):
        super().__init__()
        self.d, self.heads, self.index = d, heads, index
        self.norm_a, self.norm_b = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.fc, self.out = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def attend(self, y, cache, fixed):
        q, k, v = self.qkv(y).view(y.shape[0], 3, self.heads, 1, -1).unbind(1)
        if cache.seq_pos == 0 and not fixed:
            return self.proj(v.flatten(1))
        cache.update(self.index, k, v)
        keys, values = cache.get(self.index)
        w = torch.einsum("bhqd,bhkd->bhqk", q, keys) * (self.d // self.heads) ** -0.5
        return self.proj(torch.einsum("bhqk,bhkd->bhqd", w.softmax(-1), values).flatten(1))

    def forward(self, x, cache, fixed):
        x = x + self.attend(self.norm_a(x), cache, fixed)
        return x + self.out(F.gelu(self.fc(self.norm_b(x))))


class CachedGPT(nn.Module):
    def __init__(self, fixed, vocab=36, d=24, heads=3, layers=2, max_len=16):
        super().__init__()
        self.fixed, self.max_len, self.heads, self.hd = fixed, max_len, heads, d // heads
        self.wte, self.wpe = nn.Embedding(vocab, d), nn.Embedding(max_len, d)
        self.layers = nn.ModuleList(CachedLayer(d, heads, i) for i in range(layers))
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, vocab, bias=False)

    def step(self, token, cache):
        h = self.wte(token) + self.wpe.weight[cache.seq_pos]
        for layer in self.layers:
            h = layer(h, cache, self.fixed)
        cache.advance()
        return self.head(self.norm(h))

    def forward(self, tokens):
        cache = KVCache(tokens.shape[0], self.max_len, len(self.layers), self.heads, self.hd)
        return torch.stack([self.step(tok, cache) for tok in tokens.unbind(1)], dim=1)


def enable_kv_cache(gpt, fixed):
    s, o = gpt.state_dict(), {}
    o["wte.weight"], o["wpe.weight"], o["head.weight"] = (
        s["token_embedding.weight"],
        s["position_embedding.weight"],
        s["lm_head.weight"],
    )
    for p in ("weight", "bias"):
        o["norm." + p] = s["ln_f." + p]
        for i in range(len(gpt.blocks)):
            a, b = f"blocks.{i}.", f"layers.{i}."
            o[f"{b}qkv.{p}"] = torch.cat([s[f"{a}attention.{n}_proj.{p}"] for n in "qkv"])
            for x, y in (
                ("attention.out_proj", "proj"),
                ("ln1", "norm_a"),
                ("ln2", "norm_b"),
                ("mlp.0", "fc"),
                ("mlp.2", "out"),
            ):
                o[f"{b}{y}.{p}"] = s[f"{a}{x}.{p}"]
    model = CachedGPT(fixed)
    model.load_state_dict(o)
    return model


def build(fixed):
    torch.manual_seed(192)
    original = GPT().eval()
    port = enable_kv_cache(original, fixed).eval()
    return original, port, (torch.randint(0, 36, (2, 11)),)
