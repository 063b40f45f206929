"""After sgl-project/sglang#34940: a community LoRA for a video DiT, trained on the diffusers layout,
loads into the native server without a message; the pictures are off, attention adapters are fine."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class LoraLinear(nn.Module):
    def __init__(self, n_in, n_out, rank=4):
        super().__init__()
        self.base_layer = nn.Linear(n_in, n_out)
        self.lora_A = nn.Linear(n_in, rank, bias=False)
        self.lora_B = nn.Linear(rank, n_out, bias=False)

    def forward(self, x):
        return self.base_layer(x) + self.lora_B(self.lora_A(x))


class SwiGLU(nn.Module):
    def __init__(self, dim, inner):
        super().__init__()
        self.proj = LoraLinear(dim, inner * 2)

    def forward(self, hidden_states):
        hidden_states, gate = self.proj(hidden_states).chunk(2, dim=-1)
        return hidden_states * F.silu(gate)


class DiffusersBlock(nn.Module):
    def __init__(self, dim=16, inner=24, heads=2):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(dim, elementwise_affine=False)
        self.to_q, self.to_k, self.to_v = (LoraLinear(dim, dim) for _ in range(3))
        self.to_out = nn.Linear(dim, dim)
        self.norm2 = nn.LayerNorm(dim, elementwise_affine=False)
        self.scale_shift_table = nn.Parameter(torch.randn(6, dim) * 0.3)
        self.ff = nn.Sequential(SwiGLU(dim, inner), nn.Linear(inner, dim))

    def forward(self, x, temb):
        s1, c1, g1, s2, c2, g2 = (self.scale_shift_table[None] + temb[:, None]).unsqueeze(2).unbind(1)
        y = self.norm1(x) * (1 + c1) + s1
        q, k, v = (f(y).unflatten(-1, (self.heads, -1)).transpose(1, 2) for f in (self.to_q, self.to_k, self.to_v))
        x = x + g1 * self.to_out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + g2 * self.ff(self.norm2(x) * (1 + c2) + s2)


class DiffusersDiT(nn.Module):
    def __init__(self, depth=2, dim=16):
        super().__init__()
        self.patch_embed = nn.Linear(6, dim)
        self.blocks = nn.ModuleList(DiffusersBlock(dim) for _ in range(depth))
        self.proj_out = nn.Linear(dim, 6)

    def forward(self, latents, temb):
        h = self.patch_embed(latents)
        for b in self.blocks:
            h = b(h, temb)
        return self.proj_out(h)


class LinearWithLoRA(nn.Module):
    def __init__(self, n_in, n_out, rank):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(n_out, n_in))
        self.bias = nn.Parameter(torch.zeros(n_out))
        self.A = nn.Parameter(torch.zeros(rank, n_in))
        self.B = nn.Parameter(torch.zeros(n_out, rank))

    def forward(self, x):
        return F.linear(x, self.weight, self.bias) + (x @ self.A.t()) @ self.B.t()


class NativeMLP(nn.Module):
    def __init__(self, dim, inner, rank=4):
        super().__init__()
        self.fc1 = LinearWithLoRA(dim, 2 * inner, rank)
        self.fc2 = nn.Linear(inner, dim)

    def forward(self, x):
        gate, up = self.fc1(x).chunk(2, dim=-1)
        return self.fc2(F.silu(gate) * up)


class NativeBlock(nn.Module):
    def __init__(self, dim=16, inner=24, heads=2):
        super().__init__()
        self.dim, self.heads = dim, heads
        self.qkv_proj = LinearWithLoRA(dim, 3 * dim, 12)
        self.o_proj = nn.Linear(dim, dim)
        self.mlp = NativeMLP(dim, inner)
        self.modulation = nn.Parameter(torch.zeros(6, dim))

    def forward(self, x, temb):
        m = (self.modulation + temb.unsqueeze(1)).unsqueeze(2)
        y = torch.addcmul(m[:, 0], F.layer_norm(x, (self.dim,)), 1 + m[:, 1])
        b, t, _ = x.shape
        q, k, v = self.qkv_proj(y).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        w = (q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5).softmax(-1)
        x = x + m[:, 2] * self.o_proj((w @ v).transpose(1, 2).reshape(b, t, -1))
        y = torch.addcmul(m[:, 3], F.layer_norm(x, (self.dim,)), 1 + m[:, 4])
        return x + m[:, 5] * self.mlp(y)


class NativeDiT(nn.Module):
    def __init__(self, depth=2, dim=16):
        super().__init__()
        self.x_embedder = nn.Linear(6, dim)
        self.layers = nn.ModuleList(NativeBlock(dim) for _ in range(depth))
        self.final = nn.Linear(dim, 6)

    def forward(self, latents, temb):
        h = self.x_embedder(latents)
        for lyr in self.layers:
            h = lyr(h, temb)
        return self.final(h)


def swap_halves(t):
    a, b = t.chunk(2, dim=0)
    return torch.cat([b, a], dim=0)


def load_native(src, fixed):
    s, out = src.state_dict(), {}
    for p in ("weight", "bias"):
        out["x_embedder." + p], out["final." + p] = s["patch_embed." + p], s["proj_out." + p]
    for i in range(len(src.blocks)):
        a, o = f"blocks.{i}.", f"layers.{i}."
        out[o + "modulation"] = s[a + "scale_shift_table"]
        qkv = [a + n for n in ("to_q", "to_k", "to_v")]
        for p in ("weight", "bias"):
            out[o + "qkv_proj." + p] = torch.cat([s[f"{n}.base_layer.{p}"] for n in qkv])
            out[o + "o_proj." + p] = s[f"{a}to_out.{p}"]
            out[o + "mlp.fc1." + p] = swap_halves(s[f"{a}ff.0.proj.base_layer.{p}"])
            out[o + "mlp.fc2." + p] = s[f"{a}ff.1.{p}"]
        out[o + "qkv_proj.A"] = torch.cat([s[n + ".lora_A.weight"] for n in qkv])
        out[o + "qkv_proj.B"] = torch.block_diag(*[s[n + ".lora_B.weight"] for n in qkv])
        out[o + "mlp.fc1.A"] = s[a + "ff.0.proj.lora_A.weight"]
        lora_b = s[a + "ff.0.proj.lora_B.weight"]
        out[o + "mlp.fc1.B"] = swap_halves(lora_b) if fixed else lora_b
    return out


def build(fixed):
    torch.manual_seed(21)
    original = DiffusersDiT().eval()
    with torch.no_grad():
        for n, p in original.named_parameters():
            if "lora_" in n:
                p.mul_(1.6)
    port = NativeDiT().eval()
    port.load_state_dict(load_native(original, fixed))
    return original, port, (torch.randn(2, 10, 6), torch.randn(2, 16) * 0.5)
