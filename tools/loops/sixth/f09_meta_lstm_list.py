"""ikostrikov/pytorch-meta-optimizer#11: learned optimizer with stacked LayerNorm LSTM cells; "LSTM weights
not optimised"."""

import torch
import torch.nn.functional as F
from torch import nn

STEPS = 120
OTHERS: list = []
LOG: list = []


class LayerNormLSTMCell(nn.Module):
    def __init__(self, num_inputs, num_hidden):
        super().__init__()
        self.fc_i2h = nn.Linear(num_inputs, 4 * num_hidden)
        self.fc_h2h = nn.Linear(num_hidden, 4 * num_hidden)
        self.ln = nn.LayerNorm(4 * num_hidden)

    def forward(self, x, state):
        hx, cx = state
        i, f, g, o = self.ln(self.fc_i2h(x) + self.fc_h2h(hx)).chunk(4, 1)
        cx = torch.sigmoid(f + 1) * cx + torch.sigmoid(i) * torch.tanh(g)
        hx = torch.sigmoid(o) * torch.tanh(cx)
        return hx, cx


class MetaOptimizer(nn.Module):
    def __init__(self, num_layers, hidden_size, registered):
        super().__init__()
        self.hidden_size = hidden_size
        self.linear1 = nn.Linear(2, hidden_size)
        self.ln1 = nn.LayerNorm(hidden_size)
        self.lstms = []
        for _ in range(num_layers):
            self.lstms.append(LayerNormLSTMCell(hidden_size, hidden_size))
        if registered:
            self.lstms = nn.ModuleList(self.lstms)
        self.linear2 = nn.Linear(hidden_size, 1)

    def forward(self, x):
        n, steps, _ = x.shape
        states = [(torch.zeros(n, self.hidden_size),) * 2 for _ in self.lstms]
        for t in range(steps):
            h = torch.tanh(self.ln1(self.linear1(x[:, t])))
            for k, cell in enumerate(self.lstms):
                states[k] = cell(h, states[k])
                h = states[k][0]
        return self.linear2(h).squeeze(1)


def build(bad: bool):
    torch.manual_seed(6)
    LOG.clear()
    OTHERS.clear()
    gen = torch.Generator().manual_seed(6)
    meta_optimizer = MetaOptimizer(2, 16, registered=not bad)
    optimizer = torch.optim.Adam(meta_optimizer.parameters(), lr=1e-2)

    def step(i):
        grads = torch.randn(64, 10, generator=gen)
        mark = torch.zeros(64, 10)
        pos = torch.stack([torch.randperm(10, generator=gen)[:2] for _ in range(64)])
        mark.scatter_(1, pos, 1.0)
        target = (grads * mark).sum(1)
        loss = F.mse_loss(meta_optimizer(torch.stack([grads, mark], -1)), target)
        meta_optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        LOG.append(loss.item())

    return meta_optimizer, optimizer, step
