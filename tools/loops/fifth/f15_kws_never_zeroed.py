"""wenet-e2e/wekws#73: the keyword spotting executor stepped the optimizer without ever zeroing the gradients.

Old gradients pile up, the loss falls for a moment and then swings wider and wider.
"""

from collections.abc import Callable

import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_

STEPS = 200
KEYWORDS, FRAMES, MELS = 4, 20, 10
OTHERS: list[torch.optim.Optimizer] = []
LOG: list[float] = []


class TCNBlock(nn.Module):
    def __init__(self, channel: int, dilation: int) -> None:
        super().__init__()
        self.pad = nn.ConstantPad1d((2 * dilation, 0), 0.0)
        self.cnn = nn.Sequential(nn.Conv1d(channel, channel, 3, dilation=dilation), nn.ReLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.cnn(self.pad(x))


class KWSModel(nn.Module):
    def __init__(self, channel: int = 20) -> None:
        super().__init__()
        self.preprocessing = nn.Linear(MELS, channel)
        self.backbone = nn.Sequential(TCNBlock(channel, 1), TCNBlock(channel, 2), TCNBlock(channel, 4))
        self.classifier = nn.Linear(channel, KEYWORDS)

    def forward(self, feats: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.preprocessing(feats)).transpose(1, 2)
        x = self.backbone(x).transpose(1, 2)
        return self.classifier(x)


def max_pooling_loss(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    best = logits.amax(dim=1)
    hot = nn.functional.one_hot(target, KEYWORDS).float()
    return nn.functional.binary_cross_entropy_with_logits(best, hot)


def utterances(generator: torch.Generator, words: torch.Tensor, batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    target = torch.randint(0, KEYWORDS, (batch,), generator=generator)
    feats = 0.5 * torch.randn(batch, FRAMES, MELS, generator=generator)
    begin = torch.randint(0, FRAMES - 6, (batch,), generator=generator)
    for row in range(batch):
        feats[row, begin[row] : begin[row] + 6] += words[target[row]]
    return feats, target


def build(bad: bool) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(14)
    OTHERS.clear()
    LOG.clear()
    generator = torch.Generator().manual_seed(16)
    words = torch.randn(KEYWORDS, 6, MELS, generator=generator)
    model = KWSModel()
    optimizer = torch.optim.Adam(model.parameters(), lr=8e-3)

    def step(i: int) -> None:
        feats, target = utterances(generator, words, 24)
        loss = max_pooling_loss(model(feats), target)
        if not bad:
            optimizer.zero_grad()
        loss.backward()
        clip_grad_norm_(model.parameters(), 50.0)
        optimizer.step()
        LOG.append(loss.item())

    return model, optimizer, step
