"""irom-princeton/dppo#14: "A question about the argument in mse_loss", predict_epsilon=False.

Rebuilt: a diffusion policy that predicts the clean action chunk of a pusher from its observation.
"""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

HORIZON, ACT = 4, 2


class DiffusionMLP(nn.Module):
    def __init__(self, cond_dim=3, time_dim=16, hidden=64):
        super().__init__()
        self.time_dim = time_dim
        self.time_embedding = nn.Sequential(nn.Linear(time_dim, 32), nn.Mish(), nn.Linear(32, time_dim))
        self.mlp_mean = nn.Sequential(
            nn.Linear(HORIZON * ACT + time_dim + cond_dim, hidden),
            nn.Mish(),
            nn.Linear(hidden, hidden),
            nn.Mish(),
            nn.Linear(hidden, HORIZON * ACT),
        )

    def forward(self, x, t, cond):
        freqs = torch.exp(-math.log(1000) * torch.arange(self.time_dim // 2) / (self.time_dim // 2))
        ang = t[:, None].float() * freqs
        emb = self.time_embedding(torch.cat([ang.sin(), ang.cos()], 1))
        out = self.mlp_mean(torch.cat([x.flatten(1), emb, cond], 1))
        return out.view_as(x)


class DiffusionModel(nn.Module):
    def __init__(self, network, denoising_steps=20, predict_epsilon=False, mended=False):
        super().__init__()
        self.network = network
        self.denoising_steps = denoising_steps
        self.predict_epsilon = predict_epsilon
        self.mended = mended
        s = torch.linspace(0, 1, denoising_steps + 1)
        f = torch.cos((s + 0.008) / 1.008 * math.pi / 2) ** 2
        betas = (1 - f[1:] / f[:-1]).clamp(max=0.999)
        self.register_buffer("betas", betas)
        self.register_buffer("alphas_cumprod", torch.cumprod(1 - betas, 0))

    def q_sample(self, x_start, t, noise):
        a = self.alphas_cumprod[t][:, None, None]
        return a.sqrt() * x_start + (1 - a).sqrt() * noise

    def p_losses(self, x_start, cond, t):
        noise = torch.randn_like(x_start)
        x_noisy = self.q_sample(x_start, t, noise)
        x_recon = self.network(x_noisy, t, cond)
        if self.predict_epsilon:
            return F.mse_loss(x_recon, noise, reduction="mean")
        if self.mended:
            return F.mse_loss(x_recon, x_start, reduction="mean")
        return F.mse_loss(x_recon, x_noisy, reduction="mean")

    def loss(self, x, cond):
        t = torch.randint(0, self.denoising_steps, (len(x),))
        return self.p_losses(x, cond, t)

    @torch.no_grad()
    def sample(self, cond):
        x = torch.randn(len(cond), HORIZON, ACT)
        for i in reversed(range(self.denoising_steps)):
            t = torch.full((len(cond),), i)
            x0 = self.network(x, t, cond).clamp(-2, 2)
            if i == 0:
                return x0
            a, ap = self.alphas_cumprod[i], self.alphas_cumprod[i - 1]
            eps = (x - a.sqrt() * x0) / (1 - a).sqrt()
            x = ap.sqrt() * x0 + (1 - ap).sqrt() * eps


def demonstrations(n):
    obs = torch.rand(n, 3) * 2 - 1
    steps = torch.linspace(0.25, 1, HORIZON)
    target = torch.stack([obs[:, 0] - 0.5 * obs[:, 1], torch.sin(2 * obs[:, 2])], 1)
    return obs, target[:, None] * steps[None, :, None] + 0.03 * torch.randn(n, HORIZON, ACT)


def train(tick, mended=False):
    torch.manual_seed(89)
    model = DiffusionModel(DiffusionMLP(), mended=mended)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-6)
    tick.model(model)
    tick.optimizer(optimizer)
    history = []
    for _step in range(300):
        obs, actions = demonstrations(128)
        loss = model.loss(actions, obs)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append(loss.item())
        tick.step(loss, obs, actions)
    obs, actions = demonstrations(300)
    return history, (model.sample(obs) - actions).abs().mean().item()


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
        print("mended" if mended else "as is", f"first {h[0]:.4f} last {h[-1]:.4f}", f"action error {metric:.3f}")
