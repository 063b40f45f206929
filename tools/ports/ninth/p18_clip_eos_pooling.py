"""huggingface/transformers#24650

A CLIP text tower with added tokens (textual inversion: ids above the end-of-text id)
was re-implemented with a fused attention and pooling as in the first CLIP code.
Plain prompts give equal embeddings, prompts with an added token do not.
"""

import torch
import torch.nn.functional as F
from torch import nn

BOS, EOS, VOCAB = 48, 49, 54


class QuickGELU(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(1.702 * x)


class CLIPAttention(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(d, d) for _ in range(4))
        self.heads = heads

    def forward(self, x, mask):
        b, n, d = x.shape
        q, k, v = (f(x).view(b, n, self.heads, -1).transpose(1, 2) for f in (self.q_proj, self.k_proj, self.v_proj))
        w = ((q * (d // self.heads) ** -0.5) @ k.transpose(-1, -2) + mask).softmax(-1)
        return self.out_proj((w @ v).transpose(1, 2).reshape(b, n, d))


class CLIPEncoderLayer(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.layer_norm1, self.self_attn = nn.LayerNorm(d), CLIPAttention(d, heads)
        self.layer_norm2 = nn.LayerNorm(d)
        self.mlp = nn.Sequential(nn.Linear(d, 2 * d), QuickGELU(), nn.Linear(2 * d, d))

    def forward(self, x, mask):
        x = x + self.self_attn(self.layer_norm1(x), mask)
        return x + self.mlp(self.layer_norm2(x))


class CLIPTextModelWithProjection(nn.Module):
    def __init__(self, d=24, heads=3, layers=3, max_len=12, proj=16):
        super().__init__()
        self.token_embedding, self.position_embedding = nn.Embedding(VOCAB, d), nn.Embedding(max_len, d)
        self.layers = nn.ModuleList(CLIPEncoderLayer(d, heads) for _ in range(layers))
        self.final_layer_norm = nn.LayerNorm(d)
        self.text_projection = nn.Linear(d, proj, bias=False)
        self.eos_token_id = EOS

    def forward(self, input_ids):
        b, n = input_ids.shape
        x = self.token_embedding(input_ids) + self.position_embedding(torch.arange(n))
        mask = torch.full((n, n), float("-inf")).triu(1)
        for layer in self.layers:
            x = layer(x, mask)
        x = self.final_layer_norm(x)
        at = (input_ids == self.eos_token_id).int().argmax(-1)
        return F.normalize(self.text_projection(x[torch.arange(b), at]), dim=-1)


class ResidualAttentionBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.in_proj_weight, self.in_proj_bias = (
            nn.Parameter(torch.empty(3 * width, width)),
            nn.Parameter(torch.empty(3 * width)),
        )
        self.out = nn.Linear(width, width)
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_fc, self.c_proj = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.heads = heads

    def attention(self, x):
        qkv = F.linear(x, self.in_proj_weight, self.in_proj_bias)
        q, k, v = qkv.unflatten(-1, (3, self.heads, -1)).permute(2, 1, 3, 0, 4)
        return self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).permute(2, 0, 1, 3).flatten(2))

    def forward(self, x):
        x = x + self.attention(self.ln_1(x))
        h = self.c_fc(self.ln_2(x))
        return x + self.c_proj(h / (1 + torch.exp(-1.702 * h)))


class EotPool(nn.Module):
    def __init__(self, eot_id=None):
        super().__init__()
        self.eot_id = eot_id

    def forward(self, x, text):
        if self.eot_id is None:
            index = text.argmax(dim=-1)
        else:
            index = (text == self.eot_id).float().argmax(dim=-1)
        return x.gather(1, index.view(-1, 1, 1).expand(-1, 1, x.shape[-1])).squeeze(1)


class TextTower(nn.Module):
    def __init__(self, width=24, heads=3, layers=3, context=12, embed_dim=16, eot_id=None):
        super().__init__()
        self.token_embedding = nn.Embedding(VOCAB, width)
        self.positional_embedding = nn.Parameter(torch.empty(context, width))
        self.resblocks = nn.Sequential(*[ResidualAttentionBlock(width, heads) for _ in range(layers)])
        self.ln_final, self.pool = nn.LayerNorm(width), EotPool(eot_id)
        self.text_projection = nn.Parameter(torch.empty(width, embed_dim))

    def forward(self, text):
        x = self.token_embedding(text) + self.positional_embedding[: text.shape[1]]
        x = self.resblocks(x.permute(1, 0, 2)).permute(1, 0, 2)
        feats = self.pool(self.ln_final(x), text) @ self.text_projection
        return feats / feats.norm(dim=-1, keepdim=True)


def convert(sd):
    out = {
        "token_embedding.weight": sd["token_embedding.weight"],
        "positional_embedding": sd["position_embedding.weight"],
        "text_projection": sd["text_projection.weight"].t(),
    }
    for w in ("weight", "bias"):
        out["ln_final." + w] = sd["final_layer_norm." + w]
        for i in range(3):
            s, t = f"layers.{i}.", f"resblocks.{i}."
            out[t + "in_proj_" + w] = torch.cat([sd[f"{s}self_attn.{c}_proj.{w}"] for c in "qkv"])
            for new, old in (
                ("out", "self_attn.out_proj"),
                ("ln_1", "layer_norm1"),
                ("ln_2", "layer_norm2"),
                ("c_fc", "mlp.0"),
                ("c_proj", "mlp.2"),
            ):
                out[f"{t}{new}.{w}"] = sd[f"{s}{old}.{w}"]
    return {k: v.clone() for k, v in out.items()}


def build(fixed):
    torch.manual_seed(17)
    original = CLIPTextModelWithProjection().eval()
    for n, p in original.named_parameters():
        nn.init.normal_(p, 1.0 if "norm" in n and n.endswith("weight") else 0.0, 0.2)
    port = TextTower(eot_id=EOS if fixed else None).eval()
    port.load_state_dict(convert(original.state_dict()))
    ids = torch.tensor(
        [[BOS, 7, 21, 50, 3, 11, EOS, 0, 0], [BOS, 9, 30, 14, EOS, 0, 0, 0, 0], [BOS, 5, 52, 53, 8, 2, 17, EOS, 0]]
    )
    return original, port, (ids,)
