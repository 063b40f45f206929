"""NaJaeMin92/pytorch-DANN#7: adaptation from one digit set to another; the classifier of the source alone is hard to
train already, and the discriminator stays at guessing in every phase."""

import math

import torch
import torch.nn as nn


class ReverseLayerF(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, alpha):
        ctx.alpha = alpha
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output.neg() * ctx.alpha, None


class Extractor(nn.Module):
    def __init__(self):
        super().__init__()
        self.extractor = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )

    def forward(self, x):
        return self.extractor(x).flatten(1)


def head(width, classes, closing):
    layers = [nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, classes)]
    return nn.Sequential(*layers, *closing)


class DANN(nn.Module):
    def __init__(self, closing):
        super().__init__()
        self.encoder = Extractor()
        self.classifier = head(24, 10, closing)
        self.discriminator = head(16, 2, closing)


def digit_set(n, proto, gen, foreign):
    y = torch.randint(0, 10, (n,), generator=gen)
    x = proto[y] + 0.6 * torch.randn(n, 1, 8, 8, generator=gen)
    return (1.2 * x + 0.3 if foreign else x), y


def train(tick, mended=False):
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(0)
    proto = torch.randn(10, 1, 8, 8, generator=gen)
    source, source_y = digit_set(800, proto, gen, False)
    target, target_y = digit_set(800, proto, gen, True)
    model = DANN([] if mended else [nn.Softmax(dim=1)])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    tick.model(model)
    tick.optimizer(optimizer)
    losses, total = [], 200
    for step in range(total):
        p = step / total
        alpha = 2.0 / (1.0 + math.exp(-10 * p)) - 1
        i, j = torch.randint(0, 800, (32,), generator=gen), torch.randint(0, 800, (32,), generator=gen)
        feature_s, feature_t = model.encoder(source[i]), model.encoder(target[j])
        class_loss = criterion(model.classifier(feature_s), source_y[i])
        both = ReverseLayerF.apply(torch.cat([feature_s, feature_t]), alpha)
        domain_label = torch.cat([torch.zeros(32), torch.ones(32)]).long()
        domain_loss = criterion(model.discriminator(both), domain_label)
        loss = class_loss + 0.3 * domain_loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        tick.step(loss)
    with torch.no_grad():
        accs = [
            (model.classifier(model.encoder(x)).argmax(1) == y).float().mean().item()
            for x, y in ((source, source_y), (target, target_y))
        ]
    train.final = accs
    return losses
