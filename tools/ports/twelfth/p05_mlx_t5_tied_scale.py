"""After ml-explore/mlx-examples#591: a T5-like encoder-decoder with tied word embeddings, written
again in the mlx style. Encoder states agree; the logits of tied checkpoints are far off, and the
generated text is poor."""

import torch
import torch.nn as nn
import torch.nn.functional as F

VOCAB, DIM, HEADS, DFF = 36, 24, 3, 48
TIED = True


class T5LayerNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(DIM))

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


class T5Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(DIM, DIM, bias=False) for _ in range(4))

    def forward(self, x, mem, causal):
        def split(t):
            return t.unflatten(-1, (HEADS, -1)).transpose(1, 2)

        s = split(self.q(x)) @ split(self.k(mem)).transpose(-1, -2)
        if causal:
            s = s + torch.full(s.shape[-2:], float("-inf")).triu(1)
        return self.o((s.softmax(-1) @ split(self.v(mem))).transpose(1, 2).flatten(2))


class T5Block(nn.Module):
    def __init__(self, decoder):
        super().__init__()
        self.decoder = decoder
        self.ln_self, self.SelfAttention = T5LayerNorm(), T5Attention()
        if decoder:
            self.ln_cross, self.EncDecAttention = T5LayerNorm(), T5Attention()
        self.ln_ff = T5LayerNorm()
        self.wi, self.wo = nn.Linear(DIM, DFF, bias=False), nn.Linear(DFF, DIM, bias=False)

    def forward(self, x, mem=None):
        h = self.ln_self(x)
        x = x + self.SelfAttention(h, h, self.decoder)
        if self.decoder:
            x = x + self.EncDecAttention(self.ln_cross(x), mem, False)
        return x + self.wo(F.relu(self.wi(self.ln_ff(x))))


class T5ForConditionalGeneration(nn.Module):
    def __init__(self):
        super().__init__()
        self.shared = nn.Embedding(VOCAB, DIM)
        self.encoder = nn.ModuleList(T5Block(False) for _ in range(2))
        self.encoder_norm = T5LayerNorm()
        self.decoder = nn.ModuleList(T5Block(True) for _ in range(2))
        self.decoder_norm = T5LayerNorm()

    def forward(self, src, tgt):
        m = self.shared(src)
        for b in self.encoder:
            m = b(m)
        m = self.encoder_norm(m)
        y = self.shared(tgt)
        for b in self.decoder:
            y = b(y, m)
        y = self.decoder_norm(y)
        if TIED:
            y = y * DIM**-0.5
        return F.linear(y, self.shared.weight)


class RMSNorm(nn.Module):
    def __init__(self, dims):
        super().__init__()
        self.g = nn.Parameter(torch.ones(dims))

    def forward(self, x):
        return F.rms_norm(x, x.shape[-1:], self.g, eps=1e-6)


class MultiHeadAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query_proj = nn.Linear(DIM, DIM, bias=False)
        self.kv_proj = nn.Linear(DIM, 2 * DIM, bias=False)
        self.out_proj = nn.Linear(DIM, DIM, bias=False)

    def forward(self, q, kv, mask=None):
        B, L, _ = q.shape
        qh = self.query_proj(q).view(B, L, HEADS, -1)
        kh, vh = self.kv_proj(kv).view(B, kv.shape[1], 2, HEADS, -1).unbind(2)
        a = torch.einsum("blhd,bmhd->bhlm", qh, kh)
        a = a if mask is None else a + mask
        return self.out_proj(torch.einsum("bhlm,bmhd->blhd", a.softmax(-1), vh).reshape(B, L, -1))


class EncLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention, self.ln1, self.ln2 = MultiHeadAttention(), RMSNorm(DIM), RMSNorm(DIM)
        self.dense = nn.Sequential(nn.Linear(DIM, DFF, bias=False), nn.ReLU(), nn.Linear(DFF, DIM, bias=False))

    def forward(self, x):
        y = self.ln1(x)
        x = x + self.attention(y, y)
        return x + self.dense(self.ln2(x))


class DecLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.self_attention, self.cross_attention = MultiHeadAttention(), MultiHeadAttention()
        self.ln1, self.ln2, self.ln3 = RMSNorm(DIM), RMSNorm(DIM), RMSNorm(DIM)
        self.dense = nn.Sequential(nn.Linear(DIM, DFF, bias=False), nn.ReLU(), nn.Linear(DFF, DIM, bias=False))

    def forward(self, x, memory, mask):
        y = self.ln1(x)
        x = x + self.self_attention(y, y, mask)
        x = x + self.cross_attention(self.ln2(x), memory)
        return x + self.dense(self.ln3(x))


class OutputHead(nn.Module):
    def __init__(self, tie, fixed):
        super().__init__()
        self.tie, self.fixed = tie, fixed
        self.linear = nn.Linear(DIM, VOCAB, bias=False)

    def forward(self, y):
        if self.tie == self.fixed:
            y = y * DIM**-0.5
        return self.linear(y)


class MlxT5(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.wte = nn.Embedding(VOCAB, DIM)
        self.enc = nn.ModuleList(EncLayer() for _ in range(2))
        self.enc_ln = RMSNorm(DIM)
        self.dec = nn.ModuleList(DecLayer() for _ in range(2))
        self.dec_ln = RMSNorm(DIM)
        self.lm_head = OutputHead(TIED, fixed)

    def encode(self, ids):
        x = self.wte(ids)
        for layer in self.enc:
            x = layer(x)
        return self.enc_ln(x)

    def forward(self, src, tgt):
        memory = self.encode(src)
        x = self.wte(tgt)
        mask = torch.triu(torch.full((tgt.shape[1],) * 2, -1e9), 1)
        for layer in self.dec:
            x = layer(x, memory, mask)
        return self.lm_head(self.dec_ln(x))


def convert(sd):
    out = {
        "wte.weight": sd["shared.weight"],
        "lm_head.linear.weight": sd["shared.weight"],
        "enc_ln.g": sd["encoder_norm.weight"],
        "dec_ln.g": sd["decoder_norm.weight"],
    }

    def attn(dst, src):
        out[dst + ".query_proj.weight"] = sd[src + ".q.weight"]
        out[dst + ".kv_proj.weight"] = torch.cat([sd[src + ".k.weight"], sd[src + ".v.weight"]])
        out[dst + ".out_proj.weight"] = sd[src + ".o.weight"]

    for i in range(2):
        attn(f"enc.{i}.attention", f"encoder.{i}.SelfAttention")
        attn(f"dec.{i}.self_attention", f"decoder.{i}.SelfAttention")
        attn(f"dec.{i}.cross_attention", f"decoder.{i}.EncDecAttention")
        for side, full, last in (("enc", "encoder", 2), ("dec", "decoder", 3)):
            out[f"{side}.{i}.dense.0.weight"] = sd[f"{full}.{i}.wi.weight"]
            out[f"{side}.{i}.dense.2.weight"] = sd[f"{full}.{i}.wo.weight"]
            out[f"{side}.{i}.ln1.g"] = sd[f"{full}.{i}.ln_self.weight"]
            out[f"{side}.{i}.ln{last}.g"] = sd[f"{full}.{i}.ln_ff.weight"]
        out[f"dec.{i}.ln2.g"] = sd[f"decoder.{i}.ln_cross.weight"]
    return out


def build(fixed):
    torch.manual_seed(591)
    original = T5ForConditionalGeneration().eval()
    for p in original.parameters():
        p.data.add_(torch.randn_like(p) * 0.05)
    port = MlxT5(fixed).eval()
    port.load_state_dict(convert(original.state_dict()))
    return original, port, (torch.randint(0, VOCAB, (2, 8)), torch.randint(0, VOCAB, (2, 6)))
