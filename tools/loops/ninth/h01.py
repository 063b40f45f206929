"""Healthy. After AntixK/PyTorch-VAE (BetaVAE, capacity 'B' loss and KL warm-up):
the KL weight rises from 0, so the summed loss can climb while the model gets better.
"""

import torch
import torch.nn.functional as F
from torch import nn


class BetaVAE(nn.Module):
    def __init__(self, in_dim=64, latent_dim=4, hidden=48):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(in_dim, hidden), nn.LeakyReLU())
        self.fc_mu = nn.Linear(hidden, latent_dim)
        self.fc_var = nn.Linear(hidden, latent_dim)
        self.decoder_input = nn.Linear(latent_dim, hidden)
        self.final_layer = nn.Linear(hidden, in_dim)

    def forward(self, x):
        h = self.encoder(x)
        mu, log_var = self.fc_mu(h), self.fc_var(h)
        z = mu + torch.randn_like(mu) * torch.exp(0.5 * log_var)
        return self.final_layer(F.leaky_relu(self.decoder_input(z))), mu, log_var


def train(tick, mended=False):
    torch.manual_seed(0)
    codes = torch.randn(600, 4)
    data = torch.tanh(codes @ torch.randn(4, 64) * 0.8)
    model = BetaVAE()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    max_iter = 250
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []
    for it in range(max_iter):
        x = data[torch.randint(0, 600, (64,))]
        recons, mu, log_var = model(x)
        recons_loss = F.mse_loss(recons, x, reduction="sum") / len(x)
        kld = (-0.5 * (1 + log_var - mu**2 - log_var.exp()).sum(1)).mean()
        beta = min(1.0, it / (0.6 * max_iter))
        loss = recons_loss + beta * kld
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        tick.step(loss)
    return losses
