"""Justin-Tan/generative-compression#51: question about the quantizer: the encoder's parameters would not be
updated throughout the training.

Rebuilt: a small convolutional image compressor with five quantisation centres, soft and hard assignment.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ImageEncoder(nn.Module):
    def __init__(self, channels=3, width=16, bottleneck=4):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 5, stride=2, padding=2)
        self.conv2 = nn.Conv2d(width, width, 3, stride=2, padding=1)
        self.head = nn.Conv2d(width, bottleneck, 3, padding=1)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        return 2 * torch.tanh(self.head(x))


class ImageDecoder(nn.Module):
    def __init__(self, channels=3, width=16, bottleneck=4):
        super().__init__()
        self.conv_in = nn.Conv2d(bottleneck, width, 3, padding=1)
        self.up1 = nn.ConvTranspose2d(width, width, 4, stride=2, padding=1)
        self.up2 = nn.ConvTranspose2d(width, channels, 4, stride=2, padding=1)

    def forward(self, w):
        x = F.relu(self.conv_in(w))
        x = F.relu(self.up1(x))
        return torch.sigmoid(self.up2(x))


class Compressor(nn.Module):
    def __init__(self, mended=False):
        super().__init__()
        self.mended = mended
        self.encoder = ImageEncoder()
        self.decoder = ImageDecoder()
        self.register_buffer("centers", torch.arange(-2.0, 3.0))

    def quantizer(self, w, temperature=1.0):
        dist = (w[..., None] - self.centers) ** 2
        w_hard = self.centers[dist.argmin(-1)]
        w_soft = (torch.softmax(-temperature * dist, dim=-1) * self.centers).sum(-1)
        if self.mended:
            return (w_hard - w_soft).detach() + w_soft
        return torch.round((w_hard - w_soft).detach() + w_soft)

    def forward(self, x):
        w = self.encoder(x)
        return self.decoder(self.quantizer(w))


def street_patches(n, size=16):
    ramp = torch.linspace(0, 1, size)
    top = torch.rand(n, 3, 1, 1)
    bottom = torch.rand(n, 3, 1, 1)
    img = top * (1 - ramp[:, None]) + bottom * ramp[:, None]
    img = img.expand(n, 3, size, size).clone()
    colour = torch.rand(n, 3)
    cx = torch.randint(0, size - 6, (n, 2))
    for i in range(n):
        a, b = cx[i]
        img[i, :, a : a + 6, b : b + 6] = colour[i][:, None, None]
    return img


def train(tick, mended=False):
    torch.manual_seed(67)
    model = Compressor(mended)
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    tick.model(model)
    tick.optimizer(optimizer)
    history = []
    for _step in range(250):
        x = street_patches(16)
        reconstruction = model(x)
        loss = 12 * F.mse_loss(reconstruction, x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append(loss.item())
        tick.step(loss, x, x)
    with torch.no_grad():
        x = street_patches(128)
        psnr = -10 * torch.log10(F.mse_loss(model(x), x)).item()
    return history, psnr


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
        print("mended" if mended else "as is", f"first {h[0]:.4f} last {h[-1]:.4f}", f"psnr {metric:.2f}")
