"""After tanatosuu/GDE#3: "The implementation of the bpr loss function may be wrong".

Graph denoising encoder for recommendation: user and item embeddings are smoothed
with precomputed spectral filters, pairs are ranked with BPR.
"""

import torch
from torch import nn


class GDE(nn.Module):
    def __init__(self, L_u, L_i, latent_size=16, mended=False):
        super().__init__()
        self.user_emb = nn.Embedding(L_u.size(0), latent_size)
        self.item_emb = nn.Embedding(L_i.size(0), latent_size)
        nn.init.xavier_normal_(self.user_emb.weight)
        nn.init.xavier_normal_(self.item_emb.weight)
        self.register_buffer("L_u", L_u)
        self.register_buffer("L_i", L_i)
        self.mended = mended

    def predict_all(self):
        return (self.L_u @ self.user_emb.weight) @ (self.L_i @ self.item_emb.weight).t()

    def forward(self, user, pos_item, nega_item):
        final_user = self.L_u[user] @ self.user_emb.weight
        final_pos = self.L_i[pos_item] @ self.item_emb.weight
        final_nega = self.L_i[nega_item] @ self.item_emb.weight
        out = (final_user * final_pos).sum(1) - (final_user * final_nega).sum(1)
        if self.mended:
            out = out.sigmoid()
        regu_term = 0.01 * (final_user**2 + final_pos**2 + final_nega**2).sum()
        return (-torch.log(out).sum() + regu_term) / len(user)


def rating_matrix():
    g = torch.Generator().manual_seed(0)
    gu, gi = torch.randint(0, 4, (120,), generator=g), torch.randint(0, 4, (80,), generator=g)
    p = torch.where(gu[:, None] == gi[None], 0.3, 0.02)
    return (torch.rand(120, 80, generator=g) < p).float()


def filters(r, keep=24):
    du, di = r.sum(1).clamp(min=1).rsqrt(), r.sum(0).clamp(min=1).rsqrt()
    norm = du[:, None] * r * di[None]

    def smooth(m):
        val, vec = torch.linalg.eigh(m)
        val, vec = val[-keep:], vec[:, -keep:]
        return vec @ torch.diag(torch.exp(2.0 * val)) @ vec.t() / 4

    return smooth(norm @ norm.t()), smooth(norm.t() @ norm)


def score(model, mended):
    r = rating_matrix()
    with torch.no_grad():
        s = model.predict_all()
    i = torch.arange(0, 120)
    auc = [(s[u][r[u] == 1][:, None] > s[u][r[u] == 0][None]).float().mean() for u in i if r[u].sum() > 0]
    return torch.stack(auc).mean().item()


def train(tick, mended=False):
    torch.manual_seed(0)
    r = rating_matrix()
    model = GDE(*filters(r), mended=mended)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    pairs = r.nonzero()
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []
    for _ in range(200):
        pick = pairs[torch.randint(0, len(pairs), (128,))]
        user, pos = pick[:, 0], pick[:, 1]
        nega = torch.multinomial(1 - r[user], 1).squeeze(1)
        loss = model(user, pos, nega)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        tick.step(loss)
    return losses
