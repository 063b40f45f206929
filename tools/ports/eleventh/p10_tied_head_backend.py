"""After vllm-project/vllm#46835.

A generic inference backend wraps a causal LM with tied embeddings.  Greedy output is
garbage for one checkpoint family although every tensor of the transformer body agrees.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

V, D, H, L, T = 50, 24, 4, 2, 32


class HFBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.attn = nn.MultiheadAttention(D, H, batch_first=True)
        self.c_fc, self.c_proj = nn.Linear(D, 4 * D), nn.Linear(4 * D, D)

    def forward(self, x, mask):
        h = self.ln_1(x)
        x = x + self.attn(h, h, h, attn_mask=mask, need_weights=False)[0]
        return x + self.c_proj(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class HFModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(V, D), nn.Embedding(T, D)
        self.h = nn.ModuleList(HFBlock() for _ in range(L))
        self.ln_f = nn.LayerNorm(D)

    def forward(self, ids):
        n = ids.shape[1]
        x = self.wte(ids) + self.wpe(torch.arange(n))
        mask = torch.ones(n, n).triu(1).bool()
        for blk in self.h:
            x = blk(x, mask)
        return self.ln_f(x)


class HFForCausalLM(nn.Module):
    def __init__(self, softcap=20.0):
        super().__init__()
        self.model = HFModel()
        self.lm_head = nn.Linear(D, V, bias=True)
        self.lm_head.weight = self.model.wte.weight
        self.softcap = softcap

    def forward(self, ids):
        z = self.lm_head(self.model(ids))
        return self.softcap * torch.tanh(z / self.softcap)


class VocabParallelEmbedding(nn.Module):
    def __init__(self, n, d):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n, d))

    def forward(self, ids):
        return F.embedding(ids, self.weight)


class ParallelLMHead(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.register_buffer("bias", torch.zeros(n))

    def tie(self, emb):
        self.emb = [emb]
        return self


class LogitsProcessor(nn.Module):
    def __init__(self, soft_cap):
        super().__init__()
        self.soft_cap = soft_cap

    def forward(self, head, hidden):
        logits = torch.addmm(head.bias, hidden.flatten(0, 1), head.emb[0].weight.t())
        logits = logits.div(self.soft_cap).tanh().mul(self.soft_cap)
        return logits.unflatten(0, hidden.shape[:2])


class BackendLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.input_norm, self.post_norm = nn.LayerNorm(D), nn.LayerNorm(D)
        self.q, self.k, self.v, self.o = (nn.Linear(D, D) for _ in range(4))
        self.up, self.down = nn.Linear(D, 4 * D), nn.Linear(4 * D, D)
        self.act = nn.GELU(approximate="tanh")

    def forward(self, x):
        b, n, _ = x.shape
        y = self.input_norm(x)
        q, k, v = (p(y).view(b, n, H, D // H).transpose(1, 2) for p in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).flatten(2))
        return x + self.down(self.act(self.up(self.post_norm(x))))


class TransformersForCausalLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens = VocabParallelEmbedding(V, D)
        self.positions = VocabParallelEmbedding(T, D)
        self.layers = nn.Sequential(*[BackendLayer() for _ in range(L)])
        self.norm = nn.LayerNorm(D)
        self.lm_head = ParallelLMHead(V).tie(self.embed_tokens)
        self.logits_processor = LogitsProcessor(20.0)

    def forward(self, ids):
        x = self.embed_tokens(ids) + self.positions.weight[: ids.shape[1]]
        return self.logits_processor(self.lm_head, self.norm(self.layers(x)))


def convert(sd, skip_prefixes=("lm_head.",)):
    new = {}
    for key, w in sd.items():
        if key.startswith(tuple(skip_prefixes)):
            continue
        if key.startswith("model.h."):
            _, _, i, rest = key.split(".", 3)
            p = f"layers.{i}."
            if "in_proj" in rest:
                for c, part in zip("qkv", w.chunk(3)):
                    new[p + c + (".weight" if "weight" in rest else ".bias")] = part
                continue
            for a, b in (
                ("ln_1", "input_norm"),
                ("ln_2", "post_norm"),
                ("attn.out_proj", "o"),
                ("c_fc", "up"),
                ("c_proj", "down"),
            ):
                rest = rest.replace(a, b)
            new[p + rest] = w
        else:
            new[
                key.replace("model.wte", "embed_tokens").replace("model.wpe", "positions").replace("model.ln_f", "norm")
            ] = w
    return new


def build(fixed):
    torch.manual_seed(46835)
    original = HFForCausalLM().eval()
    with torch.no_grad():
        original.lm_head.bias.normal_(0, 1.1)
    port = TransformersForCausalLM().eval()
    sd = original.state_dict()
    weights = convert(sd, ("lm_head.weight",)) if fixed else convert(sd)
    port.load_state_dict(weights, strict=False)
    return original, port, (torch.randint(0, V, (2, 8)),)
