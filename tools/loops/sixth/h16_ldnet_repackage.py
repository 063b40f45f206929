"""LiyuanLucasLiu/LD-Net#6: "What is repackage_hidden? Why use detach()?" """

import torch
import torch.nn.functional as F
from torch import nn

STEPS = 200
OTHERS: list = []
LOG: list = []


def repackage_hidden(h):
    return h.detach() if isinstance(h, torch.Tensor) else tuple(repackage_hidden(v) for v in h)


class LanguageModel(nn.Module):
    def __init__(self, w_num, dim, hid):
        super().__init__()
        self.word_embed = nn.Embedding(w_num, dim)
        self.rnn = nn.LSTM(dim, hid, 2)
        self.drop = nn.Dropout(0.1)
        self.project = nn.Linear(hid, w_num)

    def forward(self, w_in, hidden):
        out, hidden = self.rnn(self.drop(self.word_embed(w_in)), hidden)
        return self.project(self.drop(out)), hidden


def build(bad: bool):
    torch.manual_seed(46)
    LOG.clear()
    OTHERS.clear()
    gen = torch.Generator().manual_seed(46)
    motifs = torch.randint(0, 20, (6, 7), generator=gen)
    streams = [motifs[torch.randint(0, 6, (800,), generator=gen)].flatten()[:4200] for _ in range(16)]
    corpus = torch.stack(streams, 1)
    model = LanguageModel(20, 24, 48)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    state = {"hidden": (torch.zeros(2, 16, 48), torch.zeros(2, 16, 48))}
    bptt = 20

    def step(i):
        a = i * bptt
        hidden = repackage_hidden(state["hidden"])
        logits, state["hidden"] = model(corpus[a : a + bptt], hidden)
        loss = F.cross_entropy(logits.flatten(0, 1), corpus[a + 1 : a + bptt + 1].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        LOG.append(loss.item())

    return model, optimizer, step
