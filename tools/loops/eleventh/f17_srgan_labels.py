"""After https-deeplearning-ai/GANs-Public#1.

Story: SRGAN exercise; discriminator and generator losses both go down together
and the adversarial part adds no detail to the upsampled signal.
"""

import torch
import torch.nn.functional as F
from torch import nn

LAST = None


class Generator(nn.Module):
    def __init__(self, ch=16):
        super().__init__()
        self.conv_in = nn.Conv1d(2, ch, 5, padding=2)
        self.up = nn.Conv1d(ch, ch * 4, 3, padding=1)
        self.conv_out = nn.Conv1d(ch, 1, 5, padding=2)

    def forward(self, lr):
        x = torch.relu(self.conv_in(torch.cat([lr, torch.randn_like(lr)], 1)))
        b, c, n = x.shape
        x = self.up(x).view(b, c, 4, n).transpose(2, 3).reshape(b, c, 4 * n)
        return self.conv_out(torch.relu(x))


class Discriminator(nn.Module):
    def __init__(self, ch=16):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv1d(1, ch, 5, stride=2, padding=2),
            nn.LeakyReLU(0.2),
            nn.Conv1d(ch, ch, 5, stride=2, padding=2),
            nn.LeakyReLU(0.2),
            nn.AdaptiveAvgPool1d(1),
            nn.Flatten(),
            nn.Linear(ch, 1),
        )

    def forward(self, x):
        return self.net(x)


class SRGAN(nn.Module):
    def __init__(self):
        super().__init__()
        self.generator = Generator()
        self.discriminator = Discriminator()


class Loss:
    def __init__(self, mended):
        self.mended = mended

    def adv_loss(self, x, is_real):
        target = torch.zeros_like(x) if is_real else torch.ones_like(x)
        return F.binary_cross_entropy_with_logits(x, target)

    def __call__(self, generator, discriminator, hr_real, lr_real):
        hr_fake = generator(lr_real)
        fake_preds_for_g = discriminator(hr_fake)
        fake_preds_for_d = discriminator(hr_fake.detach())
        real_preds_for_d = discriminator(hr_real.detach())
        g_loss = 0.3 * self.adv_loss(fake_preds_for_g, False) + F.l1_loss(F.avg_pool1d(hr_fake, 4), lr_real)
        d_loss = 0.5 * (self.adv_loss(real_preds_for_d, not self.mended) + self.adv_loss(fake_preds_for_d, self.mended))
        return g_loss, d_loss, hr_fake


def textured(b=32, n=8):
    coarse = torch.randn(b, 1, n).cumsum(-1) * 0.3
    hr = coarse.repeat_interleave(4, -1)
    texture = torch.tensor([1.0, -1.0, 1.0, -1.0]).repeat(n)
    return hr + 0.5 * texture, coarse


def detail(x):
    return (x[..., 1:] - x[..., :-1]).abs().mean().item()


def train(tick, mended=False):
    global LAST
    torch.manual_seed(0)
    net = SRGAN()
    g_optimizer = torch.optim.Adam(net.generator.parameters(), lr=2e-3, betas=(0.5, 0.999))
    d_optimizer = torch.optim.Adam(net.discriminator.parameters(), lr=1e-3, betas=(0.5, 0.999))
    loss_fn = Loss(mended)
    tick.model(net)
    tick.optimizer(g_optimizer)
    tick.optimizer(d_optimizer)
    losses = []
    for step in range(250):
        hr_real, lr_real = textured()
        g_loss, d_loss, hr_fake = loss_fn(net.generator, net.discriminator, hr_real, lr_real)
        g_optimizer.zero_grad()
        g_loss.backward(retain_graph=True)
        d_optimizer.zero_grad()
        d_loss.backward()
        g_optimizer.step()
        d_optimizer.step()
        tick.step(g_loss + d_loss)
        losses.append((g_loss + d_loss).item())
    LAST = (detail(hr_real), detail(hr_fake), d_loss.item())
    return losses
