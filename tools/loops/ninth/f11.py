"""After huggingface/cookbook#248: "Semantic segmentation augmentations are not applied
to labels properly".

A small SegFormer-like net is fine-tuned on a floor-plan style scene set with
random flips and quarter turns.
"""

import torch
import torch.nn.functional as F
from torch import nn


class MiniSegformer(nn.Module):
    def __init__(self, num_labels=3, width=16):
        super().__init__()
        self.patch_embed = nn.Conv2d(3, width, 3, padding=1)
        self.block1 = nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU())
        self.block2 = nn.Sequential(nn.Conv2d(width, width, 3, 2, 1), nn.BatchNorm2d(width), nn.ReLU())
        self.decode_head = nn.Conv2d(width, num_labels, 1)

    def forward(self, pixel_values):
        h = self.block2(self.block1(F.relu(self.patch_embed(pixel_values))))
        return F.interpolate(self.decode_head(h), scale_factor=2, mode="bilinear")


def scenes(n, seed):
    g = torch.Generator().manual_seed(seed)
    colours = torch.tensor([[0.2, 0.3, 0.3], [0.9, 0.2, 0.4], [0.3, 0.8, 0.2]])
    label = torch.zeros(n, 16, 16, dtype=torch.long)
    for i in range(n):
        for c in (1, 2):
            a, b = torch.randint(0, 10, (2,), generator=g).tolist()
            label[i, a : a + 6, b : b + 6] = c
    return colours[label].permute(0, 3, 1, 2) + 0.15 * torch.randn(n, 3, 16, 16, generator=g), label


class TrainTransforms:
    def __init__(self, mended):
        self.mended = mended

    def __call__(self, images, labels):
        out_i, out_l = [], []
        for im, la in zip(images, labels):
            flip, k = torch.rand(1).item() < 0.5, torch.randint(0, 4, (1,)).item()
            im = torch.rot90(im.flip(-1) if flip else im, k, (-2, -1))
            if self.mended:
                la = torch.rot90(la.flip(-1) if flip else la, k, (-2, -1))
            out_i.append(im * (0.8 + 0.4 * torch.rand(1)))
            out_l.append(la)
        return torch.stack(out_i), torch.stack(out_l)


def score(model, mended):
    x, y = scenes(60, 5)
    model.eval()
    with torch.no_grad():
        p = model(x).argmax(1)
    model.train()
    return torch.stack([((p == c) & (y == c)).sum() / ((p == c) | (y == c)).sum() for c in (1, 2)]).mean().item()


def train(tick, mended=False):
    torch.manual_seed(0)
    images, labels = scenes(200, 0)
    transforms = TrainTransforms(mended)
    model = MiniSegformer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []
    for _ in range(100):
        idx = torch.randint(0, 200, (16,))
        pixel_values, target = transforms(images[idx], labels[idx])
        loss = F.cross_entropy(model(pixel_values), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        tick.step(loss)
    return losses
