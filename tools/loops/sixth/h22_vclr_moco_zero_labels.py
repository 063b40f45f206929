"""amazon-science/video-contrastive-learning#5: NCESoftmaxLoss sets all labels to zero, "everything is a
negative pair"?"""

import copy

import torch
import torch.nn.functional as F
from torch import nn

STEPS = 250
OTHERS: list = []
LOG: list = []


class NCESoftmaxLoss(nn.Module):
    def forward(self, x):
        label = torch.zeros([x.shape[0]]).long()
        return F.cross_entropy(x, label)


class VideoEncoder(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.conv = nn.Conv1d(8, 24, 3, padding=1)
        self.fc = nn.Sequential(nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, dim))

    def forward(self, clip):
        return F.normalize(self.fc(F.relu(self.conv(clip)).mean(2)))


class VCLR(nn.Module):
    def __init__(self, queue=256):
        super().__init__()
        self.encoder_q = VideoEncoder()
        self.encoder_k = copy.deepcopy(self.encoder_q)
        self.encoder_k.requires_grad_(False)
        self.register_buffer("memory", F.normalize(torch.randn(queue, 16)))
        self.index = 0

    def forward(self, clip_q, clip_k, t=0.1, m=0.95):
        q = self.encoder_q(clip_q)
        with torch.no_grad():
            for pq, pk in zip(self.encoder_q.parameters(), self.encoder_k.parameters()):
                pk.mul_(m).add_(pq, alpha=1 - m)
            k = self.encoder_k(clip_k)
        out = torch.cat([(q * k).sum(1, keepdim=True), q @ self.memory.clone().t()], 1) / t
        with torch.no_grad():
            ids = torch.arange(self.index, self.index + len(k)) % len(self.memory)
            self.memory[ids] = k
            self.index = int(ids[-1]) + 1
        return out


def build(bad: bool):
    torch.manual_seed(52)
    LOG.clear()
    OTHERS.clear()
    gen = torch.Generator().manual_seed(52)
    model = VCLR()
    optimizer = torch.optim.SGD(model.encoder_q.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    criterion = NCESoftmaxLoss()

    def step(i):
        scene = torch.randn(32, 8, 1, generator=gen)
        clip_q = scene + 0.5 * torch.randn(32, 8, 6, generator=gen)
        clip_k = scene + 0.5 * torch.randn(32, 8, 6, generator=gen)
        loss = criterion(model(clip_q, clip_k))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        LOG.append(loss.item())

    return model, optimizer, step
