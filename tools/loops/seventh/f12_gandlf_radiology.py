"""mlcommons/GaNDLF#870 (bug of #868): data and ground truth of the training pipeline get their order separately.

Rebuilt: small synthetic CT patches (blob or no blob, two grades), a 3D CNN classifier, the training lists built anew
every epoch.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class VGGBlock(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.conv = nn.Conv3d(cin, cout, 3, padding=1)
        self.norm = nn.InstanceNorm3d(cout, affine=True)

    def forward(self, x):
        return F.max_pool3d(F.leaky_relu(self.norm(self.conv(x)), 0.1), 2)


class RadiologyNet(nn.Module):
    def __init__(self, base_filters=6, n_classes=3):
        super().__init__()
        self.block1 = VGGBlock(1, base_filters)
        self.block2 = VGGBlock(base_filters, 2 * base_filters)
        self.fc = nn.Linear(2 * base_filters * 8, n_classes)

    def forward(self, x):
        return self.fc(self.block2(self.block1(x)).flatten(1))


def make_subject(label, size=8):
    vol = 0.4 * torch.randn(1, size, size, size)
    if label:
        c = torch.randint(2, size - 2, (3,)).float()
        grid = torch.stack(torch.meshgrid(*[torch.arange(size).float()] * 3, indexing="ij"), -1)
        r = ((grid - c) ** 2).sum(-1)
        vol[0] += (2.5 if label == 1 else -2.5) * torch.exp(-r / 4)
    return vol


class SubjectQueue:
    def __init__(self, volumes, labels, batch_size, mended):
        self.volumes, self.labels = volumes, labels
        self.batch_size = batch_size
        self.mended = mended

    def epoch(self):
        order_channel = torch.randperm(len(self.volumes))
        order_value = order_channel if self.mended else torch.randperm(len(self.labels))
        for a, b in zip(order_channel.split(self.batch_size), order_value.split(self.batch_size)):
            yield self.volumes[a], self.labels[b]


def train(tick, mended=False):
    torch.manual_seed(37)
    labels = torch.randint(0, 3, (160,))
    volumes = torch.stack([make_subject(int(label)) for label in labels])
    test_labels = torch.randint(0, 3, (90,))
    test_volumes = torch.stack([make_subject(int(label)) for label in test_labels])

    queue = SubjectQueue(volumes, labels, 16, mended)
    model = RadiologyNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    tick.model(model)
    tick.optimizer(optimizer)
    history = []
    for _epoch in range(12):
        model.train()
        for image, label in queue.epoch():
            optimizer.zero_grad()
            output = model(image)
            loss = F.cross_entropy(output, label)
            loss.backward()
            optimizer.step()
            history.append(loss.item())
            tick.step(loss, image, label)
    model.eval()
    with torch.no_grad():
        acc = (model(test_volumes).argmax(1) == test_labels).float().mean().item()
    return history, acc


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
        print("mended" if mended else "as is", f"first {h[0]:.4f} last10 {sum(h[-10:]) / 10:.4f}", f"acc {metric:.3f}")
