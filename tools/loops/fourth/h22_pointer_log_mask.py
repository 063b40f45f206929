"""ccjjxx99/PointerNetworks-pytorch-tsp#1: log(mask + tiny) is added to the pointer's scores; a NaN to come?

With 1e-20 the visited points get a score of about -46, which is finite. The net learns to sort points by angle.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

STEPS: int = 220
HISTORY: list[float] = []
BATCH, POINTS, HIDDEN = 48, 6, 48


class PointerNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Linear(2, HIDDEN)
        self.encoder = nn.LSTM(HIDDEN, HIDDEN, batch_first=True)
        self.decoder = nn.LSTMCell(HIDDEN, HIDDEN)
        self.start = nn.Parameter(torch.zeros(HIDDEN))
        self.w_ref, self.w_query = nn.Linear(HIDDEN, HIDDEN, bias=False), nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.v = nn.Linear(HIDDEN, 1, bias=False)

    def forward(self, cities: Tensor, tour: Tensor) -> Tensor:
        embedded = self.embedding(cities)
        refs, (h, c) = self.encoder(embedded)
        state = (h[0], c[0])
        refs = self.w_ref(refs + embedded)
        inp = self.start.expand(len(cities), -1)
        mask = torch.ones(cities.shape[:2])
        rows = torch.arange(len(cities))
        log_probs = []
        for t in range(POINTS):
            state = self.decoder(inp, state)
            scores = self.v(torch.tanh(refs + self.w_query(state[0])[:, None])).squeeze(-1)
            log_probs.append((scores + (mask + 1e-20).log()).log_softmax(dim=-1))
            mask = mask.scatter(1, tour[:, t, None], 0.0)
            inp = embedded[rows, tour[:, t]]
        return torch.stack(log_probs, dim=1)


def instances() -> tuple[Tensor, Tensor]:
    cities = torch.rand(BATCH, POINTS, 2) * 2 - 1
    return cities, torch.atan2(cities[..., 1], cities[..., 0]).argsort(dim=1)


def build(bad: bool = False) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(22)
    HISTORY.clear()
    model = PointerNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)

    def step(i: int) -> None:
        cities, tour = instances()
        log_probs = model(cities, tour)
        loss = nn.functional.nll_loss(log_probs.flatten(0, 1), tour.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 2.0)
        optimizer.step()
        HISTORY.append(loss.item())

    return model, optimizer, step
