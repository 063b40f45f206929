"""After huggingface/diffusers#1863.

Stable Diffusion 2.x conditions on an OpenCLIP text tower (config: layer "penultimate").
The text-conditioning of the pipeline port is compared with that of the reference
repository: same checkpoint, different context tensor.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

V, W, H, T, L = 48, 24, 3, 12, 4


class ResidualAttentionBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1 = nn.LayerNorm(W)
        self.attn = nn.MultiheadAttention(W, H)
        self.ln_2 = nn.LayerNorm(W)
        self.mlp = nn.ModuleDict({"c_fc": nn.Linear(W, 4 * W), "c_proj": nn.Linear(4 * W, W)})

    def forward(self, x, attn_mask):
        y = self.ln_1(x)
        x = x + self.attn(y, y, y, need_weights=False, attn_mask=attn_mask)[0]
        return x + self.mlp["c_proj"](F.gelu(self.mlp["c_fc"](self.ln_2(x))))


class FrozenOpenCLIPEmbedder(nn.Module):
    def __init__(self, layer="penultimate"):
        super().__init__()
        self.token_embedding = nn.Embedding(V, W)
        self.positional_embedding = nn.Parameter(torch.randn(T, W) * 0.3)
        self.resblocks = nn.ModuleList(ResidualAttentionBlock() for _ in range(L))
        self.ln_final = nn.LayerNorm(W)
        self.layer_idx = {"last": 0, "penultimate": 1}[layer]

    def forward(self, tokens):
        x = self.token_embedding(tokens) + self.positional_embedding
        x = x.permute(1, 0, 2)
        mask = torch.full((T, T), float("-inf")).triu(1)
        for i, r in enumerate(self.resblocks):
            if i == len(self.resblocks) - self.layer_idx:
                break
            x = r(x, mask)
        return self.ln_final(x.permute(1, 0, 2))


class CLIPAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(W, W) for _ in range(4))
        self.scale = (W // H) ** -0.5

    def _shape(self, x):
        return x.view(*x.shape[:2], H, -1).transpose(1, 2).reshape(-1, x.shape[1], W // H)

    def forward(self, x, causal):
        b, t, _ = x.shape
        q, k, v = self._shape(self.q_proj(x) * self.scale), self._shape(self.k_proj(x)), self._shape(self.v_proj(x))
        p = torch.softmax(torch.bmm(q, k.mT) + causal, -1)
        return self.out_proj(torch.bmm(p, v).view(b, H, t, -1).transpose(1, 2).reshape(b, t, W))


class CLIPEncoderLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.self_attn = CLIPAttention()
        self.layer_norm1, self.layer_norm2 = nn.LayerNorm(W), nn.LayerNorm(W)
        self.fc1, self.fc2 = nn.Linear(W, 4 * W), nn.Linear(4 * W, W)

    def forward(self, x, causal):
        x = x + self.self_attn(self.layer_norm1(x), causal)
        return x + self.fc2(F.gelu(self.fc1(self.layer_norm2(x))))


class CLIPTextTransformer(nn.Module):
    def __init__(self, num_hidden_layers):
        super().__init__()
        self.tokens = nn.Embedding(V, W)
        self.positions = nn.Embedding(T, W)
        self.encoder = nn.ModuleList(CLIPEncoderLayer() for _ in range(num_hidden_layers))
        self.final_layer_norm = nn.LayerNorm(W)

    def forward(self, input_ids):
        h = self.tokens(input_ids) + self.positions.weight[None, : input_ids.shape[1]]
        causal = torch.zeros(h.shape[1], h.shape[1]).masked_fill(torch.ones(h.shape[1], h.shape[1]).tril() == 0, -1e30)
        for layer in self.encoder:
            h = layer(h, causal)
        return self.final_layer_norm(h)


def convert(sd, num_hidden_layers=L):
    new = {"tokens.weight": sd["token_embedding.weight"], "positions.weight": sd["positional_embedding"]}
    for s in ("weight", "bias"):
        new["final_layer_norm." + s] = sd["ln_final." + s]
        for i in range(num_hidden_layers):
            o, n = f"resblocks.{i}.", f"encoder.{i}."
            for c, w in zip("qkv", sd[o + "attn.in_proj_" + s].chunk(3)):
                new[n + f"self_attn.{c}_proj.{s}"] = w
            new[n + "self_attn.out_proj." + s] = sd[o + "attn.out_proj." + s]
            new[n + "layer_norm1." + s], new[n + "layer_norm2." + s] = sd[o + "ln_1." + s], sd[o + "ln_2." + s]
            new[n + "fc1." + s], new[n + "fc2." + s] = sd[o + "mlp.c_fc." + s], sd[o + "mlp.c_proj." + s]
    return new


def build(fixed):
    torch.manual_seed(1863)
    original = FrozenOpenCLIPEmbedder().eval()
    depth = L - 1 if fixed else L
    port = CLIPTextTransformer(depth).eval()
    port.load_state_dict(convert(original.state_dict(), depth))
    return original, port, (torch.randint(0, V, (2, T)),)
