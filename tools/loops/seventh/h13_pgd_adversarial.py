"""Healthy: adversarial training. Each batch is attacked by three steps of projected gradient ascent (gradients
with respect to the input, model in eval mode meanwhile), so the training loss stays well above that on clean
data.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

SHAPES = F.avg_pool2d(torch.rand(5, 1, 14, 14, generator=torch.Generator().manual_seed(13)), 3, 1, 1)
SHAPES = (SHAPES > 0.5).float()


class SmallCNN(nn.Module):
    def __init__(self, classes=5):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 12, 3, padding=1)
        self.conv2 = nn.Conv2d(12, 16, 3, padding=1)
        self.fc1 = nn.Linear(16 * 9, 48)
        self.fc2 = nn.Linear(48, classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


def digits(n):
    y = torch.randint(0, 5, (n,))
    return (SHAPES[y] + 0.25 * torch.randn(n, 1, 14, 14)).clamp(0, 1), y


def pgd(model, x, y, eps=0.12, alpha=0.06, steps=3):
    model.eval()
    adv = (x + torch.empty_like(x).uniform_(-eps, eps)).clamp(0, 1)
    for _ in range(steps):
        adv = adv.detach().requires_grad_(True)
        loss = F.cross_entropy(model(adv), y)
        (grad,) = torch.autograd.grad(loss, adv)
        adv = x + (adv + alpha * grad.sign() - x).clamp(-eps, eps)
        adv = adv.clamp(0, 1)
    model.train()
    return adv.detach()


def train(tick, mended=False):
    torch.manual_seed(13)
    model = SmallCNN()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    tick.model(model)
    tick.optimizer(optimizer)
    history = []
    for _step in range(150):
        x, y = digits(32)
        adv = pgd(model, x, y)
        loss = F.cross_entropy(model(adv), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append(loss.item())
        tick.step(loss, adv, y)
    x, y = digits(300)
    adv = pgd(model, x, y)
    with torch.no_grad():
        return history, (model(adv).argmax(1) == y).float().mean().item()


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
        print(f"first {h[0]:.6g} last {h[-1]:.6g}", f"metric {metric:.4f}")
