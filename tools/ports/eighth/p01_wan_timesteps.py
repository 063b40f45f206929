"""After flashinfer-ai/flashinfer#3819.

A stand-alone Wan example was written without diffusers.  With identical weights and inputs
its transformer diverged from the diffusers original by more than a third, and the videos kept
local sharpness but lost the composition asked for in the prompt.
"""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F


def get_timestep_embedding(timesteps, dim, flip_sin_to_cos=False, downscale_freq_shift=1.0, max_period=10000):
    half = dim // 2
    exponent = -math.log(max_period) * torch.arange(half, dtype=torch.float32, device=timesteps.device)
    exponent = exponent / (half - downscale_freq_shift)
    emb = timesteps[:, None].float() * torch.exp(exponent)[None, :]
    emb = torch.cat([torch.sin(emb), torch.cos(emb)], dim=-1)
    if flip_sin_to_cos:
        emb = torch.cat([emb[:, half:], emb[:, :half]], dim=-1)
    return emb


class TimestepEmbedding(nn.Module):
    def __init__(self, in_channels, time_embed_dim):
        super().__init__()
        self.linear_1 = nn.Linear(in_channels, time_embed_dim)
        self.act = nn.SiLU()
        self.linear_2 = nn.Linear(time_embed_dim, time_embed_dim)

    def forward(self, sample):
        return self.linear_2(self.act(self.linear_1(sample)))


class WanTransformerBlock(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(dim, eps=1e-6, elementwise_affine=False)
        self.to_q, self.to_k, self.to_v = nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.to_out = nn.Linear(dim, dim)
        self.norm3 = nn.LayerNorm(dim, eps=1e-6, elementwise_affine=False)
        self.ffn = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(approximate="tanh"), nn.Linear(4 * dim, dim))
        self.scale_shift_table = nn.Parameter(torch.randn(1, 6, dim) / dim**0.5)

    def forward(self, x, temb):
        sh, sc, g, csh, csc, cg = (self.scale_shift_table + temb).chunk(6, dim=1)
        h = self.norm1(x) * (1 + sc) + sh
        b, n, d = h.shape
        q, k, v = (f(h).view(b, n, self.heads, -1).transpose(1, 2) for f in (self.to_q, self.to_k, self.to_v))
        o = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, d)
        x = x + g * self.to_out(o)
        h = self.norm3(x) * (1 + csc) + csh
        return x + cg * self.ffn(h)


class WanTransformer3DModel(nn.Module):
    def __init__(self, in_dim=8, dim=32, freq_dim=32, heads=4, layers=3):
        super().__init__()
        self.freq_dim = freq_dim
        self.patch_embedding = nn.Linear(in_dim, dim)
        self.time_embedder = TimestepEmbedding(freq_dim, dim)
        self.time_proj = nn.Linear(dim, 6 * dim)
        self.blocks = nn.ModuleList([WanTransformerBlock(dim, heads) for _ in range(layers)])
        self.proj_out = nn.Linear(dim, in_dim)

    def forward(self, hidden_states, timestep):
        t = get_timestep_embedding(timestep, self.freq_dim, flip_sin_to_cos=True, downscale_freq_shift=0)
        temb = self.time_proj(F.silu(self.time_embedder(t))).unflatten(1, (6, -1))
        x = self.patch_embedding(hidden_states)
        for blk in self.blocks:
            x = blk(x, temb)
        return self.proj_out(x)


class Timesteps(nn.Module):
    def __init__(self, num_channels, flip_sin_to_cos=True, freq_shift=0.0):
        super().__init__()
        self.num_channels, self.flip_sin_to_cos, self.freq_shift = num_channels, flip_sin_to_cos, freq_shift

    def angles(self, timesteps):
        half = self.num_channels // 2
        freqs = torch.exp(-math.log(10000.0) * torch.arange(half, dtype=torch.float32) / (half - self.freq_shift))
        return timesteps.float()[:, None] * freqs[None]

    def forward(self, timesteps):
        a = self.angles(timesteps)
        emb = torch.cat([a.cos(), a.sin()], dim=-1)
        if self.flip_sin_to_cos:
            half = self.num_channels // 2
            emb = torch.cat([emb[:, half:], emb[:, :half]], dim=-1)
        return emb


class TimestepsMended(Timesteps):
    def forward(self, timesteps):
        a = self.angles(timesteps)
        emb = torch.cat([a.sin(), a.cos()], dim=-1)
        if self.flip_sin_to_cos:
            emb = emb.roll(self.num_channels // 2, dims=-1)
        return emb


class DiTBlock(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.h = heads
        self.ln_attn = nn.LayerNorm(dim, eps=1e-6, elementwise_affine=False)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.o = nn.Linear(dim, dim)
        self.ln_mlp = nn.LayerNorm(dim, eps=1e-6, elementwise_affine=False)
        self.fc1, self.fc2 = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
        self.modulation = nn.Parameter(torch.zeros(1, 6, dim))

    def forward(self, x, e):
        m = (self.modulation + e).unbind(1)
        y = torch.addcmul(m[0][:, None], self.ln_attn(x), 1 + m[1][:, None])
        B, N, C = y.shape
        q, k, v = self.qkv(y).view(B, N, 3, self.h, C // self.h).permute(2, 0, 3, 1, 4)
        att = torch.softmax(q @ k.transpose(-1, -2) * (C // self.h) ** -0.5, -1)
        x = x + self.o((att @ v).transpose(1, 2).reshape(B, N, C)) * m[2][:, None]
        y = torch.addcmul(m[3][:, None], self.ln_mlp(x), 1 + m[4][:, None])
        return x + self.fc2(F.gelu(self.fc1(y), approximate="tanh")) * m[5][:, None]


class WanDiT(nn.Module):
    def __init__(self, timesteps, in_dim=8, dim=32, freq_dim=32, heads=4, layers=3):
        super().__init__()
        self.patch_embed = nn.Linear(in_dim, dim)
        self.time_steps = timesteps(freq_dim)
        self.time_mlp = nn.Sequential(nn.Linear(freq_dim, dim), nn.SiLU(), nn.Linear(dim, dim))
        self.time_projection = nn.Sequential(nn.SiLU(), nn.Linear(dim, 6 * dim))
        self.layers = nn.ModuleList([DiTBlock(dim, heads) for _ in range(layers)])
        self.head = nn.Linear(dim, in_dim)

    def forward(self, latents, t):
        e = self.time_projection(self.time_mlp(self.time_steps(t))).unflatten(-1, (6, -1))
        x = self.patch_embed(latents)
        for layer in self.layers:
            x = layer(x, e)
        return self.head(x)


def convert(sd):
    out = {}
    for k, v in sd.items():
        if k.startswith("blocks."):
            continue
        k = k.replace("patch_embedding", "patch_embed").replace("time_embedder.linear_1", "time_mlp.0")
        k = k.replace("time_embedder.linear_2", "time_mlp.2").replace("time_proj.", "time_projection.1.")
        out[k.replace("proj_out", "head")] = v
    n = 1 + max(int(k.split(".")[1]) for k in sd if k.startswith("blocks."))
    for i in range(n):
        s, d = f"blocks.{i}.", f"layers.{i}."
        out[d + "modulation"] = sd[s + "scale_shift_table"]
        for p in ("weight", "bias"):
            out[d + "qkv." + p] = torch.cat([sd[s + f"to_{c}.{p}"] for c in "qkv"])
            out[d + "o." + p] = sd[s + "to_out." + p]
            out[d + "fc1." + p], out[d + "fc2." + p] = sd[s + "ffn.0." + p], sd[s + "ffn.2." + p]
    return out


def build(fixed):
    torch.manual_seed(11)
    original = WanTransformer3DModel().eval()
    port = WanDiT(TimestepsMended if fixed else Timesteps).eval()
    port.load_state_dict(convert(original.state_dict()))
    return original, port, (torch.randn(2, 24, 8), torch.tensor([37, 812]))
