"""After mateuszbuda/brain-segmentation-pytorch#36.

Story: U-Net for brain MRI trained with the default command; the loss turns
negative and the validation DSC stays at zero.
"""

import torch
import torch.nn.functional as F
from torch import nn

LAST = None


class UNet(nn.Module):
    def __init__(self, in_channels=1, out_channels=1, f=8):
        super().__init__()
        self.encoder1 = self._block(in_channels, f)
        self.bottleneck = self._block(f, 2 * f)
        self.upconv1 = nn.ConvTranspose2d(2 * f, f, 2, stride=2)
        self.decoder1 = self._block(2 * f, f)
        self.conv = nn.Conv2d(f, out_channels, 1)

    @staticmethod
    def _block(cin, f):
        return nn.Sequential(
            nn.Conv2d(cin, f, 3, padding=1, bias=False),
            nn.BatchNorm2d(f),
            nn.ReLU(inplace=True),
            nn.Conv2d(f, f, 3, padding=1, bias=False),
            nn.BatchNorm2d(f),
            nn.ReLU(inplace=True),
        )

    def forward(self, x):
        enc1 = self.encoder1(x)
        dec1 = self.upconv1(self.bottleneck(F.max_pool2d(enc1, 2)))
        dec1 = self.decoder1(torch.cat((dec1, enc1), 1))
        return torch.sigmoid(self.conv(dec1))


class DiceLoss(nn.Module):
    smooth = 1.0

    def forward(self, y_pred, y_true):
        y_pred, y_true = y_pred[:, 0].reshape(-1), y_true[:, 0].reshape(-1)
        intersection = (y_pred * y_true).sum()
        return 1.0 - (2.0 * intersection + self.smooth) / (y_pred.sum() + y_true.sum() + self.smooth)


def normalize_volume(volume):
    lo, hi = torch.quantile(volume, 0.1), torch.quantile(volume, 0.99)
    volume = volume.clamp(lo, hi)
    return (volume - volume.mean()) / volume.std()


def normalize_mask(mask):
    return mask / mask.max()


class BrainSegmentationDataset:
    def __init__(self, n=48, size=16, rescale_mask=False):
        yy, xx = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
        centre = torch.rand(n, 2, 1, 1) * (size - 6) + 3
        r = torch.rand(n, 1, 1) * 1.5 + 1.5
        tumour = ((yy - centre[:, 0]) ** 2 + (xx - centre[:, 1]) ** 2 < r**2).to(torch.uint8) * 255
        volume = 60 + 12 * torch.randn(n, size, size) + 20 * (tumour > 0)
        self.volume = normalize_volume(volume)[:, None]
        mask = tumour.float()
        self.mask = (normalize_mask(mask) if rescale_mask else mask)[:, None]

    def batch(self, k):
        rows = torch.randint(0, len(self.volume), (k,))
        return self.volume[rows], self.mask[rows]


@torch.no_grad()
def dsc_per_volume(unet, dataset):
    unet.eval()
    pred = (unet(dataset.volume) > 0.5).float()
    true = (dataset.mask > 0).float()
    return (2 * (pred * true).sum() / (pred.sum() + true.sum())).item()


def train(tick, mended=False):
    global LAST
    torch.manual_seed(0)
    dataset = BrainSegmentationDataset(rescale_mask=mended)
    unet = UNet()
    dsc_loss = DiceLoss()
    optimizer = torch.optim.Adam(unet.parameters(), lr=3e-3)
    tick.model(unet)
    tick.optimizer(optimizer)
    losses = []
    unet.train()
    for step in range(100):
        x, y_true = dataset.batch(8)
        optimizer.zero_grad()
        loss = dsc_loss(unet(x), y_true)
        loss.backward()
        optimizer.step()
        tick.step(loss)
        losses.append(loss.item())
    LAST = dsc_per_volume(unet, dataset)
    return losses
