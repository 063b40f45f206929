"""tqch/ddpm-torch#2: "Bug in target noise. Shouldn't it be MSE(coef2 * noise, predicted_noise)?" """

import torch
from torch import nn

STEPS = 250
OTHERS: list = []
LOG: list = []


class GaussianDiffusion:
    def __init__(self, betas):
        ac = torch.cumprod(1 - betas, 0)
        self.coef1, self.coef2 = ac.sqrt(), (1 - ac).sqrt()

    def q_sample(self, x_0, t, noise):
        return self.coef1[t][:, None] * x_0 + self.coef2[t][:, None] * noise

    def train_losses(self, denoise_fn, x_0, t, noise):
        return (denoise_fn(self.q_sample(x_0, t, noise), t) - noise).pow(2).mean(1)


class UNet(nn.Module):
    def __init__(self, dim=4, width=64, timesteps=40):
        super().__init__()
        self.embed = nn.Sequential(nn.Embedding(timesteps, 32), nn.Linear(32, width), nn.SiLU())
        self.in_conv, self.middle = nn.Linear(dim, width), nn.Sequential(nn.SiLU(), nn.Linear(width, width), nn.SiLU())
        self.out_conv = nn.Linear(width, dim)
        nn.init.zeros_(self.out_conv.weight)
        nn.init.zeros_(self.out_conv.bias)

    def forward(self, x, t):
        h = self.in_conv(x) + self.embed(t)
        return self.out_conv(h + self.middle(h))


def build(bad: bool):
    torch.manual_seed(54)
    LOG.clear()
    OTHERS.clear()
    gen = torch.Generator().manual_seed(54)
    model = UNet()
    diffusion = GaussianDiffusion(torch.linspace(1e-3, 0.25, 40))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min((s + 1) / 50, 1.0))
    modes = torch.randn(3, 4, generator=gen)

    def step(i):
        x_0 = modes[torch.randint(0, 3, (32,), generator=gen)]
        t = torch.randint(0, 40, (32,), generator=gen)
        loss = diffusion.train_losses(model, x_0, t, torch.randn(32, 4, generator=gen)).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        optimizer.step()
        scheduler.step()
        LOG.append(loss.item())

    return model, optimizer, step
