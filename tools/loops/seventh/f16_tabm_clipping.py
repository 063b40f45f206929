"""yandex-research/tabm#20: "Incorrect gradient clipping?" in example.ipynb.

Rebuilt: a TabM-like ensemble MLP (shared weights, k adapters) on a table with a few extreme prices; SGD with
momentum.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class LinearEfficientEnsemble(nn.Module):
    def __init__(self, cin, cout, k):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(cin, cout))
        self.bias = nn.Parameter(torch.zeros(k, cout))
        self.r = nn.Parameter(torch.randint(0, 2, (k, cin)).float() * 2 - 1)
        self.s = nn.Parameter(torch.ones(k, cout))
        nn.init.uniform_(self.weight, -(cin**-0.5), cin**-0.5)

    def forward(self, x):
        return (x * self.r) @ self.weight * self.s + self.bias


class TabM(nn.Module):
    def __init__(self, n_features, d_block=32, k=4):
        super().__init__()
        self.k = k
        self.block0 = LinearEfficientEnsemble(n_features, d_block, k)
        self.block1 = LinearEfficientEnsemble(d_block, d_block, k)
        self.output = nn.Parameter(torch.randn(k, d_block) * d_block**-0.5)
        self.output_bias = nn.Parameter(torch.zeros(k))

    def forward(self, x):
        x = x[:, None].expand(-1, self.k, -1)
        x = F.relu(self.block0(x))
        x = F.relu(self.block1(x))
        return (x * self.output).sum(-1) + self.output_bias


def housing_table(n):
    x = torch.randn(n, 8)
    y = x[:, 0] - 0.7 * x[:, 1] * (x[:, 2] > 0).float() + 0.5 * torch.sin(2 * x[:, 3])
    y = y + 0.1 * torch.randn(n)
    luxury = torch.rand(n) < 0.004
    y = torch.where(luxury, y + 150 * torch.rand(n) + 100, y)
    return x, y, luxury


def train(tick, mended=False):
    torch.manual_seed(59)
    x, y, _ = housing_table(2000)
    model = TabM(8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9)
    gradient_clipping_norm = 1.0
    tick.model(model)
    tick.optimizer(optimizer)
    history = []
    for _epoch in range(8):
        model.train()
        for batch_idx in torch.randperm(len(x)).split(64):
            optimizer.zero_grad()
            y_pred = model(x[batch_idx])
            target = y[batch_idx]
            loss = F.mse_loss(y_pred.flatten(), target.repeat_interleave(model.k))
            if mended:
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), gradient_clipping_norm)
            else:
                nn.utils.clip_grad_norm_(model.parameters(), gradient_clipping_norm)
                loss.backward()
            optimizer.step()
            history.append(loss.item())
            tick.step(loss, x[batch_idx], target)
    model.eval()
    with torch.no_grad():
        tx, ty, lux = housing_table(1000)
        tx, ty = tx[~lux], ty[~lux]
        rmse = ((model(tx).mean(1) - ty) ** 2).mean().sqrt().item() / ty.std().item()
    return history, rmse


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
        print(
            "mended" if mended else "as is",
            f"first {h[0]:.4f} median of last 30 {sorted(h[-30:])[15]:.4f}",
            f"relative rmse {metric:.3f}",
        )
