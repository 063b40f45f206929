"""After fastai/fastai (ULMFiT text classifier): gradual unfreezing from the head down, lower
rates for lower groups, slanted triangular rate within each stage."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class AWDLSTM(nn.Module):
    def __init__(self, vocab_sz=60, emb_sz=24, n_hid=32):
        super().__init__()
        self.encoder = nn.Embedding(vocab_sz, emb_sz)
        self.rnn1 = nn.LSTM(emb_sz, n_hid, batch_first=True)
        self.rnn2 = nn.LSTM(n_hid, n_hid, batch_first=True)

    def forward(self, x):
        h, _ = self.rnn1(self.encoder(x))
        return self.rnn2(h)[0]


class PoolingLinearClassifier(nn.Module):
    def __init__(self, n_hid=32, n_class=4):
        super().__init__()
        self.layers = nn.Sequential(
            nn.BatchNorm1d(3 * n_hid),
            nn.Linear(3 * n_hid, 32),
            nn.ReLU(),
            nn.BatchNorm1d(32),
            nn.Dropout(0.1),
            nn.Linear(32, n_class),
        )

    def forward(self, out):
        return self.layers(torch.cat([out[:, -1], out.max(1).values, out.mean(1)], 1))


class SequentialRNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn_core = AWDLSTM()
        self.classifier = PoolingLinearClassifier()

    def forward(self, x):
        return self.classifier(self.rnn_core(x))

    def layer_groups(self):
        core = self.rnn_core
        return [core.encoder, core.rnn1, core.rnn2, self.classifier]


def freeze_to(groups, n):
    for i, g in enumerate(groups):
        for p in g.parameters():
            p.requires_grad_(i >= n)


def triangular(i, n, cut=0.2):
    return i / (n * cut) if i < n * cut else max(0.05, (n - i) / (n * (1 - cut)))


def train(tick, mended=False):
    torch.manual_seed(10)
    model = SequentialRNN()
    groups = model.layer_groups()
    freeze_to(groups, 3)
    base_lr = 1.5e-2
    lrs = [base_lr / 2.6 ** (3 - i) for i in range(4)]
    opt = torch.optim.Adam([{"params": g.parameters(), "lr": lr} for g, lr in zip(groups, lrs)], betas=(0.8, 0.99))
    losses = []
    tick.model(model)
    tick.optimizer(opt)
    model.train()
    for stage in (3, 2, 1, 0):
        freeze_to(groups, stage)
        for i in range(40):
            for g, lr in zip(opt.param_groups, lrs):
                g["lr"] = lr * triangular(i, 40)
            y = torch.randint(0, 4, (32,))
            x = torch.randint(8, 60, (32, 10))
            first = torch.randint(0, 5, (32,))
            x[torch.arange(32), first] = 2 * (y // 2)
            x[torch.arange(32), first + 4] = 4 + 2 * (y % 2)
            loss = F.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            tick.step(loss)
            losses.append(loss.item())
    return losses
