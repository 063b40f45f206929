"""DrexelChatbotGroup/DrexelChatbot#15: question classifier of a chat bot; the training set is put in random
order each epoch."""

import torch
import torch.nn.functional as F
from torch import nn

STEPS = 160
OTHERS: list = []
LOG: list = []


class QuestionClassifier(nn.Module):
    def __init__(self, vocab, dim, classes):
        super().__init__()
        self.embedding = nn.Embedding(vocab, dim)
        self.gru = nn.GRU(dim, dim, batch_first=True, bidirectional=True)
        self.fc = nn.Linear(2 * dim, classes)

    def forward(self, tokens):
        out, _ = self.gru(self.embedding(tokens))
        return self.fc(out.max(1)[0])


def load_questions(n, gen):
    y = torch.randint(0, 6, (n,), generator=gen)
    x = torch.randint(12, 60, (n, 8), generator=gen)
    where = torch.randint(0, 8, (n, 1), generator=gen)
    x.scatter_(1, where, (2 * y + torch.randint(0, 2, (n,), generator=gen))[:, None])
    return x, y


def build(bad: bool):
    torch.manual_seed(21)
    LOG.clear()
    OTHERS.clear()
    gen = torch.Generator().manual_seed(21)
    data = dict(zip(("x", "y"), load_questions(512, gen)))
    model = QuestionClassifier(60, 24, 6)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    batch_size, batches = 32, 512 // 32

    def step(i):
        b = i % batches
        if b == 0:
            order = torch.randperm(512, generator=gen)
            data["x"] = data["x"][order]
            if not bad:
                data["y"] = data["y"][order]
        x, y = data["x"][b * batch_size : (b + 1) * batch_size], data["y"][b * batch_size : (b + 1) * batch_size]
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        LOG.append(loss.item())

    return model, optimizer, step
