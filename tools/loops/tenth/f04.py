"""After amoudgl/pygoturn#16.

GOTURN gathers samples of several image pairs until a batch is full, then does one update
and raises `itr`.  After `lr_decay_step` updates the training suddenly stood still for the
reporter, earlier with larger batches.
"""

import torch
import torch.nn as nn


class GoNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.convnet = nn.Sequential(
            nn.Conv2d(1, 8, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(8, 16, 3, stride=2, padding=1),
            nn.ReLU(),
        )
        self.classifier = nn.Sequential(
            nn.Linear(16 * 4 * 4 * 2, 64),
            nn.ReLU(),
            nn.Linear(64, 4),
        )

    def forward(self, previous, current):
        a = self.convnet(previous).flatten(1)
        b = self.convnet(current).flatten(1)
        return self.classifier(torch.cat((a, b), dim=1))


class PairDataset:
    scale_factor = 10

    def __init__(self, size=16):
        self.size = size

    def render(self, c, w):
        ax = torch.arange(self.size, dtype=torch.float32)
        g = torch.sigmoid((w[:, None, None] - (ax - c[:, :, None]).abs()) * 2)
        img = g[:, 1, :, None] * g[:, 0, None, :]
        return (img + 0.05 * torch.randn_like(img))[:, None]

    def sample_pair(self, n):
        w = 2 + torch.rand(n) * 2
        c = 5 + 6 * torch.rand(n, 2)
        d = 4 * (torch.rand(n, 2) - 0.5)
        box = torch.cat([c + d - w[:, None], c + d + w[:, None]], dim=1)
        return self.render(c, w), self.render(c + d, w), box * self.scale_factor / self.size


def exp_lr_scheduler(optimizer, gamma):
    for param_group in optimizer.param_groups:
        param_group["lr"] *= gamma


def train(tick, mended=False):
    torch.manual_seed(800)
    data = PairDataset()
    net = GoNet()
    criterion = nn.L1Loss()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.002, momentum=0.9)
    batch_size, pair_samples, lr_decay_step, gamma, num_updates = 48, 8, 40, 0.7, 240
    itr, batch, losses = 0, [], []
    tick.model(net)
    tick.optimizer(optimizer)
    net.train()
    while itr < num_updates:
        batch.append(data.sample_pair(pair_samples))
        done = len(batch) * pair_samples >= batch_size
        if not mended and itr > 0 and itr % lr_decay_step == 0:
            exp_lr_scheduler(optimizer, gamma)
        if done:
            if mended and itr > 0 and itr % lr_decay_step == 0:
                exp_lr_scheduler(optimizer, gamma)
            prev, curr, box = (torch.cat(t) for t in zip(*batch))
            optimizer.zero_grad()
            loss = criterion(net(prev, curr), box)
            loss.backward()
            optimizer.step()
            tick.step(loss)
            losses.append(loss.item())
            itr += 1
            batch = []
    return losses
