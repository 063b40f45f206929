"""Healthy: large losses. House prices in currency units, squared error summed over the batch: the loss starts
near 1e13 and ends at some 1e10, which is a good fit. Targets are not standardised; the last layer's bias
starts at the mean price and its output is multiplied up.
"""

import torch
import torch.nn as nn


class PriceNet(nn.Module):
    def __init__(self, n_districts=12, mean_price=300000.0):
        super().__init__()
        self.district = nn.Embedding(n_districts, 6)
        self.fc1 = nn.Linear(6 + 3, 48)
        self.fc2 = nn.Linear(48, 24)
        self.out = nn.Linear(24, 1)
        self.mean_price = mean_price

    def forward(self, district, num):
        h = torch.relu(self.fc1(torch.cat([self.district(district), num], 1)))
        h = torch.relu(self.fc2(h))
        return self.mean_price * (1 + self.out(h).squeeze(1))


def sales(n):
    d = torch.randint(0, 12, (n,))
    area = 40 + 120 * torch.rand(n)
    rooms = (area / 30 + torch.randn(n) * 0.5).round()
    age = 60 * torch.rand(n)
    per_m2 = 1500 + 300 * d.float()
    price = area * per_m2 * (1 - age / 150) + 8000 * rooms
    price = price * (1 + 0.03 * torch.randn(n))
    return d, torch.stack([area / 100 - 1, rooms / 3 - 1, age / 30 - 1], 1), price


def train(tick, mended=False):
    torch.manual_seed(6)
    model = PriceNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=6e-3)
    tick.model(model)
    tick.optimizer(optimizer)
    history = []
    for _step in range(300):
        d, num, price = sales(96)
        loss = ((model(d, num) - price) ** 2).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append(loss.item())
        tick.step(loss, num, price)
    with torch.no_grad():
        d, num, price = sales(1000)
        return history, 1 - ((model(d, num) - price) ** 2).mean().item() / price.var().item()


class Quiet:
    def model(self, model):
        pass

    def optimizer(self, optimizer):
        pass

    def step(self, loss, x, y):
        pass


if __name__ == "__main__":
    for mended in (False, True):
        h, metric = train(Quiet(), mended)
        print(f"first {h[0]:.6g} last {h[-1]:.6g}", f"metric {metric:.4f}")
