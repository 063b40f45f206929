"""pie-project/pie#491: AWQ 4-bit checkpoints repacked for a kernel with its own tile order.

Scales and quantised weights were repacked correctly; models with asymmetric zero points decode
nonsense, symmetric ones are fine.
"""

import torch
import torch.nn.functional as F
from torch import nn

AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]


def pack_columns(q):
    """(rows, cols) nibbles -> (rows, cols / 8) words, logical column j of a word in slot j."""
    q = q.long().reshape(q.size(0), -1, 8)
    return (q << (4 * torch.arange(8))).sum(-1)


def unpack_columns(words):
    return ((words[..., None] >> (4 * torch.arange(8))) & 15).flatten(1)


class AWQLinear(nn.Module):
    def __init__(self, n_in, n_out, group=8):
        super().__init__()
        self.group = group
        q = torch.randint(0, 16, (n_in, n_out))
        z = torch.randint(2, 14, (n_in // group, n_out))
        self.register_buffer("qweight", pack_columns(q.reshape(n_in, -1, 8)[:, :, AWQ_ORDER].flatten(1)))
        self.register_buffer("qzeros", pack_columns(z.reshape(n_in // group, -1, 8)[:, :, AWQ_ORDER].flatten(1)))
        self.register_buffer("scales", (0.5 + torch.rand(n_in // group, n_out)) * 0.2 * n_in**-0.5)

    def unpack(self, words):
        nib = unpack_columns(words)
        inverse = torch.tensor(AWQ_ORDER).argsort()
        return nib.reshape(nib.size(0), -1, 8)[:, :, inverse].flatten(1)

    def forward(self, x):
        w, z = self.unpack(self.qweight), self.unpack(self.qzeros)

        def rep(t):
            return t.repeat_interleave(self.group, 0)

        return x @ ((w - rep(z)) * rep(self.scales))


class QwenMLP(nn.Module):
    def __init__(self, dim=16, hidden=32):
        super().__init__()
        self.norm = nn.RMSNorm(dim, eps=1e-6)
        self.gate_proj, self.up_proj = AWQLinear(dim, hidden), AWQLinear(dim, hidden)
        self.down_proj = AWQLinear(hidden, dim)

    def forward(self, x):
        h = self.norm(x)
        return x + self.down_proj(F.silu(self.gate_proj(h)) * self.up_proj(h))


class AWQModel(nn.Module):
    def __init__(self, depth=2):
        super().__init__()
        self.embed = nn.Embedding(30, 16)
        self.layers = nn.ModuleList([QwenMLP() for _ in range(depth)])
        self.lm_head = nn.Linear(16, 30, bias=False)

    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(x)


TILE = torch.tensor([0, 2, 4, 6, 1, 3, 5, 7])


class W4Gemm(nn.Module):
    """Kernel layout: weights packed down the rows; zero points packed along columns in tile order."""

    def __init__(self, k, n, group=8):
        super().__init__()
        self.register_buffer("w", torch.zeros(k // 8, n, dtype=torch.long))
        self.register_buffer("zp", torch.zeros(k // group, n // 8, dtype=torch.long))
        self.register_buffer("s", torch.zeros(k // group, n))

    def forward(self, x):
        codes = torch.stack([(self.w >> (4 * i)) & 15 for i in range(8)], 1).flatten(0, 1).float()
        zp = torch.empty(self.s.numel() // 8, 8)
        zp[:, TILE] = unpack_columns(self.zp).reshape(-1, 8).float()
        groups = self.s.size(0)
        xg = x.unflatten(-1, (groups, -1))
        acc = torch.einsum("btgk,gkn->btgn", xg, codes.view(groups, -1, codes.size(1)))
        acc = acc - xg.sum(-1, keepdim=True) * zp.view_as(self.s)
        return (acc * self.s).sum(2)


class FusedMLP(nn.Module):
    def __init__(self, d=16, h=32):
        super().__init__()
        self.rms = nn.Parameter(torch.ones(d))
        self.w13 = W4Gemm(d, 2 * h)
        self.w2 = W4Gemm(h, d)

    def forward(self, x):
        y = F.rms_norm(x, x.shape[-1:], self.rms, 1e-6)
        a, b = self.w13(y).chunk(2, -1)
        return x + self.w2(a * torch.sigmoid(a) * b)


class CudaNativeModel(nn.Module):
    def __init__(self, depth=2):
        super().__init__()
        self.tok = nn.Embedding(30, 16)
        self.blocks = nn.Sequential(*[FusedMLP() for _ in range(depth)])
        self.out = nn.Linear(16, 30, bias=False)

    def forward(self, ids):
        return self.out(self.blocks(self.tok(ids)))


def repack(sd, names, zero_slots):
    undo = torch.tensor(AWQ_ORDER).argsort()

    def logical(t):
        return unpack_columns(t).reshape(t.size(0), -1, 8)[:, :, undo].flatten(1)

    q = torch.cat([logical(sd[n + ".qweight"]) for n in names], 1)
    z = torch.cat([logical(sd[n + ".qzeros"]) for n in names], 1)
    w = (q.reshape(-1, 8, q.size(1)) << (4 * torch.arange(8)[:, None])).sum(1)
    zp = pack_columns(z.reshape(z.size(0), -1, 8)[:, :, zero_slots].flatten(1))
    return {"w": w, "zp": zp, "s": torch.cat([sd[n + ".scales"] for n in names], 1)}


def convert(sd, zero_slots=tuple(range(8))):
    out = {"tok.weight": sd["embed.weight"], "out.weight": sd["lm_head.weight"]}
    for i in range(sum(k.endswith("norm.weight") for k in sd)):
        p = f"layers.{i}."
        out[f"blocks.{i}.rms"] = sd[p + "norm.weight"]
        for dst, src in (("w13", ["gate_proj", "up_proj"]), ("w2", ["down_proj"])):
            for k, v in repack(sd, [p + s for s in src], list(zero_slots)).items():
                out[f"blocks.{i}.{dst}.{k}"] = v
    return out


def build(fixed):
    torch.manual_seed(31)
    original = AWQModel().eval()
    port = CudaNativeModel().eval()
    port.load_state_dict(convert(original.state_dict(), *([TILE.tolist()] if fixed else [])))
    return original, port, (torch.randint(0, 30, (2, 6)),)
