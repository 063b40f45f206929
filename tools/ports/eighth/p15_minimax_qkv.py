"""After sgl-project/sglang#40127.

A serving engine loads an int8 version of a video diffusion transformer.  With the official
full-precision files the picture is right; with the int8 files, dequantised from the same
weights, the result is corrupted without any error.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class H3Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.hd = heads, dim // heads
        self.qkv_proj, self.out_proj = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.q_norm, self.k_norm = nn.RMSNorm(self.hd, eps=1e-6), nn.RMSNorm(self.hd, eps=1e-6)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv_proj(x).view(b, n, self.heads, 3, self.hd).permute(3, 0, 2, 1, 4)
        o = F.scaled_dot_product_attention(self.q_norm(q), self.k_norm(k), v)
        return self.out_proj(o.transpose(1, 2).reshape(b, n, d))


class H3Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm1, self.norm2 = (nn.LayerNorm(dim, eps=1e-6, elementwise_affine=False) for _ in range(2))
        self.attn = H3Attention(dim, heads)
        self.fc1, self.fc2 = nn.Linear(dim, 4 * dim, bias=False), nn.Linear(2 * dim, dim, bias=False)
        self.adaln = nn.Linear(dim, 6 * dim)

    def forward(self, x, c):
        s1, g1, a1, s2, g2, a2 = self.adaln(F.silu(c))[:, None].chunk(6, -1)
        x = x + a1 * self.attn(self.norm1(x) * (1 + g1) + s1)
        gate, up = self.fc1(self.norm2(x) * (1 + g2) + s2).chunk(2, -1)
        return x + a2 * self.fc2(F.silu(gate) * up)


class MiniMaxH3(nn.Module):
    def __init__(self, latent=8, dim=48, heads=6, depth=3):
        super().__init__()
        self.x_embedder, self.t_embedder = (
            nn.Linear(latent, dim),
            nn.Sequential(nn.Linear(1, dim), nn.SiLU(), nn.Linear(dim, dim)),
        )
        self.blocks = nn.ModuleList([H3Block(dim, heads) for _ in range(depth)])
        self.final_layer = nn.Linear(dim, latent)

    def forward(self, latents, t):
        x, c = self.x_embedder(latents), self.t_embedder(t[:, None])
        for blk in self.blocks:
            x = blk(x, c)
        return self.final_layer(x)


class Int8Linear(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.register_buffer("weight", torch.zeros(out_features, in_features, dtype=torch.int8))
        self.register_buffer("weight_scale", torch.ones(out_features, 1))

    def forward(self, x):
        return F.linear(x, self.weight.to(x.dtype)) * self.weight_scale[:, 0]


class SelfAttention(nn.Module):
    def __init__(self, dim, num_heads):
        super().__init__()
        self.num_heads, self.head_dim = num_heads, dim // num_heads
        self.to_qkv, self.to_out = Int8Linear(dim, 3 * dim), Int8Linear(dim, dim)
        self.norm_q, self.norm_k = nn.RMSNorm(self.head_dim, eps=1e-6), nn.RMSNorm(self.head_dim, eps=1e-6)

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (self.num_heads, self.head_dim)) for t in self.to_qkv(x).chunk(3, dim=-1))
        q, k = self.norm_q(q), self.norm_k(k)
        w = (torch.einsum("bqhd,bkhd->bhqk", q, k) * self.head_dim**-0.5).softmax(-1)
        return self.to_out(torch.einsum("bhqk,bkhd->bqhd", w, v).flatten(2))


class GatedMLP(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.gate_up, self.down = Int8Linear(dim, 4 * dim), Int8Linear(2 * dim, dim)

    def forward(self, x):
        g, u = self.gate_up(x).tensor_split(2, dim=-1)
        return self.down(g * g.sigmoid() * u)


class TransformerBlock(nn.Module):
    def __init__(self, dim, num_heads):
        super().__init__()
        self.attn1, self.ff, self.modulation = SelfAttention(dim, num_heads), GatedMLP(dim), nn.Linear(dim, 6 * dim)

    def forward(self, x, temb):
        shift, scale, gate, c_shift, c_scale, c_gate = (
            self.modulation(temb).unsqueeze(1).unflatten(-1, (6, -1)).unbind(-2)
        )
        x = torch.addcmul(x, gate, self.attn1(F.layer_norm(x, x.shape[-1:], eps=1e-6) * (1 + scale) + shift))
        return torch.addcmul(x, c_gate, self.ff(F.layer_norm(x, x.shape[-1:], eps=1e-6) * (1 + c_scale) + c_shift))


class H3Transformer(nn.Module):
    def __init__(self, latent=8, dim=48, heads=6, depth=3):
        super().__init__()
        self.patch_in, self.time_in, self.time_out = nn.Linear(latent, dim), nn.Linear(1, dim), nn.Linear(dim, dim)
        self.transformer_blocks = nn.ModuleList([TransformerBlock(dim, heads) for _ in range(depth)])
        self.proj_out = nn.Linear(dim, latent)

    def forward(self, hidden_states, timestep):
        temb = F.silu(self.time_out(F.silu(self.time_in(timestep.unsqueeze(-1)))))
        h = self.patch_in(hidden_states)
        for block in self.transformer_blocks:
            h = block(h, temb)
        return self.proj_out(h)


def quantize_int8(w):
    scale = w.abs().amax(1, keepdim=True) / 127
    return torch.round(w / scale).to(torch.int8), scale


class KitchenInt8Config:
    is_checkpoint_int8_serialized = True

    def __init__(self, num_heads):
        self.num_heads = num_heads
        self.checkpoint_uses_native_qkv_layout = self.is_checkpoint_int8_serialized


class KitchenInt8ConfigMended(KitchenInt8Config):
    def __init__(self, num_heads):
        super().__init__(num_heads)
        self.checkpoint_uses_native_qkv_layout = False


NAMES = [
    ("x_embedder", "patch_in"),
    ("t_embedder.0", "time_in"),
    ("t_embedder.2", "time_out"),
    ("blocks", "transformer_blocks"),
    ("final_layer", "proj_out"),
    ("attn.qkv_proj", "attn1.to_qkv"),
    ("attn.out_proj", "attn1.to_out"),
    ("attn.q_norm", "attn1.norm_q"),
    ("attn.k_norm", "attn1.norm_k"),
    ("fc1", "ff.gate_up"),
    ("fc2", "ff.down"),
    ("adaln", "modulation"),
]


def load_weights(checkpoint, config):
    out = {}
    for k, v in checkpoint.items():
        for a, b in NAMES:
            k = k.replace(a, b)
        if "to_qkv" in k and not config.checkpoint_uses_native_qkv_layout:
            v = v.view(config.num_heads, 3, -1, v.shape[1]).transpose(0, 1).reshape(v.shape)
        out[k] = v
    return out


def build(fixed):
    torch.manual_seed(44)
    original = MiniMaxH3().eval()
    checkpoint = {}
    for k, v in original.state_dict().items():
        if any(n in k for n in ("qkv_proj", "out_proj", "fc1", "fc2")):
            q, scale = quantize_int8(v)
            v.copy_(q.float() * scale)
            checkpoint[k], checkpoint[k + "_scale"] = q, scale
        else:
            checkpoint[k] = v
    port = H3Transformer().eval()
    port.load_state_dict(load_weights(checkpoint, (KitchenInt8ConfigMended if fixed else KitchenInt8Config)(6)))
    return original, port, (torch.randn(2, 20, 8), torch.tensor([0.3, 0.9]))
