"""pytorch/pytorch#53959: kidney segmentation, one-hot masks stored as uint8 .npy; "the optimizer will train
the model to return 0"."""

import torch
import torch.nn.functional as F
from torch import nn

STEPS = 120
OTHERS: list = []
LOG: list = []


def to_tensor(array):
    t = array.permute(2, 0, 1).contiguous()
    return t.float() / 255 if t.dtype == torch.uint8 else t.float()


class HuBMAPDataset:
    def __init__(self, n, mask_dtype, gen):
        yy, xx = torch.meshgrid(torch.arange(16), torch.arange(16), indexing="ij")
        c = torch.randint(4, 12, (n, 2, 1, 1), generator=gen)
        r = torch.randint(3, 5, (n, 1, 1), generator=gen)
        inside = (yy - c[:, 0]) ** 2 + (xx - c[:, 1]) ** 2 <= r**2
        rgb = torch.randint(60, 120, (n, 16, 16, 3), generator=gen) + inside.unsqueeze(-1) * torch.tensor([70, 20, 50])
        self.images = rgb.to(torch.uint8)
        self.masks = inside.unsqueeze(-1).to(mask_dtype)

    def batch(self, idx):
        return (
            torch.stack([to_tensor(self.images[k]) for k in idx]),
            torch.stack([to_tensor(self.masks[k]) for k in idx]),
        )


class SegNet(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(3, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU())
        self.bottom = nn.Sequential(
            nn.MaxPool2d(2), nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.Upsample(scale_factor=2)
        )
        self.out = nn.Conv2d(2 * width, 1, 1)

    def forward(self, x):
        d = self.down(x)
        return self.out(torch.cat([d, self.bottom(d)], 1))


def build(bad: bool):
    torch.manual_seed(23)
    LOG.clear()
    OTHERS.clear()
    gen = torch.Generator().manual_seed(23)
    dataset = HuBMAPDataset(96, torch.uint8 if bad else torch.int32, gen)
    model = SegNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)

    def step(i):
        idx = torch.randint(0, 96, (16,), generator=gen).tolist()
        image, mask = dataset.batch(idx)
        logits = model(image)
        loss = F.binary_cross_entropy_with_logits(logits, mask)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            truth = (dataset.masks[idx].permute(0, 3, 1, 2) > 0).float()
            pred = (logits > 0).float()
            LOG.append((2 * (pred * truth).sum() / (pred.sum() + truth.sum() + 1e-6)).item())

    return model, optimizer, step
