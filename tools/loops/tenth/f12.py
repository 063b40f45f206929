"""After zhaoyuzhi/deepfillv2#3.

Free-form inpainting with gated convolutions and a patch discriminator.  The pull request
corrects one line of WGAN_trainer; before it the discriminator score never told real from
filled pictures.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class GatedConv2d(nn.Module):
    def __init__(self, in_ch, out_ch, k=3):
        super().__init__()
        self.conv2d = nn.Conv2d(in_ch, out_ch, k, padding=k // 2)
        self.mask_conv2d = nn.Conv2d(in_ch, out_ch, k, padding=k // 2)

    def forward(self, x):
        return F.elu(self.conv2d(x)) * torch.sigmoid(self.mask_conv2d(x))


class GatedGenerator(nn.Module):
    def __init__(self, latent=16):
        super().__init__()
        self.body = nn.Sequential(GatedConv2d(2, latent), GatedConv2d(latent, latent), GatedConv2d(latent, latent))
        self.head = nn.Conv2d(latent, 1, 3, padding=1)

    def forward(self, img, mask):
        out = torch.tanh(self.head(self.body(torch.cat([img * (1 - mask), mask], 1))))
        return img * (1 - mask) + out * mask


class PatchDiscriminator(nn.Module):
    def __init__(self, ch=24):
        super().__init__()
        self.block1 = nn.Conv2d(2, ch, 3, padding=1)
        self.block2 = nn.Conv2d(ch, ch, 4, stride=2, padding=1)
        self.block3 = nn.Conv2d(ch, 1, 4, stride=2, padding=1)

    def forward(self, img, mask):
        x = F.leaky_relu(self.block1(torch.cat([img, mask], 1)), 0.2)
        x = F.leaky_relu(self.block2(x), 0.2)
        return self.block3(x)


class InpaintGAN(nn.Module):
    def __init__(self):
        super().__init__()
        self.generator = GatedGenerator()
        self.discriminator = PatchDiscriminator()


def sample_images(n, size=12):
    yy, xx = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    freq = 1 + torch.rand(n, 1, 1)
    phase = 6.28 * torch.rand(n, 1, 1)
    img = 0.4 * torch.sin(freq * (xx + 0.5 * yy) + phase)[:, None]
    img = img + 0.5 * torch.randn(n, 1, size, size).sign()
    mask = torch.zeros(n, 1, size, size)
    mask[:, :, 3:9, 3:9] = 1
    return img, mask


def train(tick, mended=False):
    torch.manual_seed(9)
    gan = InpaintGAN()
    generator, discriminator = gan.generator, gan.discriminator
    optimizer_g = torch.optim.Adam(generator.parameters(), lr=2e-3, betas=(0.5, 0.999))
    d_params = discriminator.parameters() if mended else generator.parameters()
    optimizer_d = torch.optim.Adam(d_params, lr=2e-3, betas=(0.5, 0.999))
    losses = []
    tick.model(gan)
    tick.optimizer(optimizer_g)
    tick.optimizer(optimizer_d)
    for _batch_idx in range(120):
        img, mask = sample_images(12)
        filled = generator(img, mask)
        optimizer_d.zero_grad()
        real_score = discriminator(img, mask)
        fake_score = discriminator(filled.detach(), mask)
        loss_d = 0.5 * ((real_score - 1).pow(2).mean() + fake_score.pow(2).mean())
        loss_d.backward()
        optimizer_d.step()
        tick.step(loss_d)
        optimizer_g.zero_grad()
        loss_g = F.l1_loss(filled, img) + 0.1 * (discriminator(filled, mask) - 1).pow(2).mean()
        loss_g.backward()
        optimizer_g.step()
        tick.step(loss_g)
        losses.append(loss_d.item())
    return losses
