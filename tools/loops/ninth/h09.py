"""Healthy. After lucidrains/electra-pytorch: a small masked-LM generator samples
replacements (no gradient through them), a discriminator finds them, its weight is 50.
"""

import torch
import torch.nn.functional as F
from torch import nn

V, L = 24, 12


class TokenNet(nn.Module):
    def __init__(self, dim, out):
        super().__init__()
        self.token_emb = nn.Embedding(V + 1, dim)
        self.pos_emb = nn.Parameter(torch.zeros(L, dim))
        self.attn = nn.TransformerEncoderLayer(dim, 2, 2 * dim, dropout=0.0, batch_first=True, norm_first=True)
        self.to_logits = nn.Linear(dim, out)

    def forward(self, x):
        return self.to_logits(self.attn(self.token_emb(x) + self.pos_emb))


class Electra(nn.Module):
    def __init__(self):
        super().__init__()
        self.generator = TokenNet(16, V)
        self.discriminator = TokenNet(32, 1)
        self.discriminator.token_emb.weight.data[:, :16] = self.generator.token_emb.weight.data
        self.disc_weight, self.gen_weight = 50.0, 1.0

    def forward(self, x):
        mask = torch.rand(x.shape) < 0.25
        masked = x.masked_fill(mask, V)
        logits = self.generator(masked)
        mlm_loss = F.cross_entropy(logits[mask], x[mask])
        sampled = torch.distributions.Categorical(logits=logits[mask].detach()).sample()
        disc_input = x.clone()
        disc_input[mask] = sampled
        disc_labels = (x != disc_input).float()
        disc_loss = F.binary_cross_entropy_with_logits(self.discriminator(disc_input).squeeze(-1), disc_labels)
        return self.gen_weight * mlm_loss + self.disc_weight * disc_loss


def train(tick, mended=False):
    torch.manual_seed(0)
    nxt = torch.randperm(V)

    def batch(n):
        x = [torch.randint(0, V, (n,))]
        for _ in range(L - 1):
            x.append(nxt[x[-1]])
        return torch.stack(x, 1)

    model = Electra()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01, betas=(0.9, 0.999), eps=1e-6)
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []
    for step in range(150):
        for g in optimizer.param_groups:
            g["lr"] = 3e-3 * min(1, (step + 1) / 20) * max(0.05, 1 - step / 165)
        loss = model(batch(40))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        tick.step(loss)
    return losses
