"""After microsoft/onnxruntime#25927: a sliding-window language model exported to the fused
GroupQueryAttention operator loses accuracy against the original."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F


def apply_rope(x, pos, base=10000.0):
    d = x.shape[-1]
    ang = pos[:, None].float() * base ** (-torch.arange(0, d, 2).float() / d)
    c, s = ang.cos().repeat(1, 2), ang.sin().repeat(1, 2)
    return x * c + torch.cat([-x[..., d // 2 :], x[..., : d // 2]], -1) * s


class PhiAttention(nn.Module):
    def __init__(self, d, heads, kv_heads, sliding_window):
        super().__init__()
        self.h, self.kv, self.hd, self.sliding_window = heads, kv_heads, d // heads, sliding_window
        self.q_proj = nn.Linear(d, d)
        self.k_proj, self.v_proj = nn.Linear(d, kv_heads * self.hd), nn.Linear(d, kv_heads * self.hd)
        self.o_proj = nn.Linear(d, d)

    def forward(self, x):
        b, t, d = x.shape
        pos = torch.arange(t)
        q = apply_rope(self.q_proj(x).view(b, t, self.h, -1).transpose(1, 2), pos)
        k = apply_rope(self.k_proj(x).view(b, t, self.kv, -1).transpose(1, 2), pos)
        v = self.v_proj(x).view(b, t, self.kv, -1).transpose(1, 2)
        k, v = (z.repeat_interleave(self.h // self.kv, dim=1) for z in (k, v))
        mask = torch.ones(t, t, dtype=torch.bool).tril()
        mask = mask & torch.ones(t, t, dtype=torch.bool).triu(1 - self.sliding_window)
        a = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.o_proj(a.transpose(1, 2).reshape(b, t, d))


class PhiLayer(nn.Module):
    def __init__(self, d, heads, kv, window):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.self_attn = PhiAttention(d, heads, kv, window)
        self.fc1, self.fc2 = nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

    def forward(self, x):
        x = x + self.self_attn(self.ln1(x))
        return x + self.fc2(F.gelu(self.fc1(self.ln2(x))))


class PhiModel(nn.Module):
    def __init__(self, vocab=40, d=32, heads=4, kv=2, window=4, depth=2):
        super().__init__()
        self.embed = nn.Embedding(vocab, d)
        self.layers = nn.ModuleList(PhiLayer(d, heads, kv, window) for _ in range(depth))
        self.norm, self.lm_head = nn.LayerNorm(d), nn.Linear(d, vocab)

    def forward(self, ids):
        x = self.embed(ids)
        for lyr in self.layers:
            x = lyr(x)
        return self.lm_head(self.norm(x))


class GroupQueryAttention(nn.Module):
    """Packed-QKV operator: rotary, causal softmax, local window on the left side."""

    def __init__(self, num_heads, kv_num_heads, local_window_size, include_current):
        super().__init__()
        self.num_heads, self.kv_num_heads = num_heads, kv_num_heads
        self.local_window_size = local_window_size
        self.include_current = include_current

    def forward(self, packed):
        b, t, _ = packed.shape
        hs = packed.shape[-1] // (self.num_heads + 2 * self.kv_num_heads)
        q, k, v = packed.view(b, t, -1, hs).split([self.num_heads, self.kv_num_heads, self.kv_num_heads], dim=2)
        pos = torch.arange(t)
        q, k = (apply_rope(z.transpose(1, 2), pos) for z in (q, k))
        group = self.num_heads // self.kv_num_heads
        q = q.reshape(b, self.kv_num_heads, group, t, hs)
        scores = torch.einsum("bngqd,bnkd->bngqk", q, k) / math.sqrt(hs)
        out = torch.zeros_like(scores)
        for seq in range(t):
            total = seq + 1
            visible = self.local_window_size + (0 if self.include_current else 1)
            start = total - visible if total > visible else 0
            out[..., seq, start:total] = scores[..., seq, start:total].softmax(-1)
        y = torch.einsum("bngqk,bnkd->bqngd", out, v.transpose(1, 2))
        return y.reshape(b, t, self.num_heads * hs)


class OrtLayer(nn.Module):
    def __init__(self, d, heads, kv, window, include_current):
        super().__init__()
        hs = d // heads
        self.skip_norm0, self.skip_norm1 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv_matmul = nn.Linear(d, (heads + 2 * kv) * hs)
        self.gqa = GroupQueryAttention(heads, kv, window, include_current)
        self.o_matmul = nn.Linear(d, d)
        self.fc1, self.fc2 = nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

    def forward(self, x):
        x = self.o_matmul(self.gqa(self.qkv_matmul(self.skip_norm0(x)))) + x
        return self.fc2(F.gelu(self.fc1(self.skip_norm1(x)))) + x


class OrtModel(nn.Module):
    def __init__(self, include_current, vocab=40, d=32, heads=4, kv=2, window=4, depth=2):
        super().__init__()
        self.gather = nn.Embedding(vocab, d)
        self.graph = nn.ModuleList(OrtLayer(d, heads, kv, window, include_current) for _ in range(depth))
        self.final_norm, self.logits = nn.LayerNorm(d), nn.Linear(d, vocab)

    def forward(self, ids):
        h = self.gather(ids)
        for node in self.graph:
            h = node(h)
        return self.logits(self.final_norm(h))


def builder(m, depth=2):
    s, o = m.state_dict(), {"gather.weight": m.embed.weight.detach()}
    for p in ("weight", "bias"):
        o["final_norm." + p], o["logits." + p] = s["norm." + p], s["lm_head." + p]
        for i in range(depth):
            a, b = f"layers.{i}.", f"graph.{i}."
            o[b + "qkv_matmul." + p] = torch.cat([s[f"{a}self_attn.{n}_proj.{p}"] for n in "qkv"])
            for x, y in (
                ("self_attn.o_proj", "o_matmul"),
                ("ln1", "skip_norm0"),
                ("ln2", "skip_norm1"),
                ("fc1", "fc1"),
                ("fc2", "fc2"),
            ):
                o[f"{b}{y}.{p}"] = s[f"{a}{x}.{p}"]
    return o


def build(fixed):
    torch.manual_seed(259)
    original = PhiModel().eval()
    port = OrtModel(include_current=fixed).eval()
    port.load_state_dict(builder(original))
    return original, port, (torch.randint(0, 40, (2, 14)),)
