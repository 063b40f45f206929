"""kaituoxu/Conv-TasNet#42: "why LOSS is Negative?" """

import torch
from torch import nn

STEPS = 120
OTHERS: list = []
LOG: list = []


def cal_si_snr(source, estimate, eps=1e-8):
    source = source - source.mean(-1, keepdim=True)
    estimate = estimate - estimate.mean(-1, keepdim=True)
    proj = (source * estimate).sum(-1, keepdim=True) * source / (source.pow(2).sum(-1, keepdim=True) + eps)
    noise = estimate - proj
    return 10 * torch.log10(proj.pow(2).sum(-1) / (noise.pow(2).sum(-1) + eps) + eps)


class ConvTasNet(nn.Module):
    def __init__(self, n=32, length=8, speakers=2):
        super().__init__()
        self.speakers, self.n = speakers, n
        self.encoder = nn.Conv1d(1, n, length, stride=length // 2, bias=False)
        self.separator = nn.Sequential(
            nn.Conv1d(n, 48, 3, padding=1),
            nn.PReLU(),
            nn.Conv1d(48, 48, 3, padding=2, dilation=2),
            nn.PReLU(),
            nn.Conv1d(48, n * speakers, 1),
            nn.ReLU(),
        )
        self.decoder = nn.ConvTranspose1d(n, 1, length, stride=length // 2, bias=False)

    def forward(self, mixture):
        w = torch.relu(self.encoder(mixture.unsqueeze(1)))
        masks = self.separator(w).view(len(w), self.speakers, self.n, -1)
        src = (masks * w.unsqueeze(1)).flatten(0, 1)
        return self.decoder(src).view(len(w), self.speakers, -1)


def build(bad: bool):
    torch.manual_seed(31)
    LOG.clear()
    OTHERS.clear()
    gen = torch.Generator().manual_seed(31)
    model = ConvTasNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    t = torch.arange(128.0)

    def step(i):
        f = torch.stack([0.1 + 0.1 * torch.rand(16, generator=gen), 1.0 + 0.5 * torch.rand(16, generator=gen)], 1)
        phase = torch.rand(16, 2, 1, generator=gen) * 6.28
        sources = torch.sin(f[..., None] * t + phase)
        estimate = model(sources.sum(1))
        a = cal_si_snr(sources, estimate).mean(1)
        b = cal_si_snr(sources.flip(1), estimate).mean(1)
        loss = -torch.maximum(a, b).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5)
        optimizer.step()
        LOG.append(loss.item())

    return model, optimizer, step
