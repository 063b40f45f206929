"""pytorch/pytorch#101370: SparseAdam is meant for dense parameters with sparse gradients, such as sparse embeddings.

Two optimizers share the model; most rows of the tables get no gradient in any one step.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

STEPS: int = 250
OTHERS: list[torch.optim.Optimizer] = []
HISTORY: list[float] = []
USERS, ITEMS, DIM, BATCH = 300, 200, 8, 256


class Recommender(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.user = nn.Embedding(USERS, DIM, sparse=True)
        self.item = nn.Embedding(ITEMS, DIM, sparse=True)
        self.tower = nn.Sequential(nn.Linear(3 * DIM, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        u, v = self.user(user), self.item(item)
        return self.tower(torch.cat([u, v, u * v], dim=1)).squeeze(1)


def build(bad: bool = False) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(13)
    HISTORY.clear()
    OTHERS.clear()
    user_bias, item_bias = torch.randn(USERS), torch.randn(ITEMS)
    taste, kind = torch.randn(USERS, 2), torch.randn(ITEMS, 2)
    model = Recommender()
    dense = torch.optim.Adam(model.tower.parameters(), lr=5e-3)
    sparse = torch.optim.SparseAdam([model.user.weight, model.item.weight], lr=3e-2)
    OTHERS.append(sparse)

    def step(i: int) -> None:
        user, item = torch.randint(0, USERS, (BATCH,)), torch.randint(0, ITEMS, (BATCH,))
        rating = user_bias[user] + item_bias[item] + 0.5 * (taste[user] * kind[item]).sum(dim=1)
        loss = nn.functional.mse_loss(model(user, item), rating)
        dense.zero_grad()
        sparse.zero_grad()
        loss.backward()
        dense.step()
        sparse.step()
        HISTORY.append(loss.item())

    return model, dense, step
