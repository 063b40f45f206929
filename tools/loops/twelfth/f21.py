"""After piergiaj/pytorch-i3d#58: an inflated 3D network for short clips.

A line of the network is reported as misleading; whoever keeps most of the
features by its name gets a network that hardly learns the actions.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Unit3D(nn.Module):
    def __init__(
        self,
        in_channels,
        output_channels,
        kernel_shape=(1, 1, 1),
        stride=1,
        activation_fn=F.relu,
        use_batch_norm=True,
        use_bias=False,
    ):
        super().__init__()
        pad = tuple(k // 2 for k in kernel_shape)
        self.conv3d = nn.Conv3d(in_channels, output_channels, kernel_shape, stride, pad, bias=use_bias)
        self.bn = nn.BatchNorm3d(output_channels, eps=0.001, momentum=0.01) if use_batch_norm else None
        self._activation_fn = activation_fn

    def forward(self, x):
        x = self.conv3d(x)
        if self.bn is not None:
            x = self.bn(x)
        return self._activation_fn(x) if self._activation_fn is not None else x


class InceptionModule(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.b0 = Unit3D(in_channels, out_channels[0])
        self.b1a = Unit3D(in_channels, out_channels[1])
        self.b1b = Unit3D(out_channels[1], out_channels[2], (3, 3, 3))

    def forward(self, x):
        return torch.cat([self.b0(x), self.b1b(self.b1a(x))], dim=1)


class InceptionI3d(nn.Module):
    def __init__(self, num_classes=6, dropout_keep_prob=0.5, mended=False):
        super().__init__()
        self.Conv3d_1a = Unit3D(1, 8, (3, 3, 3), stride=(1, 2, 2))
        self.Mixed_3b = InceptionModule(8, [4, 6, 8])
        self.avg_pool = nn.AdaptiveAvgPool3d((1, 2, 2))
        self.dropout = nn.Dropout(1 - dropout_keep_prob if mended else dropout_keep_prob)
        self.logits = Unit3D(12, num_classes, (1, 1, 1), activation_fn=None, use_batch_norm=False, use_bias=True)

    def forward(self, x):
        x = self.Mixed_3b(self.Conv3d_1a(x))
        x = self.logits(self.dropout(self.avg_pool(x)))
        return x.mean(dim=(2, 3, 4))


def clips(n, t=4, size=12):
    y = torch.randint(0, 6, (n,))
    x = 0.3 * torch.randn(n, 1, t, size, size)
    for i, c in enumerate(y.tolist()):
        step, row = (c % 3) - 1, 3 + 5 * (c // 3)
        for k in range(t):
            col = 5 + 2 * step * (k - 1)
            x[i, 0, k, row : row + 2, max(0, col) : col + 2 if col > 0 else 2] += 1.5
    return x, y


def accuracy(model):
    torch.manual_seed(5)
    x, y = clips(300)
    with torch.no_grad():
        model.eval()
        return (model(x).argmax(1) == y).float().mean().item()


def train(tick, mended=False):
    torch.manual_seed(20)
    i3d = InceptionI3d(dropout_keep_prob=0.98, mended=mended)
    optimizer = torch.optim.SGD(i3d.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-7)
    tick.model(i3d)
    tick.optimizer(optimizer)
    losses = []
    i3d.train()
    for step in range(200):
        inputs, labels = clips(24)
        loss = F.cross_entropy(i3d(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tick.step(loss)
        losses.append(loss.item())
    return losses
