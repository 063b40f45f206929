"""Trainings that people reported as not learning, rebuilt small from what they told; links are above each.

The rules were as they were when the first answers were taken: ten named, two "cannot tell", no wrong cause.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, lr_scheduler

from learn_parts import Cases, Conv, Loop, Reader, changed, checkered, counting, images, usual

CASES = Cases()
fault, healthy = CASES.fault, CASES.healthy


# discuss.pytorch.org/t/43814, the last answer: 2.30 for good, all weights negative, gradients 0
@fault("learning rate too high")
def negative_weights(bad: bool) -> Loop:
    net = nn.Sequential(Conv(), nn.ReLU())
    return usual(net, Adam(net.parameters(), 0.05 if bad else 1e-3), images())


# discuss.pytorch.org/t/43814, the first answer
@fault("loss input")
def softmax_before_entropy(bad: bool) -> Loop:
    net = nn.Sequential(Conv(), nn.Softmax(1) if bad else nn.Identity())
    return usual(net, SGD(net.parameters(), 0.02, momentum=0.9), images())


# discuss.pytorch.org/t/183958: 0.693 for thousands of steps of a warm-up, and then it learns
@healthy
def warms_up_for_long() -> Loop:
    net = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = Adam(net.parameters(), 1.0)
    schedule = lr_scheduler.LambdaLR(optimizer, lambda t: 0.1 * min((t + 1) ** -0.5, (t + 1) * 400**-1.5))
    batches = changed(checkered(), lambda x, y: (x, y[:, None].float()))
    return usual(net, optimizer, batches, F.binary_cross_entropy_with_logits, steps=120, schedule=schedule)


# discuss.pytorch.org/t/148155: the sum of three inputs, on all examples at once
@fault("loss input", mends=False)
def sum_of_three(bad: bool) -> Loop:
    x = torch.rand(1024, 3)
    net = nn.Linear(3, 1, bias=False)
    nn.init.zeros_(net.weight)
    return usual(net, SGD(net.parameters(), lr=0.1), lambda: (x, x.sum(1)), F.mse_loss)


# solofox.github.io, 2025-12-07: prices of houses, and no input tells of them
@fault("loss input", mends=False)
def prices_of_houses(bad: bool) -> Loop:
    x = 12 + 7 * torch.rand(500, 1)
    y = 35 - 0.95 * x[:, 0] + 3 * torch.randn(500)
    net = nn.Linear(1, 1)
    return usual(net, AdamW(net.parameters(), lr=0.05), lambda: (x, y), F.mse_loss, steps=400)


class Turned(nn.Module):
    """Cells that take the first dimension for the batch, where it is time."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.cells, self.head = nn.Embedding(4, 16), nn.LSTM(16, 32, batch_first=True), nn.Linear(32, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.cells(self.embed(x.T))[0])[-1]


# discuss.pytorch.org/t/62364: batch_first=True, and the input stays as it was
@fault("batch mixed")
def first_dimension_is_time(bad: bool) -> Loop:
    net = Turned() if bad else Reader()
    return usual(net, Adam(net.parameters(), 5e-3), counting(), steps=200)


# datafield.dev, chapter 12, case study 1: six sigmoids, softmax, eval(), no zero_grad(), a rate of 1e-4
@fault("loss input", "not cleared", "gradients vanish", mends=False)
def everything_at_once(bad: bool) -> Loop:
    layers = [part for _ in range(5) for part in (nn.Linear(144, 144), nn.Sigmoid())]
    net = nn.Sequential(nn.Flatten(), *layers, nn.Linear(144, 10), nn.Softmax(1)).eval()
    return usual(net, SGD(net.parameters(), lr=1e-4), images(), clear=False)


# taourl.com 2391810: noise learned by heart, at 1e-4; it falls as slowly as that
@healthy
def noise_by_heart() -> Loop:
    x, y = torch.randn(100, 10), torch.randn(100, 1)
    net = nn.Sequential(nn.Linear(10, 5), nn.ReLU(), nn.Linear(5, 1))
    return usual(net, SGD(net.parameters(), lr=1e-4), lambda: (x, y), F.mse_loss, steps=100)


# taourl.com 2179257: labels drawn at random
@fault("targets unrelated", mends=False)
def labels_at_random(bad: bool) -> Loop:
    x, y = torch.randn(1000, 10), torch.randint(0, 2, (1000,))
    net = nn.Sequential(nn.Linear(10, 5), nn.ReLU(), nn.Linear(5, 2))

    def batch() -> tuple[Tensor, Tensor]:
        places = torch.randint(0, 1000, (32,))
        return x[places], y[places]

    return usual(net, SGD(net.parameters(), lr=0.01), batch, steps=600)


# taourl.com 3025410: the optimizer hardly changes what it began with
@fault("learning rate too low", mends=False)
def rate_of_a_hundred_millionth(bad: bool) -> Loop:
    x, y = torch.randn(10, 2), torch.randn(10, 1)
    net = nn.Linear(2, 1)
    return usual(net, SGD(net.parameters(), lr=1e-8), lambda: (x, y), F.mse_loss, steps=100)


# taourl.com 3046856: the accuracy stays at a rate of a millionth
@fault("learning rate too low", mends=False)
def rate_of_a_millionth(bad: bool) -> Loop:
    net = nn.Sequential(nn.Linear(10, 2), nn.ReLU(), nn.Linear(2, 1))
    optimizer = SGD(net.parameters(), lr=1e-6)
    return usual(net, optimizer, lambda: (torch.randn(32, 10), torch.randn(32, 1)), F.mse_loss, steps=100)


# taourl.com 3046856, the second part: all weights begin as zeros
@fault("zero weights")
def all_zeros(bad: bool) -> Loop:
    net = nn.Sequential(nn.Flatten(), nn.Linear(144, 64), nn.ReLU(), nn.Linear(64, 10))
    for parameter in net.parameters() if bad else ():
        nn.init.zeros_(parameter)
    return usual(net, Adam(net.parameters(), 1e-3), images())
