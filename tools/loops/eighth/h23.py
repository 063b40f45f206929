"""fastai (ULMFiT): gradual unfreezing of a pretrained text model; first only the head learns, then layer after layer is
thawed with smaller rates for the lower ones, slanted triangular schedule."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class AWDLSTM(nn.Module):
    def __init__(self, vocab=24, emb=16, hid=24):
        super().__init__()
        self.encoder = nn.Embedding(vocab, emb)
        self.rnns = nn.ModuleList([nn.LSTM(emb, hid, batch_first=True), nn.LSTM(hid, emb, batch_first=True)])

    def forward(self, x):
        h = self.encoder(x)
        for rnn in self.rnns:
            h, _ = rnn(h)
        return h


class PoolingLinearClassifier(nn.Module):
    def __init__(self, emb=16, classes=3):
        super().__init__()
        self.layers = nn.Sequential(
            nn.BatchNorm1d(3 * emb),
            nn.Dropout(0.2),
            nn.Linear(3 * emb, 20),
            nn.ReLU(),
            nn.BatchNorm1d(20),
            nn.Linear(20, classes),
        )

    def forward(self, h):
        return self.layers(torch.cat([h[:, -1], h.amax(1), h.mean(1)], 1))


class TextClassifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.lm, self.head = AWDLSTM(), PoolingLinearClassifier()

    def forward(self, x):
        return self.head(self.lm(x))

    def layer_groups(self):
        return [self.lm.encoder, self.lm.rnns[0], self.lm.rnns[1], self.head]


def corpus(n):
    y = torch.randint(0, 3, (n,))
    step = torch.tensor([1, 5, 7])[y][:, None]
    x = (torch.randint(0, 24, (n, 1)) + step * torch.arange(10)) % 24
    return torch.where(torch.rand(n, 10) < 0.15, torch.randint(0, 24, (n, 10)), x), y


def pretrain(lm, x):
    out = nn.Linear(16, 24)
    opt = torch.optim.Adam([*lm.parameters(), *out.parameters()], lr=1e-2)
    for _ in range(30):
        idx = torch.randint(0, len(x), (48,))
        loss = F.cross_entropy(out(lm(x[idx, :-1])).flatten(0, 1), x[idx, 1:].flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()


def freeze_to(groups, n):
    for i, g in enumerate(groups):
        for p in g.parameters():
            p.requires_grad = i >= n


def train(tick, mended=False):
    torch.manual_seed(0)
    x, y = corpus(800)
    model = TextClassifier()
    pretrain(model.lm, x)
    groups, lr = model.layer_groups(), 1e-2
    optimizer = torch.optim.Adam([{"params": g.parameters(), "lr": lr} for g in groups], betas=(0.8, 0.99))
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []
    for stage, per_stage in ((3, 40), (2, 40), (1, 40), (0, 80)):
        freeze_to(groups, stage)
        for it in range(per_stage):
            cut = per_stage * 0.2
            p = it / cut if it < cut else 1 - (it - cut) / (per_stage - cut)
            for depth, group in enumerate(optimizer.param_groups):
                group["lr"] = lr * (1 + p * 31) / 32 / 2.6 ** (3 - depth)
            idx = torch.randint(0, 800, (32,))
            loss = F.cross_entropy(model(x[idx]), y[idx])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            tick.step(loss)
    model.eval()
    xt, yt = corpus(300)
    with torch.no_grad():
        train.final = (model(xt).argmax(1) == yt).float().mean().item()
    return losses
