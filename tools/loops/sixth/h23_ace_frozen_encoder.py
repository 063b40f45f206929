"""nianticlabs/ace#28: "I can't seem to find where does ACE freeze the backbone during training"."""

import torch
from torch import nn

STEPS = 200
OTHERS: list = []
LOG: list = []


class Encoder(nn.Module):
    def __init__(self, c=32):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 24, 3, 2, 1), nn.Conv2d(24, c, 3, 2, 1)
        self.norm = nn.BatchNorm2d(24)

    def forward(self, x):
        return torch.relu(self.conv2(torch.relu(self.norm(self.conv1(x)))))


class Head(nn.Module):
    def __init__(self, c=32, mean=(0.0, 0.0, 0.0)):
        super().__init__()
        self.res3_conv1, self.res3_conv2 = nn.Linear(c * 16, 96), nn.Linear(96, 96)
        self.fc3 = nn.Linear(96, 3)
        self.register_buffer("mean", torch.tensor(mean))

    def forward(self, f):
        x = torch.relu(self.res3_conv1(f))
        return self.fc3(x + torch.relu(self.res3_conv2(x))) + self.mean


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.heads = Encoder(), Head(mean=(4.0, 4.0, 2.0))


def build(bad: bool):
    torch.manual_seed(53)
    LOG.clear()
    OTHERS.clear()
    gen = torch.Generator().manual_seed(53)
    regressor = Regressor()
    regressor.encoder.eval()
    yy, xx = torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij")
    scene = torch.rand(512, 3, generator=gen) * torch.tensor([8.0, 8.0, 4.0])
    with torch.no_grad():
        d2 = (yy - 4 - scene[:, 0, None, None]) ** 2 + (xx - 4 - scene[:, 1, None, None]) ** 2
        img = torch.exp(-d2 / (2 + scene[:, 2, None, None]) ** 1.5).unsqueeze(1)
        training_buffer = regressor.encoder(img * 2).flatten(1)
    optimizer = torch.optim.AdamW(regressor.parameters(), lr=5e-4)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=5e-3, total_steps=STEPS + 1, cycle_momentum=False)
    scaler = torch.amp.GradScaler("cpu", enabled=False)

    def step(i):
        idx = torch.randint(0, 512, (128,), generator=gen)
        pred = regressor.heads(training_buffer[idx])
        err = (pred - scene[idx]).norm(dim=1)
        loss = 5.0 * torch.tanh(err / 5.0).sum() / len(idx)
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()
        LOG.append(loss.item())

    return regressor, optimizer, step
