"""hirofumi0810/neural_sp#168: speech recogniser with accum_grad_n_steps; "accum_grad loss error"."""

import torch
import torch.nn.functional as F
from torch import nn

STEPS = 80
OTHERS: list = []
LOG: list = []


class ConvEncoder(nn.Module):
    def __init__(self, n_mels, d):
        super().__init__()
        self.subsample = nn.Conv1d(n_mels, d, 3, padding=1)
        self.norm = nn.LayerNorm(d)
        self.rnn = nn.GRU(d, d, batch_first=True)

    def forward(self, xs):
        h = F.relu(self.norm(self.subsample(xs.transpose(1, 2)).transpose(1, 2)))
        return self.rnn(h)[0]


class Speech2Text(nn.Module):
    def __init__(self, vocab=9, d=32):
        super().__init__()
        self.enc = ConvEncoder(10, d)
        self.ctc_output = nn.Linear(d, vocab)

    def forward(self, xs, ys):
        logp = self.ctc_output(self.enc(xs)).log_softmax(-1)
        lens = torch.full((len(xs),), xs.size(1))
        return F.ctc_loss(logp.transpose(0, 1), ys, lens, torch.full((len(ys),), ys.size(1)))


def build(bad: bool):
    torch.manual_seed(24)
    LOG.clear()
    OTHERS.clear()
    gen = torch.Generator().manual_seed(24)
    phones = torch.randn(9, 10, generator=gen)
    model = Speech2Text()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
    accum_grad_n_steps = 8

    def step(i):
        total = 0.0
        optimizer.zero_grad()
        for _ in range(accum_grad_n_steps):
            ys = torch.stack([torch.randperm(8, generator=gen)[:4] + 1 for _ in range(4)])
            xs = phones[ys].repeat_interleave(3, 1) + 0.3 * torch.randn(4, 12, 10, generator=gen)
            loss = model(xs, ys)
            total += loss.item() / accum_grad_n_steps
            if not bad:
                loss = loss / accum_grad_n_steps
            loss.backward()
        optimizer.step()
        LOG.append(total)

    return model, optimizer, step
