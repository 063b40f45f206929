"""SeldonIO/alibi-detect#90: a variational autoencoder for outlier detection; it gives back the same average
series for any input."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Sampling(nn.Module):
    def forward(self, z_mean, z_log_var):
        return z_mean + torch.exp(0.5 * z_log_var) * torch.randn_like(z_mean)


class EncoderVAE(nn.Module):
    def __init__(self, n_features, hidden, latent_dim):
        super().__init__()
        self.encoder_net = nn.Sequential(nn.Linear(n_features, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.fc_mean = nn.Linear(hidden, latent_dim)
        self.fc_log_var = nn.Linear(hidden, latent_dim)
        self.sampling = Sampling()

    def forward(self, x):
        h = self.encoder_net(x)
        z_mean, z_log_var = self.fc_mean(h), self.fc_log_var(h)
        return z_mean, z_log_var, self.sampling(z_mean, z_log_var)


class VAE(nn.Module):
    def __init__(self, n_features=32, hidden=48, latent_dim=3):
        super().__init__()
        self.encoder = EncoderVAE(n_features, hidden, latent_dim)
        self.decoder = nn.Sequential(nn.Linear(latent_dim, hidden), nn.ReLU(), nn.Linear(hidden, n_features))

    def forward(self, x):
        z_mean, z_log_var, z = self.encoder(x)
        return self.decoder(z), z_mean, z_log_var


def elbo(y_true, y_pred, z_mean, z_log_var, sim=0.1, reduce_features=torch.sum):
    nll = 0.5 * ((y_true - y_pred) ** 2) / sim
    kl = -0.5 * (1 + z_log_var - z_mean.pow(2) - z_log_var.exp())
    return reduce_features(nll, dim=1).mean() + torch.sum(kl, dim=1).mean()


def series(n):
    t = torch.linspace(0, 1, 32)
    amp, phase, slope = 0.5 + torch.rand(n, 1), torch.rand(n, 1) * 6.28, torch.randn(n, 1)
    return 0.7 * (amp * torch.sin(2 * 3.1416 * 2 * t + phase) + slope * (t - 0.5)) + 0.05 * torch.randn(n, 32)


def train(tick, mended=False):
    torch.manual_seed(3)
    x_train, x_test = series(1000), series(200)
    vae = VAE()
    optimizer = torch.optim.Adam(vae.parameters(), lr=3e-3)
    tick.model(vae)
    tick.optimizer(optimizer)
    losses = []
    for _epoch in range(15):
        for idx in torch.randperm(len(x_train)).split(50):
            x = x_train[idx]
            y_pred, z_mean, z_log_var = vae(x)
            loss = elbo(x, y_pred, z_mean, z_log_var, reduce_features=torch.sum if mended else torch.mean)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            tick.step(loss)
    with torch.no_grad():
        recon = vae.decoder(vae.encoder(x_test)[0])
        train.final = (F.mse_loss(recon, x_test).item(), x_test.var(0).mean().item())
    return losses
