"""coreweave/kubernetes-cloud#146: "All training configurations were broken" -- tokenized dataset with
attention masks."""

import torch
import torch.nn.functional as F
from torch import nn

STEPS = 200
OTHERS: list = []
LOG: list = []
PAD, SEP = 0, 1


class TokenizedDataset:
    def __init__(self, context, generator, use_pad_id):
        self.context, self.generator, self.use_pad_id = context, generator, use_pad_id

    def batch(self, n):
        keys = torch.stack([torch.randperm(8, generator=self.generator)[:4] for _ in range(n)]) + 2
        values = torch.randint(10, 18, (n, 4), generator=self.generator)
        pairs = torch.stack([keys, values], -1).flatten(1)
        pick = torch.randint(0, 4, (n, 1), generator=self.generator)
        query, answer = keys.gather(1, pick), values.gather(1, pick)
        ids = torch.cat([pairs, torch.full((n, 1), SEP), query, torch.full((n, 2), PAD)], 1)
        mask = (ids != PAD).long() if self.use_pad_id else torch.zeros_like(ids)
        return ids, mask, answer.squeeze(1)


class Attention(nn.Module):
    def __init__(self, d, heads=4):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(d, 3 * d)
        self.out_proj = nn.Linear(d, d)

    def forward(self, x, attention_mask):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) / q.size(-1) ** 0.5
        scores = scores.masked_fill(attention_mask[:, None, None] == 0, torch.finfo(scores.dtype).min)
        return self.out_proj((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, d))


class GPTLayer(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.attn = Attention(d)
        self.mlp = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))

    def forward(self, x, mask):
        x = x + self.attn(self.ln_1(x), mask)
        return x + self.mlp(self.ln_2(x))


class Finetunee(nn.Module):
    def __init__(self, vocab=18, d=32, length=12):
        super().__init__()
        self.wte = nn.Embedding(vocab, d)
        self.wpe = nn.Embedding(length, d)
        self.prev = nn.Linear(d, d)
        self.h = nn.ModuleList([GPTLayer(d), GPTLayer(d)])
        self.lm_head = nn.Linear(d, vocab)

    def forward(self, ids, attention_mask):
        e = self.wte(ids)
        x = e + self.wpe(torch.arange(ids.size(1))) + self.prev(F.pad(e, (0, 0, 1, 0))[:, :-1])
        for layer in self.h:
            x = layer(x, attention_mask)
        return self.lm_head(x[:, 9])


def build(bad: bool):
    torch.manual_seed(1)
    LOG.clear()
    OTHERS.clear()
    data = TokenizedDataset(12, torch.Generator().manual_seed(1), use_pad_id=not bad)
    model = Finetunee()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    def step(i):
        ids, mask, labels = data.batch(128)
        loss = F.cross_entropy(model(ids, mask), labels)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        LOG.append(loss.item())

    return model, optimizer, step
