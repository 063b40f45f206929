"""After denfed/leaf-audio-pytorch#3: a learnable Gabor front end for audio.

After training on anything at all the kernel of the Gabor convolution is what
it was before.
"""

import math
import torch
import torch.nn as nn
import torch.nn.functional as F


class GaborConstraint(nn.Module):
    def __init__(self, kernel_size, mended):
        super().__init__()
        self.sigma_lower = 4 * math.sqrt(2 * math.log(2)) / math.pi
        self.sigma_upper = kernel_size * math.sqrt(2 * math.log(2)) / math.pi
        self.mended = mended

    def forward(self, kernel):
        with torch.set_grad_enabled(self.mended and torch.is_grad_enabled()):
            mu = torch.clamp(kernel[:, 0], 0.0, math.pi).unsqueeze(1)
            sigma = torch.clamp(kernel[:, 1], self.sigma_lower, self.sigma_upper).unsqueeze(1)
            return torch.cat([mu, sigma], dim=-1)


class GaborConv1D(nn.Module):
    def __init__(self, filters, kernel_size, mended):
        super().__init__()
        self.kernel_size = kernel_size
        centers = torch.linspace(0.1, 0.5, filters)
        self._kernel = nn.Parameter(torch.stack([centers, torch.full((filters,), 12.0)], 1))
        self.constraint = GaborConstraint(kernel_size, mended)

    def forward(self, x):
        kernel = self.constraint(self._kernel)
        t = torch.arange(-(self.kernel_size // 2), (self.kernel_size + 1) // 2).float()
        mu, sigma = kernel[:, :1], kernel[:, 1:]
        gauss = torch.exp(-(t**2) / (2 * sigma**2)) / (math.sqrt(2 * math.pi) * sigma)
        real, imag = gauss * torch.cos(mu * t), gauss * torch.sin(mu * t)
        w = torch.stack([real, imag], 1).flatten(0, 1).unsqueeze(1)
        out = F.conv1d(x, w, padding=self.kernel_size // 2)
        return out.view(x.size(0), -1, 2, out.size(-1)).pow(2).sum(2)


class Leaf(nn.Module):
    def __init__(self, filters=6, kernel_size=65, classes=4, mended=False):
        super().__init__()
        self._complex_conv = GaborConv1D(filters, kernel_size, mended)
        self._pooling = nn.AvgPool1d(32)
        self.classifier = nn.Sequential(nn.Linear(filters, 24), nn.ReLU(), nn.Linear(24, classes))

    def forward(self, x):
        energy = self._pooling(self._complex_conv(x))
        features = torch.log(energy + 0.02).mean(-1)
        return self.classifier(features)


def waveforms(n, length=256):
    y = torch.randint(0, 4, (n,))
    freq = torch.tensor([0.55, 0.68, 0.81, 0.94])[y][:, None] + 0.02 * torch.randn(n, 1)
    t = torch.arange(length).float()
    x = torch.sin(freq * t + 6.28 * torch.rand(n, 1)) + 0.8 * torch.randn(n, length)
    return x[:, None], y


def train(tick, mended=False):
    torch.manual_seed(19)
    model = Leaf(mended=mended)
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    tick.model(model)
    tick.optimizer(opt)
    losses = []
    for step in range(250):
        x, y = waveforms(32)
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        tick.step(loss)
        losses.append(loss.item())
    return losses
