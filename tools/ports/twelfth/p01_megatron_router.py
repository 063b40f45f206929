"""After NVIDIA/Megatron-LM#955: a small mixture-of-experts language block written after the
transformers layout (per-expert nn.Linear, softmax over every router logit, then top-k) was
re-implemented with grouped expert tensors in the Megatron manner. With the same checkpoint the
two give different logits for the same tokens."""

import torch
import torch.nn as nn
import torch.nn.functional as F

VOCAB, DIM, HIDDEN, EXPERTS, TOPK = 40, 24, 32, 6, 2


class ExpertMLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1 = nn.Linear(DIM, HIDDEN, bias=False)
        self.w2 = nn.Linear(HIDDEN, DIM, bias=False)
        self.w3 = nn.Linear(DIM, HIDDEN, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class SparseMoeBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(DIM, EXPERTS, bias=False)
        self.experts = nn.ModuleList(ExpertMLP() for _ in range(EXPERTS))

    def forward(self, hidden):
        b, s, d = hidden.shape
        flat = hidden.reshape(-1, d)
        routing = F.softmax(self.gate(flat), dim=1)
        weights, selected = torch.topk(routing, TOPK, dim=-1)
        out = torch.zeros_like(flat)
        for e, expert in enumerate(self.experts):
            tok, slot = torch.where(selected == e)
            if tok.numel():
                out.index_add_(0, tok, expert(flat[tok]) * weights[tok, slot, None])
        return out.view(b, s, d)


class HFDecoderLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.input_layernorm = nn.LayerNorm(DIM)
        self.self_attn = nn.MultiheadAttention(DIM, 4, batch_first=True)
        self.post_attention_layernorm = nn.LayerNorm(DIM)
        self.block_sparse_moe = SparseMoeBlock()

    def forward(self, x):
        h = self.input_layernorm(x)
        x = x + self.self_attn(h, h, h, need_weights=False)[0]
        return x + self.block_sparse_moe(self.post_attention_layernorm(x))


class HFMoeModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCAB, DIM)
        self.layers = nn.ModuleList(HFDecoderLayer() for _ in range(2))
        self.norm = nn.LayerNorm(DIM)
        self.lm_head = nn.Linear(DIM, VOCAB, bias=False)

    def forward(self, ids):
        x = self.embed_tokens(ids)
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(self.norm(x))


class TopKRouter(nn.Module):
    def __init__(self, pre_softmax):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(EXPERTS, DIM))
        self.pre_softmax = pre_softmax

    def forward(self, tokens):
        logits = tokens @ self.weight.t()
        if self.pre_softmax:
            probs, idx = torch.topk(torch.softmax(logits, -1), TOPK, dim=1)
        else:
            scores, idx = torch.topk(logits, TOPK, dim=1)
            probs = torch.softmax(scores, dim=-1)
        return torch.zeros_like(logits).scatter(1, idx, probs)


class GroupedMLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear_fc1 = nn.Parameter(torch.empty(EXPERTS, DIM, 2 * HIDDEN))
        self.linear_fc2 = nn.Parameter(torch.empty(EXPERTS, HIDDEN, DIM))

    def forward(self, tokens):
        up = torch.einsum("td,edh->teh", tokens, self.linear_fc1)
        gate, value = up.chunk(2, dim=-1)
        return torch.einsum("teh,ehd->ted", F.silu(gate) * value, self.linear_fc2)


class MegatronLayer(nn.Module):
    def __init__(self, pre_softmax):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.linear_qkv = nn.Linear(DIM, 3 * DIM)
        self.linear_proj = nn.Linear(DIM, DIM)
        self.router = TopKRouter(pre_softmax)
        self.experts = GroupedMLP()

    def core_attention(self, x):
        b, s, _ = x.shape
        q, k, v = self.linear_qkv(x).view(b, s, 3, 4, DIM // 4).permute(2, 0, 3, 1, 4)
        ctx = F.scaled_dot_product_attention(q, k, v)
        return self.linear_proj(ctx.transpose(1, 2).reshape(b, s, DIM))

    def forward(self, x):
        x = x + self.core_attention(self.ln1(x))
        tokens = self.ln2(x).flatten(0, 1)
        mixed = (self.experts(tokens) * self.router(tokens).unsqueeze(-1)).sum(1)
        return x + mixed.view_as(x)


class MegatronMoeModel(nn.Module):
    def __init__(self, pre_softmax):
        super().__init__()
        self.word_embeddings = nn.Embedding(VOCAB, DIM)
        self.decoder = nn.ModuleList(MegatronLayer(pre_softmax) for _ in range(2))
        self.final_layernorm = nn.LayerNorm(DIM)
        self.output_layer = nn.Linear(DIM, VOCAB, bias=False)

    def forward(self, ids):
        x = self.word_embeddings(ids)
        for layer in self.decoder:
            x = layer(x)
        return self.output_layer(self.final_layernorm(x))


def convert(sd):
    out = {"word_embeddings.weight": sd["embed_tokens.weight"], "output_layer.weight": sd["lm_head.weight"]}
    for p in ("weight", "bias"):
        out[f"final_layernorm.{p}"] = sd[f"norm.{p}"]
    for i in range(2):
        src, dst = f"layers.{i}.", f"decoder.{i}."
        for p in ("weight", "bias"):
            out[dst + f"ln1.{p}"] = sd[src + f"input_layernorm.{p}"]
            out[dst + f"ln2.{p}"] = sd[src + f"post_attention_layernorm.{p}"]
            out[dst + f"linear_qkv.{p}"] = sd[src + f"self_attn.in_proj_{p}"]
            out[dst + f"linear_proj.{p}"] = sd[src + f"self_attn.out_proj.{p}"]
        out[dst + "router.weight"] = sd[src + "block_sparse_moe.gate.weight"]
        ex = src + "block_sparse_moe.experts.{}.{}.weight"
        out[dst + "experts.linear_fc1"] = torch.stack(
            [torch.cat([sd[ex.format(e, "w1")], sd[ex.format(e, "w3")]]).t() for e in range(EXPERTS)]
        )
        out[dst + "experts.linear_fc2"] = torch.stack([sd[ex.format(e, "w2")].t() for e in range(EXPERTS)])
    return out


def build(fixed):
    torch.manual_seed(955)
    original = HFMoeModel().eval()
    for p in original.parameters():
        p.data.add_(torch.randn_like(p) * 0.08)
    port = MegatronMoeModel(pre_softmax=fixed).eval()
    port.load_state_dict(convert(original.state_dict()))
    return original, port, (torch.randint(0, VOCAB, (2, 9)),)
