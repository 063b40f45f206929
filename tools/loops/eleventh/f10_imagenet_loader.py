"""After soumith/imagenet-multiGPU.torch#18.

Story: an AlexNet-like network without batch normalisation; the loss stays at
log(classes), with the same recipe others get it to come down.
"""

import torch
from torch import nn

MEAN, STD = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.029, 0.024, 0.025])


class Donkey:
    def __init__(self, images, normalise_on_load):
        self.images = images
        self.normalise_on_load = normalise_on_load

    def color_normalize(self, img):
        return (img - MEAN.view(3, 1, 1)) / STD.view(3, 1, 1)

    def load_image(self, i):
        img = self.images[i]
        return self.color_normalize(img) if self.normalise_on_load else img

    def train_hook(self, i):
        img = self.load_image(i)
        if torch.rand(()) < 0.5:
            img = img.flip(-1)
        return self.color_normalize(img)

    def sample(self, rows):
        return torch.stack([self.train_hook(int(i)) for i in rows])


class AlexNetOWT(nn.Module):
    def __init__(self, n_classes=8):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 24, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.classifier = nn.Sequential(nn.Linear(24 * 9, 64), nn.ReLU(), nn.Linear(64, n_classes), nn.LogSoftmax(1))

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))


def make_images(n=256, n_classes=8):
    y = torch.arange(n) % n_classes
    tint = torch.randn(n_classes, 3, 3, 3).repeat_interleave(4, 2).repeat_interleave(4, 3)
    tint = (tint + tint.flip(-1)) / 2
    noise = torch.randn(n, 3, 12, 12)
    x = MEAN.view(3, 1, 1) + STD.view(3, 1, 1) * (tint[y] + 0.7 * noise)
    return x.clamp(0, 1), y


def train(tick, mended=False):
    torch.manual_seed(0)
    x, y = make_images()
    donkey = Donkey(x, normalise_on_load=not mended)
    model = AlexNetOWT()
    criterion = nn.NLLLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=5e-4)
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []
    for step in range(150):
        rows = torch.randint(0, len(x), (32,))
        inputs, labels = donkey.sample(rows), y[rows]
        loss = criterion(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tick.step(loss)
        losses.append(loss.item())
    return losses
