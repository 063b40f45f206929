"""After galilai-group/stable-worldmodel#280: "Training scripts use step-based LR
scheduler horizons with interval='epoch'".

A latent world model (encoder, action encoder, predictor) is trained with AdamW
and a linear warm-up followed by a cosine.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn


class Encoder(nn.Module):
    def __init__(self, obs_dim=12, dim=32):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(obs_dim, 64), nn.GELU(), nn.Linear(64, dim))
        self.norm = nn.LayerNorm(dim)

    def forward(self, obs):
        return self.norm(self.net(obs))


class Predictor(nn.Module):
    def __init__(self, dim=32, act_dim=2):
        super().__init__()
        self.action_encoder = nn.Linear(act_dim, dim)
        self.mlp = nn.Sequential(nn.Linear(2 * dim, 64), nn.GELU(), nn.Linear(64, dim))

    def forward(self, z, a):
        return z + self.mlp(torch.cat([z, self.action_encoder(a)], -1))


class LeWM(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()
        self.predictor = Predictor()
        self.decoder = nn.Linear(32, 12)

    def forward(self, obs, act, nxt):
        z = self.encoder(obs)
        pred = self.predictor(z, act)
        recon = self.decoder(z)
        return F.mse_loss(self.decoder(pred), nxt) + F.mse_loss(recon, obs)


class LinearWarmupCosineAnnealingLR(torch.optim.lr_scheduler.LambdaLR):
    def __init__(self, optimizer, warmup_steps, max_steps):
        def fn(t):
            if t < warmup_steps:
                return t / warmup_steps
            p = min(1.0, (t - warmup_steps) / max(1, max_steps - warmup_steps))
            return 0.5 * (1 + math.cos(math.pi * p))

        super().__init__(optimizer, fn)


def train(tick, mended=False):
    torch.manual_seed(0)
    A, B = torch.linalg.qr(torch.randn(12, 12))[0], torch.randn(2, 12)
    obs = torch.randn(800, 12)
    act = torch.randn(800, 2)
    nxt = torch.tanh(obs @ A + act @ B)
    batches = [(obs[i : i + 32], act[i : i + 32], nxt[i : i + 32]) for i in range(0, 800, 32)]
    max_epochs = 8
    total_steps = max_epochs * len(batches)
    interval = "step" if mended else "epoch"
    model = LeWM()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-3)
    scheduler = LinearWarmupCosineAnnealingLR(
        optimizer, warmup_steps=max(1, int(0.2 * total_steps)), max_steps=total_steps
    )
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []
    for _epoch in range(max_epochs):
        for o, a, n in batches:
            loss = model(o, a, n)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if interval == "step":
                scheduler.step()
            losses.append(loss.item())
            tick.step(loss)
        if interval == "epoch":
            scheduler.step()
    return losses
