"""Model-agnostic meta-learning on sinusoids after tristandeleu/pytorch-maml."""

from collections import OrderedDict
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.func import functional_call


class ModelMLPSinusoid(nn.Module):
    def __init__(self, hidden=40):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(1, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.classifier = nn.Linear(hidden, 1)

    def forward(self, inputs):
        return self.classifier(self.features(inputs))


def gradient_update_parameters(model, inner_loss, params, step_size):
    grads = torch.autograd.grad(inner_loss, list(params.values()), create_graph=True)
    return OrderedDict((n, p - step_size * g) for (n, p), g in zip(params.items(), grads))


def get_outer_loss(model, batch, num_adaptation_steps=2, step_size=0.02):
    mean_outer_loss = 0
    for train_in, train_t, test_in, test_t in zip(*batch):
        params = OrderedDict(model.named_parameters())
        for _ in range(num_adaptation_steps):
            inner_loss = F.mse_loss(functional_call(model, params, (train_in,)), train_t)
            params = gradient_update_parameters(model, inner_loss, params, step_size)
        mean_outer_loss = mean_outer_loss + F.mse_loss(functional_call(model, params, (test_in,)), test_t)
    return mean_outer_loss / batch[0].size(0)


def sinusoid_tasks(n, k):
    amp, phase = torch.rand(n, 1, 1) * 2 + 0.5, torch.rand(n, 1, 1) * 3.14
    x = torch.rand(n, 2 * k, 1) * 6 - 3
    y = amp * torch.sin(x + phase)
    return x[:, :k], y[:, :k], x[:, k:], y[:, k:]


def train(tick, mended=False):
    torch.manual_seed(50)
    model = ModelMLPSinusoid()
    meta_optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    tick.model(model)
    tick.optimizer(meta_optimizer)
    losses = []
    for step in range(160):
        loss = get_outer_loss(model, sinusoid_tasks(5, 10))
        meta_optimizer.zero_grad()
        loss.backward()
        meta_optimizer.step()
        tick.step(loss)
        losses.append(loss.item())
    return losses
