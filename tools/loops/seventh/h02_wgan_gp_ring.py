"""Healthy: WGAN-GP on a ring of points. Two optimizers, losses around zero and of both signs, several critic
steps for one generator step, a gradient penalty, an adversarial game whose losses say little.
"""

import torch
import torch.nn as nn


class Generator(nn.Module):
    def __init__(self, z_dim=2, hidden=64):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(z_dim, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 2)
        )
        self.z_dim = z_dim

    def forward(self, n):
        return self.net(torch.randn(n, self.z_dim))


class Critic(nn.Module):
    def __init__(self, hidden=48):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(2, hidden), nn.LeakyReLU(0.2), nn.Linear(hidden, hidden), nn.LeakyReLU(0.2), nn.Linear(hidden, 1)
        )

    def forward(self, x):
        return self.net(x).squeeze(1)


def real_points(n):
    a = torch.rand(n) * 6.2832
    return torch.stack([a.cos(), a.sin()], 1) + 0.05 * torch.randn(n, 2)


def gradient_penalty(D, real, fake):
    eps = torch.rand(len(real), 1)
    mix = (eps * real + (1 - eps) * fake).requires_grad_(True)
    (grad,) = torch.autograd.grad(D(mix).sum(), mix, create_graph=True)
    return ((grad.norm(2, dim=1) - 1) ** 2).mean()


def train(tick, mended=False):
    torch.manual_seed(2)
    G, D = Generator(), Critic()
    opt_g = torch.optim.Adam(G.parameters(), lr=2e-3, betas=(0.0, 0.9))
    opt_d = torch.optim.Adam(D.parameters(), lr=2e-3, betas=(0.0, 0.9))
    gan = nn.ModuleDict({"generator": G, "critic": D})
    tick.model(gan)
    tick.optimizer(opt_d)
    tick.optimizer(opt_g)
    history = []
    for _it in range(300):
        for _ in range(5):
            real = real_points(64)
            fake = G(64).detach()
            d_loss = D(fake).mean() - D(real).mean() + 1.0 * gradient_penalty(D, real, fake)
            opt_d.zero_grad()
            d_loss.backward()
            opt_d.step()
        g_loss = -D(G(64)).mean()
        opt_g.zero_grad()
        g_loss.backward()
        opt_g.step()
        history.append(g_loss.item())
        tick.step(g_loss + d_loss.detach(), real, None)
    with torch.no_grad():
        pts = G(1000)
        return history, (pts.norm(dim=1) - 1).abs().mean().item()


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
        print(f"first {h[0]:.6g} last {h[-1]:.6g}", f"metric {metric:.4f}")
