"""After haofuml/cyclical_annealing.

Text VAE whose KL weight runs in cycles from zero to one: the loss is a saw-tooth.
"""

import torch
import torch.nn.functional as F
from torch import nn

LAST = None


def frange_cycle_linear(n_iter, start=0.0, stop=1.0, n_cycle=4, ratio=0.5):
    L = torch.ones(n_iter) * stop
    period = n_iter / n_cycle
    step = (stop - start) / (period * ratio)
    for c in range(n_cycle):
        v, i = start, 0
        while v <= stop and int(i + c * period) < n_iter:
            L[int(i + c * period)] = v
            v += step
            i += 1
    return L


class TextVAE(nn.Module):
    def __init__(self, vocab=20, emb=16, hidden=32, latent=6):
        super().__init__()
        self.embedding = nn.Embedding(vocab, emb)
        self.encoder = nn.GRU(emb, hidden, batch_first=True)
        self.linear = nn.Linear(hidden, 2 * latent)
        self.latent_to_hidden = nn.Linear(latent, hidden)
        self.decoder = nn.GRU(emb, hidden, batch_first=True)
        self.outputs2vocab = nn.Linear(hidden, vocab)

    def forward(self, ids):
        x = self.embedding(ids)
        _, h = self.encoder(x)
        mean, logvar = self.linear(h[-1]).chunk(2, -1)
        z = mean + torch.randn_like(mean) * torch.exp(0.5 * logvar)
        h0 = torch.tanh(self.latent_to_hidden(z))[None]
        out, _ = self.decoder(F.dropout(x[:, :-1], 0.3, self.training), h0)
        logits = self.outputs2vocab(out)
        rec = F.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none").sum(1).mean()
        kl = 0.5 * (mean**2 + logvar.exp() - 1 - logvar).sum(1).mean()
        return rec, kl


def sentences(n, length=7):
    topic = torch.randint(0, 4, (n, 1))
    words = topic * 4 + torch.randint(0, 4, (n, length)) + 2
    words[:, 0] = 1
    return words


def train(tick, mended=False):
    global LAST
    torch.manual_seed(0)
    total = 240
    beta = frange_cycle_linear(total)
    model = TextVAE()
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    tick.model(model)
    tick.optimizer(optimizer)
    losses, recs = [], []
    for i in range(total):
        rec, kl = model(sentences(32))
        loss = rec + beta[i] * kl
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        tick.step(loss)
        losses.append(loss.item())
        recs.append(rec.item())
    LAST = (recs[0], recs[-1], kl.item())
    return losses
