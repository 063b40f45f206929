"""fawazsammani/knowing-when-to-look-adaptive-attention#6: (B, C, H, W) features were viewed as (B, H*W, C).

Without a permute the channels stand in for the pixels, and the attention looks over nonsense.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

STEPS = 200
COLOURS, SHAPES, GRID = 4, 6, 4
OTHERS: list[torch.optim.Optimizer] = []
LOG: list[float] = []


class EncoderCNN(nn.Module):
    def __init__(self, channels: int, permute: bool) -> None:
        super().__init__()
        self.permute = permute
        self.stem = nn.Sequential(
            nn.Conv2d(COLOURS + SHAPES, 32, 1), nn.ReLU(), nn.Conv2d(32, channels, 1), nn.BatchNorm2d(channels)
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        encoded = self.stem(images)
        batch_size, features, height, width = encoded.shape
        if self.permute:
            encoded = encoded.permute(0, 2, 3, 1)
        return encoded.reshape(batch_size, height * width, features)


class VisualAttention(nn.Module):
    def __init__(self, channels: int, hidden: int) -> None:
        super().__init__()
        self.affine_v = nn.Linear(channels, hidden)
        self.affine_h = nn.Linear(hidden, hidden)
        self.affine_a = nn.Linear(hidden, 1)

    def forward(self, v: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        z = self.affine_a(torch.tanh(self.affine_v(v) + self.affine_h(h)[:, None])).squeeze(-1)
        return torch.einsum("bp,bpc->bc", F.softmax(z, dim=1), v)


class Captioner(nn.Module):
    def __init__(self, permute: bool, channels: int = 24, hidden: int = 32) -> None:
        super().__init__()
        self.encoder = EncoderCNN(channels, permute)
        self.embed = nn.Embedding(SHAPES, hidden)
        self.attention = VisualAttention(channels, hidden)
        self.mlp = nn.Linear(channels, COLOURS)

    def forward(self, images: torch.Tensor, word: torch.Tensor) -> torch.Tensor:
        return self.mlp(self.attention(self.encoder(images), self.embed(word)))


def scenes(generator: torch.Generator, batch: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    images = torch.zeros(batch, COLOURS + SHAPES, GRID * GRID)
    place = torch.rand(batch, GRID * GRID, generator=generator).argsort(dim=1)[:, :SHAPES]
    colour = torch.randint(0, COLOURS, (batch, SHAPES), generator=generator)
    rows = torch.arange(batch)[:, None]
    images[rows, colour, place] = 1.0
    images[rows, COLOURS + torch.arange(SHAPES)[None], place] = 1.0
    word = torch.randint(0, SHAPES, (batch,), generator=generator)
    return images.view(batch, -1, GRID, GRID), word, colour[torch.arange(batch), word]


def build(bad: bool) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(4)
    OTHERS.clear()
    LOG.clear()
    generator = torch.Generator().manual_seed(21)
    model = Captioner(permute=not bad)
    optimizer = torch.optim.Adam(model.parameters(), lr=8e-3)

    def step(i: int) -> None:
        images, word, answer = scenes(generator, 64)
        scores = model(images, word)
        loss = F.cross_entropy(scores, answer)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        LOG.append(loss.item())

    return model, optimizer, step
