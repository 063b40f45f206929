"""After huggingface/diffusers#14001: a DiT-like image model with low-rank adapters on its layers,
the final modulation among them, converted from the trainers' layout (shift, scale) to that of the
library (scale, shift). Without adapters the converted model agrees with the original."""

import math
import torch
import torch.nn as nn
import torch.nn.functional as F

DIM, RANK, PATCH, SIZE, HEADS = 24, 24, 2, 8, 3
TOK = (SIZE // PATCH) ** 2


class LoraLinear(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.base = nn.Linear(cin, cout)
        self.lora_down = nn.Parameter(torch.randn(RANK, cin) * 0.15)
        self.lora_up = nn.Parameter(torch.randn(cout, RANK) * 0.15)

    def forward(self, x):
        return self.base(x) + x @ self.lora_down.t() @ self.lora_up.t()


def time_features(t):
    freqs = torch.exp(-math.log(10000) * torch.arange(DIM // 2) / (DIM // 2))
    a = t[:, None] * freqs
    return torch.cat([a.cos(), a.sin()], -1)


class SingleBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.mod = nn.Linear(DIM, 3 * DIM)
        self.qkv, self.proj = LoraLinear(DIM, 3 * DIM), LoraLinear(DIM, DIM)

    def forward(self, x, vec):
        shift, scale, gate = self.mod(F.silu(vec))[:, None].chunk(3, -1)
        h = F.layer_norm(x, (DIM,)) * (1 + scale) + shift
        q, k, v = self.qkv(h).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return x + gate * self.proj(y)


class FinalLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(DIM, 3 * PATCH * PATCH)
        self.adaLN_modulation_1 = LoraLinear(DIM, 2 * DIM)

    def forward(self, x, vec):
        shift, scale = self.adaLN_modulation_1(F.silu(vec)).chunk(2, -1)
        return self.linear((1 + scale[:, None]) * F.layer_norm(x, (DIM,)) + shift[:, None])


class BflTransformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.img_in = nn.Linear(3 * PATCH * PATCH, DIM)
        self.time_in = nn.Linear(DIM, DIM)
        self.pos = nn.Parameter(torch.randn(TOK, DIM) * 0.2)
        self.blocks = nn.ModuleList(SingleBlock() for _ in range(2))
        self.final_layer = FinalLayer()

    def forward(self, img, t):
        x = F.unfold(img, PATCH, stride=PATCH).transpose(1, 2)
        x, vec = self.img_in(x) + self.pos, self.time_in(time_features(t))
        for b in self.blocks:
            x = b(x, vec)
        return F.fold(self.final_layer(x, vec).transpose(1, 2), SIZE, PATCH, stride=PATCH)


class PeftLinear(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.empty(cout, cin)), nn.Parameter(torch.empty(cout))
        self.lora_A, self.lora_B = nn.Linear(cin, RANK, bias=False), nn.Linear(RANK, cout, bias=False)

    def forward(self, x):
        return F.linear(x, self.weight, self.bias) + self.lora_B(self.lora_A(x))


class AdaLayerNormContinuous(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = PeftLinear(DIM, 2 * DIM)
        self.norm = nn.LayerNorm(DIM, elementwise_affine=False)

    def forward(self, x, cond):
        scale, shift = self.linear(F.silu(cond)).unsqueeze(1).chunk(2, -1)
        return self.norm(x) * (1 + scale) + shift


class TransformerBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm_linear = nn.Linear(DIM, 3 * DIM)
        self.norm = nn.LayerNorm(DIM, elementwise_affine=False)
        self.to_qkv, self.to_out = PeftLinear(DIM, 3 * DIM), PeftLinear(DIM, DIM)

    def forward(self, hidden, temb):
        shift, scale, gate = self.norm_linear(F.silu(temb)).unsqueeze(1).chunk(3, -1)
        q, k, v = (
            u.view(*u.shape[:2], HEADS, -1) for u in self.to_qkv(self.norm(hidden) * (1 + scale) + shift).chunk(3, -1)
        )
        w = torch.einsum("bihd,bjhd->bhij", q, k).div((DIM // HEADS) ** 0.5).softmax(-1)
        return hidden + gate * self.to_out(torch.einsum("bhij,bjhd->bihd", w, v).flatten(2))


class DiffusersTransformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.x_embedder = nn.Conv2d(3, DIM, PATCH, PATCH)
        self.pos_embed = nn.Parameter(torch.empty(1, TOK, DIM))
        self.time_text_embed = nn.Linear(DIM, DIM)
        self.transformer_blocks = nn.ModuleList(TransformerBlock() for _ in range(2))
        self.norm_out = AdaLayerNormContinuous()
        self.proj_out = nn.Linear(DIM, 3 * PATCH * PATCH)

    def forward(self, sample, timestep):
        h = self.x_embedder(sample).flatten(2).mT + self.pos_embed
        temb = self.time_text_embed(time_features(timestep))
        for block in self.transformer_blocks:
            h = block(h, temb)
        h = self.proj_out(self.norm_out(h, temb))
        return F.pixel_shuffle(h.mT.unflatten(-1, (SIZE // PATCH, -1)), PATCH)


def swap_scale_shift(w):
    shift, scale = w.chunk(2, dim=0)
    return torch.cat([scale, shift], dim=0)


def convert(sd, fixed=False):
    out = {
        "x_embedder.weight": sd["img_in.weight"].view(DIM, 3, PATCH, PATCH),
        "x_embedder.bias": sd["img_in.bias"],
        "pos_embed": sd["pos"][None],
    }

    def assign(source, target, transform=None):
        t = transform or (lambda w: w)
        for p in ("weight", "bias"):
            out[f"{target}.{p}"] = t(sd[f"{source}.base.{p}"])
        for theirs, ours in (("lora_down", "lora_A"), ("lora_up", "lora_B")):
            w = sd[f"{source}.{theirs}"]
            if transform is not None and (ours == "lora_B" or not fixed):
                w = transform(w)
            out[f"{target}.{ours}.weight"] = w

    for p in ("weight", "bias"):
        out[f"time_text_embed.{p}"], out[f"proj_out.{p}"] = sd[f"time_in.{p}"], sd[f"final_layer.linear.{p}"]
        for i in range(2):
            out[f"transformer_blocks.{i}.norm_linear.{p}"] = sd[f"blocks.{i}.mod.{p}"]
    for i in range(2):
        assign(f"blocks.{i}.qkv", f"transformer_blocks.{i}.to_qkv")
        assign(f"blocks.{i}.proj", f"transformer_blocks.{i}.to_out")
    assign("final_layer.adaLN_modulation_1", "norm_out.linear", swap_scale_shift)
    return out


def build(fixed):
    torch.manual_seed(14001)
    original = BflTransformer().eval()
    port = DiffusersTransformer().eval()
    port.load_state_dict(convert(original.state_dict(), fixed))
    return original, port, (torch.randn(2, 3, SIZE, SIZE), torch.tensor([3.0, 40.0]))
