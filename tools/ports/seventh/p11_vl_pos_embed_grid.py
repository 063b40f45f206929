"""After ggml-org/llama.cpp#25781: boxes predicted through the native multimodal backend are scaled
outwards from the middle of the picture, the more so the larger and less square it is."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class VisionPatchEmbed(nn.Module):
    def __init__(self, dim, patch=4):
        super().__init__()
        self.proj = nn.Conv2d(3, dim, patch, stride=patch)

    def forward(self, x):
        return self.proj(x)


class VisionBlock(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim, eps=1e-6), nn.LayerNorm(dim, eps=1e-6)
        self.heads = heads
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.linear_fc1, self.linear_fc2 = nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim)

    def forward(self, x):
        n, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).reshape(n, 3, self.heads, -1).permute(1, 2, 0, 3)
        a = (q @ k.transpose(1, 2) * (d // self.heads) ** -0.5).softmax(-1) @ v
        x = x + self.proj(a.transpose(0, 1).reshape(n, d))
        return x + self.linear_fc2(F.gelu(self.linear_fc1(self.norm2(x)), approximate="tanh"))


class HFVisionModel(nn.Module):
    def __init__(self, dim=24, heads=3, side=6, depth=2, out=10):
        super().__init__()
        self.num_grid_per_side = side
        self.patch_embed = VisionPatchEmbed(dim)
        self.pos_embed = nn.Embedding(side * side, dim)
        self.blocks = nn.ModuleList(VisionBlock(dim, heads) for _ in range(depth))
        self.merger_norm = nn.LayerNorm(4 * dim, eps=1e-6)
        self.merger = nn.Linear(4 * dim, out)

    def fast_pos_embed_interpolate(self, h, w):
        side = self.num_grid_per_side
        ys, xs = torch.linspace(0, side - 1, h), torch.linspace(0, side - 1, w)
        y0, x0 = ys.int(), xs.int()
        y1, x1 = (y0 + 1).clip(max=side - 1), (x0 + 1).clip(max=side - 1)
        dy, dx = ys - y0, xs - x0
        idx = [(a[None].T * side + b[None]).flatten().long() for a, b in ((y0, x0), (y0, x1), (y1, x0), (y1, x1))]
        wts = [
            ((1 - dy)[None].T * (1 - dx)[None]),
            ((1 - dy)[None].T * dx[None]),
            (dy[None].T * (1 - dx)[None]),
            (dy[None].T * dx[None]),
        ]
        return sum(self.pos_embed(i) * w_.flatten()[:, None] for i, w_ in zip(idx, wts))

    def forward(self, pixel_values):
        p = self.patch_embed(pixel_values)[0]
        d, h, w = p.shape
        x = p.permute(1, 2, 0).reshape(h * w, d) + self.fast_pos_embed_interpolate(h, w)
        for b in self.blocks:
            x = b(x)
        x = x.view(h // 2, 2, w // 2, 2, d).permute(0, 2, 1, 3, 4).reshape(-1, 4 * d)
        return self.merger(self.merger_norm(x))


class ClipGraph(nn.Module):
    def __init__(self, tensors, hparams, align_corners):
        super().__init__()
        for k, v in tensors.items():
            self.register_buffer(k.replace(".", "__"), v)
        self.hp = hparams
        self.align_corners = align_corners

    def t(self, name):
        return getattr(self, name.replace(".", "__"))

    def mm(self, name, x):
        return x @ self.t(name + ".weight").t() + self.t(name + ".bias")

    def ln(self, name, x):
        return F.layer_norm(x, x.shape[-1:], self.t(name + ".weight"), self.t(name + ".bias"), self.hp["eps"])

    def resize_position_embeddings(self, h, w):
        side = self.hp["side"]
        pe = self.t("v.position_embd.weight").view(side, side, -1).permute(2, 0, 1).unsqueeze(0)
        if (h, w) != (side, side):
            pe = F.interpolate(pe, size=(h, w), mode="bilinear", align_corners=self.align_corners)
        return pe.flatten(2)[0].t()

    def forward(self, img):
        hp, ps = self.hp, self.hp["patch"]
        h, w = img.shape[2] // ps, img.shape[3] // ps
        cols = F.unfold(img, ps, stride=ps)[0].t()
        cur = self.mm("v.patch_embd", cols) + self.resize_position_embeddings(h, w)
        for il in range(hp["n_layer"]):
            b = f"v.blk.{il}."
            y = self.ln(b + "ln1", cur)
            Q, K, V = (self.mm(b + "attn_" + c, y).view(h * w, hp["n_head"], -1).transpose(0, 1) for c in "qkv")
            kqv = F.scaled_dot_product_attention(Q[None], K[None], V[None])[0]
            cur = cur + self.mm(b + "attn_out", kqv.transpose(0, 1).flatten(1))
            cur = cur + self.mm(
                b + "ffn_down", F.gelu(self.mm(b + "ffn_up", self.ln(b + "ln2", cur)), approximate="tanh")
            )
        cur = cur.view(h // 2, 2, w // 2, 2, -1).transpose(1, 2).flatten(2).flatten(0, 1)
        return self.mm("mm.0", self.ln("v.post_ln", cur))


MAP = {"norm1": "ln1", "norm2": "ln2", "proj": "attn_out", "linear_fc1": "ffn_up", "linear_fc2": "ffn_down"}


def convert_hf_to_gguf(m):
    s = {k: v.detach() for k, v in m.state_dict().items()}
    out = {
        "v.patch_embd.weight": s["patch_embed.proj.weight"].flatten(1),
        "v.position_embd.weight": s["pos_embed.weight"],
    }
    out["v.patch_embd.bias"] = s["patch_embed.proj.bias"]
    for p in (".weight", ".bias"):
        out["v.post_ln" + p], out["mm.0" + p] = s["merger_norm" + p], s["merger" + p]
        for i in range(len(m.blocks)):
            for a, b in MAP.items():
                out[f"v.blk.{i}.{b}{p}"] = s[f"blocks.{i}.{a}{p}"]
            for c, part in zip("qkv", s[f"blocks.{i}.qkv{p}"].chunk(3)):
                out[f"v.blk.{i}.attn_{c}{p}"] = part
    return out


def build(fixed):
    torch.manual_seed(25)
    original = HFVisionModel().eval()
    hp = {"side": 6, "patch": 4, "n_layer": 2, "n_head": 3, "eps": 1e-6}
    port = ClipGraph(convert_hf_to_gguf(original), hp, align_corners=fixed).eval()
    return original, port, (torch.randn(1, 3, 40, 56),)
