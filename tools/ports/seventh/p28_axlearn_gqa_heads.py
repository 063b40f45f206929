"""After apple/axlearn#842: a refactoring of grouped-query attention changes the outputs of existing
checkpoints; here a speech encoder carried over to the refactored layers."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class GroupedQKV(nn.Module):
    def __init__(self, dim, num_heads, num_kv_heads):
        super().__init__()
        self.num_heads, self.num_kv_heads, self.hd = num_heads, num_kv_heads, dim // num_heads
        self.q_proj = nn.Linear(dim, dim)
        self.k_proj, self.v_proj = nn.Linear(dim, num_kv_heads * self.hd), nn.Linear(dim, num_kv_heads * self.hd)

    def forward(self, x):
        b, t, _ = x.shape
        return (
            self.q_proj(x).view(b, t, self.num_heads, self.hd),
            self.k_proj(x).view(b, t, self.num_kv_heads, self.hd),
            self.v_proj(x).view(b, t, self.num_kv_heads, self.hd),
        )


class GroupedQueryAttention(nn.Module):
    def __init__(self, dim, num_heads, num_kv_heads):
        super().__init__()
        self.i_proj = GroupedQKV(dim, num_heads, num_kv_heads)
        self.o_proj = nn.Linear(dim, dim)

    def forward(self, x, padding_bias):
        q, k, v = self.i_proj(x)
        rep = q.shape[2] // k.shape[2]
        k, v = torch.repeat_interleave(k, rep, dim=2), torch.repeat_interleave(v, rep, dim=2)
        logits = torch.einsum("btnh,bsnh->bnts", q * q.shape[-1] ** -0.5, k) + padding_bias[:, None, None]
        return self.o_proj(torch.einsum("bnts,bsnh->btnh", logits.softmax(-1), v).flatten(2))


class EncoderLayer(nn.Module):
    def __init__(self, dim, heads, kv):
        super().__init__()
        self.norm_a, self.norm_c, self.norm_f = nn.LayerNorm(dim), nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.self_attention = GroupedQueryAttention(dim, heads, kv)
        self.linear_pre, self.depthwise, self.linear_post = (
            nn.Linear(dim, 2 * dim),
            nn.Conv1d(dim, dim, 5, padding=2, groups=dim),
            nn.Linear(dim, dim),
        )
        self.linear1, self.linear2 = nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim)

    def forward(self, x, bias):
        x = x + self.self_attention(self.norm_a(x), bias)
        y = F.glu(self.linear_pre(self.norm_c(x)), -1)
        x = x + self.linear_post(F.silu(self.depthwise(y.transpose(1, 2)).transpose(1, 2)))
        return x + 0.5 * self.linear2(F.silu(self.linear1(self.norm_f(x))))


class SpeechEncoder(nn.Module):
    def __init__(self, mels=16, dim=32, heads=8, kv=2, depth=2, vocab=12):
        super().__init__()
        self.subsample = nn.Conv1d(mels, dim, 3, stride=2, padding=1)
        self.layers = nn.ModuleList(EncoderLayer(dim, heads, kv) for _ in range(depth))
        self.ctc_head = nn.Linear(dim, vocab)

    def forward(self, fbank, lengths):
        x = F.relu(self.subsample(fbank.transpose(1, 2))).transpose(1, 2)
        bias = torch.where(torch.arange(x.shape[1])[None] < (lengths[:, None] + 1) // 2, 0.0, -1e9)
        for lyr in self.layers:
            x = lyr(x, bias)
        return self.ctc_head(x).log_softmax(-1)


class FusedGroupedLinear(nn.Module):
    def __init__(self, dim, heads, kv):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(dim, heads + 2 * kv, dim // heads))
        self.bias = nn.Parameter(torch.zeros(heads + 2 * kv, dim // heads))
        self.sizes = (heads, kv, kv)

    def forward(self, x):
        return (torch.einsum("btd,dnh->bnth", x, self.weight) + self.bias[:, None]).split(self.sizes, dim=1)


class Attention(nn.Module):
    def __init__(self, dim, heads, kv, grouped):
        super().__init__()
        self.qkv = FusedGroupedLinear(dim, heads, kv)
        self.out = nn.Parameter(torch.zeros(heads, dim // heads, dim))
        self.out_bias = nn.Parameter(torch.zeros(dim))
        self.reps, self.grouped = heads // kv, grouped

    def _repeat_kv(self, t):
        if self.grouped:
            return t[:, :, None].expand(-1, -1, self.reps, -1, -1).flatten(1, 2)
        return t.repeat(1, self.reps, 1, 1)

    def forward(self, x, keep):
        q, k, v = self.qkv(x)
        ctx = F.scaled_dot_product_attention(q, self._repeat_kv(k), self._repeat_kv(v), attn_mask=keep[:, None, None])
        return torch.einsum("bnth,nhd->btd", ctx, self.out) + self.out_bias


class Layer(nn.Module):
    def __init__(self, dim, heads, kv, grouped):
        super().__init__()
        self.ln = nn.ModuleList(nn.LayerNorm(dim) for _ in range(3))
        self.attn = Attention(dim, heads, kv, grouped)
        self.pw1, self.dw, self.pw2 = (
            nn.Conv1d(dim, 2 * dim, 1),
            nn.Conv1d(dim, dim, 5, padding="same", groups=dim),
            nn.Conv1d(dim, dim, 1),
        )
        self.ff = nn.Sequential(nn.Linear(dim, 2 * dim), nn.SiLU(), nn.Linear(2 * dim, dim))

    def forward(self, x, keep):
        x = x + self.attn(self.ln[0](x), keep)
        a, g = self.pw1(self.ln[1](x).mT).chunk(2, 1)
        x = x + self.pw2(F.silu(self.dw(a * g.sigmoid()))).mT
        return x + self.ff(self.ln[2](x)) / 2


class RefactoredEncoder(nn.Module):
    def __init__(self, grouped, mels=16, dim=32, heads=8, kv=2, depth=2, vocab=12):
        super().__init__()
        self.frontend = nn.Conv1d(mels, dim, 3, stride=2, padding=1)
        self.stack = nn.ModuleList(Layer(dim, heads, kv, grouped) for _ in range(depth))
        self.head = nn.Linear(dim, vocab)

    def forward(self, fbank, lengths):
        x = self.frontend(fbank.mT).relu().mT
        n = torch.div(lengths + 1, 2, rounding_mode="floor")
        keep = torch.arange(x.shape[1]).expand(x.shape[0], -1) < n.unsqueeze(1)
        for lyr in self.stack:
            x = lyr(x, keep)
        return F.log_softmax(self.head(x), -1)


def migrate(s, depth=2, heads=8):
    o = {}
    for p in ("weight", "bias"):
        o["frontend." + p], o["head." + p] = s["subsample." + p], s["ctc_head." + p]
        for i in range(depth):
            a, b = f"layers.{i}.", f"stack.{i}."
            for j, n in enumerate(("norm_a", "norm_c", "norm_f")):
                o[f"{b}ln.{j}.{p}"] = s[f"{a}{n}.{p}"]
            for x, y in (
                ("linear_pre", "pw1"),
                ("depthwise", "dw"),
                ("linear_post", "pw2"),
                ("linear1", "ff.0"),
                ("linear2", "ff.2"),
            ):
                t = s[f"{a}{x}.{p}"]
                o[f"{b}{y}.{p}"] = t[..., None] if y.startswith("pw") and p == "weight" else t
    for i in range(depth):
        a, b = f"layers.{i}.self_attention.", f"stack.{i}.attn."
        w = torch.cat([s[f"{a}i_proj.{n}_proj.weight"] for n in "qkv"])
        o[b + "qkv.weight"] = w.view(-1, w.shape[1] // heads, w.shape[1]).permute(2, 0, 1)
        o[b + "qkv.bias"] = torch.cat([s[f"{a}i_proj.{n}_proj.bias"] for n in "qkv"]).view(-1, w.shape[1] // heads)
        o[b + "out"] = s[a + "o_proj.weight"].t().reshape(heads, -1, w.shape[1])
        o[b + "out_bias"] = s[a + "o_proj.bias"]
    return o


def build(fixed):
    torch.manual_seed(842)
    original = SpeechEncoder().eval()
    with torch.no_grad():
        for lyr in original.layers:
            lyr.self_attention.i_proj.v_proj.weight.mul_(3)
            lyr.self_attention.o_proj.weight.mul_(2)
    port = RefactoredEncoder(grouped=fixed).eval()
    port.load_state_dict(migrate(original.state_dict()))
    return original, port, (torch.randn(2, 22, 16), torch.tensor([22, 15]))
