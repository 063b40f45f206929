"""After LoreGoetschalckx/GANalyze#7: "zero_grad is missing".

A transformer network learns a direction in the latent space of a frozen
generator so that an assessor's score (memorability, aesthetics) goes up by
alpha.  The reader wonders about a call that the torch training script lacks.
"""

import torch
from torch import nn


class Generator(nn.Module):
    def __init__(self, dim_z=16, ch=8):
        super().__init__()
        self.linear = nn.Linear(dim_z, ch * 4 * 4)
        self.conv1 = nn.Conv2d(ch, ch, 3, padding=1)
        self.conv2 = nn.Conv2d(ch, 3, 3, padding=1)
        self.ch = ch

    def forward(self, z):
        h = self.linear(z).view(-1, self.ch, 4, 4)
        h = torch.nn.functional.interpolate(torch.relu(self.conv1(h)), scale_factor=2)
        return torch.tanh(self.conv2(h))


class MemNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.Tanh(), nn.Flatten())
        self.fc = nn.Linear(8 * 16, 1)

    def forward(self, img):
        return self.fc(self.features(img)).squeeze(1)


class NNTransformer(nn.Module):
    def __init__(self, dim_z=16):
        super().__init__()
        self.NNs = nn.Sequential(nn.Linear(dim_z, 32), nn.Tanh(), nn.Linear(32, dim_z))

    def transform(self, z, step_sizes):
        return z + step_sizes[:, None] * self.NNs(z)


class GANalyze(nn.Module):
    def __init__(self):
        super().__init__()
        self.generator = Generator()
        self.assessor = MemNet()
        self.transformer = NNTransformer()
        for p in list(self.generator.parameters()) + list(self.assessor.parameters()):
            p.requires_grad_(False)
            p.mul_(2.0)

    def forward(self, z, step_sizes):
        gan_images = self.generator(z)
        out_scores = self.assessor(gan_images)
        target_scores = out_scores + step_sizes
        z_transformed = self.transformer.transform(z, step_sizes)
        new_scores = self.assessor(self.generator(z_transformed))
        return torch.mean((new_scores - target_scores) ** 2)


def train(tick, mended=False):
    torch.manual_seed(1)
    model = GANalyze()
    optimizer = torch.optim.Adam(model.transformer.parameters(), lr=1e-2)
    batch_size = 16
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []
    for _ in range(250):
        zs = torch.randn(batch_size, 16)
        step_sizes = torch.rand(batch_size) - 0.5
        loss = model(zs, step_sizes)
        if mended:
            optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        tick.step(loss)
    return losses
