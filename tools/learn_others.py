"""Nine more trainings of other kinds, after public threads, written once the rules for another's blind set were there.

First answers, with the rules as they were: see docs/learning.md. Links are above each.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import SGD, lr_scheduler

from learn_parts import LETTERS, Cases, Loop, Mixer, Pair, adam, blobs, mlp, text, usual

CASES = Cases()
fault, healthy = CASES.fault, CASES.healthy


# github.com/tom-roddick/oft/issues/6: a line left from a test, only one of three losses is minimised
@fault("gradient cut")
def only_the_score_is_minimised(bad: bool) -> Loop:
    class Detector(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Linear(20, 48)
            self.score, self.place, self.size = nn.Linear(48, 5), nn.Linear(48, 2), nn.Linear(48, 3)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            x = torch.relu(self.body(x))
            return self.score(x), self.place(x), self.size(x)

    net = Detector()

    def loss(answer: tuple[Tensor, ...], y: Tensor) -> Tensor:
        score, place, size = answer
        terms = [
            F.cross_entropy(score, y),
            F.mse_loss(place, y[:, None] / torch.tensor([5.0, -5.0])),
            size.square().mean(),
        ]
        return terms[0] if bad else sum(terms)  # type: ignore[return-value]

    return usual(net, adam(net), blobs(), loss)


class Tied(nn.Module):
    """A small GPT whose head is its table of letters."""

    def __init__(self, deviation: float) -> None:
        super().__init__()
        self.tokens, self.blocks = nn.Embedding(len(LETTERS), 48), Mixer(48, True)
        self.norm, self.head = nn.LayerNorm(48), nn.Linear(48, len(LETTERS), bias=False)
        nn.init.normal_(self.tokens.weight, std=deviation)
        self.head.weight = self.tokens.weight

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(self.tokens(ids))))


# github.com/pytorch/pytorch/issues/3121: torch draws tables with a deviation of 1, here one that is the head, too
@fault("weights too large")
def table_is_the_head(bad: bool) -> Loop:
    net = Tied(3.0 if bad else 0.02)
    return usual(net, adam(net, 1e-3), text(), steps=60)


# github.com/deepinsight/insightface/issues/1370 and others: cosines as logits, without a scale
@fault("logits bounded")
def cosines_without_scale(bad: bool) -> Loop:
    class Cosines(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.means = mlp(20, 32), nn.Parameter(torch.randn(10, 32))

        def forward(self, x: Tensor) -> Tensor:
            return (1 if bad else 16) * F.normalize(self.body(x), dim=1) @ F.normalize(self.means, dim=1).T

    net = Cosines()
    return usual(net, adam(net), blobs(classes=10), steps=200)


# discuss.pytorch.org, "tanh before cross entropy"
@fault("logits bounded")
def tanh_before_entropy(bad: bool) -> Loop:
    net = nn.Sequential(mlp(classes=10), nn.Tanh() if bad else nn.Identity())
    return usual(net, adam(net), blobs(classes=10), steps=200)


def _wave() -> Pair:
    x = torch.rand(64, 1) * 6
    return x, 2 * torch.sin(x)


# stackoverflow.com, "regression predicts only positive numbers": a ReLU is the last layer
@fault("targets out of reach")
def rectified_answers(bad: bool) -> Loop:
    net = nn.Sequential(nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 1), nn.ReLU() if bad else nn.Identity())
    return usual(net, adam(net, 1e-2), _wave, F.mse_loss, steps=400)


# the same with a sigmoid
@fault("targets out of reach")
def squashed_answers(bad: bool) -> Loop:
    net = nn.Sequential(nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 1), nn.Sigmoid() if bad else nn.Identity())
    return usual(net, adam(net, 1e-2), _wave, F.mse_loss, steps=400)


# github.com/pytorch/pytorch issues on ReduceLROnPlateau: mode="max" of a loss lowers the rate while it learns
@fault("rate spent early")
def plateau_of_the_wrong_mode(bad: bool) -> Loop:
    net = mlp(classes=10)
    optimizer = SGD(net.parameters(), lr=0.02)
    schedule = lr_scheduler.ReduceLROnPlateau(optimizer, mode="max" if bad else "min", patience=2 if bad else 20)
    batches = blobs(classes=10, noise=2.0)

    def run(count: int) -> None:
        for _ in range(count):
            x, y = batches()
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            schedule.step(loss.item())

    return Loop(net, run, 200, optimizer)


# runebook.dev on ctc_loss: (batch, time, classes) where it takes (time, batch, classes)
@fault("batch mixed", "loss input", mends=False)
def ctc_takes_the_batch_for_time(bad: bool) -> Loop:
    class Hears(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cells, self.head = nn.GRU(8, 48, batch_first=True), nn.Linear(48, 6)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.cells(x)[0]).log_softmax(2)

    net = Hears()
    tones = torch.randn(6, 8)

    def batch() -> Pair:
        y = torch.randint(1, 6, (20, 4))
        return tones[y].repeat_interleave(5, 1) + 0.3 * torch.randn(20, 20, 8), y

    def loss(logs: Tensor, y: Tensor) -> Tensor:
        lengths = torch.full((20,), 20), torch.full((20,), 4)
        return F.ctc_loss(logs if bad else logs.transpose(0, 1), y, *lengths)

    return usual(net, adam(net), batch, loss, steps=300)


# discuss.pytorch.org, "dropout after the last layer"
@fault("answers dropped")
def answers_are_dropped(bad: bool) -> Loop:
    net = nn.Sequential(mlp(20, 1), nn.Dropout(0.5) if bad else nn.Identity())
    weights = torch.randn(20, 1) / 4
    return usual(net, adam(net), lambda: (x := torch.randn(64, 20), 3 + x @ weights), F.mse_loss, steps=300)


# Healthy ones like them --------------------------------------------------------------------------


@healthy
def rain_is_never_below_zero() -> Loop:
    net = nn.Sequential(nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 1), nn.Softplus())
    return usual(net, adam(net, 1e-2), lambda: (lambda x, y: (x, y.relu() + 0.1))(*_wave()), F.mse_loss, steps=300)


@healthy
def pixels_by_a_sigmoid() -> Loop:
    net = nn.Sequential(nn.Linear(20, 48), nn.ReLU(), nn.Linear(48, 20), nn.Sigmoid())

    def batch() -> Pair:
        x = (torch.randn(64, 4) @ torch.randn(4, 20, generator=torch.Generator().manual_seed(3)) > 0).float()
        return x, x

    return usual(net, adam(net), batch, F.mse_loss, steps=300)


@healthy
def cosines_with_a_scale() -> Loop:
    class Cosines(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.means = mlp(20, 32), nn.Parameter(torch.randn(5, 32))

        def forward(self, x: Tensor) -> Tensor:
            return 20 * F.normalize(self.body(x), dim=1) @ F.normalize(self.means, dim=1).T

    net = Cosines()
    return usual(net, adam(net), blobs(), steps=150)
