"""After nussl/nussl#169: "Fixes a regularization error that caused exploding gradients
in SI-SDR loss".

Two-speaker separation with a learned filter bank, a recurrent mask estimator and
a permutation invariant SI-SDR loss on short excerpts of conversations.
"""

import itertools

import torch
from torch import nn

EPS = 1e-6


class LearnedFilterBank(nn.Module):
    def __init__(self, num_filters=24, filter_length=16, hop=8):
        super().__init__()
        self.encoder = nn.Conv1d(1, num_filters, filter_length, hop, bias=False)
        self.decoder = nn.ConvTranspose1d(num_filters, 1, filter_length, hop, bias=False)


class RecurrentSeparator(nn.Module):
    def __init__(self, num_filters=24, hidden=24, num_sources=2):
        super().__init__()
        self.bank = LearnedFilterBank(num_filters)
        self.norm = nn.LayerNorm(num_filters)
        self.rnn = nn.GRU(num_filters, hidden, batch_first=True, bidirectional=True)
        self.mask = nn.Linear(2 * hidden, num_filters * num_sources)
        self.num_sources = num_sources

    def forward(self, mix):
        spec = self.bank.encoder(mix[:, None])
        h, _ = self.rnn(self.norm(spec.transpose(1, 2)))
        m = torch.sigmoid(self.mask(h)).transpose(1, 2).chunk(self.num_sources, 1)
        return torch.stack([self.bank.decoder(spec * k)[:, 0] for k in m], 1)


class SISDRLoss(nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, estimates, references):
        estimates = estimates - estimates.mean(-1, keepdim=True)
        references = references - references.mean(-1, keepdim=True)
        energy = (references**2).sum(-1, keepdim=True) + self.eps
        scale = (estimates * references).sum(-1, keepdim=True) / energy
        e_true = scale * references
        e_res = estimates - e_true
        signal, noise = (e_true**2).sum(-1), (e_res**2).sum(-1)
        return -10 * torch.log10(signal / (noise + self.eps) + self.eps)


class PermutationInvariantLoss(nn.Module):
    def __init__(self, loss_function):
        super().__init__()
        self.loss_function = loss_function

    def forward(self, estimates, targets):
        losses = [
            self.loss_function(estimates[:, list(p)], targets).mean(-1)
            for p in itertools.permutations(range(targets.size(1)))
        ]
        return torch.stack(losses, -1).min(-1)[0].mean()


def excerpts(n, length=200):
    t = torch.arange(length) / 200.0
    f = torch.stack([4 + 3 * torch.rand(n), 20 + 10 * torch.rand(n)], 1)[..., None]
    s = torch.sin(2 * torch.pi * (f * t + torch.rand(n, 2, 1))) * (0.5 + torch.rand(n, 2, 1))
    active = torch.rand(n, 2, 1) > 0.005
    return s * active


def train(tick, mended=False):
    torch.manual_seed(3)
    model = RecurrentSeparator()
    loss_fn = PermutationInvariantLoss(SISDRLoss(EPS if mended else 0.0))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []
    for _ in range(70):
        sources = excerpts(12)
        mix = sources.sum(1) + 0.01 * torch.randn(12, 200)
        loss = loss_fn(model(mix), sources)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        losses.append(loss.item())
        tick.step(loss)
    return losses
