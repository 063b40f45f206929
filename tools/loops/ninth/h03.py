"""Healthy. After pytorch/tutorials (neural style transfer): the trained thing is the
image itself, the network is frozen, the style weight is a million.
"""

import torch
import torch.nn.functional as F
from torch import nn


class PixelImage(nn.Module):
    def __init__(self, img):
        super().__init__()
        self.input_img = nn.Parameter(img.clone())

    def forward(self):
        return self.input_img


def gram_matrix(x):
    a, b, c, d = x.size()
    f = x.view(a * b, c * d)
    return f @ f.t() / (a * b * c * d)


def train(tick, mended=False):
    torch.manual_seed(0)
    cnn = nn.ModuleList([nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1)])
    for p in cnn.parameters():
        p.requires_grad_(False)

    def features(x):
        c = F.relu(cnn[0](x))
        return c, F.relu(cnn[1](c))

    content_img, style_img = torch.rand(1, 3, 24, 24), torch.rand(1, 3, 24, 24) ** 3
    content = features(content_img)[1]
    styles = [gram_matrix(f) for f in features(style_img)]
    image = PixelImage(content_img)
    optimizer = torch.optim.Adam(image.parameters(), lr=0.02)
    style_weight, content_weight = 1e6, 1
    tick.model(image)
    tick.optimizer(optimizer)
    losses = []
    for _ in range(200):
        with torch.no_grad():
            image.input_img.clamp_(0, 1)
        optimizer.zero_grad()
        feats = features(image())
        style_score = sum(F.mse_loss(gram_matrix(f), s) for f, s in zip(feats, styles)) * style_weight
        loss = style_score + F.mse_loss(feats[1], content) * content_weight
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        tick.step(loss)
    return losses
