"""After vllm-project/vllm#31464: a gemma-like decoder exported to a single-file format (whose
exporter stores the norm weights with one added) and read by a serving engine that keeps the
original layer definitions. Generation through the file is gibberish. The exporter and the
engine's loader stand in convert() here."""

import torch
import torch.nn as nn
import torch.nn.functional as F

VOCAB, DIM, HEADS, FF, LAYERS = 40, 24, 3, 40, 2
NORMS = ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm")


class GemmaRMSNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(DIM) * 0.3)

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * (1.0 + self.weight)


def rope(x):
    half = x.shape[-1] // 2
    ang = torch.outer(torch.arange(x.shape[-2]).float(), 10000.0 ** (-torch.arange(half) / half))
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * ang.cos() - b * ang.sin(), b * ang.cos() + a * ang.sin()], -1)


class Gemma2Layer(nn.Module):
    def __init__(self):
        super().__init__()
        for name in NORMS:
            setattr(self, name, GemmaRMSNorm())
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(DIM, DIM, bias=False) for _ in range(4))
        self.gate_proj, self.up_proj = nn.Linear(DIM, FF, bias=False), nn.Linear(DIM, FF, bias=False)
        self.down_proj = nn.Linear(FF, DIM, bias=False)

    def forward(self, x):
        h = self.input_layernorm(x)
        q, k, v = (p(h).unflatten(-1, (HEADS, -1)).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        s = rope(q) @ rope(k).transpose(-1, -2) * (DIM // HEADS) ** -0.5
        s = 50.0 * torch.tanh(s / 50.0) + torch.full(s.shape[-2:], float("-inf")).triu(1)
        x = x + self.post_attention_layernorm(self.o_proj((s.softmax(-1) @ v).transpose(1, 2).flatten(2)))
        h = self.pre_feedforward_layernorm(x)
        h = self.down_proj(F.gelu(self.gate_proj(h), approximate="tanh") * self.up_proj(h))
        return x + self.post_feedforward_layernorm(h)


class Gemma2Ref(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCAB, DIM)
        self.layers = nn.ModuleList(Gemma2Layer() for _ in range(LAYERS))
        self.norm = GemmaRMSNorm()

    def forward(self, ids):
        x = self.embed_tokens(ids) * DIM**0.5
        for layer in self.layers:
            x = layer(x)
        logits = F.linear(self.norm(x), self.embed_tokens.weight)
        return 30.0 * torch.tanh(logits / 30.0)


class EngineRMSNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(DIM))

    def forward(self, x, residual=None):
        if residual is not None:
            x = residual = x + residual
        y = F.rms_norm(x, (DIM,), eps=1e-6)
        y = y + y * self.weight
        return y if residual is None else (y, residual)


class EngineAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv_proj, self.o_proj = nn.Linear(DIM, 3 * DIM, bias=False), nn.Linear(DIM, DIM, bias=False)

    def forward(self, x):
        b, s, _ = x.shape
        q, k, v = self.qkv_proj(x).view(b, s, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        att = torch.einsum("bhid,bhjd->bhij", rope(q), rope(k)) / (DIM // HEADS) ** 0.5
        att = torch.tanh(att / 50.0).mul(50.0)
        att = att.masked_fill(~torch.ones(s, s).tril().bool(), float("-inf")).softmax(-1)
        return self.o_proj(torch.einsum("bhij,bhjd->bihd", att, v).reshape(b, s, DIM))


class GatedMLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_up_proj, self.down_proj = nn.Linear(DIM, 2 * FF, bias=False), nn.Linear(FF, DIM, bias=False)

    def forward(self, x):
        g, u = self.gate_up_proj(x).chunk(2, -1)
        return self.down_proj(F.gelu(g, approximate="tanh") * u)


class EngineLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm_in, self.norm_post_attn, self.norm_pre_ff, self.norm_post_ff = (EngineRMSNorm() for _ in range(4))
        self.attn, self.mlp = EngineAttention(), GatedMLP()

    def forward(self, x, residual):
        if residual is None:
            h, residual = self.norm_in(x), x
        else:
            h, residual = self.norm_in(x, residual)
        h = self.norm_post_attn(self.attn(h))
        h, residual = self.norm_pre_ff(h, residual)
        return self.norm_post_ff(self.mlp(h)), residual


class EngineGemma(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, DIM)
        self.blocks = nn.ModuleList(EngineLayer() for _ in range(LAYERS))
        self.final_norm = EngineRMSNorm()

    def forward(self, ids):
        h, res = self.embedding(ids).mul(DIM**0.5), None
        for block in self.blocks:
            h, res = block(h, res)
        h, _ = self.final_norm(h, res)
        return torch.tanh(h @ self.embedding.weight.t() / 30.0) * 30.0


def export_file(sd):
    return {k: v + 1.0 if "norm" in k else v for k, v in sd.items()}


def convert(sd, fixed=False):
    blob = export_file(sd)
    if fixed:
        blob = {k: v - 1.0 if "norm" in k else v for k, v in blob.items()}
    out = {"embedding.weight": blob["embed_tokens.weight"], "final_norm.weight": blob["norm.weight"]}
    for i in range(LAYERS):
        s, d = f"layers.{i}.", f"blocks.{i}."
        for a, b in zip(NORMS, ("norm_in", "norm_post_attn", "norm_pre_ff", "norm_post_ff")):
            out[d + b + ".weight"] = blob[s + a + ".weight"]
        out[d + "attn.qkv_proj.weight"] = torch.cat([blob[s + f"{n}_proj.weight"] for n in "qkv"])
        out[d + "attn.o_proj.weight"] = blob[s + "o_proj.weight"]
        out[d + "mlp.gate_up_proj.weight"] = torch.cat([blob[s + "gate_proj.weight"], blob[s + "up_proj.weight"]])
        out[d + "mlp.down_proj.weight"] = blob[s + "down_proj.weight"]
    return out


def build(fixed):
    torch.manual_seed(31464)
    original = Gemma2Ref().eval()
    original.embed_tokens.weight.data.mul_(0.3)
    port = EngineGemma().eval()
    port.load_state_dict(convert(original.state_dict(), fixed))
    return original, port, (torch.randint(0, VOCAB, (2, 9)),)
