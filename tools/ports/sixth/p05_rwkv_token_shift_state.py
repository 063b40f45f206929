"""ggml-org/llama.cpp#11445: the token-shift state is not written back after decoding, so every step mixes with zeros.

The reference runs the whole sequence with padded shifts; the port prefills a prompt and then decodes the rest one token
at a time with a cache of (shift vector, wkv matrix) per layer.  The prompt part of the output is right either way.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional as F

HEADS, HEAD_DIM = 3, 6
DIM = HEADS * HEAD_DIM


class TimeMix(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mix_r = nn.Parameter(torch.rand(DIM))
        self.mix_k = nn.Parameter(torch.rand(DIM))
        self.mix_v = nn.Parameter(torch.rand(DIM))
        self.decay = nn.Parameter(torch.randn(DIM) * 0.5 - 0.5)
        self.receptance = nn.Linear(DIM, DIM, bias=False)
        self.key = nn.Linear(DIM, DIM, bias=False)
        self.value = nn.Linear(DIM, DIM, bias=False)
        self.output = nn.Linear(DIM, DIM, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        shifted = F.pad(x, (0, 0, 1, -1))
        r = self.receptance(torch.lerp(x, shifted, self.mix_r)).view(batch, length, HEADS, HEAD_DIM)
        k = self.key(torch.lerp(x, shifted, self.mix_k)).view(batch, length, HEADS, HEAD_DIM)
        v = self.value(torch.lerp(x, shifted, self.mix_v)).view(batch, length, HEADS, HEAD_DIM)
        w = torch.exp(-torch.exp(self.decay)).view(HEADS, HEAD_DIM, 1)
        state = x.new_zeros(batch, HEADS, HEAD_DIM, HEAD_DIM)
        outs = []
        for t in range(length):
            state = state * w + k[:, t].unsqueeze(-1) * v[:, t].unsqueeze(-2)
            outs.append((r[:, t].unsqueeze(-2) @ state).squeeze(-2))
        return self.output(torch.stack(outs, 1).reshape(batch, length, DIM))


class SwigluFFN(nn.Module):
    def __init__(self, hidden: int = 28) -> None:
        super().__init__()
        self.gate = nn.Linear(DIM, hidden, bias=False)
        self.up = nn.Linear(DIM, hidden, bias=False)
        self.down = nn.Linear(hidden, DIM, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class RwkvQwen(nn.Module):
    def __init__(self, vocab: int = 32, depth: int = 2) -> None:
        super().__init__()
        self.emb = nn.Embedding(vocab, DIM)
        self.ln1 = nn.ModuleList(nn.RMSNorm(DIM, eps=1e-6) for _ in range(depth))
        self.att = nn.ModuleList(TimeMix() for _ in range(depth))
        self.ln2 = nn.ModuleList(nn.RMSNorm(DIM, eps=1e-6) for _ in range(depth))
        self.ffn = nn.ModuleList(SwigluFFN() for _ in range(depth))
        self.ln_out = nn.RMSNorm(DIM, eps=1e-6)
        self.head = nn.Linear(DIM, vocab, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.emb(ids)
        for ln1, att, ln2, ffn in zip(self.ln1, self.att, self.ln2, self.ffn, strict=True):
            x = x + att(ln1(x))
            x = x + ffn(ln2(x))
        return self.head(self.ln_out(x))


@dataclass
class LayerState:
    shift: Tensor
    wkv: Tensor


@dataclass
class KVCache:
    layers: list[LayerState] = field(default_factory=list)


class GgmlTimeMix(nn.Module):
    def __init__(self, store_shift: bool) -> None:
        super().__init__()
        self.lerp_rkv = nn.Parameter(torch.empty(3, 1, 1, DIM))
        self.decay = nn.Parameter(torch.empty(HEADS, HEAD_DIM))
        self.rkv = nn.Parameter(torch.empty(3, DIM, DIM))
        self.wo = nn.Linear(DIM, DIM, bias=False)
        self.store_shift = store_shift

    def forward(self, x: Tensor, state: LayerState) -> Tensor:
        previous = torch.cat([state.shift.unsqueeze(1), x[:, :-1]], dim=1)
        mixed = x + (previous - x) * self.lerp_rkv
        r, k, v = torch.einsum("sbtd,sed->sbte", mixed, self.rkv).unflatten(-1, (HEADS, HEAD_DIM)).unbind(0)
        outs = []
        for r_t, k_t, v_t in zip(r.unbind(1), k.unbind(1), v.unbind(1), strict=True):
            outer = torch.einsum("bhi,bhj->bhij", k_t, v_t)
            state.wkv = torch.exp(-self.decay.exp()).unsqueeze(-1) * state.wkv + outer
            outs.append(torch.einsum("bhi,bhij->bhj", r_t, state.wkv).flatten(1))
        if self.store_shift:
            state.shift = x[:, -1]
        return self.wo(torch.stack(outs, dim=1))


class GgmlBlock(nn.Module):
    def __init__(self, hidden: int, store_shift: bool) -> None:
        super().__init__()
        self.attn_norm = nn.Parameter(torch.empty(DIM))
        self.time_mix = GgmlTimeMix(store_shift)
        self.ffn_norm = nn.Parameter(torch.empty(DIM))
        self.ffn_gate_up = nn.Linear(DIM, 2 * hidden, bias=False)
        self.ffn_down = nn.Linear(hidden, DIM, bias=False)

    def forward(self, x: Tensor, state: LayerState) -> Tensor:
        x = x + self.time_mix(F.rms_norm(x, (DIM,), self.attn_norm, 1e-6), state)
        gate, up = self.ffn_gate_up(F.rms_norm(x, (DIM,), self.ffn_norm, 1e-6)).chunk(2, -1)
        return x + self.ffn_down(gate * gate.sigmoid() * up)


class GgmlRwkv(nn.Module):
    def __init__(self, source: RwkvQwen, prompt: int, store_shift: bool) -> None:
        super().__init__()
        hidden = source.ffn[0].gate.out_features
        self.token_embd = nn.Embedding(*source.emb.weight.shape)
        self.blk = nn.ModuleList(GgmlBlock(hidden, store_shift) for _ in source.att)
        self.output_norm = nn.RMSNorm(DIM, eps=1e-6)
        self.output = nn.Linear(DIM, source.head.out_features, bias=False)
        self.prompt = prompt
        with torch.no_grad():
            self.token_embd.weight.copy_(source.emb.weight)
            self.output_norm.weight.copy_(source.ln_out.weight)
            self.output.weight.copy_(source.head.weight)
            for i, blk in enumerate(self.blk):
                att, ffn = source.att[i], source.ffn[i]
                blk.attn_norm.copy_(source.ln1[i].weight)
                blk.ffn_norm.copy_(source.ln2[i].weight)
                blk.time_mix.lerp_rkv.copy_(torch.stack([att.mix_r, att.mix_k, att.mix_v]).view(3, 1, 1, DIM))
                blk.time_mix.rkv.copy_(torch.stack([att.receptance.weight, att.key.weight, att.value.weight]))
                blk.time_mix.decay.copy_(att.decay.view(HEADS, HEAD_DIM))
                blk.time_mix.wo.weight.copy_(att.output.weight)
                blk.ffn_gate_up.weight.copy_(torch.cat([ffn.gate.weight, ffn.up.weight]))
                blk.ffn_down.weight.copy_(ffn.down.weight)

    def decode(self, ids: Tensor, cache: KVCache) -> Tensor:
        x = self.token_embd(ids)
        for blk, state in zip(self.blk, cache.layers, strict=True):
            x = blk(x, state)
        return self.output(self.output_norm(x))

    def forward(self, ids: Tensor) -> Tensor:
        batch = ids.shape[0]
        weight = self.token_embd.weight
        cache = KVCache(
            [
                LayerState(weight.new_zeros(batch, DIM), weight.new_zeros(batch, HEADS, HEAD_DIM, HEAD_DIM))
                for _ in self.blk
            ]
        )
        logits = [self.decode(ids[:, : self.prompt], cache)]
        for position in range(self.prompt, ids.shape[1]):
            logits.append(self.decode(ids[:, position : position + 1], cache))
        return torch.cat(logits, dim=1)


def build(fixed: bool = False) -> tuple[nn.Module, nn.Module, tuple[Tensor, ...]]:
    torch.manual_seed(105)
    original = RwkvQwen().eval()
    port = GgmlRwkv(original, prompt=6, store_shift=fixed).eval()
    return original, port, (torch.randint(0, 32, (2, 8)),)


if __name__ == "__main__":
    reference, ported, inputs = build()
    print((reference(*inputs) - ported(*inputs)).abs().amax(dim=(0, 2)))
