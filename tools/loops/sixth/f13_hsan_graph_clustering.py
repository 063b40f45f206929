"""yueliu1999/HSAN#6: contrastive graph clustering, "The model is not converging"."""

import torch
import torch.nn.functional as F
from torch import nn

STEPS = 150
OTHERS: list = []
LOG: list = []


class HardSampleAwareNetwork(nn.Module):
    def __init__(self, input_dim, hidden, node_num):
        super().__init__()
        self.AE1 = nn.Linear(input_dim, hidden)
        self.AE2 = nn.Linear(input_dim, hidden)
        self.SE1 = nn.Linear(node_num, hidden)
        self.SE2 = nn.Linear(node_num, hidden)
        self.alpha = nn.Parameter(torch.tensor(0.99))

    def forward(self, x, A):
        Z1, Z2 = F.normalize(self.AE1(x)), F.normalize(self.AE2(x))
        E1, E2 = F.normalize(self.SE1(A)), F.normalize(self.SE2(A))
        return Z1, Z2, E1, E2

    def similarity(self, Z1, Z2, E1, E2):
        Z, E = torch.cat([Z1, Z2]), torch.cat([E1, E2])
        return self.alpha * Z @ Z.t() + (1 - self.alpha) * E @ E.t()


def make_graph(n, k, gen):
    lab = torch.arange(n) % k
    prob = torch.where(lab[:, None] == lab[None], 0.4, 0.03)
    A = (torch.rand(n, n, generator=gen) < prob).float().triu(1)
    A = A + A.t() + torch.eye(n)
    centre = torch.randn(k, 20, generator=gen)
    x = centre[lab] + 0.8 * torch.randn(n, 20, generator=gen)
    d = A.sum(1).rsqrt()
    A_norm = d[:, None] * A * d[None]
    for _ in range(2):
        x = A_norm @ x
    return x, A


def build(bad: bool):
    torch.manual_seed(12)
    LOG.clear()
    OTHERS.clear()
    gen = torch.Generator().manual_seed(12)
    node_num = 90
    x, A = make_graph(node_num, 3, gen)
    model = HardSampleAwareNetwork(20, 24, node_num)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    pos_mask = torch.eye(2 * node_num).roll(node_num, 0)
    self_mask = torch.eye(2 * node_num).bool()

    def step(i):
        sim = model.similarity(*model(x, A)) / 0.2
        logp = sim.masked_fill(self_mask, -1e9).log_softmax(1)
        loss = -(logp * pos_mask).sum(1).mean()
        if not bad:
            optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        LOG.append(loss.item())

    return model, optimizer, step
