"""Trainings after what people asked and told of in public threads, the second dozen of each; links are above each.

They were written without a look at the rules, from the threads alone; first answers are in docs/learning.md.
"""

from __future__ import annotations

import math
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import LBFGS, SGD, Adam, AdamW, lr_scheduler

from learn_parts import Cases, Conv, Loop, Pair, adam, blobs, images, mlp, sgd, usual

CASES = Cases()
fault, healthy = CASES.fault, CASES.healthy


def line(low: float = 1.07312, high: float = 20.38941, size: int = 64) -> Pair:
    """Return points of f(x) = x."""
    x = low + (high - low) * torch.rand(size, 1)
    return x, x


def funnel(last: nn.Module) -> nn.Sequential:
    """Return hidden layers of 100, 75, 50 and 25 units."""
    sizes = (1, 100, 75, 50, 25)
    hidden = [part for a, b in pairwise(sizes) for part in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*hidden, nn.Linear(25, 1), last)


def noisy_sine(size: int = 32, length: int = 20) -> Pair:
    """Return pieces of a sine with noise, and the number that follows each."""
    at = 200 * torch.rand(size, 1) + torch.arange(length + 1)
    wave = torch.sin(2 * math.pi * at / 10) + 0.2 * torch.randn(size, length + 1)
    return wave[:, :-1, None], wave[:, -1:]


class Sequences(nn.Module):
    """An LSTM whose last state is read; by default its first dimension is time."""

    def __init__(self, batch_first: bool, both: bool = False) -> None:
        super().__init__()
        self.cells = nn.LSTM(1, 32, batch_first=batch_first, bidirectional=both)
        self.head = nn.Linear(64 if both else 32, 1)
        self.both = both

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.cells(x)
        return self.head(states if self.both else states[:, -1])


# discuss.pytorch.org/t/106851: a rectifier at the output, which is negative for all inputs: stuck at 0
@fault("silent activation", "no gradient")
def rectified_output(bad: bool) -> Loop:
    net = funnel(nn.ReLU() if bad else nn.Identity())
    with torch.no_grad():
        net[-2].weight.mul_(0.1)
        net[-2].bias.fill_(-1.0)
    return usual(net, Adam(net.parameters(), 1e-3), line, F.mse_loss, steps=200)


# github.com/pytorch/pytorch/issues/63626: a narrow stack of seven layers, L1 loss and SGD: never below 0.3
@fault("learning rate too low", "gradients vanish")
def narrow_stack(bad: bool) -> Loop:
    sizes = (2, *[10] * 6)
    hidden = [part for a, b in pairwise(sizes) for part in (nn.Linear(a, b), nn.ReLU())]
    net = nn.Sequential(*hidden, nn.Linear(10, 1))

    def batch() -> Pair:
        x = torch.randn(64, 2)
        return x, torch.sin(x[:, :1] * x[:, 1:])

    optimizer = SGD(net.parameters(), 1e-3) if bad else Adam(net.parameters(), 1e-2)
    return usual(net, optimizer, batch, F.l1_loss, steps=200)


# github.com/sebastian-hofstaetter/matchmaker/issues/18: kl_div of probabilities on both sides
@fault("loss input")
def divergence_of_probabilities(bad: bool) -> Loop:
    net, made = mlp(), blobs()

    def batch() -> Pair:
        x, y = made()
        return x, F.softmax(6 * F.one_hot(y, 5).float(), -1)

    def loss(out: Tensor, y: Tensor) -> Tensor:
        return F.kl_div(F.softmax(out, -1) if bad else F.log_softmax(out, -1), y, reduction="batchmean")

    return usual(net, adam(net), batch, loss)


# github.com/facebookarchive/C3D/issues/75: the labels were left out of the list of files: all are 0
@fault("targets alike")
def labels_left_out(bad: bool) -> Loop:
    net, made = Conv(), images()
    return usual(net, sgd(net), (lambda: (made()[0], torch.zeros(32, dtype=torch.long))) if bad else made)


# taourl.com/read-2624309: an RNN takes (time, batch, …), and is given (batch, time, …)
@fault("batch mixed")
def time_and_batch_exchanged(bad: bool) -> Loop:
    net = Sequences(batch_first=not bad)
    return usual(net, adam(net), noisy_sine, F.mse_loss, steps=200)


# github.com/meetps/pytorch-semseg/issues/134: "set less learning rate"
@fault("learning rate too high")
def segmentation(bad: bool) -> Loop:
    net = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 3, 1)
    )

    def batch() -> Pair:
        x = torch.randn(8, 1, 12, 12)
        smooth = F.avg_pool2d(x, 3, 1, 1)[:, 0]
        return x, (smooth > 0.2).long() + (smooth > -0.2).long()

    return usual(net, SGD(net.parameters(), 8.0 if bad else 0.05, momentum=0.9), batch, F.cross_entropy)


# quaterion.qdrant.tech, the trick of the triplet loss: the hardest triplets, and all vectors become one
@fault("learning rate too high", "answers alike")
def triplets_collapse(bad: bool) -> Loop:
    net, made = mlp(classes=8), blobs(noise=2.5)

    def loss(out: Tensor, y: Tensor) -> Tensor:
        far = (out[:, None] - out[None]).square().sum(-1).clamp(min=1e-12).sqrt()
        same = y[:, None] == y[None]
        worst, nearest = far.where(same, far.new_zeros(())).amax(1), far.where(~same, far.new_full((), 1e9)).amin(1)
        if bad:
            return F.relu(worst - nearest + 1.0).mean()
        return F.relu((far * same).sum(1) / same.sum(1) - (far * ~same).sum(1) / (~same).sum(1) + 1.0).mean()

    return usual(net, AdamW(net.parameters(), 3e-2 if bad else 1e-3), made, loss)


# runebook.dev, StepLR: a schedule of epochs that is stepped after each batch
@fault("rate spent early")
def schedule_of_epochs(bad: bool) -> Loop:
    net = Conv()
    optimizer = SGD(net.parameters(), 0.02, momentum=0.9)
    schedule = lr_scheduler.StepLR(optimizer, 3, 0.3) if bad else None
    return usual(net, optimizer, images(), steps=150, schedule=schedule)


# engineersofai.com, PyTorch training loop: zero_grad() between backward() and step()
@fault("cleared before step")
def cleared_after_backward(bad: bool) -> Loop:
    net = Conv()
    optimizer = adam(net)
    return usual(net, optimizer, images(), between=optimizer.zero_grad if bad else lambda: None)


# taourl.com/read-1959901: weights of zero, and the same answer for all
@fault("zero weights", "gradient cut", "silent activation")
def zeros_everywhere(bad: bool) -> Loop:
    net = mlp()
    for parameter in net.parameters() if bad else ():
        nn.init.zeros_(parameter)
    return usual(net, sgd(net), blobs())


# imathworks.com, a network with outputs from 58 to 1696: the targets as they are
@fault("targets not scaled")
def large_targets(bad: bool) -> Loop:
    net = mlp(6, 1, 32)
    weights = torch.randn(6, 1, generator=torch.Generator().manual_seed(5))

    def batch() -> Pair:
        x = torch.randn(64, 6)
        y = torch.tanh(x @ weights / 2)
        return x, 200_000 + 60_000 * y if bad else y

    return usual(net, Adam(net.parameters(), 1e-3), batch, F.mse_loss)


# datarekha.com, step 3: what the loss does itself is done before it
@fault("loss input")
def sigmoid_twice(bad: bool) -> Loop:
    net = nn.Sequential(mlp(classes=1), nn.Sigmoid() if bad else nn.Identity())
    made = blobs(classes=2)

    def batch() -> Pair:
        x, y = made()
        return x, y[:, None].float()

    return usual(net, sgd(net), batch, F.binary_cross_entropy_with_logits)


# stats.stackexchange.com/q/441750: random numbers through an autoencoder: the loss does not reach zero
@healthy
def random_numbers_again() -> Loop:
    net = nn.Sequential(nn.Linear(30, 60), nn.ReLU(), nn.Linear(60, 60), nn.ReLU(), nn.Linear(60, 30), nn.Sigmoid())

    def batch() -> Pair:
        x = torch.rand(128, 30)
        return x, x

    return usual(net, Adam(net.parameters(), 3e-3), batch, F.binary_cross_entropy, steps=200)


# discuss.mxnet.apache.org/t/6483: a sine with noise, of which the noise stays
@healthy
def sine_with_noise() -> Loop:
    net = Sequences(batch_first=True)
    return usual(net, adam(net), noisy_sine, F.mse_loss, steps=200)


# explaintopic.com, triplets drawn at random: most are easy, and their loss is 0
@healthy
def triplets_at_random() -> Loop:
    net, made = mlp(classes=8), blobs()

    def loss(out: Tensor, y: Tensor) -> Tensor:
        anchors = torch.arange(len(y))
        same, other = (anchors + 1) % len(y), (anchors + 7) % len(y)
        fits = (y == y[same]) & (y != y[other])
        return F.triplet_margin_loss(out[fits], out[same][fits], out[other][fits]) if fits.any() else out.sum() * 0

    return usual(net, AdamW(net.parameters(), 1e-3), made, loss)


# github.com/pytorch/pytorch/issues/847: two nets against each other, each with its LBFGS
@healthy
def two_against_each_other() -> Loop:
    one, two = nn.Sequential(nn.Linear(4, 1), nn.Sigmoid()), nn.Sequential(nn.Linear(4, 1), nn.Sigmoid())
    both = nn.ModuleList([one, two])
    optimizers = [LBFGS(net.parameters(), lr=0.1, max_iter=5) for net in (one, two)]
    x = torch.randn(32, 4)
    goal = torch.sigmoid(x[:, :1])

    def run(steps: int) -> None:
        for _ in range(steps):
            for mine, (net, other) in zip(optimizers, ((one, two), (two, one))):

                def closure(mine: LBFGS = mine, net: nn.Module = net, other: nn.Module = other) -> Tensor:
                    mine.zero_grad()
                    loss = F.mse_loss(net(x) + 0.3 * other(x).detach(), goal)
                    loss.backward()
                    return loss

                mine.step(closure)

    return Loop(both, run, 40)


# engineersofai.com: clipping and one cycle of the learning rate
@healthy
def clipped_one_cycle() -> Loop:
    net = Conv(norm=True)
    optimizer = AdamW(net.parameters(), 1e-3)
    schedule = lr_scheduler.OneCycleLR(optimizer, 5e-3, total_steps=160)

    def clip() -> None:
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)

    return usual(net, optimizer, images(), steps=150, schedule=schedule, between=clip)


# the same: four small batches for each step, in bfloat16
@healthy
def accumulated_in_bfloat16() -> Loop:
    net = Conv()
    optimizer, made = adam(net), images(8)

    def run(steps: int) -> None:
        for _ in range(steps):
            for _ in range(4):
                x, y = made()
                with torch.autocast("cpu", torch.bfloat16):
                    loss = F.cross_entropy(net(x), y) / 4
                loss.backward()
            optimizer.step()
            optimizer.zero_grad()

    return Loop(net, run, 120, optimizer)


# runebook.dev: a schedule that lowers the rate where the loss stays
@healthy
def rate_falls_on_plateaus() -> Loop:
    net, made = mlp(), blobs(noise=1.5)
    optimizer = sgd(net, 0.05)
    schedule = lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.3, patience=8)

    def run(steps: int) -> None:
        for _ in range(steps):
            x, y = made()
            loss = F.cross_entropy(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step(loss.item())

    return Loop(net, run, 200, optimizer)


# datarekha.com, step 1: one batch by heart, to see that the model can learn at all
@healthy
def one_batch_by_heart() -> Loop:
    net, batch = Conv(), images()()
    return usual(net, adam(net, 1e-3), lambda: batch, steps=200)


# discuss.pytorch.org/t/106851: the same line with softplus at the output
@healthy
def softplus_output() -> Loop:
    net = funnel(nn.Softplus())
    return usual(net, Adam(net.parameters(), 1e-3), line, F.mse_loss, steps=200)


# github.com/pytorch/pytorch/issues/52879: a code is sought for which a net that stays as it is gives an answer
@healthy
def code_of_a_frozen_net() -> Loop:
    class Sought(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.maker = mlp(16, 64, 64).requires_grad_(False)
            self.code = nn.Parameter(torch.randn(16))

        def forward(self) -> Tensor:
            return self.maker(self.code)

    net = Sought()
    with torch.no_grad():
        wanted = net.maker(torch.randn(16))
    optimizer = Adam([net.code], 0.05)

    def run(steps: int) -> None:
        for _ in range(steps):
            optimizer.zero_grad()
            (net() - wanted).square().sum().backward()
            optimizer.step()

    return Loop(net, run, 150, optimizer)


# discuss.pytorch.org/t/175731: an LSTM in both directions, to each number the four that follow
@healthy
def both_directions() -> Loop:
    net = Sequences(batch_first=True, both=True)

    def batch() -> Pair:
        at = 200 * torch.rand(32, 1) + torch.arange(12)
        wave = torch.sin(at / 3)[..., None]
        return wave[:, :8], wave[:, 4:]

    return usual(net, adam(net), batch, F.mse_loss, steps=150)


# github.com/timesler/facenet-pytorch/issues/194: only the logits of a net that has learned before
@healthy
def only_the_logits() -> Loop:
    net = Conv()
    usual(net, adam(net), images()).run(80)
    net.requires_grad_(False)
    net.head = nn.Linear(48, 10)
    return usual(net, Adam(net.head.parameters(), 3e-3), images())
