"""LINCellularNeuroscience/VAME#26: "Bug when scheduler turned off".

Rebuilt: a recurrent VAE on windows of animal pose coordinates; the configuration has the optimizer_scheduler switch
off.
"""

import torch
import torch.nn as nn
from torch.optim.lr_scheduler import StepLR

CONFIG = {
    "optimizer_scheduler": False,
    "scheduler_step_size": 12,
    "scheduler_gamma": 0.2,
    "learning_rate": 2e-3,
    "zdims": 6,
    "beta": 0.001,
    "max_epochs": 60,
}


class Encoder(nn.Module):
    def __init__(self, num_features, hidden):
        super().__init__()
        self.encoder_rnn = nn.GRU(num_features, hidden, batch_first=True, bidirectional=True)

    def forward(self, x):
        _, h = self.encoder_rnn(x)
        return torch.cat([h[0], h[1]], dim=1)


class Lambda(nn.Module):
    def __init__(self, hidden, zdims):
        super().__init__()
        self.hidden_to_mean = nn.Linear(2 * hidden, zdims)
        self.hidden_to_logvar = nn.Linear(2 * hidden, zdims)

    def forward(self, h):
        mu, logvar = self.hidden_to_mean(h), self.hidden_to_logvar(h)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp() if self.training else mu
        return z, mu, logvar


class Decoder(nn.Module):
    def __init__(self, seq_len, zdims, num_features, hidden):
        super().__init__()
        self.seq_len = seq_len
        self.rnn_rec = nn.GRU(zdims, hidden, batch_first=True)
        self.hidden_to_output = nn.Linear(hidden, num_features)

    def forward(self, z):
        out, _ = self.rnn_rec(z[:, None].repeat(1, self.seq_len, 1))
        return self.hidden_to_output(out)


class RNN_VAE(nn.Module):
    def __init__(self, seq_len, zdims, num_features, hidden=24):
        super().__init__()
        self.encoder = Encoder(num_features, hidden)
        self.lmbda = Lambda(hidden, zdims)
        self.decoder = Decoder(seq_len, zdims, num_features, hidden)

    def forward(self, x):
        z, mu, logvar = self.lmbda(self.encoder(x))
        return self.decoder(z), mu, logvar


def pose_windows(n=128, seq_len=15, num_features=6):
    t = torch.arange(seq_len).float()
    freq = torch.rand(n, 1) * 0.5 + 0.2
    phase = torch.rand(n, 1) * 6.28
    amp = torch.rand(n, 1) * 0.8 + 0.4
    base = amp * torch.sin(freq * t + phase)
    mix = torch.linspace(-1, 1, num_features)
    return base[:, :, None] * mix + 0.03 * torch.randn(n, seq_len, num_features)


def train(tick, mended=False):
    torch.manual_seed(19)
    cfg = CONFIG
    data = pose_windows()
    model = RNN_VAE(15, cfg["zdims"], 6)
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg["learning_rate"], amsgrad=True)
    if cfg["optimizer_scheduler"]:
        scheduler = StepLR(optimizer, step_size=cfg["scheduler_step_size"], gamma=cfg["scheduler_gamma"], last_epoch=-1)
    else:
        gamma = 1 if mended else 0
        scheduler = StepLR(optimizer, step_size=cfg["scheduler_step_size"], gamma=gamma, last_epoch=-1)
    tick.model(model)
    tick.optimizer(optimizer)

    history = []
    for _epoch in range(cfg["max_epochs"]):
        model.train()
        for idx in torch.randperm(len(data)).split(32):
            x = data[idx]
            recon, mu, logvar = model(x)
            rec = ((recon - x) ** 2).sum((1, 2)).mean() / 15
            kl = -0.5 * (1 + logvar - mu**2 - logvar.exp()).sum(1).mean()
            loss = rec + cfg["beta"] * kl
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5)
            optimizer.step()
            history.append(loss.item())
            tick.step(loss, x, x)
        scheduler.step()
    model.eval()
    with torch.no_grad():
        recon, _, _ = model(data)
    return history, ((recon - data) ** 2).mean().item() / data.var().item()


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
            f"first {h[0]:.4f} at48 {h[47]:.4f} last {h[-1]:.4f}",
            f"unexplained {metric:.3f}",
        )
