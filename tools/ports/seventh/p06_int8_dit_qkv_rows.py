"""After sgl-project/sglang#40127: a rotated-int8 checkpoint of a video model gives silently corrupted
frames in the server while the bf16 checkpoint of the same model is fine."""

import torch
import torch.nn as nn
import torch.nn.functional as F


def quantize_rows(w):
    scale = w.abs().amax(dim=1, keepdim=True) / 127.0
    return torch.round(w / scale).to(torch.int8), scale


class Int8Linear(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        q, s = quantize_rows(torch.randn(n_out, n_in) * n_in**-0.5)
        self.register_buffer("weight", q)
        self.register_buffer("weight_scale", s)
        self.bias = nn.Parameter(torch.randn(n_out) * 0.1)

    def forward(self, x):
        return F.linear(x, self.weight.float() * self.weight_scale, self.bias)


class OfficialAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.hd = heads, dim // heads
        self.qkv_proj = Int8Linear(dim, 3 * dim)
        self.q_norm = nn.RMSNorm(self.hd, eps=1e-6)
        self.k_norm = nn.RMSNorm(self.hd, eps=1e-6)
        self.out_proj = Int8Linear(dim, dim)

    def forward(self, x):
        b, t, _ = x.shape
        mixed = self.qkv_proj(x).view(b, t, self.heads, 3 * self.hd)
        q, k, v = mixed.split(self.hd, dim=-1)
        q, k = self.q_norm(q), self.k_norm(k)
        a = torch.einsum("bqhd,bkhd->bhqk", q, k) * self.hd**-0.5
        return self.out_proj(torch.einsum("bhqk,bkhd->bqhd", a.softmax(-1), v).reshape(b, t, -1))


class OfficialBlock(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(dim, eps=1e-6), nn.RMSNorm(dim, eps=1e-6)
        self.attn = OfficialAttention(dim, heads)
        self.fc1, self.fc2 = Int8Linear(dim, 2 * dim), Int8Linear(2 * dim, dim)

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x)), approximate="tanh"))


class OfficialDiT(nn.Module):
    def __init__(self, dim=24, heads=4, depth=2, ch=4):
        super().__init__()
        self.embed = nn.Conv3d(ch, dim, (1, 2, 2), stride=(1, 2, 2))
        self.blocks = nn.ModuleList(OfficialBlock(dim, heads) for _ in range(depth))
        self.head = nn.Linear(dim, ch * 4)

    def forward(self, latents):
        x = self.embed(latents).flatten(2).transpose(1, 2)
        for b in self.blocks:
            x = b(x)
        return self.head(x)


class QuantLinear(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.register_buffer("qweight", torch.zeros(n_out, n_in, dtype=torch.int8))
        self.register_buffer("scales", torch.ones(n_out))
        self.register_buffer("bias", torch.zeros(n_out))

    def forward(self, x):
        return (x @ self.qweight.to(x.dtype).t()) * self.scales + self.bias


def rms(x, w, eps=1e-6):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * w


class ServeBlock(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = QuantLinear(dim, 3 * dim)
        self.o = QuantLinear(dim, dim)
        self.fc1, self.fc2 = QuantLinear(dim, 2 * dim), QuantLinear(2 * dim, dim)
        for n, d in (("ln1", dim), ("ln2", dim), ("qn", dim // heads), ("kn", dim // heads)):
            self.register_parameter(n, nn.Parameter(torch.ones(d)))

    def forward(self, x):
        q_all, k_all, v_all = self.qkv(rms(x, self.ln1)).chunk(3, dim=-1)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (q_all, k_all, v_all))
        y = F.scaled_dot_product_attention(rms(q, self.qn), rms(k, self.kn), v)
        x = x + self.o(y.transpose(1, 2).flatten(2))
        return x + self.fc2(F.gelu(self.fc1(rms(x, self.ln2)), approximate="tanh"))


class ServeDiT(nn.Module):
    def __init__(self, dim=24, heads=4, depth=2, ch=4):
        super().__init__()
        self.patchify = nn.Linear(ch * 4, dim)
        self.layers = nn.ModuleList(ServeBlock(dim, heads) for _ in range(depth))
        self.out = nn.Linear(dim, ch * 4)

    def forward(self, z):
        b, c, t, h, w = z.shape
        z = z.reshape(b, c, t, h // 2, 2, w // 2, 2).permute(0, 2, 3, 5, 1, 4, 6).reshape(b, -1, c * 4)
        x = self.patchify(z)
        for lyr in self.layers:
            x = lyr(x)
        return self.out(x)


class KitchenInt8Config:
    def __init__(self, serialized, fixed):
        self.is_checkpoint_int8_serialized = serialized
        self.checkpoint_uses_native_qkv_layout = serialized and not fixed


def degroup(t, heads):
    return t.unflatten(0, (heads, 3, -1)).transpose(0, 1).flatten(0, 2)


def load(ckpt, cfg, heads=4, depth=2):
    s, out = ckpt, {}
    reorder = (lambda t: t) if cfg.checkpoint_uses_native_qkv_layout else (lambda t: degroup(t, heads))
    out["patchify.weight"], out["patchify.bias"] = s["embed.weight"].flatten(1), s["embed.bias"]
    out["out.weight"], out["out.bias"] = s["head.weight"], s["head.bias"]
    for i in range(depth):
        for a, b, fn in (
            ("attn.qkv_proj", "qkv", reorder),
            ("attn.out_proj", "o", None),
            ("fc1", "fc1", None),
            ("fc2", "fc2", None),
        ):
            fn = fn or (lambda t: t)
            p, o = f"blocks.{i}.{a}.", f"layers.{i}.{b}."
            out[o + "qweight"] = fn(s[p + "weight"])
            out[o + "scales"] = fn(s[p + "weight_scale"].squeeze(1))
            out[o + "bias"] = fn(s[p + "bias"])
        for a, b in (("norm1", "ln1"), ("norm2", "ln2"), ("attn.q_norm", "qn"), ("attn.k_norm", "kn")):
            out[f"layers.{i}.{b}"] = s[f"blocks.{i}.{a}.weight"]
    return out


def build(fixed):
    torch.manual_seed(66)
    original = OfficialDiT().eval()
    port = ServeDiT().eval()
    port.load_state_dict(load(original.state_dict(), KitchenInt8Config(True, fixed)))
    return original, port, (torch.randn(1, 4, 2, 6, 8),)
