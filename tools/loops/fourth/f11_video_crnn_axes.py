"""HHTseng/video-classification#42: the LSTM decoder gets (batch, time, features) but was built time-first.

The class of a clip is the quarter in which a spot shows first; afterwards it jumps about.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

STEPS: int = 100
HISTORY: list[float] = []
BATCH, FRAMES, SIDE = 32, 4, 6


class EncoderCNN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.conv2 = nn.Conv2d(8, 8, 3, stride=2, padding=1)
        self.fc = nn.Linear(8 * 9, 24)

    def forward(self, clip: Tensor) -> Tensor:
        frames = []
        for t in range(clip.shape[1]):
            h = torch.relu(self.conv2(torch.relu(self.conv1(clip[:, t]))))
            frames.append(self.fc(h.flatten(1)))
        return torch.stack(frames, dim=1)


class DecoderRNN(nn.Module):
    def __init__(self, batch_first: bool) -> None:
        super().__init__()
        self.LSTM = nn.LSTM(24, 32, batch_first=batch_first)
        self.fc1 = nn.Linear(32, 4)

    def forward(self, x: Tensor) -> Tensor:
        out, _ = self.LSTM(x)
        return self.fc1(out[:, -1, :])


class Crnn(nn.Module):
    def __init__(self, batch_first: bool) -> None:
        super().__init__()
        self.cnn_encoder = EncoderCNN()
        self.rnn_decoder = DecoderRNN(batch_first)

    def forward(self, clip: Tensor) -> Tensor:
        return self.rnn_decoder(self.cnn_encoder(clip))


def clips() -> tuple[Tensor, Tensor]:
    label = torch.randint(0, 4, (BATCH,))
    where = torch.randint(0, SIDE, (BATCH, FRAMES, 2))
    half = SIDE // 2
    where[:, 0, 0] = torch.randint(0, half, (BATCH,)) + half * (label // 2)
    where[:, 0, 1] = torch.randint(0, half, (BATCH,)) + half * (label % 2)
    clip = 0.1 * torch.randn(BATCH, FRAMES, 1, SIDE, SIDE)
    b, t = torch.arange(BATCH)[:, None], torch.arange(FRAMES)[None, :]
    clip[b, t, 0, where[..., 0], where[..., 1]] += 4.0
    return clip, label


def build(bad: bool) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(6)
    HISTORY.clear()
    model = Crnn(batch_first=not bad)
    params = list(model.cnn_encoder.parameters()) + list(model.rnn_decoder.parameters())
    optimizer = torch.optim.Adam(params, lr=1e-2)

    def step(i: int) -> None:
        clip, label = clips()
        loss = nn.functional.cross_entropy(model(clip), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        HISTORY.append(loss.item())

    return model, optimizer, step
