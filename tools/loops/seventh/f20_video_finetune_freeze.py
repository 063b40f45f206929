"""harvitronix/five-video-classification-methods#26: "Fixes bug where our fine-tuning layers were frozen".

Rebuilt: a frame CNN trained on one set of clips gets a new top (pooling, dense, predictions) for the actions of
another set; freeze_all_but_top() prepares the first fine-tuning stage.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


def conv_bn(cin, cout):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))


class FrameCNN(nn.Module):
    def __init__(self, nb_classes, dense=10):
        super().__init__()
        self.layers = nn.ModuleList(
            [
                conv_bn(1, 8),
                conv_bn(8, 12),
                nn.Flatten(),
                nn.Linear(12 * 4 * 4, dense),
                nn.Linear(dense, nb_classes),
            ]
        )

    def forward(self, frames):
        x = frames
        for i, layer in enumerate(self.layers):
            x = layer(x)
            if i == 3:
                x = F.relu(x)
        return x


def freeze_all_but_top(model, mended):
    new_top = 2 if mended else 1
    for layer in model.layers[:-new_top]:
        for p in layer.parameters():
            p.requires_grad = False
    for layer in model.layers[-new_top:]:
        for p in layer.parameters():
            p.requires_grad = True
    return model


PATTERNS = torch.randn(14, 1, 16, 16, generator=torch.Generator().manual_seed(8))
PATTERNS = F.avg_pool2d(PATTERNS, 3, 1, 1) * 2


def frames_of(n, classes):
    y = torch.randint(0, len(classes), (n,))
    img = PATTERNS[torch.tensor(classes)[y]]
    shift = int(torch.randint(0, 2, (1,)))
    img = torch.roll(img, shift, dims=3)
    return img + 0.4 * torch.randn_like(img), y


def pretrain(classes):
    net = FrameCNN(len(classes), dense=32)
    opt = torch.optim.Adam(net.parameters(), lr=3e-3)
    for _ in range(120):
        x, y = frames_of(32, classes)
        loss = F.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    return net


def train(tick, mended=False):
    torch.manual_seed(73)
    base = pretrain(list(range(6)))
    model = FrameCNN(nb_classes=8)
    model.layers[0].load_state_dict(base.layers[0].state_dict())
    model.layers[1].load_state_dict(base.layers[1].state_dict())
    model = freeze_all_but_top(model, mended)
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=3e-3)
    tick.model(model)
    tick.optimizer(optimizer)
    classes = list(range(6, 14))
    history = []
    for _step in range(300):
        x, y = frames_of(32, classes)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        history.append(loss.item())
        tick.step(loss, x, y)
    with torch.no_grad():
        x, y = frames_of(500, classes)
        acc = (model(x).argmax(1) == y).float().mean().item()
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
        print("mended" if mended else "as is", f"first {h[0]:.4f} last20 {sum(h[-20:]) / 20:.4f}", f"acc {metric:.3f}")
