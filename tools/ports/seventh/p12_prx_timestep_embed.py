"""After huggingface/diffusers#12791: the public pipeline of a text-to-image transformer and the
internal implementation do not agree in the timestep conditioning."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F


def timestep_embedding(t, dim, max_period=10000, time_factor=1000.0):
    t = time_factor * t
    half = dim // 2
    freqs = torch.exp(-math.log(max_period) * torch.arange(half, dtype=torch.float32) / half)
    args = t[:, None].float() * freqs[None]
    return torch.cat([torch.cos(args), torch.sin(args)], dim=-1)


class MLPEmbedder(nn.Module):
    def __init__(self, n_in, hidden):
        super().__init__()
        self.in_layer, self.silu, self.out_layer = nn.Linear(n_in, hidden), nn.SiLU(), nn.Linear(hidden, hidden)

    def forward(self, x):
        return self.out_layer(self.silu(self.in_layer(x)))


class Modulation(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.lin = nn.Linear(dim, 6 * dim)

    def forward(self, vec):
        return self.lin(F.silu(vec))[:, None, :].chunk(6, dim=-1)


class InternalBlock(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.modulation = Modulation(dim)
        self.img_qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.txt_kv = nn.Linear(dim, 2 * dim, bias=False)
        self.attn_out = nn.Linear(dim, dim, bias=False)
        self.gate_proj, self.up_proj, self.down_proj = nn.Linear(dim, 32), nn.Linear(dim, 32), nn.Linear(32, dim)

    def forward(self, img, txt, vec):
        s1, c1, g1, s2, c2, g2 = self.modulation(vec)
        y = (1 + c1) * F.layer_norm(img, img.shape[-1:], eps=1e-6) + s1
        q, k, v = self.img_qkv(y).chunk(3, -1)
        tk, tv = self.txt_kv(txt).chunk(2, -1)

        def sp(z):
            return z.unflatten(-1, (self.heads, -1)).transpose(1, 2)

        a = F.scaled_dot_product_attention(sp(q), sp(torch.cat([tk, k], 1)), sp(torch.cat([tv, v], 1)))
        img = img + g1 * self.attn_out(a.transpose(1, 2).flatten(2))
        y = (1 + c2) * F.layer_norm(img, img.shape[-1:], eps=1e-6) + s2
        return img + g2 * self.down_proj(F.gelu(self.gate_proj(y), approximate="tanh") * self.up_proj(y))


class InternalPRX(nn.Module):
    def __init__(self, ch=4, dim=24, heads=3, depth=2, txt_dim=10, t_dim=16):
        super().__init__()
        self.t_dim = t_dim
        self.img_in, self.txt_in = nn.Linear(ch, dim), nn.Linear(txt_dim, dim)
        self.time_in = MLPEmbedder(t_dim, dim)
        self.blocks = nn.ModuleList(InternalBlock(dim, heads) for _ in range(depth))
        self.final = nn.Linear(dim, ch)

    def forward(self, image, prompt, t):
        img, txt = self.img_in(image), self.txt_in(prompt)
        vec = self.time_in(timestep_embedding(t, self.t_dim))
        for b in self.blocks:
            img = b(img, txt, vec)
        return self.final(img)


def get_timestep_embedding(
    timesteps, embedding_dim, flip_sin_to_cos=False, downscale_freq_shift=1, scale=1, max_period=10000
):
    half_dim = embedding_dim // 2
    exponent = -math.log(max_period) * torch.arange(0, half_dim, dtype=torch.float32)
    exponent = exponent / (half_dim - downscale_freq_shift)
    emb = scale * timesteps[:, None].float() * torch.exp(exponent)[None, :]
    emb = torch.cat([torch.sin(emb), torch.cos(emb)], dim=-1)
    if flip_sin_to_cos:
        emb = torch.cat([emb[:, half_dim:], emb[:, :half_dim]], dim=-1)
    return emb


class Timesteps(nn.Module):
    def __init__(self, num_channels, **kw):
        super().__init__()
        self.num_channels, self.kw = num_channels, kw

    def forward(self, t):
        return get_timestep_embedding(t, self.num_channels, **self.kw)


class TimestepEmbedding(nn.Module):
    def __init__(self, c_in, dim):
        super().__init__()
        self.linear_1, self.linear_2 = nn.Linear(c_in, dim), nn.Linear(dim, dim)

    def forward(self, s):
        return self.linear_2(F.silu(self.linear_1(s)))


class PRXBlock(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(dim, elementwise_affine=False, eps=1e-6)
        self.adaln = nn.Linear(dim, 6 * dim)
        self.to_q, self.to_k, self.to_v, self.add_k, self.add_v, self.to_out = (
            nn.Linear(dim, dim, bias=False) for _ in range(6)
        )
        self.ff_in, self.ff_out = nn.Linear(dim, 64), nn.Linear(32, dim)

    def forward(self, x, ctx, temb):
        m = self.adaln(F.silu(temb)).view(temb.shape[0], 6, 1, -1).unbind(1)
        y = self.norm(x) * (1 + m[1]) + m[0]
        b, n, d = x.shape
        q = self.to_q(y).view(b, n, self.heads, -1)
        k = torch.cat([self.add_k(ctx), self.to_k(y)], 1).view(b, -1, self.heads, d // self.heads)
        v = torch.cat([self.add_v(ctx), self.to_v(y)], 1).view_as(k)
        w = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(d // self.heads)
        x = x + m[2] * self.to_out(torch.einsum("bhqk,bkhd->bqhd", w.softmax(-1), v).reshape(b, n, d))
        g, u = self.ff_in(self.norm(x) * (1 + m[4]) + m[3]).chunk(2, -1)
        return x + m[5] * self.ff_out(F.gelu(g, approximate="tanh") * u)


class PRXTransformer2DModel(nn.Module):
    def __init__(self, time_proj, ch=4, dim=24, heads=3, depth=2, txt_dim=10, t_dim=16):
        super().__init__()
        self.x_embedder, self.context_embedder = nn.Linear(ch, dim), nn.Linear(txt_dim, dim)
        self.time_proj = Timesteps(t_dim, **time_proj)
        self.time_embedder = TimestepEmbedding(t_dim, dim)
        self.transformer_blocks = nn.ModuleList(PRXBlock(dim, heads) for _ in range(depth))
        self.proj_out = nn.Linear(dim, ch)

    def forward(self, hidden_states, encoder_hidden_states, timestep):
        h, ctx = self.x_embedder(hidden_states), self.context_embedder(encoder_hidden_states)
        temb = self.time_embedder(self.time_proj(timestep))
        for b in self.transformer_blocks:
            h = b(h, ctx, temb)
        return self.proj_out(h)


def convert(s, depth=2):
    o = {}
    for p in ("weight", "bias"):
        for a, b in (
            ("img_in", "x_embedder"),
            ("txt_in", "context_embedder"),
            ("time_in.in_layer", "time_embedder.linear_1"),
            ("time_in.out_layer", "time_embedder.linear_2"),
            ("final", "proj_out"),
        ):
            o[f"{b}.{p}"] = s[f"{a}.{p}"]
        for i in range(depth):
            f, t = f"blocks.{i}.", f"transformer_blocks.{i}."
            o[f"{t}adaln.{p}"] = s[f"{f}modulation.lin.{p}"]
            o[f"{t}ff_in.{p}"] = torch.cat([s[f"{f}gate_proj.{p}"], s[f"{f}up_proj.{p}"]])
            o[f"{t}ff_out.{p}"] = s[f"{f}down_proj.{p}"]
    for i in range(depth):
        f, t = f"blocks.{i}.", f"transformer_blocks.{i}."
        for n, w in zip(("to_q", "to_k", "to_v"), s[f + "img_qkv.weight"].chunk(3)):
            o[f"{t}{n}.weight"] = w
        o[t + "add_k.weight"], o[t + "add_v.weight"] = s[f + "txt_kv.weight"].chunk(2)
        o[t + "to_out.weight"] = s[f + "attn_out.weight"]
    return o


def build(fixed):
    torch.manual_seed(127)
    original = InternalPRX().eval()
    with torch.no_grad():
        original.time_in.in_layer.weight.mul_(2.5)
        for b in original.blocks:
            b.modulation.lin.weight.mul_(2.5)
    cfg = {"flip_sin_to_cos": True, "scale": 1000.0}
    if fixed:
        cfg["downscale_freq_shift"] = 0
    port = PRXTransformer2DModel(cfg).eval()
    port.load_state_dict(convert(original.state_dict()))
    return original, port, (torch.randn(2, 8, 4), torch.randn(2, 5, 10), torch.tensor([0.93, 0.31]))
