"""awslabs/graphstorm#1366: gradients are clipped after the optimizer has already used them.

Node regression by mean aggregation; now and then a batch holds a hub node with huge features.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

STEPS: int = 160
HISTORY: list[float] = []
NODES, FAN_OUT, FEATURES = 64, 6, 10


class SageRegressor(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.self_fc = nn.Linear(FEATURES, 32)
        self.neigh_fc = nn.Linear(FEATURES, 32, bias=False)
        self.decoder = nn.Linear(32, 1)

    def forward(self, nodes: Tensor, neighbours: Tensor) -> Tensor:
        h = torch.relu(self.self_fc(nodes) + self.neigh_fc(neighbours.mean(dim=1)))
        return self.decoder(h).squeeze(-1)


def build(bad: bool) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(5)
    HISTORY.clear()
    w_self, w_neigh = torch.randn(FEATURES), torch.randn(FEATURES)
    model = SageRegressor()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    max_grad_norm = 1.0

    def step(i: int) -> None:
        nodes = torch.randn(NODES, FEATURES)
        neighbours = torch.randn(NODES, FAN_OUT, FEATURES)
        if i % 9 == 4:
            nodes[0] *= 40.0
        target = nodes @ w_self + 2.0 * neighbours.mean(dim=1) @ w_neigh
        loss = nn.functional.mse_loss(model(nodes, neighbours), target)
        optimizer.zero_grad()
        loss.backward()
        if bad:
            optimizer.step()
            torch.nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm)
        else:
            torch.nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm)
            optimizer.step()
        HISTORY.append(loss.item())

    return model, optimizer, step
