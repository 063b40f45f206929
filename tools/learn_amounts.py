"""One training for each mistake in what counts how much, and whole data in one batch, masks, and numbers that drift."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import SGD, Optimizer
from torch.optim.lr_scheduler import LambdaLR, StepLR

from learn_parts import Cases, Loop, Pair, adam, blobs, entropy, images, mlp, sgd, usual

CASES = Cases()
fault, healthy = CASES.fault, CASES.healthy


def _loop(
    net: nn.Module, loss: Callable[[int], Tensor], optimizer: Optimizer, steps: int = 150,
    after: Callable[[], Any] = int,
) -> Loop:  # fmt: skip
    """Return a loop in which each step lowers a loss."""

    def run(count: int) -> None:
        for number in range(count):
            optimizer.zero_grad()
            loss(number).backward()
            optimizer.step()
            after()

    return Loop(net, run, steps, optimizer)


# The way of a step -------------------------------------------------------------------------------


@fault("steps uphill")
def a_line_that_goes_on_below_zero(bad: bool) -> Loop:
    net, batch = mlp(), blobs()
    optimizer = SGD(net.parameters(), lr=0.05)
    schedule = LambdaLR(optimizer, lambda step: 1 - step / (60 if bad else 160))

    def loss(number: int) -> Tensor:
        x, y = batch()
        return F.cross_entropy(net(x), y)

    return _loop(net, loss, optimizer, after=schedule.step)


class Planned(Optimizer):
    """Steps of a sign with momentum and a schedule of their own, which knows no end."""

    def __init__(self, params: Any, rate: float, steps: int) -> None:
        super().__init__(params, {"rate": rate, "steps": steps})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                state["m"] = 0.8 * state.get("m", torch.zeros_like(p)) + 0.2 * p.grad
                state["n"] = state.get("n", 0) + 1
                p.sub_(group["rate"] * (1 - state["n"] / group["steps"]) * state["m"].sign())


@fault("steps uphill")
def an_optimizer_that_plans_too_few_steps(bad: bool) -> Loop:
    net = nn.Sequential(nn.Flatten(), mlp(144, 10))
    return usual(net, Planned(net.parameters(), 2e-3, 50 if bad else 160), images())


@healthy
def a_heavy_ball() -> Loop:
    net = nn.Linear(6, 1)
    x = torch.randn(128, 6)
    y = x @ torch.randn(6, 1)
    return _loop(net, lambda number: F.mse_loss(net(x), y), SGD(net.parameters(), lr=2e-4, momentum=0.99), 260)


class Parts(nn.Module):
    """Two nets that the loop calls by themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = mlp(20, 16), nn.Linear(16, 5)


@fault("no step")
def a_schedule_in_place_of_the_step(bad: bool) -> Loop:
    net, batch = Parts(), blobs()
    optimizer = adam(net)
    schedule = StepLR(optimizer, 100)

    def run(count: int) -> None:
        for _ in range(count):
            x, y = batch()
            optimizer.zero_grad()
            F.cross_entropy(net.other(net.one(x).relu()), y).backward()
            if not bad:
                optimizer.step()
            schedule.step()

    return Loop(net, run, 100)


# What counts how much ----------------------------------------------------------------------------


class Coder(nn.Module):
    """A variational autoencoder of rows."""

    def __init__(self, width: int = 24, code: int = 4) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(width, 48), nn.Tanh(), nn.Linear(48, 2 * code))
        self.outer = nn.Sequential(nn.Linear(code, 48), nn.Tanh(), nn.Linear(48, width))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean, log_variance = self.inner(x).chunk(2, 1)
        return self.outer(mean + (0.5 * log_variance).exp() * torch.randn_like(mean)), mean, log_variance


_WAYS = torch.randn(4, 24, generator=torch.Generator().manual_seed(8)) * 0.5


def _coded(told: Callable[[Tensor, Tensor], Tensor], weight: float = 1.0) -> Loop:
    net = Coder()

    def loss(number: int) -> Tensor:
        x = torch.randn(64, 4) @ _WAYS + 0.05 * torch.randn(64, 24)
        made, mean, log = net(x)
        prior = -0.5 * (1 + log - mean.pow(2) - log.exp()).sum(1).mean()
        return told(made, x) + weight * prior

    return _loop(net, loss, adam(net, 3e-3), 250)


@fault("term outweighed", "answers alike")
def an_error_averaged_beside_a_code_summed(bad: bool) -> Loop:
    return _coded(F.mse_loss if bad else lambda made, x: (made - x).square().sum(1).mean())


@fault("term outweighed", "answers alike")
def squares_averaged_beside_a_code_summed(bad: bool) -> Loop:
    return _coded(lambda made, x: 2 * (made - x).pow(2).mean(1).mean() if bad else 2 * (made - x).pow(2).sum(1).mean())


@fault("term outweighed", "answers alike")
def an_entropy_averaged_beside_a_code_summed(bad: bool) -> Loop:
    net = Coder()
    way = "mean" if bad else "sum"

    def loss(number: int) -> Tensor:
        x = (torch.randn(64, 4) @ _WAYS > 0).float()
        made, mean, log = net(x)
        told = F.binary_cross_entropy(made.sigmoid(), x, reduction=way)
        return told - 0.5 * (1 + log - mean.pow(2) - log.exp()).sum(1).sum() / (64 if bad else 1)

    return _loop(net, loss, adam(net, 3e-3), 250)


@healthy
def a_code_that_is_weighed_down() -> Loop:
    return _coded(F.mse_loss, 1 / 240)


class Flow(nn.Module):
    """Couplings that go from data to noise, or from noise to data."""

    def __init__(self, inverse: bool) -> None:
        super().__init__()
        self.nets, self.inverse = nn.ModuleList([mlp(2, 4, 24) for _ in range(4)]), inverse

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        volume = x.new_zeros(len(x))
        for number, net in enumerate(self.nets):
            one, other = x.chunk(2, 1) if number % 2 else x.chunk(2, 1)[::-1]
            shift, scale = net(one).chunk(2, 1)
            scale = scale.tanh()
            if self.inverse:
                other, volume = (other - shift) * torch.exp(-scale), volume - scale.sum(1)
            else:
                other, volume = other * scale.exp() + shift, volume + scale.sum(1)
            x = torch.cat([one, other], 1)
        return x, volume


def _flowing(sign: float, inverse: bool) -> Loop:
    net = Flow(inverse)

    def loss(number: int) -> Tensor:
        x = torch.randn(96, 4) * torch.tensor([0.3, 1.0, 2.0, 0.5]) + 1
        z, volume = net(x)
        return -(-0.5 * z.pow(2).sum(1) - 2 * math.log(2 * math.pi) + sign * volume).mean()

    return _loop(net, loss, adam(net), 150)


@fault("wrong sign")
def a_volume_that_is_subtracted(bad: bool) -> Loop:
    return _flowing(-1.0 if bad else 1.0, False)


@fault("wrong sign")
def a_volume_of_the_way_back_that_is_subtracted(bad: bool) -> Loop:
    return _flowing(-1.0 if bad else 1.0, True)


@healthy
def a_spread_that_is_learned() -> Loop:
    net = mlp(8, 2)

    def loss(number: int) -> Tensor:
        x = torch.randn(64, 8)
        mean, log = net(x).chunk(2, 1)
        apart = (x[:, :1] + 0.1 * torch.randn(64, 1) - mean) / log.exp()
        return (0.5 * apart.pow(2) + log).mean()

    return _loop(net, loss, adam(net))


@healthy
def a_scale_with_a_penalty() -> Loop:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net, self.scale = mlp(8, 1), nn.Parameter(torch.zeros(1))

        def forward(self, x: Tensor) -> Tensor:
            return self.net(x) * self.scale.exp()

    net = Scaled()

    def loss(number: int) -> Tensor:
        x = torch.randn(64, 8)
        return (net(x) - 3 * x[:, :1]).pow(2).mean() + 1e-3 * net.scale.sum()

    return _loop(net, loss, adam(net))


class Speller(nn.Module):
    """Reads rows of places, of which each shows a letter or nothing."""

    def __init__(self, bad: bool) -> None:
        super().__init__()
        self.net, self.bad = mlp(8, 5), bad

    def forward(self, x: Tensor) -> Tensor:
        made = self.net(x)
        return made.softmax(-1) if self.bad else made


@fault("loss input")
def shares_for_logits_of_ctc(bad: bool) -> Loop:
    net, shapes = Speller(bad), torch.randn(4, 8, generator=torch.Generator().manual_seed(2))

    def loss(number: int) -> Tensor:
        words = torch.randint(0, 4, (32, 3))
        x = torch.zeros(32, 6, 8)
        x[:, ::2] = shapes[words]
        logs = net(x + 0.1 * torch.randn_like(x)).log_softmax(-1).transpose(0, 1)
        return F.ctc_loss(logs, words + 1, torch.full((32,), 6), torch.full((32,), 3))

    return _loop(net, loss, adam(net))


@fault("logits bounded")
def logits_behind_a_relu(bad: bool) -> Loop:
    net = nn.Sequential(nn.Flatten(), mlp(144, 10), *([nn.ReLU()] if bad else []))
    return usual(net, sgd(net, 0.05), images(), entropy, steps=150)


class Spread(nn.Module):
    """Two rounds over the neighbours of a graph."""

    def __init__(self, width: int = 12) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(width, 16), nn.Linear(16, 3)

    def forward(self, x: Tensor, near: Tensor) -> Tensor:
        return near @ self.two((near @ self.one(x)).relu())


def _graph() -> tuple[Tensor, Tensor, Tensor]:
    draw = torch.Generator().manual_seed(4)
    kinds = torch.arange(60) % 3
    together = kinds[:, None] == kinds[None]
    linked = torch.rand(60, 60, generator=draw) < torch.where(together, 0.3, 0.03)
    linked = (linked | linked.T).float().fill_diagonal_(1)
    return torch.randn(60, 12, generator=draw) + F.one_hot(kinds, 12), linked, kinds


@fault("inputs not normalised")
def neighbours_multiplied_by_their_number(bad: bool) -> Loop:
    net, (x, linked, kinds) = Spread(), _graph()
    root = linked.sum(1).sqrt()
    near = root[:, None] * linked * root if bad else linked / root[:, None] / root
    return _loop(net, lambda number: F.cross_entropy(net(x, near), kinds), adam(net), 120)


@healthy
def a_graph_of_sums() -> Loop:
    net, (x, linked, kinds) = Spread(), _graph()
    return _loop(net, lambda number: F.cross_entropy(net(x, linked), kinds), adam(net, 1e-3), 200)


class Noised(nn.Module):
    """A denoiser that draws its noise, and returns its loss."""

    def __init__(self, level: float) -> None:
        super().__init__()
        self.net, self.level = mlp(9, 8, 64), level

    def forward(self, x: Tensor) -> Tensor:
        x = (x - 300) / 60 if not self.level else x
        time, noise = torch.rand(len(x), 1), torch.randn_like(x)
        return F.mse_loss(self.net(torch.cat([(1 - time).sqrt() * x + time.sqrt() * noise, time], 1)), noise)


@fault("inputs not normalised")
def noise_that_drowns(bad: bool) -> Loop:
    net = Noised(1.0 if bad else 0.0)
    points = 300 + 60 * torch.randn(40, 8, generator=torch.Generator().manual_seed(6))
    return _loop(net, lambda number: net(points[torch.randint(0, 40, (64,))]), adam(net, 2e-3), 200)


# Copies, masks, and all of the data at once ------------------------------------------------------


class Team(nn.Module):
    """What each of two does, and what both together are worth."""

    def __init__(self) -> None:
        super().__init__()
        self.each, self.both = mlp(6, 2, 32), Together()


class Together(nn.Module):
    """Adds up two values by weights that are none below 0."""

    def __init__(self) -> None:
        super().__init__()
        self.weigh, self.move = nn.Linear(12, 2), mlp(12, 1, 16)

    def forward(self, values: Tensor, state: Tensor) -> Tensor:
        return (values * self.weigh(state).abs()).sum(1, keepdim=True) + self.move(state)


@fault("copy stays")
def a_copy_of_a_part_that_stays(bad: bool) -> Loop:
    net = Team()
    each, both = copy.deepcopy(net.each), copy.deepcopy(net.both)

    def loss(number: int) -> Tensor:
        if number % 15 == 0:
            each.load_state_dict(net.each.state_dict())
            (both if bad else net.both).state_dict()
            both.load_state_dict((both if bad else net.both).state_dict())
        at, does = torch.randint(0, 6, (64, 2)), torch.randint(0, 2, (64, 2))
        to = (at + 2 * does - 1).clamp(0, 5)
        done = (to == 5).all(1, keepdim=True).float()
        state, following = (F.one_hot(one, 6).float() for one in (at, to))
        value = net.both(net.each(state).gather(2, does[..., None])[..., 0], state.flatten(1))
        with torch.no_grad():
            after = both(each(following).max(2).values, following.flatten(1))
        return F.mse_loss(value, done + 0.9 * (1 - done) * after)

    return _loop(net, loss, adam(net), 200)


@healthy
def labels_of_its_own_that_are_all_masked() -> Loop:
    net, batch = mlp(), blobs()

    def loss(number: int) -> Tensor:
        x, y = batch()
        more = net(batch()[0])
        share, guess = more.detach().softmax(1).max(1)
        each = F.cross_entropy(more, guess, reduction="none")
        return F.cross_entropy(net(x), y) + (each * (share > 0.9999999).float()).mean()

    return _loop(net, loss, adam(net))


@healthy
def a_mask_of_ones() -> Loop:
    net = mlp()

    def loss(out: Tensor, y: Tensor) -> Tensor:
        each, mask = out.log_softmax(1).gather(1, y[:, None])[:, 0], torch.ones(len(y))
        return -(each * mask).sum() / mask.sum()

    return usual(net, adam(net), blobs(), loss)


@healthy
def inputs_that_grow_harder() -> Loop:
    """A walk whose states spread as what is taught goes on."""
    net, drawn = mlp(4, 1), [0]

    def batch() -> Pair:
        drawn[0] += 1
        x = torch.randn(8, 4) * (0.08 + 0.9 * drawn[0] / 100) * (0.3 + torch.rand(1))
        return x, (x**2).sum(1, keepdim=True).sqrt()

    return usual(net, adam(net), batch, F.mse_loss)


@healthy
def a_table_in_one_batch() -> Loop:
    net = mlp(4, 1, 16)
    x = torch.randn(30, 4)
    return _loop(net, lambda number: F.mse_loss(net(x), x[:, :1] * x[:, 1:2]), adam(net, 3e-3), 100)


@healthy
def a_table_with_a_floor() -> Loop:
    """All of the data in one batch, fast at first, and down to what cannot be told."""
    net = nn.Linear(3, 1)
    torch.nn.init.normal_(net.weight, std=0.05)
    x, y = torch.randn(40, 3), torch.rand(40, 1)
    return _loop(
        net, lambda number: -(y * F.logsigmoid(net(x)) + (1 - y) * F.logsigmoid(-net(x))).mean(), adam(net, 0.05), 200
    )


@fault("advantage learns")
def an_advantage_that_draws_values_along(bad: bool) -> Loop:
    net, rule = nn.ModuleDict({"body": mlp(8, 32), "act": nn.Linear(32, 3), "worth": nn.Linear(32, 1)}), torch.eye(8)
    optimizer = torch.optim.RMSprop(net.parameters(), lr=3e-3)

    def loss(number: int) -> Tensor:
        x = rule[torch.randint(0, 8, (64,))]
        inner = net["body"](x).relu()
        drawn, value = torch.distributions.Categorical(logits=net["act"](inner)), net["worth"](inner)[:, 0]
        taken = drawn.sample()
        gain = 2.0 * (taken == x.argmax(1) % 3) - 1.0
        weight = gain - (value if bad else value.detach())
        return (-drawn.log_prob(taken) * weight + 0.5 * F.smooth_l1_loss(value, gain, reduction="none")).mean()

    return _loop(net, loss, optimizer, 200)
