"""inyeoplee77/SAGPool#15: zero_grad() comes after step(), at the end of the loop body; that is as good as before.

A graph classifier that scores its nodes, keeps the best half and drops the others.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

STEPS = 200
NODES, KINDS = 10, 3
OTHERS: list[torch.optim.Optimizer] = []
LOG: list[float] = []


class DenseGCN(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.lin = nn.Linear(inputs, outputs)

    def forward(self, x: torch.Tensor, adj: torch.Tensor) -> torch.Tensor:
        loops = adj + torch.eye(adj.size(1))
        norm = loops.sum(dim=2).rsqrt()
        return norm[:, :, None] * (loops @ (norm[:, :, None] * self.lin(x)))


class SAGPool(nn.Module):
    def __init__(self, inputs: int, ratio: float = 0.5) -> None:
        super().__init__()
        self.score_layer = DenseGCN(inputs, 1)
        self.ratio = ratio

    def forward(self, x: torch.Tensor, adj: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        score = self.score_layer(x, adj).squeeze(-1)
        keep = score.topk(int(self.ratio * x.size(1)), dim=1).indices
        rows = torch.arange(x.size(0))[:, None]
        gated = x[rows, keep] * torch.tanh(score[rows, keep])[..., None]
        return gated, adj[rows[..., None], keep[:, :, None], keep[:, None, :]]


class Net(nn.Module):
    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.conv1 = DenseGCN(4, width)
        self.pool1 = SAGPool(width)
        self.conv2 = DenseGCN(width, width)
        self.lin = nn.Linear(2 * width, KINDS)

    def forward(self, x: torch.Tensor, adj: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.conv1(x, adj))
        x, adj = self.pool1(x, adj)
        x = F.relu(self.conv2(x, adj))
        return F.log_softmax(self.lin(torch.cat([x.amax(dim=1), x.mean(dim=1)], dim=1)), dim=-1)


def molecules(generator: torch.Generator, motif: torch.Tensor, batch: int) -> tuple[torch.Tensor, ...]:
    y = torch.randint(0, KINDS, (batch,), generator=generator)
    x = torch.randn(batch, NODES, 4, generator=generator)
    spot = torch.randint(0, NODES - 2, (batch,), generator=generator)
    for row in range(batch):
        x[row, spot[row] : spot[row] + 3] += motif[y[row]]
    upper = torch.triu((torch.rand(batch, NODES, NODES, generator=generator) < 0.15).float(), diagonal=2)
    chain = torch.diag(torch.ones(NODES - 1), 1)
    adj = upper + chain
    return x, adj + adj.transpose(1, 2), y


def build(bad: bool = False) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(22)
    OTHERS.clear()
    LOG.clear()
    generator = torch.Generator().manual_seed(23)
    motif = 2.5 * torch.randn(KINDS, 4, generator=generator)
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=6e-3, weight_decay=1e-4)

    def step(i: int) -> None:
        x, adj, y = molecules(generator, motif, 40)
        out = model(x, adj)
        loss = F.nll_loss(out, y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        LOG.append(loss.item())

    return model, optimizer, step
