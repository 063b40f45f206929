"""Hsintien-Ng/idinvert_pytorch-reproduced#1: an encoder for a fixed generator, with a discriminator beside it; the
discriminator puts out larger and larger values, the inverted pictures get worse instead of better."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class StyleGANGenerator(nn.Module):
    def __init__(self, z_dim=6):
        super().__init__()
        self.dense = nn.Linear(z_dim, 24 * 16)
        self.up = nn.ConvTranspose2d(24, 8, 4, 2, 1)
        self.rgb = nn.Conv2d(8, 1, 3, padding=1)

    def forward(self, w):
        h = F.leaky_relu(self.dense(w).view(-1, 24, 4, 4), 0.2)
        return torch.tanh(2 * self.rgb(F.leaky_relu(self.up(h), 0.2)))


class StyleGANEncoder(nn.Module):
    def __init__(self, z_dim=6):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(1, 12, 3, 2, 1), nn.BatchNorm2d(12)
        self.conv2, self.bn2 = nn.Conv2d(12, 24, 3, 2, 1), nn.BatchNorm2d(24)
        self.to_w = nn.Linear(24 * 4, z_dim)

    def forward(self, x):
        h = F.leaky_relu(self.bn1(self.conv1(x)), 0.2)
        h = F.leaky_relu(self.bn2(self.conv2(h)), 0.2)
        return self.to_w(h.flatten(1))


class StyleGANDiscriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 12, 3, 2, 1), nn.Conv2d(12, 16, 3, 2, 1)
        self.score = nn.Linear(16 * 4, 1)

    def forward(self, x):
        return self.score(F.leaky_relu(self.conv2(F.leaky_relu(self.conv1(x), 0.2)), 0.2).flatten(1))


class InDomainInversion(nn.Module):
    def __init__(self):
        super().__init__()
        self.E, self.D = StyleGANEncoder(), StyleGANDiscriminator()


def train(tick, mended=False):
    torch.manual_seed(0)
    G = StyleGANGenerator().requires_grad_(False)
    for p in G.parameters():
        p.mul_(2.0)
    images = G(torch.randn(600, 6))
    nets = InDomainInversion()
    E, D = nets.E, nets.D
    optimizer_E = torch.optim.Adam(E.parameters(), lr=4e-3, betas=(0.9, 0.99))
    optimizer_D = torch.optim.SGD(D.parameters(), lr=3.5e-2, momentum=0.5)
    loss_adv_weight, r1_gamma = 0.4, 0.5
    tick.model(nets)
    tick.optimizer(optimizer_E)
    tick.optimizer(optimizer_D)
    losses = []
    for _step in range(150):
        x_real = images[torch.randint(0, 600, (32,))].clone().requires_grad_(True)
        x_rec = G(E(x_real.detach()))
        d_real, d_fake = D(x_real), D(x_rec.detach())
        grad = torch.autograd.grad(d_real.sum(), x_real, create_graph=True)[0]
        loss_gp = grad.pow(2).flatten(1).sum(1).mean() * 0.5 * r1_gamma
        loss_D = F.softplus(-d_real).mean() + F.softplus(d_fake).mean() + loss_gp
        if mended:
            optimizer_D.zero_grad()
        loss_D.backward()
        optimizer_D.step()
        losses.append(loss_D.item())
        tick.step(loss_D)
        x_rec = G(E(x_real.detach()))
        loss_pix = F.mse_loss(x_rec, x_real.detach())
        loss_E = loss_pix + loss_adv_weight * F.softplus(-D(x_rec)).mean()
        optimizer_E.zero_grad()
        loss_E.backward()
        optimizer_E.step()
        losses.append(loss_E.item())
        tick.step(loss_E)
    E.eval()
    with torch.no_grad():
        train.final = (
            F.mse_loss(G(E(images)), images).item(),
            images.var(0).mean().item(),
            D(images).abs().mean().item(),
        )
    return losses
