"""After huggingface/transformers#13481.

Adding PLBART: fairseq's BART encoder against the transformers-style one.  One of the
sentences in the batch is padded on the left, and there the two encoders disagree.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

V, D, H, FF, L, MAXP, PAD = 40, 24, 3, 48, 2, 20, 1


class FairseqLearnedPositional(nn.Embedding):
    def __init__(self):
        super().__init__(MAXP + PAD + 1, D, PAD)

    def forward(self, tokens):
        mask = tokens.ne(PAD).int()
        positions = (torch.cumsum(mask, 1).type_as(mask) * mask).long() + PAD
        return super().forward(positions)


class FairseqLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.self_attn = nn.MultiheadAttention(D, H, batch_first=True)
        self.self_attn_layer_norm, self.final_layer_norm = nn.LayerNorm(D), nn.LayerNorm(D)
        self.fc1, self.fc2 = nn.Linear(D, FF), nn.Linear(FF, D)

    def forward(self, x, pad):
        y = self.self_attn(x, x, x, key_padding_mask=pad, need_weights=False)[0]
        x = self.self_attn_layer_norm(x + y)
        return self.final_layer_norm(x + self.fc2(F.gelu(self.fc1(x))))


class FairseqBartEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(V, D, PAD)
        self.embed_positions = FairseqLearnedPositional()
        self.layernorm_embedding = nn.LayerNorm(D)
        self.layers = nn.ModuleList(FairseqLayer() for _ in range(L))

    def forward(self, src_tokens):
        pad = src_tokens.eq(PAD)
        x = self.embed_tokens(src_tokens) * D**0.5 + self.embed_positions(src_tokens)
        x = self.layernorm_embedding(x)
        for layer in self.layers:
            x = layer(x, pad)
        return x * (~pad)[..., None]


class PLBartLearnedPositionalEmbedding(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.fixed = fixed
        self.offset = 2
        self.weight = nn.Parameter(torch.empty(MAXP + self.offset, D))

    def forward(self, attention_mask):
        n = attention_mask.shape[1]
        if self.fixed:
            idx = (attention_mask.cumsum(1) - 1).clamp(min=-1) * attention_mask - (1 - attention_mask)
        else:
            idx = torch.arange(n).expand_as(attention_mask)
        return self.weight[idx + self.offset]


class PLBartAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.k_proj, self.v_proj, self.q_proj, self.out_proj = (nn.Linear(D, D) for _ in range(4))

    def forward(self, x, mask):
        b, n, _ = x.shape
        q, k, v = (p(x).view(b, n, H, -1).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        w = (q * (D // H) ** -0.5) @ k.mT + mask
        return self.out_proj((w.softmax(-1) @ v).transpose(1, 2).reshape(b, n, D))


class PLBartEncoderLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn = PLBartAttention()
        self.attn_norm, self.ffn_norm = nn.LayerNorm(D), nn.LayerNorm(D)
        self.ffn = nn.Sequential(nn.Linear(D, FF), nn.GELU(), nn.Linear(FF, D))

    def forward(self, h, mask):
        h = self.attn_norm(h + self.attn(h, mask))
        return self.ffn_norm(h + self.ffn(h))


class PLBartEncoder(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.shared = nn.Embedding(V, D)
        self.embed_scale = D**0.5
        self.pos = PLBartLearnedPositionalEmbedding(fixed)
        self.norm = nn.LayerNorm(D)
        self.layers = nn.ModuleList(PLBartEncoderLayer() for _ in range(L))

    def forward(self, input_ids):
        attention_mask = (input_ids != PAD).long()
        h = self.norm(self.shared(input_ids).mul(self.embed_scale) + self.pos(attention_mask))
        mask = (1.0 - attention_mask[:, None, None].float()) * -1e9
        for layer in self.layers:
            h = layer(h, mask)
        return h * attention_mask.unsqueeze(-1)


def convert(sd):
    new = {"shared.weight": sd["embed_tokens.weight"], "pos.weight": sd["embed_positions.weight"]}
    for s in ("weight", "bias"):
        new["norm." + s] = sd["layernorm_embedding." + s]
        for i in range(L):
            p = f"layers.{i}."
            for c, w in zip("qkv", sd[p + "self_attn.in_proj_" + s].split(D)):
                new[p + f"attn.{c}_proj.{s}"] = w
            new[p + "attn.out_proj." + s] = sd[p + "self_attn.out_proj." + s]
            new[p + "attn_norm." + s] = sd[p + "self_attn_layer_norm." + s]
            new[p + "ffn_norm." + s] = sd[p + "final_layer_norm." + s]
            new[p + "ffn.0." + s], new[p + "ffn.2." + s] = sd[p + "fc1." + s], sd[p + "fc2." + s]
    return new


def build(fixed):
    torch.manual_seed(13481)
    original = FairseqBartEncoder().eval()
    with torch.no_grad():
        original.embed_positions.weight.mul_(3.0)
    port = PLBartEncoder(fixed).eval()
    port.load_state_dict(convert(original.state_dict()))
    ids = torch.randint(4, V, (3, 10))
    ids[1, :3] = PAD
    ids[2, :1] = PAD
    return original, port, (ids,)
