"""rballester/tntorch#3: trainable tensor-train weight inside an nn.Module; "the network doesn't seem to
learn anything"."""

import torch
import torch.nn.functional as F
from torch import nn

STEPS = 200
OTHERS: list = []
LOG: list = []


class TTTensor:
    def __init__(self, cores):
        self.cores = cores

    def full(self):
        out = self.cores[0]
        for core in self.cores[1:]:
            out = torch.tensordot(out, core, dims=1)
        return out.squeeze(0).squeeze(-1)


class TuckerLinear(nn.Module):
    def __init__(self, n_in, n_out, rank, copy):
        super().__init__()
        self.shape, self.copy = (n_in, n_out), copy
        dims = [n_in[0] * n_out[0], n_in[1] * n_out[1]]
        self.model_params = nn.ParameterList(
            [nn.Parameter(torch.randn(1, dims[0], rank) * 0.3), nn.Parameter(torch.randn(rank, dims[1], 1) * 0.3)]
        )
        self.bias = nn.Parameter(torch.zeros(n_out[0] * n_out[1]))

    def weight(self):
        cores = [c.detach().clone() if self.copy else c for c in self.model_params]
        (i1, i2), (o1, o2) = self.shape
        w = TTTensor(cores).full().view(i1, o1, i2, o2)
        return w.permute(1, 3, 0, 2).reshape(o1 * o2, i1 * i2)

    def forward(self, x):
        return F.linear(x, self.weight(), self.bias)


class TensorNet(nn.Module):
    def __init__(self, copy):
        super().__init__()
        self.embed = TuckerLinear((4, 4), (4, 4), 8, copy)
        self.hidden = TuckerLinear((4, 4), (4, 4), 8, copy)
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x):
        return self.scale * self.hidden(torch.tanh(self.embed(x)))


def build(bad: bool):
    torch.manual_seed(17)
    LOG.clear()
    OTHERS.clear()
    gen = torch.Generator().manual_seed(17)
    net = TensorNet(copy=bad)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2, weight_decay=1e-6)
    mix = torch.randn(4, 4, generator=gen) / 2

    def step(i):
        x = torch.randn(64, 16, generator=gen)
        y = torch.tanh(torch.kron(mix, mix) @ x.t()).t()
        loss = F.mse_loss(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        LOG.append(loss.item())

    return net, optimizer, step
