"""After LAMDA-Tabular/TALENT#92: "Incorrect MSE Loss Calculation Due to Tensor
Broadcasting".

A tabular MLP with numerical and categorical columns for a regression task.
"""

import warnings

import torch
import torch.nn.functional as F
from torch import nn


class MLP(nn.Module):
    def __init__(self, d_num=6, categories=(5, 3), d_embedding=4, d_layers=(64, 64), d_out=1):
        super().__init__()
        self.category_embeddings = nn.ModuleList(nn.Embedding(c, d_embedding) for c in categories)
        d = d_num + d_embedding * len(categories)
        self.layers = nn.ModuleList()
        for w in d_layers:
            self.layers.append(nn.Linear(d, w))
            d = w
        self.dropout = nn.Dropout(0.05)
        self.head = nn.Linear(d, d_out)

    def forward(self, x_num, x_cat):
        x = torch.cat([x_num] + [e(x_cat[:, i]) for i, e in enumerate(self.category_embeddings)], 1)
        for layer in self.layers:
            x = self.dropout(F.relu(layer(x)))
        return self.head(x).squeeze(-1)


class RegressionMethod:
    def __init__(self, model, lr):
        self.model = model
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=1e-4)
        self.criterion = F.mse_loss


def train(tick, mended=False):
    torch.manual_seed(0)
    N = torch.randn(1024, 6)
    C = torch.stack([torch.randint(0, 5, (1024,)), torch.randint(0, 3, (1024,))], 1)
    y = 2 * N[:, :1] - N[:, 1:2] * N[:, 2:3] + C[:, :1].float() - 2 + 0.1 * torch.randn(1024, 1)
    y = (y - y.mean()) / y.std()
    method = RegressionMethod(MLP(), lr=2e-3)
    tick.model(method.model)
    tick.optimizer(method.optimizer)
    losses = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _epoch in range(16):
            for idx in torch.randperm(1024).split(64):
                pred = method.model(N[idx], C[idx])
                target = y[idx].squeeze(-1) if mended else y[idx]
                loss = method.criterion(pred, target)
                method.optimizer.zero_grad()
                loss.backward()
                method.optimizer.step()
                losses.append(loss.item())
                tick.step(loss)
    return losses
