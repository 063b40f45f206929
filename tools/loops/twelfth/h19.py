"""Adapting a trained source classifier with gradient reversal after jvanvugt/pytorch-domain-adaptation (revgrad.py)."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class GradientReversalFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, lambda_):
        ctx.lambda_ = lambda_
        return x.clone()

    @staticmethod
    def backward(ctx, grads):
        return -ctx.lambda_ * grads, None


class GradientReversal(nn.Module):
    def __init__(self, lambda_=1):
        super().__init__()
        self.lambda_ = lambda_

    def forward(self, x):
        return GradientReversalFunction.apply(x, self.lambda_)


class Net(nn.Module):
    def __init__(self, dim=16, feat=32, classes=4):
        super().__init__()
        self.feature_extractor = nn.Sequential(nn.Linear(dim, 64), nn.ReLU(), nn.Linear(64, feat))
        self.classifier = nn.Sequential(nn.Linear(feat, 32), nn.ReLU(), nn.Linear(32, classes))

    def forward(self, x):
        return self.classifier(self.feature_extractor(x))


class RevGrad(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net
        self.discriminator = nn.Sequential(
            GradientReversal(), nn.Linear(32, 50), nn.ReLU(), nn.Linear(50, 20), nn.ReLU(), nn.Linear(20, 1)
        )


def domain_batch(n, protos, shift):
    y = torch.randint(0, 4, (n,))
    return protos[y] + 0.5 * torch.randn(n, 16) + shift, y


def accuracy(model):
    torch.manual_seed(49)
    protos, shift = torch.randn(4, 16), 1.2 * torch.randn(16)
    x, y = domain_batch(400, protos, shift)
    with torch.no_grad():
        return (model.net(x).argmax(1) == y).float().mean().item()


def train(tick, mended=False):
    torch.manual_seed(49)
    protos, shift = torch.randn(4, 16), 1.2 * torch.randn(16)
    net = Net()
    source_optim = torch.optim.Adam(net.parameters(), lr=2e-3)
    for _ in range(80):
        x, y = domain_batch(64, protos, 0.0)
        source_optim.zero_grad()
        F.cross_entropy(net(x), y).backward()
        source_optim.step()
    net.zero_grad(set_to_none=True)

    model = RevGrad(net)
    optim = torch.optim.Adam(model.parameters(), lr=1e-3)
    tick.model(model)
    tick.optimizer(optim)
    losses = []
    for step in range(250):
        source_x, source_labels = domain_batch(32, protos, 0.0)
        target_x, _ = domain_batch(32, protos, shift)
        x = torch.cat([source_x, target_x])
        domain_y = torch.cat([torch.ones(32), torch.zeros(32)])
        features = model.net.feature_extractor(x)
        domain_preds = model.discriminator(features).squeeze()
        label_preds = model.net.classifier(features[:32])
        domain_loss = F.binary_cross_entropy_with_logits(domain_preds, domain_y)
        label_loss = F.cross_entropy(label_preds, source_labels)
        loss = domain_loss + label_loss
        optim.zero_grad()
        loss.backward()
        optim.step()
        tick.step(loss)
        losses.append(loss.item())
    return losses
