"""Small models, data and loops of which ``bench_learn.py`` makes trainings with a fault, and healthy ones."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer

Pair = tuple[Any, Any]
Batches = Callable[[], Pair]


@dataclass
class Loop:
    """A training that is about to begin: the model that is watched, and what runs a number of its steps."""

    model: nn.Module
    run: Callable[[int], None]
    steps: int = 150
    optimizer: Optimizer | None = None


@dataclass
class Case:
    """A training. ``rules`` are those that name its fault, none where it is healthy; ``make(bad)`` builds it.

    A fault is built without it where ``bad`` is false, which is the change that the verdict should advise.
    """

    name: str
    rules: tuple[str, ...]
    make: Callable[[bool], Loop]
    mends: bool = True


@dataclass
class Cases:
    """The cases of one file, in order."""

    every: list[Case] = field(default_factory=list)

    def fault(self, *rules: str, mends: bool = True) -> Callable[[Callable[[bool], Loop]], Callable[[bool], Loop]]:
        """Add a training with a fault that one of the rules names."""

        def add(make: Callable[[bool], Loop]) -> Callable[[bool], Loop]:
            self.every.append(Case(make.__name__, rules, make, mends))
            return make

        return add

    def healthy(self, make: Callable[[], Loop]) -> Callable[[], Loop]:
        """Add a healthy training."""
        self.every.append(Case(make.__name__, (), lambda bad: make()))
        return make


# Data --------------------------------------------------------------------------------------------


def blobs(width: int = 20, classes: int = 5, noise: float = 1.0, size: int = 64) -> Batches:
    """Return batches of points around two centres for each class."""
    centres = 1.2 * torch.randn(2 * classes, width, generator=torch.Generator().manual_seed(11))

    def batch() -> Pair:
        which = torch.randint(0, 2 * classes, (size,))
        return centres[which] + noise * torch.randn(size, width), which % classes

    return batch


_PATTERNS = torch.randn(10, 1, 12, 12, generator=torch.Generator().manual_seed(7))


def images(size: int = 32) -> Batches:
    """Return batches of noisy copies of ten patterns of 12 × 12 pixels."""

    def batch() -> Pair:
        y = torch.randint(0, 10, (size,))
        return _PATTERNS[y] + 0.8 * torch.randn(size, 1, 12, 12), y

    return batch


_WORDS = (
    "the a one every no this that small large old new red green blue dark bright river stone house garden window door "
    "bird horse child teacher doctor sailor carries finds sees hides opens closes loses paints breaks mends slowly "
    "quickly "
    "often never again under over behind beside without during night morning winter summer and or but while because"
).split()


def _written(words: int) -> str:
    """Return a text in which a word tells something of the next one."""
    draw, at, found = random.Random(3), 0, []
    for count in range(words):
        at = (5 * at + draw.choice((1, 1, 2, 7))) % len(_WORDS)
        found.append(_WORDS[at] + (". " if count % 9 == 8 else " "))
    return "".join(found)


_TEXT = _written(6000)
LETTERS = sorted(set(_TEXT))
_IDS = torch.tensor([LETTERS.index(letter) for letter in _TEXT])


def text(size: int = 12, length: int = 24, ahead: int = 1) -> Batches:
    """Return batches of letters and of those that follow ``ahead`` places later."""

    def batch() -> Pair:
        starts = torch.randint(0, len(_IDS) - length - 4, (size,)).tolist()
        return (
            torch.stack([_IDS[i : i + length] for i in starts]),
            torch.stack([_IDS[i + ahead : i + length + ahead] for i in starts]),
        )

    return batch


def counting(size: int = 32, length: int = 10) -> Batches:
    """Return batches of sequences of four tokens, with the number of the last one of them, up to four."""

    def batch() -> Pair:
        x = torch.randint(0, 4, (size, length))
        return x, (x == 3).sum(1).clamp(max=4)

    return batch


def sums(size: int = 32, length: int = 6) -> Batches:
    """Return batches of sequences with two marked numbers, and their sum."""

    def batch() -> Pair:
        numbers, marks = torch.rand(size, length), torch.zeros(size, length)
        for row in marks:
            row[random.randrange(length // 2)] = row[length // 2 + random.randrange(length // 2)] = 1.0
        return torch.stack([numbers, marks], -1), (numbers * marks).sum(1, keepdim=True)

    return batch


def checkered(size: int = 64) -> Batches:
    """Return batches of points of which the class is the sign of a product: no line parts them."""

    def batch() -> Pair:
        x = torch.randn(size, 6)
        return x, (x[:, 0] * x[:, 1] > 0).long()

    return batch


def changed(batches: Batches, change: Callable[[Any, Any], Pair], bad: bool = True) -> Batches:
    """Return batches with a change, where ``bad``."""
    return (lambda: change(*batches())) if bad else batches


# Models ------------------------------------------------------------------------------------------


def mlp(width: int = 20, classes: int = 5, hidden: int = 64, layers: int = 2, act: Any = nn.ReLU) -> nn.Sequential:
    """Return a stack of linear layers with activations."""
    sizes = [width] + [hidden] * layers
    inner = [part for a, b in pairwise(sizes) for part in (nn.Linear(a, b), act())]
    return nn.Sequential(*inner, nn.Linear(hidden, classes))


class Conv(nn.Module):
    """Two convolutions and two linear layers."""

    def __init__(self, norm: bool = False, cut: bool = False) -> None:
        super().__init__()
        self.cut = cut
        self.first, self.second = nn.Conv2d(1, 16, 3, padding=1), nn.Conv2d(16, 24, 3, padding=1)
        self.norms = nn.ModuleList([nn.BatchNorm2d(16), nn.BatchNorm2d(24)]) if norm else None
        self.inner, self.head = nn.Linear(24 * 9, 48), nn.Linear(48, 10)

    def features(self, x: Tensor) -> Tensor:
        x = self.first(x)
        x = F.max_pool2d(torch.relu(x if self.norms is None else self.norms[0](x)), 2)
        x = self.second(x)
        return F.max_pool2d(torch.relu(x if self.norms is None else self.norms[1](x)), 2).flatten(1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.features(x)
        return self.head(torch.relu(self.inner(x.detach() if self.cut else x)))


class Mixer(nn.Module):
    """A block of a transformer."""

    def __init__(self, width: int, causal: bool, drop: float = 0.0) -> None:
        super().__init__()
        self.causal = causal
        self.norm_a, self.norm_b = nn.LayerNorm(width), nn.LayerNorm(width)
        self.into, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down, self.drop = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), nn.Dropout(drop)

    def forward(self, x: Tensor) -> Tensor:
        b, t, d = x.shape
        q, k, v = (one.view(b, t, 4, d // 4).transpose(1, 2) for one in self.into(self.norm_a(x)).split(d, -1))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal).transpose(1, 2).reshape(b, t, d)
        x = x + self.drop(self.out(mixed))
        return x + self.drop(self.down(F.gelu(self.up(self.norm_b(x)))))


class Writer(nn.Module):
    """A small GPT over letters."""

    def __init__(self, width: int = 48, layers: int = 2, letters: int = 0, causal: bool = True) -> None:
        super().__init__()
        letters = letters or len(LETTERS)
        self.tokens, self.places = nn.Embedding(letters, width), nn.Embedding(64, width)
        self.blocks = nn.Sequential(*[Mixer(width, causal) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, letters, bias=False)
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) + self.places.weight[: ids.shape[1]]
        return self.head(self.norm(self.blocks(x)))


class Patches(nn.Module):
    """A small vision transformer."""

    def __init__(self, width: int = 32, drop: float = 0.0) -> None:
        super().__init__()
        self.embed, self.places = nn.Conv2d(1, width, 4, 4), nn.Parameter(0.02 * torch.randn(1, 9, width))
        self.blocks = nn.Sequential(Mixer(width, False, drop), Mixer(width, False, drop))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(self.embed(x).flatten(2).transpose(1, 2) + self.places)
        return self.head(self.norm(x).mean(1))


class Reader(nn.Module):
    """An LSTM over tokens, or over numbers."""

    def __init__(self, tokens: int = 4, classes: int = 5, cut: bool = False) -> None:
        super().__init__()
        self.cut = cut
        self.embed = nn.Embedding(tokens, 16) if tokens else nn.Linear(2, 16)
        self.cells, self.head = nn.LSTM(16, 40, batch_first=True), nn.Linear(40, classes)

    def forward(self, x: Tensor) -> Tensor:
        last = self.cells(self.embed(x))[0][:, -1]
        return self.head(last.data if self.cut else last)


# Loops -------------------------------------------------------------------------------------------


def entropy(out: Tensor, y: Tensor) -> Tensor:
    """Return the cross entropy, also of sequences."""
    return F.cross_entropy(out.reshape(-1, out.shape[-1]), y.reshape(-1))


def sgd(model: nn.Module, rate: float = 0.02, **more: Any) -> SGD:
    """Return SGD with momentum."""
    return SGD(model.parameters(), lr=rate, momentum=0.9, **more)


def adam(model: nn.Module, rate: float = 3e-3, **more: Any) -> AdamW:
    """Return AdamW."""
    return AdamW(model.parameters(), lr=rate, **more)


def usual(
    model: nn.Module,
    optimizer: Optimizer,
    batches: Batches,
    loss: Callable[[Any, Any], Tensor] = entropy,
    *,
    steps: int = 150,
    clear: bool = True,
    parts: int = 1,
    schedule: Any = None,
    between: Callable[[], Any] = lambda: None,
    before: Callable[[], Any] = lambda: None,
    share: float = 1.0,
    watched: nn.Module | None = None,
) -> Loop:
    """Return the usual loop: a batch, the forward, the loss, the backward, the step."""

    def run(count: int) -> None:
        for _ in range(count):
            before()
            for _ in range(parts):
                x, y = batches()
                (loss(model(x), y) * share).backward()
            between()
            optimizer.step()
            if clear:
                optimizer.zero_grad()
            if schedule is not None:
                schedule.step()

    return Loop(watched or model, run, steps, optimizer)
