"""After pytorch/examples (vae/main.py): binary cross-entropy summed over pixels and batch,
so the loss starts in the tens of thousands and ends in the thousands."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class VAE(nn.Module):
    def __init__(self, d=144, h=64, z=6):
        super().__init__()
        self.fc1 = nn.Linear(d, h)
        self.fc21 = nn.Linear(h, z)
        self.fc22 = nn.Linear(h, z)
        self.fc3 = nn.Linear(z, h)
        self.fc4 = nn.Linear(h, d)

    def encode(self, x):
        h1 = F.relu(self.fc1(x))
        return self.fc21(h1), self.fc22(h1)

    def reparameterize(self, mu, logvar):
        return mu + torch.randn_like(mu) * torch.exp(0.5 * logvar)

    def decode(self, z):
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z))))

    def forward(self, x):
        mu, logvar = self.encode(x.view(-1, 144))
        return self.decode(self.reparameterize(mu, logvar)), mu, logvar


def loss_function(recon_x, x, mu, logvar):
    BCE = F.binary_cross_entropy(recon_x, x.view(-1, 144), reduction="sum")
    KLD = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return BCE + KLD


def squares(n, size=12):
    ax = torch.arange(size, dtype=torch.float32)
    c = 3 + 6 * torch.rand(n, 2)
    w = 2 + torch.rand(n, 1)
    gx = ((ax - c[:, :1]).abs() < w).float()
    gy = ((ax - c[:, 1:]).abs() < w).float()
    return (gy[:, :, None] * gx[:, None, :])[:, None]


def train(tick, mended=False):
    torch.manual_seed(1)
    model = VAE()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    losses = []
    tick.model(model)
    tick.optimizer(optimizer)
    model.train()
    for _batch_idx in range(300):
        data = squares(128)
        optimizer.zero_grad()
        recon_batch, mu, logvar = model(data)
        loss = loss_function(recon_batch, data, mu, logvar)
        loss.backward()
        optimizer.step()
        tick.step(loss)
        losses.append(loss.item())
    return losses
