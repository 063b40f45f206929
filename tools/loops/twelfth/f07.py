"""After fastino-ai/GLiNER2#155: a boundary head for entities trained in bfloat16.

The loss prints normally at every step, then from one step on every parameter
of the encoder is gone.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


def marginal_pair_consistency_loss(pair_logits, start_prob, mended):
    probabilities = torch.sigmoid(pair_logits)
    if mended:
        probabilities = probabilities.float()
        start_prob = start_prob.float()
    log_survival = torch.log1p(-probabilities.clamp(max=1.0 - 1e-6))
    any_pair = 1 - torch.exp(log_survival.sum(-1))
    return F.mse_loss(any_pair, start_prob.detach())


class BoundaryModel(nn.Module):
    def __init__(self, vocab=30, dim=32):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.encoder = nn.Sequential(nn.Linear(dim * 3, 64), nn.GELU(), nn.Linear(64, dim), nn.GELU())
        self.start_head = nn.Linear(dim, 1)
        self.end_head = nn.Linear(dim, 1)
        self.pair = nn.Bilinear(dim, dim, 1)

    def forward(self, input_ids):
        e = self.embed(input_ids)
        left = F.pad(e, (0, 0, 1, 0))[:, :-1]
        right = F.pad(e, (0, 0, 0, 1))[:, 1:]
        h = self.encoder(torch.cat([left, e, right], -1))
        n, t, d = h.shape
        a = h[:, :, None].expand(n, t, t, d).contiguous()
        b = h[:, None].expand(n, t, t, d).contiguous()
        return self.start_head(h).squeeze(-1), self.end_head(h).squeeze(-1), self.pair(a, b).squeeze(-1)


def spans(n=32, t=8):
    ids = torch.randint(10, 30, (n, t))
    start = torch.randint(0, t - 2, (n,))
    end = start + 1
    rows = torch.arange(n)
    ids[rows, start] = torch.randint(0, 5, (n,))
    ids[rows, end] = torch.randint(5, 10, (n,))
    s, e, p = torch.zeros(n, t), torch.zeros(n, t), torch.zeros(n, t, t)
    s[rows, start] = 1
    e[rows, end] = 1
    p[rows, start, end] = 1
    return ids, s, e, p


def train(tick, mended=False):
    torch.manual_seed(6)
    model = BoundaryModel().to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []
    for step in range(150):
        ids, s, e, p = spans()
        start_logits, end_logits, pair_logits = model(ids)
        loss = F.binary_cross_entropy_with_logits(start_logits.float(), s)
        loss = loss + F.binary_cross_entropy_with_logits(end_logits.float(), e)
        loss = loss + F.binary_cross_entropy_with_logits(pair_logits.float(), p, pos_weight=torch.tensor(8.0))
        loss = loss + 0.1 * marginal_pair_consistency_loss(pair_logits, torch.sigmoid(start_logits), mended)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tick.step(loss)
        losses.append(loss.item())
    return losses
