"""After 1bit-MONSTER/1bit-MONSTER#572: a converter packs the linear layers of a small mixer into
Q4_0 blocks (32 weights, one scale) and the runtime multiplies from the blocks. The original here
already carries weights that lie on the 4-bit grid, so that packing should lose nothing; the packed
model still answers quite differently."""

import torch
import torch.nn as nn
import torch.nn.functional as F

QK, VOCAB, DIM, INNER = 32, 30, 32, 64


class TokenMixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(DIM)
        self.in_proj = nn.Linear(DIM, 2 * INNER, bias=False)
        self.conv1d = nn.Conv1d(INNER, INNER, 4, groups=INNER, padding=3)
        self.out_proj = nn.Linear(INNER, DIM, bias=False)

    def forward(self, x):
        u, z = self.in_proj(self.norm(x)).chunk(2, -1)
        u = self.conv1d(u.transpose(1, 2))[..., : x.shape[1]].transpose(1, 2)
        return x + self.out_proj(F.silu(u) * torch.sigmoid(z))


class ReferenceLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, DIM)
        self.layers = nn.ModuleList(TokenMixer() for _ in range(3))
        self.norm_f = nn.LayerNorm(DIM)
        self.lm_head = nn.Linear(DIM, VOCAB, bias=False)

    def forward(self, ids):
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(self.norm_f(x))


def snap_to_grid(w):
    blocks = w.reshape(w.shape[0], -1, QK)
    d = blocks.abs().amax(-1, keepdim=True) / 7
    return (torch.round(blocks / d).clamp(-7, 7) * d).reshape_as(w)


def quantize_q4_0(w, fixed):
    blocks = w.reshape(w.shape[0], -1, QK)
    d = blocks.abs().amax(-1, keepdim=True) / 7
    q = torch.round(blocks / d).clamp(-8, 7).to(torch.int16)
    codes = q + 8 if fixed else q & 0x0F
    lo, hi = codes[..., : QK // 2], codes[..., QK // 2 :]
    return (lo | (hi << 4)).to(torch.uint8), d.squeeze(-1)


class Q4Linear(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.register_buffer("qs", torch.zeros(cout, cin // QK, QK // 2, dtype=torch.uint8))
        self.register_buffer("d", torch.zeros(cout, cin // QK))

    def dequantize(self):
        lo, hi = self.qs & 0x0F, self.qs >> 4
        q = torch.cat([lo, hi], -1).float() - 8.0
        return (q * self.d.unsqueeze(-1)).flatten(1)

    def forward(self, x):
        return x @ self.dequantize().t()


class ShiftConv(nn.Module):
    def __init__(self):
        super().__init__()
        self.taps = nn.Parameter(torch.empty(4, INNER))
        self.bias = nn.Parameter(torch.empty(INNER))

    def forward(self, u):
        state = u.new_zeros(u.shape[0], 4, INNER)
        ys = []
        for step in u.unbind(1):
            state = torch.cat([state[:, 1:], step.unsqueeze(1)], 1)
            ys.append((state * self.taps).sum(1) + self.bias)
        return torch.stack(ys, 1)


class GgufBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn_norm = nn.LayerNorm(DIM)
        self.ssm_u, self.ssm_z = Q4Linear(DIM, INNER), Q4Linear(DIM, INNER)
        self.ssm_conv = ShiftConv()
        self.ssm_out = Q4Linear(INNER, DIM)

    def forward(self, x):
        h = self.attn_norm(x)
        u = self.ssm_conv(self.ssm_u(h))
        return self.ssm_out(u * u.sigmoid() * self.ssm_z(h).sigmoid()) + x


class GgufRuntime(nn.Module):
    def __init__(self):
        super().__init__()
        self.token_embd = nn.Embedding(VOCAB, DIM)
        self.blk = nn.Sequential(*[GgufBlock() for _ in range(3)])
        self.output_norm = nn.LayerNorm(DIM)
        self.output = Q4Linear(DIM, VOCAB)

    def forward(self, ids):
        return self.output(self.output_norm(self.blk(self.token_embd(ids))))


def convert(sd, fixed=False):
    out = {"token_embd.weight": sd["embedding.weight"]}

    def pack(name, w):
        out[name + ".qs"], out[name + ".d"] = quantize_q4_0(w, fixed)

    pack("output", sd["lm_head.weight"])
    for p in ("weight", "bias"):
        out[f"output_norm.{p}"] = sd[f"norm_f.{p}"]
    for i in range(3):
        s, b = f"layers.{i}.", f"blk.{i}."
        for p in ("weight", "bias"):
            out[b + f"attn_norm.{p}"] = sd[s + f"norm.{p}"]
        u, z = sd[s + "in_proj.weight"].chunk(2)
        pack(b + "ssm_u", u)
        pack(b + "ssm_z", z)
        pack(b + "ssm_out", sd[s + "out_proj.weight"])
        out[b + "ssm_conv.taps"] = sd[s + "conv1d.weight"].squeeze(1).t()
        out[b + "ssm_conv.bias"] = sd[s + "conv1d.bias"]
    return out


def build(fixed):
    torch.manual_seed(572)
    original = ReferenceLM().eval()
    for m in original.modules():
        if isinstance(m, nn.Linear):
            m.weight.data = snap_to_grid(m.weight.data)
    port = GgufRuntime().eval()
    port.load_state_dict(convert(original.state_dict(), fixed))
    return original, port, (torch.randint(0, VOCAB, (2, 12)),)
