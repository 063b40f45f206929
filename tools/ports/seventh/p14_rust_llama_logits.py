"""After huggingface/candle#271: the logits of a Rust LLaMA drift from those of the Python one in
float32 on the CPU."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class LlamaRMSNorm(nn.Module):
    def __init__(self, hidden, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden) + 0.1 * torch.randn(hidden))
        self.variance_epsilon = eps

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon))


def rotate_half(x):
    a, b = x.chunk(2, -1)
    return torch.cat([-b, a], -1)


class LlamaDecoderLayer(nn.Module):
    def __init__(self, d, heads, inter, eps):
        super().__init__()
        self.heads = heads
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(d, d, bias=False) for _ in range(4))
        self.gate_proj, self.up_proj, self.down_proj = (
            nn.Linear(d, inter, bias=False),
            nn.Linear(d, inter, bias=False),
            nn.Linear(inter, d, bias=False),
        )
        self.input_layernorm, self.post_attention_layernorm = LlamaRMSNorm(d, eps), LlamaRMSNorm(d, eps)

    def forward(self, x, cos, sin):
        b, t, d = x.shape
        y = self.input_layernorm(x)
        q, k, v = (f(y).view(b, t, self.heads, -1).transpose(1, 2) for f in (self.q_proj, self.k_proj, self.v_proj))
        q, k = q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o_proj(a.transpose(1, 2).reshape(b, t, d))
        y = self.post_attention_layernorm(x)
        return x + self.down_proj(F.silu(self.gate_proj(y)) * self.up_proj(y))


class LlamaForCausalLM(nn.Module):
    def __init__(self, vocab=48, d=32, heads=4, inter=48, layers=3, eps=1e-6):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocab, d)
        self.layers = nn.ModuleList(LlamaDecoderLayer(d, heads, inter, eps) for _ in range(layers))
        self.norm = LlamaRMSNorm(d, eps)
        self.lm_head = nn.Linear(d, vocab, bias=False)
        inv = 1.0 / 10000 ** (torch.arange(0, d // heads, 2).float() / (d // heads))
        self.register_buffer("inv_freq", inv, persistent=False)

    def forward(self, ids):
        f = torch.outer(torch.arange(ids.shape[1]).float(), self.inv_freq)
        cos, sin = torch.cat([f, f], -1).cos(), torch.cat([f, f], -1).sin()
        x = self.embed_tokens(ids)
        for lyr in self.layers:
            x = lyr(x, cos, sin)
        return self.lm_head(self.norm(x))


class RmsNorm(nn.Module):
    def __init__(self, scale, eps):
        super().__init__()
        self.scale = nn.Parameter(scale.clone())
        self.eps = eps

    def forward(self, x):
        hidden_size = x.shape[-1]
        norm_x = x.square().sum(-1, keepdim=True) / hidden_size
        return x / (norm_x + self.eps).sqrt() * self.scale


class CausalSelfAttention(nn.Module):
    def __init__(self, qkv, o, n_head):
        super().__init__()
        self.c_attn, self.c_proj = nn.Parameter(qkv), nn.Parameter(o.clone())
        self.n_head = n_head

    def apply_rotary_emb(self, x, freqs):
        h = x.shape[-1] // 2
        z = torch.complex(x[..., :h].contiguous(), x[..., h:].contiguous()) * freqs
        return torch.cat([z.real, z.imag], dim=-1)

    def forward(self, x, freqs):
        b, t, c = x.shape
        q, k, v = (x @ self.c_attn.t()).view(b, t, 3, self.n_head, c // self.n_head).permute(2, 0, 3, 1, 4)
        q, k = self.apply_rotary_emb(q, freqs), self.apply_rotary_emb(k, freqs)
        att = q @ k.transpose(-1, -2) / (c // self.n_head) ** 0.5
        att = att.masked_fill(torch.ones(t, t, dtype=torch.bool).triu(1), float("-inf")).softmax(-1)
        return (att @ v).transpose(1, 2).reshape(b, t, c) @ self.c_proj.t()


class Block(nn.Module):
    def __init__(self, s, p, n_head, eps):
        super().__init__()
        self.rms_1 = RmsNorm(s[p + "input_layernorm.weight"], eps)
        self.attn = CausalSelfAttention(
            torch.cat([s[p + f"{n}_proj.weight"] for n in "qkv"]), s[p + "o_proj.weight"], n_head
        )
        self.rms_2 = RmsNorm(s[p + "post_attention_layernorm.weight"], eps)
        self.c_fc = nn.Parameter(torch.cat([s[p + "gate_proj.weight"], s[p + "up_proj.weight"]]))
        self.c_down = nn.Parameter(s[p + "down_proj.weight"].clone())

    def forward(self, x, freqs):
        x = self.attn(self.rms_1(x), freqs) + x
        a, b = (self.rms_2(x) @ self.c_fc.t()).chunk(2, -1)
        return (a * a.sigmoid() * b) @ self.c_down.t() + x


class Llama(nn.Module):
    def __init__(self, s, n_layer=3, n_head=4, norm_eps=1e-5):
        super().__init__()
        s = {k: v.detach() for k, v in s.items()}
        self.wte = nn.Parameter(s["embed_tokens.weight"].clone())
        self.blocks = nn.ModuleList(Block(s, f"layers.{i}.", n_head, norm_eps) for i in range(n_layer))
        self.ln_f = RmsNorm(s["norm.weight"], norm_eps)
        self.head = nn.Parameter(s["lm_head.weight"].clone())
        hd = self.wte.shape[1] // n_head
        theta = 10000.0 ** (-torch.arange(0, hd, 2).float() / hd)
        ang = torch.arange(64).float()[:, None] * theta
        self.register_buffer("freqs_cis", torch.polar(torch.ones_like(ang), ang))

    def forward(self, ids):
        x = self.wte[ids]
        freqs = self.freqs_cis[: ids.shape[1]]
        for blk in self.blocks:
            x = blk(x, freqs)
        return self.ln_f(x) @ self.head.t()


def build(fixed):
    torch.manual_seed(271)
    original = LlamaForCausalLM().eval()
    with torch.no_grad():
        original.embed_tokens.weight.mul_(0.004)
        for lyr in original.layers:
            lyr.o_proj.weight.mul_(0.05)
            lyr.down_proj.weight.mul_(0.05)
    port = Llama(original.state_dict(), **({"norm_eps": 1e-6} if fixed else {})).eval()
    return original, port, (torch.randint(0, 48, (2, 12)),)
