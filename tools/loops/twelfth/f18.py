"""After dreamquark-ai/tabnet#515: unsupervised pretraining of a tabular encoder.

The pretraining loss goes to minus infinity without good reconstructions.
"""

import torch
import torch.nn as nn


def UnsupervisedLoss(y_pred, embedded_x, obf_vars, eps=1e-9, mended=False):
    errors = y_pred - embedded_x
    reconstruction_errors = torch.mul(errors, obf_vars) ** 2
    batch_means = torch.mean(embedded_x, dim=0)
    batch_means[batch_means == 0] = 1
    if mended:
        batch_means = batch_means.abs()
    batch_stds = torch.std(embedded_x, dim=0) ** 2
    batch_stds[batch_stds == 0] = batch_means[batch_stds == 0]
    features_loss = torch.matmul(reconstruction_errors, 1 / batch_stds)
    nb_reconstructed_variables = torch.sum(obf_vars, dim=1)
    features_loss = features_loss / (nb_reconstructed_variables + eps)
    return torch.mean(features_loss)


class RandomObfuscator:
    def __init__(self, pretraining_ratio):
        self.pretraining_ratio = pretraining_ratio

    def __call__(self, x):
        obfuscated_vars = torch.bernoulli(self.pretraining_ratio * torch.ones(x.shape))
        return torch.mul(1 - obfuscated_vars, x), obfuscated_vars


class GLU_Layer(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.fc = nn.Linear(i, 2 * o, bias=False)
        self.bn = nn.BatchNorm1d(2 * o)

    def forward(self, x):
        return nn.functional.glu(self.bn(self.fc(x)), dim=-1)


class TabNetPretraining(nn.Module):
    def __init__(self, input_dim, n_d=24):
        super().__init__()
        self.initial_bn = nn.BatchNorm1d(input_dim)
        self.shared = GLU_Layer(input_dim, n_d)
        self.specific = GLU_Layer(n_d, n_d)
        self.decoder = nn.Sequential(GLU_Layer(n_d, n_d), nn.Linear(n_d, input_dim, bias=False))
        self.reconstruction = nn.Linear(input_dim, input_dim)

    def forward(self, x):
        h = self.shared(self.initial_bn(x))
        h = (h + self.specific(h)) * 0.5**0.5
        return self.reconstruction(self.decoder(h))


def table(n):
    z = torch.randn(n, 3)
    mix = torch.tensor([[1.0, 0.5, 0, 1, -1, 0.3, 0, 2], [0, 1, 1, -1, 0.5, 0.2, 1, 0], [1, 0, -1, 0, 0.5, 1, 1, 1]])
    x = z @ mix + 0.1 * torch.randn(n, 8)
    const = torch.full((n, 1), -0.0078125)
    return torch.cat([x, const], 1)


def quality(model):
    torch.manual_seed(3)
    model.eval()
    x = table(400)
    with torch.no_grad():
        return ((model(x) - x)[:, :8] ** 2).mean().item()


def train(tick, mended=False):
    torch.manual_seed(17)
    x_all = table(2048)
    network = TabNetPretraining(9)
    obfuscator = RandomObfuscator(0.3)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
    tick.model(network)
    tick.optimizer(optimizer)
    losses = []
    network.train()
    for step in range(200):
        x = x_all[torch.randint(0, 2048, (128,))]
        masked_x, obf_vars = obfuscator(x)
        output = network(masked_x)
        loss = UnsupervisedLoss(output, x, obf_vars, mended=mended)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        tick.step(loss)
        losses.append(loss.item())
    return losses
