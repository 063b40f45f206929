"""Healthy: masked language modelling on protein-like strings: only about 15 percent of the positions carry a
label, all others are -100; the mask symbol replaces the input and the embedding rows of rare residues hardly
ever get a gradient.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

AA, MASK, L = 20, 20, 24


class ProteinBERT(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.token = nn.Embedding(24, dim)
        self.position = nn.Parameter(0.02 * torch.randn(L, dim))
        self.encoder = nn.TransformerEncoderLayer(dim, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
        self.norm = nn.LayerNorm(dim)
        self.lm_head = nn.Linear(dim, 24)

    def forward(self, ids):
        return self.lm_head(self.norm(self.encoder(self.token(ids) + self.position)))


FAMILIES = torch.randint(0, AA, (5, L), generator=torch.Generator().manual_seed(21))


def proteins(n):
    fam = torch.randint(0, 5, (n,))
    seq = FAMILIES[fam].clone()
    mutate = torch.rand(n, L) < 0.08
    seq[mutate] = torch.randint(0, AA, (int(mutate.sum()),))
    return seq


def mask_tokens(seq):
    chosen = torch.rand(seq.shape) < 0.15
    labels = torch.where(chosen, seq, torch.tensor(-100))
    ids = seq.clone()
    r = torch.rand(seq.shape)
    ids[chosen & (r < 0.8)] = MASK
    swap = chosen & (r > 0.9)
    ids[swap] = torch.randint(0, AA, (int(swap.sum()),))
    return ids, labels


def train(tick, mended=False):
    torch.manual_seed(21)
    model = ProteinBERT()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    tick.model(model)
    tick.optimizer(optimizer)
    history = []
    for _step in range(200):
        ids, labels = mask_tokens(proteins(24))
        logits = model(ids)
        loss = F.cross_entropy(logits.reshape(-1, 24), labels.reshape(-1), ignore_index=-100)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append(loss.item())
        tick.step(loss, ids, labels)
    with torch.no_grad():
        ids, labels = mask_tokens(proteins(300))
        hit = model(ids).argmax(-1) == labels
        return history, hit[labels >= 0].float().mean().item()


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
        print(f"first {h[0]:.6g} last {h[-1]:.6g}", f"metric {metric:.4f}")
