"""After keras-team/keras#3383: "Correcting the reconstruction loss in Variational
Autoencoder example" (the example stopped working after an earlier commit).

The MNIST variational autoencoder: binary cross-entropy plus a KL term.
"""

import torch
import torch.nn.functional as F
from torch import nn

original_dim, intermediate_dim, latent_dim = 144, 64, 2


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.h = nn.Linear(original_dim, intermediate_dim)
        self.z_mean = nn.Linear(intermediate_dim, latent_dim)
        self.z_log_var = nn.Linear(intermediate_dim, latent_dim)
        self.decoder_h = nn.Linear(latent_dim, intermediate_dim)
        self.decoder_mean = nn.Linear(intermediate_dim, original_dim)

    def sampling(self, z_mean, z_log_var):
        return z_mean + torch.exp(z_log_var / 2) * torch.randn_like(z_mean)

    def forward(self, x):
        h = torch.relu(self.h(x))
        m, lv = self.z_mean(h), self.z_log_var(h)
        z = self.sampling(m, lv)
        return torch.sigmoid(self.decoder_mean(torch.relu(self.decoder_h(z)))), m, lv


def digits():
    g = torch.Generator().manual_seed(0)
    yy, xx = torch.meshgrid(torch.arange(12.0), torch.arange(12.0), indexing="ij")
    cx, cy = 2 + 8 * torch.rand(800, 1, 1, generator=g), 2 + 8 * torch.rand(800, 1, 1, generator=g)
    return torch.exp(-((xx - cx) ** 2 + (yy - cy) ** 2) / 6).flatten(1).clamp(0, 1)


def score(model, mended):
    x = digits()
    with torch.no_grad():
        m = model.z_mean(torch.relu(model.h(x)))
        rec = torch.sigmoid(model.decoder_mean(torch.relu(model.decoder_h(m))))
    return ((rec - x) ** 2).mean().item(), ((x - x.mean(0)) ** 2).mean().item()


def train(tick, mended=False):
    torch.manual_seed(0)
    x_train = digits()
    vae = VAE()
    optimizer = torch.optim.RMSprop(vae.parameters(), lr=2e-3)
    tick.model(vae)
    tick.optimizer(optimizer)
    losses = []
    for _epoch in range(30):
        for idx in torch.randperm(800).split(100):
            x = x_train[idx]
            x_decoded_mean, z_mean, z_log_var = vae(x)
            xent_loss = F.binary_cross_entropy(x_decoded_mean, x, reduction="none").mean(-1)
            if mended:
                xent_loss = original_dim * xent_loss
            kl_loss = -0.5 * torch.sum(1 + z_log_var - z_mean**2 - torch.exp(z_log_var), -1)
            loss = (xent_loss + kl_loss).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            tick.step(loss)
    return losses
