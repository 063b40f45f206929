"""After deepspeedai/DeepSpeedExamples (curriculum learning by sequence length): sequences get
longer in steps and the loss leaps up at each change of difficulty."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class CurriculumScheduler:
    def __init__(self, min_difficulty, max_difficulty, total_step, difficulty_step):
        self.lo, self.hi, self.total, self.q = min_difficulty, max_difficulty, total_step, difficulty_step

    def update_difficulty(self, step):
        d = self.lo + (self.hi - self.lo) * min(1.0, step / self.total)
        return int(d) - int(d) % self.q


class GPT2Block(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.input_layernorm = nn.LayerNorm(hidden)
        self.attention = nn.MultiheadAttention(hidden, heads, batch_first=True)
        self.post_attention_layernorm = nn.LayerNorm(hidden)
        self.mlp = nn.Sequential(nn.Linear(hidden, 2 * hidden), nn.GELU(), nn.Linear(2 * hidden, hidden))

    def forward(self, x, mask):
        h = self.input_layernorm(x)
        x = x + self.attention(h, h, h, attn_mask=mask, need_weights=False)[0]
        return x + self.mlp(self.post_attention_layernorm(x))


class GPT2Model(nn.Module):
    def __init__(self, vocab=24, hidden=40, layers=2, max_len=24):
        super().__init__()
        self.word_embeddings = nn.Embedding(vocab, hidden)
        self.position_embeddings = nn.Embedding(max_len, hidden)
        self.layers = nn.ModuleList(GPT2Block(hidden, 2) for _ in range(layers))
        self.final_layernorm = nn.LayerNorm(hidden)
        self.logits = nn.Linear(hidden, vocab)

    def forward(self, tokens):
        n = tokens.size(1)
        mask = torch.triu(torch.full((n, n), float("-inf")), 1)
        h = self.word_embeddings(tokens) + self.position_embeddings(torch.arange(n))
        for layer in self.layers:
            h = layer(h, mask)
        return self.logits(self.final_layernorm(h))


def corpus_batch(table, n, length):
    ids = [torch.randint(0, 24, (n,)), torch.randint(0, 24, (n,))]
    for t in range(2, length):
        rule = table[(t // 6) % table.size(0)]
        ids.append(rule[ids[-1]])
    return torch.stack(ids, 1)


def train(tick, mended=False):
    torch.manual_seed(1234)
    table = torch.stack([torch.randperm(24) for _ in range(4)])
    model = GPT2Model()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    sched = CurriculumScheduler(6, 24, 90, 6)
    losses = []
    tick.model(model)
    tick.optimizer(optimizer)
    model.train()
    for step in range(145):
        seqlen = sched.update_difficulty(step)
        tokens = corpus_batch(table, 16, 24)[:, :seqlen]
        logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits[:, 1:].flatten(0, 1), tokens[:, 2:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tick.step(loss)
        losses.append(loss.item())
    return losses
