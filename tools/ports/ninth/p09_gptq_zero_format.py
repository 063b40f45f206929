"""vllm-project/vllm#38966

A 4-bit checkpoint was packed into int32 words for a GPTQ kernel.  The unpacked
reference (int weights, zeros, scales) writes good text, the packed model writes the
same token over and over.
"""

import torch
import torch.nn.functional as F
from torch import nn

GROUP = 8


class QuantLinear(nn.Module):
    """Reference: integers 0..15, one zero and one scale per group of inputs."""

    def __init__(self, n_in, n_out):
        super().__init__()
        self.register_buffer("q", torch.zeros(n_in, n_out, dtype=torch.int32))
        self.register_buffer("zeros", torch.zeros(n_in // GROUP, n_out, dtype=torch.int32))
        self.register_buffer("scales", torch.zeros(n_in // GROUP, n_out))

    def quantize_(self, w):
        g = w.view(-1, GROUP, w.shape[1])
        hi, lo = g.amax(1).clamp(min=0), g.amin(1).clamp(max=0)
        self.scales.copy_((hi - lo) / 15)
        self.zeros.copy_((-lo / self.scales).round().clamp(1, 15))
        q = (g / self.scales[:, None] + self.zeros[:, None]).round().clamp(0, 15)
        self.q.copy_(q.view_as(w))

    def forward(self, x):
        z, s = self.zeros.repeat_interleave(GROUP, 0), self.scales.repeat_interleave(GROUP, 0)
        return x @ ((self.q - z) * s)


class MLPBlock(nn.Module):
    def __init__(self, d, ff):
        super().__init__()
        self.norm = nn.RMSNorm(d, eps=1e-6)
        self.mix = QuantLinear(d, d)
        self.norm2 = nn.RMSNorm(d, eps=1e-6)
        self.gate_proj, self.up_proj, self.down_proj = QuantLinear(d, ff), QuantLinear(d, ff), QuantLinear(ff, d)

    def forward(self, x):
        h = self.mix(self.norm(x))
        x = x + h.cumsum(1) / torch.arange(1, x.shape[1] + 1)[:, None]
        y = self.norm2(x)
        return x + self.down_proj(F.silu(self.gate_proj(y)) * self.up_proj(y))


class ReferenceLM(nn.Module):
    def __init__(self, vocab=32, d=16, ff=32, layers=3):
        super().__init__()
        self.embed = nn.Embedding(vocab, d)
        self.blocks = nn.ModuleList(MLPBlock(d, ff) for _ in range(layers))
        self.norm, self.lm_head = nn.RMSNorm(d, eps=1e-6), nn.Linear(d, vocab, bias=False)

    def forward(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.lm_head(self.norm(x))


SHIFTS = torch.arange(0, 32, 4)


def pack_rows(q):
    q = q.long().view(-1, 8, q.shape[1])
    word = (q << SHIFTS[None, :, None]).sum(1)
    return torch.where(word >= 2**31, word - 2**32, word).to(torch.int32)


def unpack_rows(words):
    u = words.long() & 0xFFFFFFFF
    return ((u[:, None] >> SHIFTS[None, :, None]) & 15).view(-1, words.shape[1])


class GPTQLinear(nn.Module):
    def __init__(self, n_in, n_out, checkpoint_format):
        super().__init__()
        self.register_buffer("qweight", torch.zeros(n_in // 8, n_out, dtype=torch.int32))
        self.register_buffer("qzeros", torch.zeros(n_out // 8, n_in // GROUP, dtype=torch.int32))
        self.register_buffer("scales", torch.zeros(n_in // GROUP, n_out))
        self.register_buffer("g_idx", torch.zeros(n_in, dtype=torch.int64))
        self.zero_offset = 0 if checkpoint_format == "gptq_v2" else 1

    def dequantize(self):
        zeros = unpack_rows(self.qzeros).t() + self.zero_offset
        w = unpack_rows(self.qweight) - zeros[self.g_idx]
        return w.float() * self.scales[self.g_idx]

    def forward(self, x):
        return torch.einsum("bsi,io->bso", x, self.dequantize())


class GPTQBlock(nn.Module):
    def __init__(self, d, ff, fmt):
        super().__init__()
        self.input_norm, self.post_norm = nn.RMSNorm(d, eps=1e-6), nn.RMSNorm(d, eps=1e-6)
        self.mixer = GPTQLinear(d, d, fmt)
        self.gate_up, self.down = GPTQLinear(d, 2 * ff, fmt), GPTQLinear(ff, d, fmt)

    def forward(self, h):
        n = h.shape[1]
        avg = torch.ones(n, n).tril() / torch.arange(1, n + 1)[:, None]
        h = h + avg @ self.mixer(self.input_norm(h))
        gate, up = self.gate_up(self.post_norm(h)).chunk(2, -1)
        return h + self.down(F.silu(gate) * up)


class GPTQModel(nn.Module):
    def __init__(self, vocab=32, d=16, ff=32, layers=3, checkpoint_format="gptq"):
        super().__init__()
        self.tok = nn.Embedding(vocab, d)
        self.layers = nn.Sequential(*[GPTQBlock(d, ff, checkpoint_format) for _ in range(layers)])
        self.out_norm, self.head = nn.RMSNorm(d, eps=1e-6), nn.Linear(d, vocab, bias=False)

    def forward(self, ids):
        return self.head(self.out_norm(self.layers(self.tok(ids))))


def convert(sd):
    out = {"tok.weight": sd["embed.weight"], "out_norm.weight": sd["norm.weight"], "head.weight": sd["lm_head.weight"]}
    for i in range(3):
        s, t = f"blocks.{i}.", f"layers.{i}."
        out[t + "input_norm.weight"], out[t + "post_norm.weight"] = sd[s + "norm.weight"], sd[s + "norm2.weight"]
        for new, old in (("mixer", ["mix"]), ("gate_up", ["gate_proj", "up_proj"]), ("down", ["down_proj"])):
            q, z, sc = (torch.cat([sd[f"{s}{o}.{k}"] for o in old], dim=1) for k in ("q", "zeros", "scales"))
            out[f"{t}{new}.qweight"], out[f"{t}{new}.qzeros"] = pack_rows(q), pack_rows(z.t())
            out[f"{t}{new}.scales"], out[f"{t}{new}.g_idx"] = sc, torch.arange(q.shape[0]) // GROUP
    return {k: v.clone() for k, v in out.items()}


def build(fixed):
    torch.manual_seed(8)
    original = ReferenceLM().eval()
    for m in original.modules():
        if isinstance(m, QuantLinear):
            m.quantize_(torch.randn(m.q.shape) * 0.25)
    port = GPTQModel(checkpoint_format="gptq_v2" if fixed else "gptq").eval()
    port.load_state_dict(convert(original.state_dict()))
    return original, port, (torch.randint(0, 32, (2, 8)),)
