"""After xiangwang1223/neural_graph_collaborative_filtering#17.

NGCF trained with the pairwise BPR objective; the reporter ran it several times and every
time the loss became nan after some batches.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class NGCF(nn.Module):
    def __init__(self, n_users, n_items, norm_adj, emb_dim=32, n_layers=2):
        super().__init__()
        self.n_users, self.n_items = n_users, n_items
        self.register_buffer("norm_adj", norm_adj)
        self.user_embedding = nn.Parameter(torch.randn(n_users, emb_dim))
        self.item_embedding = nn.Parameter(torch.randn(n_items, emb_dim))
        self.W_gc = nn.ModuleList(nn.Linear(emb_dim, emb_dim) for _ in range(n_layers))
        self.W_bi = nn.ModuleList(nn.Linear(emb_dim, emb_dim) for _ in range(n_layers))

    def forward(self):
        ego = torch.cat([self.user_embedding, self.item_embedding], dim=0)
        all_embeddings = [ego]
        for gc, bi in zip(self.W_gc, self.W_bi):
            side = self.norm_adj @ ego
            ego = F.leaky_relu(gc(side) + bi(ego * side), 0.2)
            all_embeddings.append(ego)
        out = torch.cat(all_embeddings, dim=1)
        return out[: self.n_users], out[self.n_users :]


def create_bpr_loss(users, pos_items, neg_items, decay, mended):
    pos_scores = (users * pos_items).sum(1)
    neg_scores = (users * neg_items).sum(1)
    regularizer = (users**2).sum() + (pos_items**2).sum() + (neg_items**2).sum()
    if mended:
        mf_loss = F.softplus(-(pos_scores - neg_scores)).mean()
    else:
        mf_loss = -torch.log(torch.sigmoid(pos_scores - neg_scores)).mean()
    return mf_loss + decay * regularizer / users.size(0)


def make_interactions(n_users, n_items, n_groups=5):
    u_group = torch.arange(n_users) % n_groups
    i_group = torch.arange(n_items) % n_groups
    same = u_group[:, None] == i_group[None, :]
    prob = torch.where(same, torch.tensor(0.5), torch.tensor(0.02))
    return (torch.rand(n_users, n_items) < prob).float()


def normalized_adjacency(R):
    n_users, n_items = R.shape
    A = torch.zeros(n_users + n_items, n_users + n_items)
    A[:n_users, n_users:] = R
    A[n_users:, :n_users] = R.t()
    d = A.sum(1).clamp(min=1).pow(-0.5)
    return d[:, None] * A * d[None, :]


def sample(R, batch_size):
    pairs = R.nonzero()
    rows = pairs[torch.randint(0, pairs.size(0), (batch_size,))]
    neg = torch.randint(0, R.size(1), (batch_size,))
    return rows[:, 0], rows[:, 1], neg


def train(tick, mended=False):
    torch.manual_seed(2020)
    n_users, n_items = 100, 150
    R = make_interactions(n_users, n_items)
    model = NGCF(n_users, n_items, normalized_adjacency(R), emb_dim=64)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    losses = []
    tick.model(model)
    tick.optimizer(optimizer)
    for _step in range(140):
        users, pos, neg = sample(R, 1024)
        ua, ia = model()
        loss = create_bpr_loss(ua[users], ia[pos], ia[neg], 1e-5, mended)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tick.step(loss)
        losses.append(loss.item())
    return losses
