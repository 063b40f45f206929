"""After NVIDIA-NeMo/Megatron-Bridge#4661.

A bridge builds a training-framework model from a Gemma-1 checkpoint in library format.  The
weights arrive intact, yet activations and logits are slightly off in every layer.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

CONFIG = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "rms_norm_eps": 1e-6,
    "hidden_act": "gelu",
    "hidden_activation": None,
}


class GemmaRMSNorm(nn.Module):
    def __init__(self, dim, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.randn(dim) * 0.2), eps

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * (1.0 + self.weight)


def rope(x, base=10000.0):
    t, d = x.shape[-2], x.shape[-1]
    f = torch.outer(torch.arange(t).float(), base ** (-torch.arange(0, d, 2).float() / d))
    cos, sin = torch.cat([f, f], -1).cos(), torch.cat([f, f], -1).sin()
    x1, x2 = x.chunk(2, -1)
    return x * cos + torch.cat([-x2, x1], -1) * sin


class GemmaMLP(nn.Module):
    def __init__(self, c):
        super().__init__()
        h, i = c["hidden_size"], c["intermediate_size"]
        self.gate_proj, self.up_proj, self.down_proj = (
            nn.Linear(h, i, bias=False),
            nn.Linear(h, i, bias=False),
            nn.Linear(i, h, bias=False),
        )

    def forward(self, x):
        return self.down_proj(F.gelu(self.gate_proj(x), approximate="tanh") * self.up_proj(x))


class GemmaAttention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.n, self.kv, self.d = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
        h = c["hidden_size"]
        self.q_proj, self.k_proj = nn.Linear(h, self.n * self.d, bias=False), nn.Linear(h, self.kv * self.d, bias=False)
        self.v_proj, self.o_proj = nn.Linear(h, self.kv * self.d, bias=False), nn.Linear(self.n * self.d, h, bias=False)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (p(x).view(b, t, -1, self.d).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        k, v = (y.repeat_interleave(self.n // self.kv, 1) for y in (rope(k), v))
        o = F.scaled_dot_product_attention(rope(q), k, v, is_causal=True)
        return self.o_proj(o.transpose(1, 2).reshape(b, t, -1))


class GemmaDecoderLayer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.self_attn, self.mlp = GemmaAttention(c), GemmaMLP(c)
        self.input_layernorm = GemmaRMSNorm(c["hidden_size"], c["rms_norm_eps"])
        self.post_attention_layernorm = GemmaRMSNorm(c["hidden_size"], c["rms_norm_eps"])

    def forward(self, x):
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class GemmaForCausalLM(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.embed_tokens = nn.Embedding(c["vocab_size"], c["hidden_size"])
        self.layers = nn.ModuleList([GemmaDecoderLayer(c) for _ in range(c["num_hidden_layers"])])
        self.norm = GemmaRMSNorm(c["hidden_size"], c["rms_norm_eps"])

    def forward(self, ids):
        x = self.embed_tokens(ids) * self.embed_tokens.embedding_dim**0.5
        for layer in self.layers:
            x = layer(x)
        return F.linear(self.norm(x), self.embed_tokens.weight)


def fast_gelu(x):
    return 0.5 * x * (1.0 + torch.tanh(0.7978845608028654 * x * (1.0 + 0.044715 * x * x)))


class TENorm(nn.Module):
    def __init__(self, dim, eps, zero_centered_gamma=True):
        super().__init__()
        self.layer_norm_weight, self.eps, self.zc = nn.Parameter(torch.zeros(dim)), eps, zero_centered_gamma

    def forward(self, x):
        w = self.layer_norm_weight + 1 if self.zc else self.layer_norm_weight
        return F.rms_norm(x, (x.shape[-1],), w, self.eps)


class SelfAttention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.np, self.ng, self.hn = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
        self.linear_qkv = nn.Linear(c["hidden_size"], (self.np + 2 * self.ng) * self.hn, bias=False)
        self.linear_proj = nn.Linear(self.np * self.hn, c["hidden_size"], bias=False)

    def forward(self, h):
        s, b, _ = h.shape
        qkv = self.linear_qkv(h).view(s, b, self.ng, self.np // self.ng + 2, self.hn)
        q, k, v = qkv.split([self.np // self.ng, 1, 1], dim=3)
        q, k, v = (y.permute(1, 2, 3, 0, 4) for y in (q, k, v))
        att = rope(q) @ rope(k).transpose(-1, -2) / self.hn**0.5
        att = att.masked_fill(torch.ones(s, s, dtype=torch.bool).triu(1), float("-inf")).softmax(-1)
        return self.linear_proj((att @ v).permute(3, 0, 1, 2, 4).reshape(s, b, -1))


class MLP(nn.Module):
    def __init__(self, c, activation_func):
        super().__init__()
        self.linear_fc1 = nn.Linear(c["hidden_size"], 2 * c["intermediate_size"], bias=False)
        self.linear_fc2 = nn.Linear(c["intermediate_size"], c["hidden_size"], bias=False)
        self.activation_func = activation_func

    def forward(self, h):
        gate, up = self.linear_fc1(h).chunk(2, dim=-1)
        return self.linear_fc2(self.activation_func(gate) * up)


class TransformerLayer(nn.Module):
    def __init__(self, c, act):
        super().__init__()
        self.input_layernorm, self.pre_mlp_layernorm = (TENorm(c["hidden_size"], c["rms_norm_eps"]) for _ in range(2))
        self.self_attention, self.mlp = SelfAttention(c), MLP(c, act)

    def forward(self, h):
        h = h + self.self_attention(self.input_layernorm(h))
        return h + self.mlp(self.pre_mlp_layernorm(h))


class GPTModel(nn.Module):
    def __init__(self, c, act):
        super().__init__()
        self.word_embeddings = nn.Embedding(c["vocab_size"], c["hidden_size"])
        self.scale = c["hidden_size"] ** 0.5
        self.decoder = nn.ModuleList([TransformerLayer(c, act) for _ in range(c["num_hidden_layers"])])
        self.final_layernorm = TENorm(c["hidden_size"], c["rms_norm_eps"])

    def forward(self, tokens):
        h = self.word_embeddings(tokens).transpose(0, 1) * self.scale
        for layer in self.decoder:
            h = layer(h)
        return (self.final_layernorm(h) @ self.word_embeddings.weight.t()).transpose(0, 1)


class GemmaBridge:
    ACTIVATIONS = {"gelu": F.gelu, "silu": F.silu, "gelu_pytorch_tanh": fast_gelu}

    def activation(self, c):
        return self.ACTIVATIONS[c["hidden_act"]]

    def weights(self, sd, c):
        out = {
            "word_embeddings.weight": sd["embed_tokens.weight"],
            "final_layernorm.layer_norm_weight": sd["norm.weight"],
        }
        for i in range(c["num_hidden_layers"]):
            s, d = f"layers.{i}.", f"decoder.{i}."
            out[d + "self_attention.linear_qkv.weight"] = torch.cat(
                [sd[s + f"self_attn.{p}_proj.weight"] for p in "qkv"]
            )
            out[d + "self_attention.linear_proj.weight"] = sd[s + "self_attn.o_proj.weight"]
            out[d + "mlp.linear_fc1.weight"] = torch.cat([sd[s + "mlp.gate_proj.weight"], sd[s + "mlp.up_proj.weight"]])
            out[d + "mlp.linear_fc2.weight"] = sd[s + "mlp.down_proj.weight"]
            out[d + "input_layernorm.layer_norm_weight"] = sd[s + "input_layernorm.weight"]
            out[d + "pre_mlp_layernorm.layer_norm_weight"] = sd[s + "post_attention_layernorm.weight"]
        return out


class GemmaBridgeMended(GemmaBridge):
    def activation(self, c):
        return fast_gelu


def build(fixed):
    torch.manual_seed(6)
    original = GemmaForCausalLM(CONFIG).eval()
    with torch.no_grad():
        original.embed_tokens.weight.mul_(0.3).add_(0.3)
        for layer in original.layers:
            layer.mlp.gate_proj.weight.mul_(1.5).sub_(0.12)
            layer.mlp.up_proj.weight.mul_(4)
            layer.mlp.down_proj.weight.mul_(8)
    bridge = (GemmaBridgeMended if fixed else GemmaBridge)()
    port = GPTModel(CONFIG, bridge.activation(CONFIG)).eval()
    port.load_state_dict(bridge.weights(original.state_dict(), CONFIG))
    return original, port, (torch.randint(0, 64, (2, 12)),)
