"""allenai/OLMo#680

The sequential decoder block was rewritten on a new branch so that the attention norm
may sit before or after attention.  Outputs of the healthy branch and of the rewrite
start to disagree at the feed-forward norm of the first block.
"""

import torch
import torch.nn.functional as F
from torch import nn


class OLMoSequentialBlock(nn.Module):
    def __init__(self, d_model, n_heads, mlp_hidden):
        super().__init__()
        self.attn_norm, self.ff_norm = nn.LayerNorm(d_model, bias=False), nn.LayerNorm(d_model, bias=False)
        self.att_proj = nn.Linear(d_model, 3 * d_model, bias=False)
        self.attn_out = nn.Linear(d_model, d_model, bias=False)
        self.ff_proj = nn.Linear(d_model, 2 * mlp_hidden, bias=False)
        self.ff_out = nn.Linear(mlp_hidden, d_model, bias=False)
        self.n_heads = n_heads

    def attention(self, q, k, v, bias):
        B, T, C = q.shape
        q, k, v = (t.view(B, T, self.n_heads, -1).transpose(1, 2) for t in (q, k, v))
        att = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        return self.attn_out(att.transpose(1, 2).reshape(B, T, C))

    def forward(self, x, bias):
        q, k, v = self.att_proj(self.attn_norm(x)).chunk(3, dim=-1)
        x = x + self.attention(q, k, v, bias)
        h, gate = self.ff_proj(self.ff_norm(x)).chunk(2, dim=-1)
        return x + self.ff_out(F.silu(gate) * h)


class OLMo(nn.Module):
    def __init__(self, vocab=48, d_model=24, n_heads=4, n_layers=3, mlp_hidden=40):
        super().__init__()
        self.wte = nn.Embedding(vocab, d_model)
        self.blocks = nn.ModuleList(OLMoSequentialBlock(d_model, n_heads, mlp_hidden) for _ in range(n_layers))
        self.ln_f = nn.LayerNorm(d_model, bias=False)
        self.ff_out = nn.Linear(d_model, vocab, bias=False)
        self.n_heads = n_heads

    def forward(self, input_ids):
        T = input_ids.shape[1]
        slopes = 2.0 ** (-8.0 * torch.arange(1, self.n_heads + 1) / self.n_heads)
        dist = (torch.arange(T)[None] - torch.arange(T)[:, None]).float()
        bias = slopes[:, None, None] * dist
        bias = bias.masked_fill(dist > 0, float("-inf"))
        x = self.wte(input_ids)
        for block in self.blocks:
            x = block(x, bias)
        return self.ff_out(self.ln_f(x))


class WeightOnlyNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        mu = x.mean(-1, keepdim=True)
        return (x - mu) * torch.rsqrt((x - mu).square().mean(-1, keepdim=True) + 1e-5) * self.gain


class AlibiAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.wq, self.wk, self.wv, self.wo = (nn.Parameter(torch.empty(dim, dim)) for _ in range(4))
        slopes = torch.tensor([2.0 ** (-8.0 * (h + 1) / heads) for h in range(heads)])
        self.register_buffer("slopes", slopes, persistent=False)

    def forward(self, x):
        b, t, d = x.shape
        heads = len(self.slopes)
        q, k, v = ((x @ w).view(b, t, heads, d // heads) for w in (self.wq, self.wk, self.wv))
        logits = torch.einsum("bihd,bjhd->bhij", q, k) * (d // heads) ** -0.5
        steps = torch.arange(t)
        logits = logits + self.slopes.view(-1, 1, 1) * (steps.view(1, -1) - steps.view(-1, 1))
        causal = torch.ones(t, t, dtype=torch.bool).tril()
        probs = torch.where(causal, logits, torch.tensor(float("-inf"))).softmax(dim=-1)
        return torch.einsum("bhij,bjhd->bihd", probs, v).reshape(b, t, d) @ self.wo


class GatedFeedForward(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.w_up, self.w_gate = nn.Parameter(torch.empty(dim, hidden)), nn.Parameter(torch.empty(dim, hidden))
        self.w_down = nn.Parameter(torch.empty(hidden, dim))

    def forward(self, x):
        return ((x @ self.w_up) * F.silu(x @ self.w_gate)) @ self.w_down


class TransformerLayer(nn.Module):
    def __init__(self, dim, heads, hidden, norm_after=False, keep_stream=False):
        super().__init__()
        self.norm_1, self.norm_2 = WeightOnlyNorm(dim), WeightOnlyNorm(dim)
        self.mixer, self.ffn = AlibiAttention(dim, heads), GatedFeedForward(dim, hidden)
        self.norm_after, self.keep_stream = norm_after, keep_stream

    def forward(self, x):
        if self.norm_after:
            x = x + self.norm_1(self.mixer(x))
            return x + self.norm_2(self.ffn(x))
        if self.keep_stream:
            h = self.norm_1(x)
        else:
            x = h = self.norm_1(x)
        x = x + self.mixer(h)
        return x + self.ffn(self.norm_2(x))


class OLMoRewrite(nn.Module):
    def __init__(self, vocab=48, dim=24, heads=4, depth=3, hidden=40, keep_stream=False):
        super().__init__()
        self.tok_embeddings = nn.Parameter(torch.empty(vocab, dim))
        self.layers = nn.ModuleList(TransformerLayer(dim, heads, hidden, keep_stream=keep_stream) for _ in range(depth))
        self.norm, self.output = WeightOnlyNorm(dim), nn.Parameter(torch.empty(dim, vocab))

    def forward(self, tokens):
        x = self.tok_embeddings[tokens]
        for layer in self.layers:
            x = layer(x)
        return self.norm(x) @ self.output


def convert(sd):
    out = {"tok_embeddings": sd["wte.weight"], "norm.gain": sd["ln_f.weight"], "output": sd["ff_out.weight"].t()}
    for i in range(3):
        s, t = f"blocks.{i}.", f"layers.{i}."
        out[t + "norm_1.gain"], out[t + "norm_2.gain"] = sd[s + "attn_norm.weight"], sd[s + "ff_norm.weight"]
        for name, w in zip("qkv", sd[s + "att_proj.weight"].chunk(3)):
            out[f"{t}mixer.w{name}"] = w.t()
        out[t + "mixer.wo"] = sd[s + "attn_out.weight"].t()
        up, gate = sd[s + "ff_proj.weight"].chunk(2)
        out[t + "ffn.w_up"], out[t + "ffn.w_gate"], out[t + "ffn.w_down"] = (
            up.t(),
            gate.t(),
            sd[s + "ff_out.weight"].t(),
        )
    return {k: v.contiguous().clone() for k, v in out.items()}


def build(fixed):
    torch.manual_seed(13)
    original = OLMo().eval()
    for _n, p in original.named_parameters():
        nn.init.normal_(p, 1.0 if p.ndim == 1 else 0.0, 0.2)
    port = OLMoRewrite(keep_stream=fixed).eval()
    port.load_state_dict(convert(original.state_dict()))
    return original, port, (torch.randint(0, 48, (2, 9)),)
