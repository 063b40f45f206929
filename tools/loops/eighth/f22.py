"""hunkim/PyTorchZeroToAll#4: a softmax classifier of handwritten digits with five layers; it stays at a poor accuracy
and some digits are never said at all."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Net(nn.Module):
    def __init__(self, relu_everywhere):
        super().__init__()
        self.l1 = nn.Linear(144, 96)
        self.l2 = nn.Linear(96, 64)
        self.l3 = nn.Linear(64, 48)
        self.l4 = nn.Linear(48, 32)
        self.l5 = nn.Linear(32, 10)
        self.relu_everywhere = relu_everywhere

    def forward(self, x):
        x = x.view(-1, 144)
        x = F.relu(self.l1(x))
        x = F.relu(self.l2(x))
        x = F.relu(self.l3(x))
        x = F.relu(self.l4(x))
        x = self.l5(x)
        return F.relu(x) if self.relu_everywhere else x


def mnist_like(n, strokes, gen):
    y = torch.randint(0, 10, (n,), generator=gen)
    x = strokes[y] * (0.7 + 0.6 * torch.rand(n, 1, 1, generator=gen))
    dx = torch.randint(-1, 2, (n,), generator=gen)
    x = torch.stack([torch.roll(img, int(d), 1) for img, d in zip(x, dx)])
    return (x + 0.25 * torch.randn(x.shape, generator=gen)).clamp(0, 1)[:, None], y


def evaluate(model, data, target):
    model.eval()
    with torch.no_grad():
        pred = model(data).argmax(1)
    return (pred == target).float().mean().item(), len(pred.unique())


def train(tick, mended=False):
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(0)
    strokes = (F.interpolate(torch.randn(10, 1, 4, 4, generator=gen), size=12, mode="bilinear") > 0.15).float()[:, 0]
    data, target = mnist_like(1500, strokes, gen)
    test_data, test_target = mnist_like(400, strokes, gen)
    model = Net(relu_everywhere=not mended)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []
    for _epoch in range(8):
        for idx in torch.randperm(1500, generator=gen).split(50):
            model.train()
            optimizer.zero_grad()
            loss = criterion(model(data[idx]), target[idx])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            tick.step(loss)
    train.final = evaluate(model, test_data, test_target)
    return losses
