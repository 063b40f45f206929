"""pytorch/opacus: DP-SGD; each sample's gradient is clipped to 1, noise as large as the signal is added, so the
loss shakes and falls slowly."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.func import functional_call, grad, vmap


class SampleConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 4, 2, padding=1)
        self.conv2 = nn.Conv2d(8, 12, 4, 2, padding=1)
        self.fc1 = nn.Linear(12 * 4, 24)
        self.fc2 = nn.Linear(24, 4)

    def forward(self, x):
        x = torch.relu(self.conv1(x))
        x = torch.relu(self.conv2(x))
        return self.fc2(torch.relu(self.fc1(x.flatten(1))))


class DPOptimizer:
    def __init__(self, optimizer, max_grad_norm, noise_multiplier, expected_batch_size):
        self.original_optimizer = optimizer
        self.max_grad_norm, self.noise_multiplier = max_grad_norm, noise_multiplier
        self.expected_batch_size = expected_batch_size

    def step(self, params, grad_samples):
        norms = torch.stack([g.flatten(1).norm(dim=1) for g in grad_samples]).norm(dim=0)
        factor = (self.max_grad_norm / (norms + 1e-6)).clamp(max=1.0)
        for p, g in zip(params, grad_samples):
            summed = torch.einsum("i,i...->...", factor, g)
            noise = torch.randn_like(p) * self.noise_multiplier * self.max_grad_norm
            p.grad = (summed + noise) / self.expected_batch_size
        self.original_optimizer.step()
        self.original_optimizer.zero_grad()


def train(tick, mended=False):
    torch.manual_seed(0)
    proto = torch.randn(4, 1, 8, 8)
    y = torch.randint(0, 4, (800,))
    x = proto[y] + 1.8 * torch.randn(800, 1, 8, 8)
    model = SampleConvNet()
    sgd = torch.optim.SGD(model.parameters(), lr=0.5)
    optimizer = DPOptimizer(sgd, max_grad_norm=1.0, noise_multiplier=1.0, expected_batch_size=64)

    def sample_loss(params, xi, yi):
        return F.cross_entropy(functional_call(model, params, (xi[None],)), yi[None])

    per_sample = vmap(grad(sample_loss), in_dims=(None, 0, 0))
    tick.model(model)
    tick.optimizer(sgd)
    losses = []
    for _step in range(160):
        idx = (torch.rand(800) < 64 / 800).nonzero().squeeze(1)
        with torch.no_grad():
            loss = F.cross_entropy(model(x[idx]), y[idx])
        params = {n: p.detach() for n, p in model.named_parameters()}
        grads = per_sample(params, x[idx], y[idx])
        optimizer.step(list(model.parameters()), [grads[n] for n, _ in model.named_parameters()])
        losses.append(loss.item())
        tick.step(loss)
    with torch.no_grad():
        train.final = (model(x).argmax(1) == y).float().mean().item()
    return losses
