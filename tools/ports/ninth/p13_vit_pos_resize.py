"""huggingface/pytorch-image-models#750

A ViT trained at a small resolution and run at a larger one (its position grid is
resized on the fly) was exported to a fixed-size model that stores the resized table.
At the training size both agree; at the larger size the exported features are off.
"""

import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.qkv, self.proj, self.heads = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim), heads

    def forward(self, x):
        B, N, C = x.shape
        q, k, v = self.qkv(x).reshape(B, N, 3, self.heads, C // self.heads).permute(2, 0, 3, 1, 4)
        attn = ((q * (C // self.heads) ** -0.5) @ k.transpose(-2, -1)).softmax(-1)
        return self.proj((attn @ v).transpose(1, 2).reshape(B, N, C))


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm1, self.attn = nn.LayerNorm(dim, eps=1e-6), Attention(dim, heads)
        self.norm2 = nn.LayerNorm(dim, eps=1e-6)
        self.fc1, self.fc2 = nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim)

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class VisionTransformer(nn.Module):
    def __init__(self, grid=4, patch=4, dim=24, heads=3, depth=3, num_classes=10):
        super().__init__()
        self.grid, self.patch = grid, patch
        self.patch_embed = nn.Conv2d(3, dim, patch, stride=patch)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos_embed = nn.Parameter(torch.zeros(1, 1 + grid * grid, dim))
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(dim, eps=1e-6), nn.Linear(dim, num_classes)

    def resized_pos(self, gh, gw):
        cls, grid = self.pos_embed[:, :1], self.pos_embed[:, 1:]
        grid = grid.reshape(1, self.grid, self.grid, -1).permute(0, 3, 1, 2)
        grid = F.interpolate(grid, size=(gh, gw), mode="bicubic", align_corners=False)
        return torch.cat([cls, grid.permute(0, 2, 3, 1).reshape(1, gh * gw, -1)], dim=1)

    def forward(self, img):
        x = self.patch_embed(img)
        gh, gw = x.shape[-2:]
        x = torch.cat([self.cls_token.expand(len(img), -1, -1), x.flatten(2).transpose(1, 2)], dim=1)
        x = x + self.resized_pos(gh, gw)
        for blk in self.blocks:
            x = blk(x)
        return self.head(self.norm(x)[:, 0])


class PatchUnfold(nn.Module):
    def __init__(self, patch, dim):
        super().__init__()
        self.kernel, self.bias, self.patch = (
            nn.Parameter(torch.empty(patch * patch * 3, dim)),
            nn.Parameter(torch.empty(dim)),
            patch,
        )

    def forward(self, img):
        b, c, h, w = img.shape
        p = self.patch
        x = img.view(b, c, h // p, p, w // p, p).permute(0, 2, 4, 3, 5, 1)
        return x.reshape(b, (h // p) * (w // p), p * p * c) @ self.kernel + self.bias


class EncoderBlock(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.ln_attn, self.ln_mlp = nn.LayerNorm(dim, eps=1e-6), nn.LayerNorm(dim, eps=1e-6)
        self.query, self.key, self.value, self.out = (nn.Linear(dim, dim) for _ in range(4))
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))
        self.heads = heads

    def forward(self, x):
        y = self.ln_attn(x)
        q, k, v = (f(y).unflatten(-1, (self.heads, -1)).transpose(1, 2) for f in (self.query, self.key, self.value))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.mlp(self.ln_mlp(x))


class ViTFixed(nn.Module):
    def __init__(self, tokens, patch=4, dim=24, heads=3, depth=3, num_classes=10):
        super().__init__()
        self.embedding = PatchUnfold(patch, dim)
        self.cls = nn.Parameter(torch.empty(dim))
        self.posembed = nn.Parameter(torch.empty(tokens, dim))
        self.encoder = nn.Sequential(*[EncoderBlock(dim, heads) for _ in range(depth)])
        self.encoder_norm, self.classifier = nn.LayerNorm(dim, eps=1e-6), nn.Linear(dim, num_classes)

    def forward(self, pixels):
        patches = self.embedding(pixels) + self.posembed
        x = F.pad(patches, (0, 0, 1, 0))
        x[:, 0] = self.cls
        return self.classifier(self.encoder_norm(self.encoder(x)).select(1, 0))


def resize_pos_embed(grid, size, mode):
    n = int(grid.shape[0] ** 0.5)
    grid = grid.t().reshape(1, -1, n, n)
    return F.interpolate(grid, size=size, mode=mode, align_corners=False)[0].flatten(1).t()


def convert(sd, size=(7, 6), mode="bilinear"):
    out = {
        "embedding.kernel": sd["patch_embed.weight"].permute(2, 3, 1, 0).flatten(0, 2),
        "embedding.bias": sd["patch_embed.bias"],
        "cls": sd["cls_token"][0, 0] + sd["pos_embed"][0, 0],
        "posembed": resize_pos_embed(sd["pos_embed"][0, 1:], size, mode),
    }
    for w in ("weight", "bias"):
        out["encoder_norm." + w], out["classifier." + w] = sd["norm." + w], sd["head." + w]
        for i in range(3):
            s, t = f"blocks.{i}.", f"encoder.{i}."
            for name, part in zip(("query", "key", "value"), sd[s + "attn.qkv." + w].chunk(3)):
                out[f"{t}{name}.{w}"] = part
            for new, old in (
                ("out", "attn.proj"),
                ("ln_attn", "norm1"),
                ("ln_mlp", "norm2"),
                ("mlp.0", "fc1"),
                ("mlp.2", "fc2"),
            ):
                out[f"{t}{new}.{w}"] = sd[f"{s}{old}.{w}"]
    return {k: v.clone() for k, v in out.items()}


def build(fixed):
    torch.manual_seed(12)
    original = VisionTransformer().eval()
    for n, p in original.named_parameters():
        nn.init.normal_(p, 1.0 if "norm" in n and n.endswith("weight") else 0.0, 1.0 if n == "pos_embed" else 0.2)
    port = ViTFixed(tokens=42).eval()
    port.load_state_dict(convert(original.state_dict(), mode="bicubic" if fixed else "bilinear"))
    return original, port, (torch.randn(2, 3, 28, 24),)
