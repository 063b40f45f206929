"""huggingface/pytorch-image-models#2438: Swin V2 for image sizes that are no multiple of the window.

With a size that fits the window both implementations agree. For other sizes the port lets patches
of opposite borders look at each other and its features differ.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn

WIN = 4


def log_coords():
    r = torch.arange(-(WIN - 1), WIN).float()
    g = torch.stack(torch.meshgrid(r, r, indexing="ij"), -1) / (WIN - 1) * 8
    return g.sign() * torch.log2(g.abs() + 1) / 3


def pair_index():
    c = torch.cartesian_prod(torch.arange(WIN), torch.arange(WIN))
    d = c[:, None] - c[None] + WIN - 1
    return d[..., 0] * (2 * WIN - 1) + d[..., 1]


class SwinV2Block(nn.Module):
    def __init__(self, dim, heads, shift):
        super().__init__()
        self.heads, self.shift = heads, shift
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.logit_scale = nn.Parameter(torch.full((heads, 1, 1), math.log(8.0)))
        self.cpb = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, heads, bias=False))
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.fc1, self.fc2 = nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim)

    def attend(self, w, mask):
        q, k, v = self.qkv(w).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        a = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT * self.logit_scale.exp()
        bias = self.cpb(log_coords()).flatten(0, 1)[pair_index()].permute(2, 0, 1)
        a = a + 16 * torch.sigmoid(bias)
        n = mask.size(0)
        a = (a.unflatten(0, (-1, n)) + mask[:, None]).flatten(0, 1)
        return self.proj((a.softmax(-1) @ v).transpose(1, 2).flatten(2))

    @staticmethod
    def windows(x):
        B, H, W, C = x.shape
        return x.view(B, H // WIN, WIN, W // WIN, WIN, C).transpose(2, 3).reshape(-1, WIN * WIN, C)

    def forward(self, x):
        B, H, W, C = x.shape
        y = F.pad(x, (0, 0, 0, -W % WIN, 0, -H % WIN))
        Hp, Wp = y.shape[1:3]
        y = torch.roll(y, (-self.shift, -self.shift), (1, 2))
        region = torch.zeros(1, Hp, Wp, 1)
        if self.shift:
            cuts = (slice(0, -WIN), slice(-WIN, -self.shift), slice(-self.shift, None))
            for i, h in enumerate(cuts):
                for j, w in enumerate(cuts):
                    region[:, h, w] = 3 * i + j
        r = self.windows(region).squeeze(-1)
        mask = (r[:, None] != r[:, :, None]).float() * -100
        w = self.attend(self.windows(y), mask)
        y = w.view(B, Hp // WIN, Wp // WIN, WIN, WIN, C).transpose(2, 3).reshape(B, Hp, Wp, C)
        y = torch.roll(y, (self.shift, self.shift), (1, 2))[:, :H, :W]
        x = x + self.norm1(y)
        return x + self.norm2(self.fc2(F.gelu(self.fc1(x))))


class SwinV2(nn.Module):
    def __init__(self, dim=12, heads=2):
        super().__init__()
        self.patch_embed = nn.Conv2d(3, dim, 2, stride=2)
        self.layers = nn.ModuleList([SwinV2Block(dim, heads, s) for s in (0, WIN // 2)])
        self.head = nn.Linear(dim, 8)

    def forward(self, img):
        x = self.patch_embed(img).permute(0, 2, 3, 1)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class ShiftedBlock(nn.Module):
    """Channels first; windows are cut with unfold / fold."""

    def __init__(self, dim, nh, shift, pad_first):
        super().__init__()
        self.nh, self.shift, self.pad_first = nh, shift, pad_first
        self.to_q, self.to_k, self.to_v, self.to_out = (nn.Linear(dim, dim) for _ in range(4))
        self.tau = nn.Parameter(torch.empty(nh))
        self.bias_in, self.bias_out = nn.Linear(2, 16), nn.Linear(16, nh, bias=False)
        self.post_attn, self.post_mlp = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def labels(self, n):
        i = torch.arange(n)
        return (i >= n - WIN).long() + (i >= n - self.shift).long() if self.shift else i * 0

    def forward(self, x):
        H, W = x.shape[2:]
        pad = (0, -W % WIN, 0, -H % WIN)
        y = F.pad(x, pad) if self.pad_first else x
        if self.shift:
            y = torch.roll(y, (-self.shift,) * 2, (2, 3))
        if not self.pad_first:
            y = F.pad(y, pad)
        Hp, Wp = y.shape[2:]
        lab = (self.labels(Hp)[:, None] * 3 + self.labels(Wp)).float()[None, None]
        lab = F.unfold(lab, WIN, stride=WIN)[0].t()
        block = (lab[:, :, None] - lab[:, None]).ne(0) * -100.0
        t = F.unfold(y, WIN, stride=WIN).unflatten(1, (x.size(1), -1)).permute(0, 3, 2, 1)

        def heads(z):
            return z.unflatten(-1, (self.nh, -1)).transpose(2, 3)

        q, k = F.normalize(heads(self.to_q(t)), dim=-1), F.normalize(heads(self.to_k(t)), dim=-1)
        rel = self.bias_out(self.bias_in(log_coords().view(-1, 2)).clamp_min(0)).sigmoid() * 16
        s = torch.einsum("bnhie,bnhje,h->bnhij", q, k, self.tau.exp()) + rel[pair_index()].movedim(-1, 0)
        s = (s + block[:, None]).softmax(-1)
        t = self.to_out((s @ heads(self.to_v(t))).transpose(2, 3).flatten(3))
        y = F.fold(t.permute(0, 3, 2, 1).flatten(1, 2), (Hp, Wp), WIN, stride=WIN)
        if not self.pad_first:
            y = y[:, :, :H, :W]
        if self.shift:
            y = torch.roll(y, (self.shift,) * 2, (2, 3))
        y = y[:, :, :H, :W].permute(0, 2, 3, 1)
        x = x.permute(0, 2, 3, 1) + self.post_attn(y)
        x = x + self.post_mlp(self.mlp(x))
        return x.permute(0, 3, 1, 2)


class SwinFeatures(nn.Module):
    def __init__(self, dim=12, nh=2, pad_first=False):
        super().__init__()
        self.stem = nn.Linear(12, dim)
        self.stages = nn.Sequential(*[ShiftedBlock(dim, nh, s, pad_first) for s in (0, WIN // 2)])
        self.classify = nn.Conv2d(dim, 8, 1)

    def forward(self, img):
        x = self.stem(F.pixel_unshuffle(img, 2).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return self.classify(self.stages(x)).permute(0, 2, 3, 1)


def convert(sd):
    out = {
        "stem.weight": sd["patch_embed.weight"].flatten(1),
        "stem.bias": sd["patch_embed.bias"],
        "classify.weight": sd["head.weight"][:, :, None, None],
        "classify.bias": sd["head.bias"],
    }
    same = {
        "proj": "to_out",
        "norm1": "post_attn",
        "norm2": "post_mlp",
        "fc1": "mlp.0",
        "fc2": "mlp.2",
        "cpb.0": "bias_in",
    }
    for i in range(2):
        s, d = f"layers.{i}.", f"stages.{i}."
        for k in ("weight", "bias"):
            for a, b in same.items():
                out[f"{d}{b}.{k}"] = sd[f"{s}{a}.{k}"]
            for n, part in zip("qkv", sd[s + "qkv." + k].chunk(3)):
                out[f"{d}to_{n}.{k}"] = part
        out[d + "bias_out.weight"], out[d + "tau"] = sd[s + "cpb.2.weight"], sd[s + "logit_scale"].flatten()
    return out


def build(fixed):
    torch.manual_seed(23)
    original = SwinV2().eval()
    port = SwinFeatures(pad_first=fixed).eval()
    port.load_state_dict(convert(original.state_dict()))
    return original, port, (torch.randn(1, 3, 22, 26),)
