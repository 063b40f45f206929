"""After hao-ai-lab/FastVideo#870: a LoRA applied by merging into the base weights acts with another
strength than the adapter in the training framework when rank and alpha differ."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class PeftLinear(nn.Module):
    def __init__(self, n_in, n_out, r, lora_alpha):
        super().__init__()
        self.base_layer = nn.Linear(n_in, n_out)
        self.lora_A = nn.Parameter(torch.randn(r, n_in) * 0.3)
        self.lora_B = nn.Parameter(torch.randn(n_out, r) * 0.3)
        self.register_buffer("alpha", torch.tensor(float(lora_alpha)))
        self.scaling = lora_alpha / r

    def forward(self, x):
        return self.base_layer(x) + self.scaling * F.linear(F.linear(x, self.lora_A), self.lora_B)


class WanCrossAttention(nn.Module):
    def __init__(self, dim, ctx_dim, heads, r, alpha):
        super().__init__()
        self.heads = heads
        self.to_q = PeftLinear(dim, dim, r, alpha)
        self.to_k = PeftLinear(ctx_dim, dim, r, alpha)
        self.to_v = PeftLinear(ctx_dim, dim, r, alpha)
        self.to_out = nn.Linear(dim, dim)
        self.norm_q = nn.RMSNorm(dim, eps=1e-6)

    def forward(self, x, ctx):
        q = self.norm_q(self.to_q(x))
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (q, self.to_k(ctx), self.to_v(ctx)))
        return self.to_out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class WanBlock(nn.Module):
    def __init__(self, dim=20, ctx_dim=14, heads=4, r=6, alpha=3):
        super().__init__()
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.attn2 = WanCrossAttention(dim, ctx_dim, heads, r, alpha)
        self.norm3 = nn.LayerNorm(dim, eps=1e-6)
        self.net0, self.net2 = nn.Linear(dim, 40), nn.Linear(40, dim)

    def forward(self, x, ctx):
        x = x + self.attn2(self.norm(x), ctx)
        return x + self.net2(F.gelu(self.net0(self.norm3(x)), approximate="tanh"))


class WanTransformer(nn.Module):
    def __init__(self, depth=2, dim=20):
        super().__init__()
        self.patch = nn.Linear(8, dim)
        self.blocks = nn.ModuleList(WanBlock(dim) for _ in range(depth))
        self.proj_out = nn.Linear(dim, 8)

    def forward(self, x, ctx):
        x = self.patch(x)
        for b in self.blocks:
            x = b(x, ctx)
        return self.proj_out(x)


class BaseLayerWithLoRA(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.base = nn.Linear(n_in, n_out)
        self.lora_A = self.lora_B = None
        self.lora_alpha = self.lora_rank = None

    def set_lora_weights(self, A, B, lora_alpha=None):
        self.lora_A, self.lora_B = A, B
        self.lora_alpha, self.lora_rank = lora_alpha, A.shape[0]
        self.merge_lora_weights()

    @torch.no_grad()
    def merge_lora_weights(self):
        alpha_scale = 1.0
        if self.lora_alpha is not None and self.lora_rank:
            alpha_scale = self.lora_alpha / self.lora_rank
        self.base.weight += alpha_scale * (self.lora_B @ self.lora_A)

    def forward(self, x):
        return self.base(x)


class FastBlock(nn.Module):
    def __init__(self, dim=20, ctx_dim=14, heads=4):
        super().__init__()
        self.heads, self.dim = heads, dim
        self.ln1, self.ln2 = nn.LayerNorm(dim, eps=1e-6), nn.LayerNorm(dim, eps=1e-6)
        self.q, self.k, self.v = (
            BaseLayerWithLoRA(dim, dim),
            BaseLayerWithLoRA(ctx_dim, dim),
            BaseLayerWithLoRA(ctx_dim, dim),
        )
        self.q_gain = nn.Parameter(torch.ones(dim))
        self.o = nn.Linear(dim, dim)
        self.fc_in, self.fc_out = nn.Linear(dim, 40), nn.Linear(40, dim)

    def forward(self, x, ctx):
        y = self.q(self.ln1(x))
        y = y * (y.pow(2).mean(-1, keepdim=True) + 1e-6).rsqrt() * self.q_gain
        q = y.unflatten(-1, (self.heads, -1))
        k, v = self.k(ctx).unflatten(-1, (self.heads, -1)), self.v(ctx).unflatten(-1, (self.heads, -1))
        p = torch.einsum("bthd,bshd->bhts", q, k).mul((self.dim // self.heads) ** -0.5).softmax(-1)
        x = x + self.o(torch.einsum("bhts,bshd->bthd", p, v).flatten(2))
        return x + self.fc_out(F.gelu(self.fc_in(self.ln2(x)), approximate="tanh"))


class FastVideoDiT(nn.Module):
    def __init__(self, depth=2, dim=20):
        super().__init__()
        self.x_in = nn.Linear(8, dim)
        self.layers = nn.ModuleList(FastBlock(dim) for _ in range(depth))
        self.x_out = nn.Linear(dim, 8)

    def forward(self, x, ctx):
        x = self.x_in(x)
        for lyr in self.layers:
            x = lyr(x, ctx)
        return self.x_out(x)


NAMES = {
    "norm": "ln1",
    "norm3": "ln2",
    "attn2.to_q.base_layer": "q.base",
    "attn2.to_k.base_layer": "k.base",
    "attn2.to_v.base_layer": "v.base",
    "attn2.to_out": "o",
    "net0": "fc_in",
    "net2": "fc_out",
}


def pipeline_from(src, depth=2):
    s, out = src.state_dict(), {}
    for p in ("weight", "bias"):
        out["x_in." + p], out["x_out." + p] = s["patch." + p], s["proj_out." + p]
        for i in range(depth):
            for a, b in NAMES.items():
                out[f"layers.{i}.{b}.{p}"] = s[f"blocks.{i}.{a}.{p}"]
    for i in range(depth):
        out[f"layers.{i}.q_gain"] = s[f"blocks.{i}.attn2.norm_q.weight"]
    dit = FastVideoDiT(depth)
    dit.load_state_dict({k: v.clone() for k, v in out.items()})
    return dit


def set_lora_adapter(dit, lora_sd, with_alpha):
    for i, lyr in enumerate(dit.layers):
        for n in "qkv":
            p = f"blocks.{i}.attn2.to_{n}."
            alpha = lora_sd[p + "alpha"].item() if with_alpha else None
            getattr(lyr, n).set_lora_weights(lora_sd[p + "lora_A"], lora_sd[p + "lora_B"], alpha)


def build(fixed):
    torch.manual_seed(87)
    original = WanTransformer().eval()
    port = pipeline_from(original).eval()
    set_lora_adapter(
        port, {k: v.detach() for k, v in original.state_dict().items() if "lora_" in k or "alpha" in k}, fixed
    )
    return original, port, (torch.randn(2, 9, 8), torch.randn(2, 5, 14))
