"""Lightning-AI/pytorch-lightning#9599: a large model under native mixed precision with gradient_clip_val;
the learning curve is almost flat, in full precision it is not."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ResidualMLPBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.fc1 = nn.Linear(width, 2 * width)
        self.fc2 = nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.fc2(F.gelu(self.fc1(self.norm(x))))


class LitClassifier(nn.Module):
    def __init__(self, features=16, width=32, depth=3, classes=5):
        super().__init__()
        self.stem = nn.Linear(features, width)
        self.blocks = nn.Sequential(*[ResidualMLPBlock(width) for _ in range(depth)])
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)))

    def training_step(self, batch):
        x, y = batch
        return F.cross_entropy(self(x), y)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)


class NativeMixedPrecisionPlugin:
    def __init__(self, gradient_clip_val, unscale_first):
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)
        self.gradient_clip_val = gradient_clip_val
        self.unscale_first = unscale_first

    def backward(self, loss):
        self.scaler.scale(loss).backward()

    def clip_gradients(self, module):
        nn.utils.clip_grad_norm_(module.parameters(), self.gradient_clip_val)

    def optimizer_step(self, module, optimizer):
        if self.unscale_first:
            self.scaler.unscale_(optimizer)
            self.clip_gradients(module)
        else:
            self.clip_gradients(module)
            self.scaler.unscale_(optimizer)
        self.scaler.step(optimizer)
        self.scaler.update()


def rings(n, gen):
    x = torch.randn(n, 16, generator=gen)
    score = (x[:, :8] ** 2).sum(1) - (x[:, 8:] ** 2).sum(1)
    return x, torch.bucketize(score, torch.tensor([-4.5, -1.5, 1.5, 4.5]))


def train(tick, mended=False):
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(1)
    x, y = rings(1600, gen)
    module = LitClassifier()
    optimizer = module.configure_optimizers()
    plugin = NativeMixedPrecisionPlugin(gradient_clip_val=1.0, unscale_first=mended)
    tick.model(module)
    tick.optimizer(optimizer)
    losses = []
    for _epoch in range(6):
        for idx in torch.randperm(len(x), generator=gen).split(40):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = module.training_step((x[idx], y[idx]))
            plugin.backward(loss)
            plugin.optimizer_step(module, optimizer)
            losses.append(loss.item())
            tick.step(loss)
    with torch.no_grad():
        train.final = (module(x).argmax(1) == y).float().mean().item()
    return losses
