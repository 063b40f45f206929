"""ProteomicsML/ProteomicsML#203: a ReLU on the regression head, all peptides are given zero.

An LSTM that predicts a scaled retention time from an amino-acid sequence.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

STEPS: int = 200
HISTORY: list[float] = []
AMINO, LENGTH, BATCH = 21, 12, 48


class RetentionLstm(nn.Module):
    def __init__(self, relu_head: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(AMINO, 16, padding_idx=0)
        self.lstm = nn.LSTM(16, 24, batch_first=True)
        self.dense = nn.Linear(24, 16)
        self.output = nn.Linear(16, 1)
        self.relu_head = relu_head

    def forward(self, peptide: Tensor) -> Tensor:
        _, (h, _) = self.lstm(self.embedding(peptide))
        y = self.output(torch.relu(self.dense(h[-1]))).squeeze(-1)
        return torch.relu(y) if self.relu_head else y


def peptides(weights: Tensor) -> tuple[Tensor, Tensor]:
    ids = torch.randint(1, AMINO, (BATCH, LENGTH))
    length = torch.randint(6, LENGTH + 1, (BATCH, 1))
    ids = ids * (torch.arange(LENGTH)[None, :] >= LENGTH - length)
    return ids, 2.0 + weights[ids].sum(dim=1)


def build(bad: bool) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(1)
    HISTORY.clear()
    weights = 0.3 * torch.randn(AMINO)
    weights[0] = 0.0
    model = RetentionLstm(relu_head=bad)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)

    def step(i: int) -> None:
        ids, target = peptides(weights)
        loss = nn.functional.mse_loss(model(ids), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        HISTORY.append(loss.item())

    return model, optimizer, step
