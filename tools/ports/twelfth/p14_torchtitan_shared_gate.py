"""After NousResearch/torchtitan#36: a decoder with routed experts and one gated shared expert. In
the trainer's own implementation every key of the checkpoint is found and loaded, but the outputs
differ from those of the released model since a refactoring of the dispatch."""

import torch
import torch.nn as nn
import torch.nn.functional as F

VOCAB, DIM, FF, EXPERTS, K = 34, 20, 24, 5, 2


class Qwen3NextMLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_proj, self.up_proj = nn.Linear(DIM, FF, bias=False), nn.Linear(DIM, FF, bias=False)
        self.down_proj = nn.Linear(FF, DIM, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Qwen3NextSparseMoe(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(DIM, EXPERTS, bias=False)
        self.experts = nn.ModuleList(Qwen3NextMLP() for _ in range(EXPERTS))
        self.shared_expert = Qwen3NextMLP()
        self.shared_expert_gate = nn.Linear(DIM, 1, bias=False)

    def forward(self, x):
        w, idx = self.gate(x).softmax(-1).topk(K, -1)
        w = w / w.sum(-1, keepdim=True)
        out = torch.zeros_like(x)
        for e, ex in enumerate(self.experts):
            share = (w * (idx == e)).sum(-1, keepdim=True)
            out = out + share * ex(x)
        return out + torch.sigmoid(self.shared_expert_gate(x)) * self.shared_expert(x)


class Qwen3NextLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.input_norm, self.post_norm = nn.RMSNorm(DIM, eps=1e-6), nn.RMSNorm(DIM, eps=1e-6)
        self.q, self.k, self.v, self.o = (nn.Linear(DIM, DIM, bias=False) for _ in range(4))
        self.mlp = Qwen3NextSparseMoe()

    def forward(self, x):
        h = self.input_norm(x)
        q, k, v = (p(h).unflatten(-1, (2, -1)).transpose(1, 2) for p in (self.q, self.k, self.v))
        x = x + self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.mlp(self.post_norm(x))


class Qwen3NextModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCAB, DIM)
        self.layers = nn.ModuleList(Qwen3NextLayer() for _ in range(2))
        self.norm = nn.RMSNorm(DIM, eps=1e-6)
        self.lm_head = nn.Linear(DIM, VOCAB, bias=False)

    def forward(self, tokens):
        x = self.embed_tokens(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(self.norm(x))


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.w13 = nn.Linear(DIM, 2 * FF, bias=False)
        self.w2 = nn.Linear(FF, DIM, bias=False)

    def forward(self, x):
        a, b = self.w13(x).chunk(2, -1)
        return self.w2(F.silu(a) * b)


class TokenChoiceRouter(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(DIM, EXPERTS, bias=False)

    def forward(self, x):
        top, chosen = self.gate(x).topk(K, -1)
        return top.softmax(-1), chosen


class GroupedExperts(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1, self.w3 = nn.Parameter(torch.empty(EXPERTS, FF, DIM)), nn.Parameter(torch.empty(EXPERTS, FF, DIM))
        self.w2 = nn.Parameter(torch.empty(EXPERTS, DIM, FF))

    def forward(self, rows, counts):
        outs = []
        for e, part in enumerate(rows.split(counts.tolist())):
            outs.append((F.silu(part @ self.w1[e].t()) * (part @ self.w3[e].t())) @ self.w2[e].t())
        return torch.cat(outs)


class MoE(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.router, self.experts = TokenChoiceRouter(), GroupedExperts()
        self.shared_experts = FeedForward()
        self.shared_gate = nn.Linear(DIM, 1, bias=False)
        self.fixed = fixed

    def forward(self, x):
        flat = x.reshape(-1, DIM)
        scores, chosen = self.router(flat)
        order = chosen.flatten().argsort(stable=True)
        counts = torch.bincount(chosen.flatten(), minlength=EXPERTS)
        token = order // K
        routed = self.experts(flat[token], counts) * scores.flatten()[order, None]
        out = self.shared_experts(flat)
        if self.fixed:
            out = out * F.sigmoid(self.shared_gate(flat))
        return out.index_add(0, token, routed).view_as(x)


class TitanBlock(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.attention_norm, self.ffn_norm = nn.RMSNorm(DIM, eps=1e-6), nn.RMSNorm(DIM, eps=1e-6)
        self.wqkv, self.wo = nn.Linear(DIM, 3 * DIM, bias=False), nn.Linear(DIM, DIM, bias=False)
        self.moe = MoE(fixed)

    def forward(self, x):
        b, s, _ = x.shape
        q, k, v = self.wqkv(self.attention_norm(x)).view(b, s, 3, 2, DIM // 2).permute(2, 0, 3, 1, 4)
        att = (q @ k.mT / (DIM // 2) ** 0.5).masked_fill(torch.ones(s, s).triu(1).bool(), float("-inf"))
        x = x + self.wo((att.softmax(-1) @ v).transpose(1, 2).reshape(b, s, DIM))
        return x + self.moe(self.ffn_norm(x))


class TitanTransformer(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.tok_embeddings = nn.Embedding(VOCAB, DIM)
        self.layers = nn.ModuleDict({str(i): TitanBlock(fixed) for i in range(2)})
        self.norm, self.output = nn.RMSNorm(DIM, eps=1e-6), nn.Linear(DIM, VOCAB, bias=False)

    def forward(self, tokens):
        h = self.tok_embeddings(tokens)
        for layer in self.layers.values():
            h = layer(h)
        return self.output(self.norm(h))


def convert(sd):
    out = {
        "tok_embeddings.weight": sd["embed_tokens.weight"],
        "norm.weight": sd["norm.weight"],
        "output.weight": sd["lm_head.weight"],
    }
    for i in range(2):
        p = f"layers.{i}."
        out[p + "attention_norm.weight"], out[p + "ffn_norm.weight"] = (
            sd[p + "input_norm.weight"],
            sd[p + "post_norm.weight"],
        )
        out[p + "wqkv.weight"] = torch.cat([sd[p + n + ".weight"] for n in "qkv"])
        out[p + "wo.weight"] = sd[p + "o.weight"]
        m = p + "mlp."
        out[p + "moe.router.gate.weight"] = sd[m + "gate.weight"]
        for dst, src in (("w1", "gate_proj"), ("w3", "up_proj"), ("w2", "down_proj")):
            out[p + "moe.experts." + dst] = torch.stack([sd[m + f"experts.{e}.{src}.weight"] for e in range(EXPERTS)])
        sh = m + "shared_expert."
        out[p + "moe.shared_experts.w13.weight"] = torch.cat([sd[sh + "gate_proj.weight"], sd[sh + "up_proj.weight"]])
        out[p + "moe.shared_experts.w2.weight"] = sd[sh + "down_proj.weight"]
        out[p + "moe.shared_gate.weight"] = sd[m + "shared_expert_gate.weight"]
    return out


def build(fixed):
    torch.manual_seed(36)
    original = Qwen3NextModel().eval()
    for p in original.parameters():
        p.data.add_(torch.randn_like(p) * 0.15)
    port = TitanTransformer(fixed).eval()
    port.load_state_dict(convert(original.state_dict()))
    return original, port, (torch.randint(0, VOCAB, (2, 8)),)
