"""EdoardoBotta/RQ-VAE-Recommender#30: "vae loss increases" -- vl starts low and goes up."""

import torch
from torch import nn

STEPS = 200
OTHERS: list = []
LOG: list = []


class Quantize(nn.Module):
    def __init__(self, dim, n_embed):
        super().__init__()
        self.embedding = nn.Embedding(n_embed, dim)

    @torch.no_grad()
    def kmeans_init(self, x, iters=8):
        c = x[torch.linspace(0, len(x) - 1, self.embedding.num_embeddings).long()].clone()
        for _ in range(iters):
            a = torch.cdist(x, c).argmin(1)
            for k in range(len(c)):
                if (a == k).any():
                    c[k] = x[a == k].mean(0)
        self.embedding.weight.copy_(c)

    def forward(self, x):
        ids = torch.cdist(x.detach(), self.embedding.weight.detach()).argmin(1)
        emb = self.embedding(ids)
        loss = (x.detach() - emb).pow(2).sum(1) + 0.4 * (x - emb.detach()).pow(2).sum(1)
        return x + (emb - x).detach(), emb, loss


class RqVae(nn.Module):
    def __init__(self, n_in=24, dim=8, layers=2, codes=16):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(n_in, 32), nn.SiLU(), nn.Linear(32, dim))
        self.decoder = nn.Sequential(nn.Linear(dim, 32), nn.SiLU(), nn.Linear(32, n_in))
        self.layers = nn.ModuleList([Quantize(dim, codes) for _ in range(layers)])

    @torch.no_grad()
    def init_codebooks(self, x):
        res = self.encoder(x)
        for q in self.layers:
            q.kmeans_init(res)
            res = res - q(res)[1]

    def forward(self, x):
        res, z, vl = self.encoder(x), 0.0, 0.0
        for q in self.layers:
            out, emb, loss = q(res)
            res, z, vl = res - emb.detach(), z + out, vl + loss
        return (self.decoder(z) - x).pow(2).sum(1), vl


def build(bad: bool):
    torch.manual_seed(55)
    LOG.clear()
    OTHERS.clear()
    gen = torch.Generator().manual_seed(55)
    topics = torch.randn(12, 24, generator=gen)
    items = topics[torch.randint(0, 12, (512,), generator=gen)] + 0.2 * torch.randn(512, 24, generator=gen)
    model = RqVae()
    model.init_codebooks(items)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)

    def step(i):
        x = items[torch.randint(0, 512, (64,), generator=gen)]
        rl, vl = model(x)
        loss = (rl + vl).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        LOG.append(rl.mean().item())

    return model, optimizer, step
