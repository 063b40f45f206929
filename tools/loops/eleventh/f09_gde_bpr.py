"""After tanatosuu/GDE#2.

Story: graph denoising encoder for recommendation; with the BPR loss switched on
the loss turns into nan.
"""

import torch
from torch import nn


class GDE(nn.Module):
    def __init__(self, n_users, n_items, adj, latent_size=16, beta=2.0, mended=False):
        super().__init__()
        self.user_emb = nn.Embedding(n_users, latent_size)
        self.item_emb = nn.Embedding(n_items, latent_size)
        nn.init.xavier_normal_(self.user_emb.weight)
        nn.init.xavier_normal_(self.item_emb.weight)
        self.register_buffer("L_u", self.smooth_filter(adj @ adj.t(), beta))
        self.register_buffer("L_i", self.smooth_filter(adj.t() @ adj, beta))
        self.mended = mended

    @staticmethod
    def smooth_filter(gram, beta, k=8):
        d = gram.sum(1).clamp_min(1e-6).rsqrt()
        value, vector = torch.linalg.eigh(d[:, None] * gram * d[None])
        value, vector = value[-k:], vector[:, -k:]
        return vector * torch.exp(beta * value) @ vector.t()

    def forward(self, user, pos_item, nega_item, loss_type="bpr"):
        final_user = self.L_u[user] @ self.user_emb.weight
        final_pos = self.L_i[pos_item] @ self.item_emb.weight
        final_nega = self.L_i[nega_item] @ self.item_emb.weight
        if self.mended:
            out = ((final_user * final_pos).sum(1) - (final_user * final_nega).sum(1)).sigmoid()
        else:
            out = (final_user * final_pos).sum(1).sigmoid() - (final_user * final_nega).sum(1).sigmoid()
        reg = 1e-4 * (final_user**2 + final_pos**2 + final_nega**2).sum()
        return -torch.log(out).sum() + reg


def make_interactions(n_users=60, n_items=40):
    taste, kind = torch.arange(n_users) % 4, torch.arange(n_items) % 4
    p = torch.where(taste[:, None] == kind[None], 0.6, 0.05)
    return (torch.rand(n_users, n_items) < p).float()


def train(tick, mended=False):
    torch.manual_seed(0)
    rate = make_interactions()
    model = GDE(*rate.shape, rate, mended=mended)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    tick.model(model)
    tick.optimizer(optimizer)
    users, items = rate.nonzero(as_tuple=True)
    losses = []
    for epoch in range(10):
        order = torch.randperm(len(users))
        for i in range(0, len(order), 64):
            u, p = users[order[i : i + 64]], items[order[i : i + 64]]
            n = torch.multinomial(1 - rate[u] + 1e-9, 1).squeeze(1)
            loss = model(u, p, n)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            tick.step(loss)
            losses.append(loss.item() / len(u))
    return losses
