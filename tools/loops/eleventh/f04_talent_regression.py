"""After LAMDA-Tabular/TALENT#92.

Story: a tabular regression method of the toolbox; the loss comes down a bit,
then stays near the variance of the target and the RMSE is no better than the mean.
"""

import torch
import torch.nn.functional as F
from torch import nn


class NumericalEmbedding(nn.Module):
    def __init__(self, n_features, d_embedding):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n_features, d_embedding) * 0.5)
        self.bias = nn.Parameter(torch.zeros(n_features, d_embedding))

    def forward(self, x):
        return torch.relu(x[..., None] * self.weight + self.bias)


class ResBlock(nn.Module):
    def __init__(self, d, d_hidden):
        super().__init__()
        self.norm = nn.BatchNorm1d(d)
        self.linear0 = nn.Linear(d, d_hidden)
        self.linear1 = nn.Linear(d_hidden, d)

    def forward(self, x):
        return x + self.linear1(torch.relu(self.linear0(self.norm(x))))


class TabResNet(nn.Module):
    def __init__(self, n_features=8, d_embedding=4, d=32, n_blocks=2, d_out=1):
        super().__init__()
        self.num_embeddings = NumericalEmbedding(n_features, d_embedding)
        self.first_layer = nn.Linear(n_features * d_embedding, d)
        self.blocks = nn.ModuleList([ResBlock(d, 48) for _ in range(n_blocks)])
        self.head = nn.Linear(d, d_out)

    def forward(self, x_num):
        x = self.first_layer(self.num_embeddings(x_num).flatten(1))
        for block in self.blocks:
            x = block(x)
        return self.head(torch.relu(x))


class Method:
    def __init__(self, model, squeeze):
        self.model = model
        self.squeeze = squeeze
        self.criterion = F.mse_loss

    def predict(self, x):
        out = self.model(x)
        return out.squeeze(-1) if self.squeeze else out


def make_data(n=512):
    x = torch.randn(n, 8)
    y = 2 * x[:, 0] - x[:, 1] * x[:, 2] + torch.sin(2 * x[:, 3]) + 0.1 * torch.randn(n)
    return x, (y - y.mean()) / y.std()


def train(tick, mended=False):
    torch.manual_seed(11)
    x, y = make_data()
    model = TabResNet()
    method = Method(model, squeeze=mended)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-5)
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []
    for epoch in range(25):
        perm = torch.randperm(len(x))
        for i in range(0, len(x), 64):
            rows = perm[i : i + 64]
            model.train()
            loss = method.criterion(method.predict(x[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            tick.step(loss)
            losses.append(loss.item())
    return losses
