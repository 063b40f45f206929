"""jingyaogong/minimind#859 (closing #858): with num_experts_per_tok=1 the MoE model is worse than the dense one;
the experts are used evenly to three digits and aux_loss sits at its floor.

Rebuilt: one MoE feed-forward block between an embedding and a language-model head; four "topics" each with a mapping
of its own, narrow experts.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class MoEGate(nn.Module):
    def __init__(self, hidden, n_experts, top_k, norm_topk_prob, alpha=0.02):
        super().__init__()
        self.top_k, self.n_experts = top_k, n_experts
        self.norm_topk_prob = norm_topk_prob
        self.alpha = alpha
        self.weight = nn.Parameter(torch.randn(n_experts, hidden) * 0.02)

    def forward(self, x):
        scores = F.linear(x, self.weight).softmax(dim=-1)
        topk_weight, topk_idx = torch.topk(scores, k=self.top_k, dim=-1, sorted=False)
        if self.norm_topk_prob:
            topk_weight = topk_weight / (topk_weight.sum(dim=-1, keepdim=True) + 1e-20)
        load = F.one_hot(topk_idx, self.n_experts).float().mean((0, 1))
        aux_loss = self.alpha * self.n_experts * (load * scores.mean(0)).sum()
        return topk_idx, topk_weight, aux_loss


class FeedForward(nn.Module):
    def __init__(self, hidden, inter):
        super().__init__()
        self.gate_proj = nn.Linear(hidden, inter, bias=False)
        self.up_proj = nn.Linear(hidden, inter, bias=False)
        self.down_proj = nn.Linear(inter, hidden, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class MOEFeedForward(nn.Module):
    def __init__(self, hidden, inter, n_experts, top_k, norm_topk_prob):
        super().__init__()
        self.experts = nn.ModuleList([FeedForward(hidden, inter) for _ in range(n_experts)])
        self.gate = MoEGate(hidden, n_experts, top_k, norm_topk_prob)

    def forward(self, x):
        flat = x.reshape(-1, x.size(-1))
        idx, weight, aux = self.gate(flat)
        y = torch.zeros_like(flat)
        for i, expert in enumerate(self.experts):
            rows, slot = (idx == i).nonzero(as_tuple=True)
            if len(rows):
                y = y.index_add(0, rows, expert(flat[rows]) * weight[rows, slot, None])
        return y.view_as(x), aux


class MiniMindMoE(nn.Module):
    def __init__(self, vocab=60, hidden=24, inter=10, n_experts=4, top_k=1, norm_topk_prob=True):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocab, hidden)
        self.topic_embed = nn.Embedding(4, hidden)
        nn.init.normal_(self.topic_embed.weight, std=0.7)
        self.post_attention_layernorm = nn.LayerNorm(hidden)
        self.mlp = MOEFeedForward(hidden, inter, n_experts, top_k, norm_topk_prob)
        self.norm = nn.LayerNorm(hidden)
        self.lm_head = nn.Linear(hidden, vocab, bias=False)

    def forward(self, input_ids, topic):
        h = self.embed_tokens(input_ids) + self.topic_embed(topic)[:, None]
        y, aux = self.mlp(self.post_attention_layernorm(h))
        return self.lm_head(self.norm(y)), aux


def train(tick, mended=False):
    torch.manual_seed(2)
    vocab = 60
    tables = torch.stack([torch.randperm(vocab) for _ in range(4)])
    model = MiniMindMoE(vocab, norm_topk_prob=not mended)
    optimizer = torch.optim.AdamW(model.parameters(), lr=8e-3, weight_decay=0.01)
    tick.model(model)
    tick.optimizer(optimizer)
    history = []
    for _step in range(300):
        topic = torch.randint(0, 4, (32,))
        x = torch.randint(0, vocab, (32, 8))
        y = tables[topic].gather(1, x)
        logits, aux = model(x, topic)
        loss = F.cross_entropy(logits.reshape(-1, vocab), y.reshape(-1)) + aux
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        history.append(loss.item())
        tick.step(loss, x, y)
    with torch.no_grad():
        topic = torch.arange(4)
        x = torch.arange(vocab).repeat(4, 1)
        acc = (model(x, topic)[0].argmax(-1) == tables).float().mean().item()
    return history, acc


class Quiet:
    def model(self, model):
        pass

    def optimizer(self, optimizer):
        pass

    def step(self, loss, x, y):
        pass


if __name__ == "__main__":
    for mended in (False, True):
        h, metric = train(Quiet(), mended)
        print("mended" if mended else "as is", f"first {h[0]:.4f} last20 {sum(h[-20:]) / 20:.4f}", f"acc {metric:.3f}")
