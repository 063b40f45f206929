"""A training is equal to the last bit with and without watch: losses, weights, buffers, states, random numbers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import fxdebug

STEPS = 24  # several looks at the innermost calls, and measured steps among them


class Net(nn.Module):
    """A net with two players, dropout, and a normalisation with buffers."""

    def __init__(self, *, checkpointed: bool = False) -> None:
        super().__init__()
        self.maker = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2))
        self.judge = nn.Linear(16, 4)
        self.checkpointed = checkpointed

    def forward(self, x: Tensor) -> Tensor:
        made = checkpoint(self.maker, x, use_reentrant=False) if self.checkpointed else self.maker(x)
        judged: Tensor = self.judge(made)
        return judged


def batch(step: int) -> tuple[Tensor, Tensor]:
    x = torch.randn(16, 8, generator=torch.Generator().manual_seed(step))
    return x, (x[:, :4].argmax(1))


Way = Callable[[nn.Module], tuple[list[Tensor], list[Any]]]
WAYS: dict[str, Way] = {}


def way(function: Way) -> Way:
    """Register a loop; it returns its losses, and what has a state besides the model."""
    WAYS[function.__name__] = function
    return function


@way
def autocast_and_a_scaler(net: nn.Module) -> tuple[list[Tensor], list[Any]]:
    optimizer, scaler = torch.optim.AdamW(net.parameters()), torch.amp.GradScaler("cpu", init_scale=2.0**120)
    losses = []
    for step in range(STEPS):
        x, y = batch(step)
        with torch.autocast("cpu", torch.bfloat16):
            loss = F.cross_entropy(net(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return losses, [optimizer.state_dict(), scaler.state_dict()]


def accumulated(net: nn.Module) -> tuple[list[Tensor], list[Any]]:
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    losses = []
    for step in range(3 * STEPS):
        x, y = batch(step)
        loss = F.cross_entropy(net(x), y) / 3
        loss.backward()
        losses.append(loss.detach())
        if step % 3 == 2:
            optimizer.step()
            schedule.step()
            optimizer.zero_grad(set_to_none=False)
    return losses, [optimizer.state_dict()]


WAYS["accumulated"] = WAYS["accumulated and checkpointed"] = accumulated


@way
def compiled(net: nn.Module) -> tuple[list[Tensor], list[Any]]:
    torch.compiler.reset()
    return accumulated(torch.compile(net, backend="aot_eager"))  # type: ignore[arg-type]


@way
def second_order(net: nn.Module) -> tuple[list[Tensor], list[Any]]:
    optimizer = torch.optim.LBFGS(net.parameters(), lr=0.5, max_iter=4, line_search_fn="strong_wolfe")
    losses = []
    for step in range(6):
        x, y = batch(step)

        def closure(x: Tensor = x, y: Tensor = y) -> Tensor:
            optimizer.zero_grad()
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            losses.append(loss.detach())
            return loss

        optimizer.step(closure)  # type: ignore[arg-type]
    return losses, [optimizer.state_dict()]


@way
def two_players(net: nn.Module) -> tuple[list[Tensor], list[Any]]:
    optimizers = [torch.optim.Adam(part.parameters(), 1e-2, betas=(0.5, 0.9)) for part in (net.maker, net.judge)]  # type: ignore[union-attr]
    losses = []
    for step in range(STEPS):
        x, y = batch(step)
        for turn, optimizer in enumerate(optimizers):
            noise = 0.1 * torch.randn_like(x)
            loss = F.cross_entropy(net(x + noise), (y + turn) % 4)
            net.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
    return losses, [optimizer.state_dict() for optimizer in optimizers]


def told(value: Any) -> Any:
    """Return a state as plain values, in which tensors are their bits."""
    if isinstance(value, Tensor):
        return value.shape, value.dtype, value.detach().contiguous().flatten().view(torch.uint8).tolist()
    if isinstance(value, dict):
        return {key: told(one) for key, one in value.items()}
    return [told(one) for one in value] if isinstance(value, (list, tuple)) else value


def run(name: str, *, watched: bool) -> Any:
    torch.manual_seed(0)
    net = Net(checkpointed="checkpointed" in name)
    threads, modes = torch.get_num_threads(), torch.is_grad_enabled()
    context = fxdebug.watch(net, save=None, every=5, tries=True) if watched else contextlib.nullcontext()
    with context as watch:
        losses, states = WAYS[name](net)
        if watch is not None:
            assert len(watch.steps) >= 6 and watch.verdict().sentence
    assert (torch.get_num_threads(), torch.is_grad_enabled()) == (threads, modes)
    return told([losses, net.state_dict(), states, torch.get_rng_state()])


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.filterwarnings("ignore")
def test_a_training_is_the_same_to_the_last_bit_with_and_without(name: str) -> None:
    assert run(name, watched=True) == run(name, watched=False)
