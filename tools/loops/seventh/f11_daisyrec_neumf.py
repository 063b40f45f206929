"""yudi-mars/daisyRec#15: "Otherwise loss does not converge".

Rebuilt: a small NeuMF-style recommender on implicit feedback with sampled negatives.
"""

import torch
import torch.nn as nn


class NeuMF(nn.Module):
    def __init__(self, user_num, item_num, factors=8, mended=False):
        super().__init__()
        self.mended = mended
        self.embed_user_GMF = nn.Embedding(user_num, factors)
        self.embed_item_GMF = nn.Embedding(item_num, factors)
        self.embed_user_MLP = nn.Embedding(user_num, factors)
        self.embed_item_MLP = nn.Embedding(item_num, factors)
        self.MLP_layers = nn.Sequential(nn.Linear(2 * factors, 16), nn.ReLU(), nn.Linear(16, factors), nn.ReLU())
        self.predict_layer = nn.Linear(2 * factors, 1)
        for m in self.modules():
            if isinstance(m, nn.Embedding):
                nn.init.normal_(m.weight, std=0.1)

    def forward(self, user, item):
        gmf = self.embed_user_GMF(user) * self.embed_item_GMF(item)
        mlp = self.MLP_layers(torch.cat([self.embed_user_MLP(user), self.embed_item_MLP(item)], -1))
        pred = self.predict_layer(torch.cat([gmf, mlp], -1)).view(-1)
        if self.mended:
            return pred
        return torch.sigmoid(pred)


class PairDataset:
    def __init__(self, user_num=80, item_num=60, num_ng=4):
        self.user_num, self.item_num, self.num_ng = user_num, item_num, num_ng
        taste = torch.randn(user_num, 3)
        genre = torch.randn(item_num, 3)
        score = taste @ genre.T
        self.liked = score > 1.2

    def batch(self, n):
        u, i = self.liked.nonzero(as_tuple=True)
        pick = torch.randint(0, len(u), (n,))
        u, i = u[pick], i[pick]
        nu = u.repeat(self.num_ng)
        ni = torch.randint(0, self.item_num, (n * self.num_ng,))
        for _ in range(5):
            bad = self.liked[nu, ni]
            ni[bad] = torch.randint(0, self.item_num, (int(bad.sum()),))
        user = torch.cat([u, nu])
        item = torch.cat([i, ni])
        label = torch.cat([torch.ones(n), torch.zeros(n * self.num_ng)])
        return user, item, label


def auc(model, data):
    u, i = torch.meshgrid(torch.arange(data.user_num), torch.arange(data.item_num), indexing="ij")
    with torch.no_grad():
        s = model(u.reshape(-1), i.reshape(-1))
    t = data.liked.reshape(-1)
    pos, neg = s[t], s[~t]
    return (pos[:, None] > neg[None, ::7]).float().mean().item()


def train(tick, mended=False):
    torch.manual_seed(29)
    data = PairDataset()
    model = NeuMF(data.user_num, data.item_num, mended=mended)
    criterion = nn.BCEWithLogitsLoss(reduction="sum")
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    tick.model(model)
    tick.optimizer(optimizer)
    history = []
    for _step in range(300):
        user, item, label = data.batch(64)
        model.zero_grad()
        prediction = model(user, item)
        loss = criterion(prediction, label)
        loss.backward()
        optimizer.step()
        history.append(loss.item() / len(label))
        tick.step(loss, torch.stack([user, item], 1), label)
    return history, auc(model, data)


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
        print("mended" if mended else "as is", f"first {h[0]:.4f} last {h[-1]:.4f}", f"auc {metric:.3f}")
