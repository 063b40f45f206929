"""mgrankin/ru_transformers#11: "Gradient overflow. Skipping step, loss scaler 0 reducing loss scale to ..."
at the start."""

import torch
import torch.nn.functional as F
from torch import nn

STEPS = 150
OTHERS: list = []
LOG: list = []


class GPT2Stub(nn.Module):
    def __init__(self, vocab=24, d=32):
        super().__init__()
        self.wte = nn.Embedding(vocab, d)
        self.wpe = nn.Embedding(12, d)
        self.c_fc, self.c_proj = nn.Linear(2 * d, 64), nn.Linear(64, d)
        self.ln_f = nn.LayerNorm(d)
        self.lm_head = nn.Linear(d, vocab, bias=False)

    def forward(self, ids):
        e = self.wte(ids)
        prev = F.pad(e, (0, 0, 1, 0))[:, :-1]
        h = self.c_proj(F.gelu(self.c_fc(torch.cat([e + self.wpe(torch.arange(ids.size(1))), prev], -1))))
        return self.lm_head(self.ln_f(e + h))


def build(bad: bool):
    torch.manual_seed(48)
    LOG.clear()
    OTHERS.clear()
    gen = torch.Generator().manual_seed(48)
    model = GPT2Stub()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, eps=1e-8)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1.0, (s + 1) / 10))
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**26, growth_interval=40)

    def step(i):
        a = torch.randint(0, 24, (16, 2), generator=gen)
        ids = [a[:, 0], a[:, 1]]
        for _ in range(11):
            ids.append((ids[-2] + 5) % 24)
        ids = torch.stack(ids, 1)
        with torch.autocast("cpu", dtype=torch.float16):
            logits = model(ids[:, :12])
        loss = F.cross_entropy(logits[:, 1:].float().flatten(0, 1), ids[:, 2:].flatten())
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        before = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        if scaler.get_scale() >= before:
            scheduler.step()
        LOG.append(loss.item())

    return model, optimizer, step
