"""After uclnlp/jack#322.

Story: a reader trained with the toolbox's default configuration from random
weights; after a few epochs on a small corpus the loss does not move any more.
"""

import torch
import torch.nn.functional as F
from torch import nn

DEFAULTS = {"learning_rate": 1e-3, "learning_rate_decay": 0.5, "min_learning_rate": 0.0, "batch_size": 32, "epochs": 30}


class FastQA(nn.Module):
    def __init__(self, vocab=80, dim=24):
        super().__init__()
        self.embedding = nn.Embedding(vocab, dim)
        self.lstm = nn.GRU(dim + 1, dim, batch_first=True, bidirectional=True)
        self.project = nn.Linear(2 * dim, dim)
        self.start = nn.Sequential(nn.Linear(2 * dim, dim), nn.ReLU(), nn.Linear(dim, 1))

    def forward(self, support, question):
        wiq = (support[:, :, None] == question[:, None, :]).any(-1).float().unsqueeze(-1)
        s, _ = self.lstm(torch.cat([self.embedding(support), wiq], -1))
        q, _ = self.lstm(torch.cat([self.embedding(question), torch.ones(*question.shape, 1)], -1))
        s, q = self.project(s), self.project(q).mean(1, keepdim=True)
        return self.start(torch.cat([s, s * q], -1)).squeeze(-1)


class JTReader:
    def __init__(self, model, config):
        self.model = model
        self.config = config
        self.optimizer = torch.optim.Adam(model.parameters(), lr=config["learning_rate"])

    def decay(self):
        for group in self.optimizer.param_groups:
            group["lr"] = max(group["lr"] * self.config["learning_rate_decay"], self.config["min_learning_rate"])

    def train(self, support, question, answer, tick):
        losses = []
        for epoch in range(self.config["epochs"]):
            for rows in torch.randperm(len(support)).split(self.config["batch_size"]):
                scores = self.model(support[rows], question[rows])
                loss = F.cross_entropy(scores, answer[rows])
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                tick.step(loss)
                losses.append(loss.item())
            self.decay()
        return losses


def make_squad(n=256, length=14, vocab=80):
    support = torch.randint(10, vocab, (n, length))
    question = torch.zeros(n, 3, dtype=torch.long)
    answer = torch.zeros(n, dtype=torch.long)
    for i in range(n):
        pos = int(torch.randint(0, length - 1, ()))
        question[i] = torch.stack([torch.tensor(3), torch.tensor(5), support[i, pos]])
        answer[i] = pos + 1
    return support, question, answer


def train(tick, mended=False):
    torch.manual_seed(0)
    config = dict(DEFAULTS, learning_rate=4e-3)
    if mended:
        config["learning_rate_decay"] = 1.0
    reader = JTReader(FastQA(), config)
    tick.model(reader.model)
    tick.optimizer(reader.optimizer)
    return reader.train(*make_squad(), tick)
