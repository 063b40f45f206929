"""igul222/improved_wgan_training: WGAN with gradient penalty on eight Gaussians; five critic steps to one of the
generator, the losses are of any sign and mean little."""

import math

import torch
import torch.nn as nn


def mlp(i, o, dim=48):
    return nn.Sequential(nn.Linear(i, dim), nn.ReLU(True), nn.Linear(dim, dim), nn.ReLU(True), nn.Linear(dim, o))


class WGAN(nn.Module):
    def __init__(self):
        super().__init__()
        self.netG, self.netD = mlp(2, 2), mlp(2, 1)


def inf_train_gen(n):
    k = torch.randint(0, 8, (n,)).float() * math.pi / 4
    return 2 * torch.stack([k.cos(), k.sin()], 1) / 1.414 + 0.02 * torch.randn(n, 2)


def calc_gradient_penalty(netD, real, fake, lam=0.1):
    alpha = torch.rand(len(real), 1)
    interpolates = (alpha * real + (1 - alpha) * fake).requires_grad_(True)
    gradients = torch.autograd.grad(netD(interpolates).sum(), interpolates, create_graph=True)[0]
    return ((gradients.norm(2, dim=1) - 1) ** 2).mean() * lam


def train(tick, mended=False):
    torch.manual_seed(1)
    model = WGAN()
    optimizerD = torch.optim.Adam(model.netD.parameters(), lr=2e-3, betas=(0.5, 0.9))
    optimizerG = torch.optim.Adam(model.netG.parameters(), lr=1e-3, betas=(0.5, 0.9))
    with torch.no_grad():
        before = (model.netG(torch.randn(500, 2)).norm(dim=1) - 1.414).abs().mean().item()
    tick.model(model)
    tick.optimizer(optimizerD)
    tick.optimizer(optimizerG)
    losses = []
    for _iteration in range(50):
        for p in model.netD.parameters():
            p.requires_grad = True
        for _iter_d in range(5):
            real = inf_train_gen(128)
            model.netD.zero_grad()
            fake = model.netG(torch.randn(128, 2)).detach()
            D_cost = model.netD(fake).mean() - model.netD(real).mean() + calc_gradient_penalty(model.netD, real, fake)
            D_cost.backward()
            optimizerD.step()
            losses.append(D_cost.item())
            tick.step(D_cost)
        for p in model.netD.parameters():
            p.requires_grad = False
        model.netG.zero_grad()
        G_cost = -model.netD(model.netG(torch.randn(128, 2))).mean()
        G_cost.backward()
        optimizerG.step()
        losses.append(G_cost.item())
        tick.step(G_cost)
    with torch.no_grad():
        after = (model.netG(torch.randn(500, 2)).norm(dim=1) - 1.414).abs().mean().item()
    train.final = (before, after)
    return losses
