"""huggingface/transformers#37830: JetMoeForCausalLM, loss of causal language modelling stays too high."""

import torch
import torch.nn.functional as F
from torch import nn

STEPS = 150
OTHERS: list = []
LOG: list = []


def causal_lm_loss(logits, labels, vocab_size, ignore_index=-100):
    labels = F.pad(labels, (0, 1), value=ignore_index)
    shift_labels = labels[..., 1:].contiguous()
    return F.cross_entropy(logits.float().view(-1, vocab_size), shift_labels.view(-1), ignore_index=ignore_index)


class JetMoeBlock(nn.Module):
    def __init__(self, d, experts=3):
        super().__init__()
        self.input_layernorm = nn.LayerNorm(d)
        self.router = nn.Linear(d, experts)
        self.experts = nn.ModuleList(
            [nn.Sequential(nn.Linear(d, d), nn.SiLU(), nn.Linear(d, d)) for _ in range(experts)]
        )

    def forward(self, x):
        h = self.input_layernorm(x)
        gates = self.router(h).softmax(-1)
        return x + sum(gates[..., k : k + 1] * e(h) for k, e in enumerate(self.experts))


class JetMoeForCausalLM(nn.Module):
    def __init__(self, vocab_size, d, manual_shift):
        super().__init__()
        self.vocab_size, self.manual_shift = vocab_size, manual_shift
        self.embed_tokens = nn.Embedding(vocab_size, d)
        self.layers = nn.ModuleList([JetMoeBlock(d), JetMoeBlock(d)])
        self.norm = nn.LayerNorm(d)
        self.lm_head = nn.Linear(d, vocab_size, bias=False)

    def forward(self, input_ids, labels):
        x = self.embed_tokens(input_ids)
        for layer in self.layers:
            x = layer(x)
        logits = self.lm_head(self.norm(x))
        if self.manual_shift:
            logits = logits[..., :-1, :].contiguous()
            labels = labels[..., 1:].contiguous()
        return causal_lm_loss(logits, labels, self.vocab_size)


def build(bad: bool):
    torch.manual_seed(7)
    LOG.clear()
    OTHERS.clear()
    gen = torch.Generator().manual_seed(7)
    vocab = 24
    follow = torch.stack([torch.randperm(vocab, generator=gen)[:3] for _ in range(vocab)])
    model = JetMoeForCausalLM(vocab, 32, manual_shift=bad)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)

    def step(i):
        ids = torch.randint(0, vocab, (16, 1), generator=gen)
        for _ in range(23):
            c = torch.randint(0, 3, (16,), generator=gen)
            ids = torch.cat([ids, follow[ids[:, -1], c][:, None]], 1)
        loss = model(ids, labels=ids)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        LOG.append(loss.item())

    return model, optimizer, step
