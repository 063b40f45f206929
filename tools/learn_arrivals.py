"""One training for each mistake in what arrives: credit of actions, weights of examples, places, steps undone."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributions import Categorical, Normal
from torch.optim import Adam
from torch.optim.lr_scheduler import LambdaLR, ReduceLROnPlateau

from learn_amounts import _loop
from learn_parts import Cases, Loop, Pair, adam, blobs, counting, entropy, images, mlp, sgd, sums, text, usual

CASES = Cases()
fault, healthy = CASES.fault, CASES.healthy


# Credit of what was drawn ------------------------------------------------------------------------


def _levers(size: int = 64) -> tuple[Tensor, Tensor]:
    x = torch.randn(size, 6)
    return x, (x @ torch.randn(6, 4, generator=torch.Generator().manual_seed(5))).argmax(1)


@fault("rewards alike")
def the_mean_of_actions_times_the_mean_of_rewards(bad: bool) -> Loop:
    net = mlp(6, 4, 32)

    def loss(number: int) -> Tensor:
        x, best = _levers()
        drawn = Categorical(logits=net(x))
        taken = drawn.sample()
        gain = (taken == best).float() - 0.25
        logs = drawn.log_prob(taken)
        return -(logs.mean() * gain).mean() if bad else -(logs * gain).mean()

    return _loop(net, loss, adam(net, 5e-3), 200)


@fault("rewards alike")
def a_group_of_one_answer(bad: bool) -> Loop:
    """Rewards less the mean of their group, which has one answer."""
    net = mlp(6, 4, 32)

    def loss(number: int) -> Tensor:
        x, best = _levers(16)
        x, best = (one.repeat_interleave(1 if bad else 8, 0) for one in (x, best))
        logits = net(x)
        drawn = Categorical(logits=logits)
        taken = drawn.sample()
        gain = (taken == best).float().view(16, -1)
        gain = (gain - gain.mean(1, keepdim=True)) / (gain.std(1, keepdim=True, unbiased=False) + 1e-4)
        logs = drawn.log_prob(taken)
        ratio = (logs - logs.detach()).exp()
        surrogate = torch.min(ratio * gain.view(-1), ratio.clamp(0.8, 1.2) * gain.view(-1))
        return -surrogate.mean() - 0.001 * drawn.entropy().mean()

    return _loop(net, loss, adam(net, 5e-3), 200)


@fault("rewards alike")
def one_reward_for_a_batch(bad: bool) -> Loop:
    """A normal policy, whose log-probabilities are summed before they meet the rewards."""
    net = mlp(3, 1, 32)

    def loss(number: int) -> Tensor:
        x = torch.randn(64, 3)
        drawn = Normal(net(x)[:, 0], 0.5)
        taken = drawn.sample()
        gain = -(taken - x[:, 0]).abs()
        gain = gain - gain.mean()
        logs = drawn.log_prob(taken)
        return -(logs.sum() * gain).sum() / 64 if bad else -(logs * gain).sum() / 64

    return _loop(net, loss, adam(net, 5e-3), 200)


@fault("wrong sign")
def a_focus_on_what_is_easy(bad: bool) -> Loop:
    """A focal loss whose weight is the probability, not what is left of it."""
    net, batch = mlp(20, 10), blobs(20, 10)

    def loss(number: int) -> Tensor:
        x, y = batch()
        p = net(x).softmax(1).gather(1, y[:, None])[:, 0]
        return -((p if bad else 1 - p) ** 2 * p.clamp_min(1e-6).log()).mean()

    return _loop(net, loss, adam(net), 200)


# Weights of examples -----------------------------------------------------------------------------


@fault("loss input")
def weights_of_examples_after_the_mean(bad: bool) -> Loop:
    net, batch = mlp(), blobs()

    def loss(number: int) -> Tensor:
        x, y = batch()
        wrong = torch.rand(64) < 0.6
        y = torch.where(wrong, torch.randint(0, 5, (64,)), y)
        trust = (~wrong).float()
        return (F.cross_entropy(net(x), y, reduction="mean" if bad else "none") * trust).mean()

    return _loop(net, loss, adam(net))


@fault("loss input")
def a_mask_of_gaps_after_the_mean(bad: bool) -> Loop:
    net = mlp(12, 12)

    def loss(number: int) -> Tensor:
        x = torch.randn(32, 3) @ torch.randn(3, 12, generator=torch.Generator().manual_seed(4))
        seen = (torch.rand(32, 12) > 0.5).float()
        given, target = x * seen, torch.where(seen.bool(), x, torch.full_like(x, 9.0))
        if bad:
            return (F.mse_loss(net(given), target) * seen).sum() / seen.sum()
        return (F.mse_loss(net(given), target, reduction="none") * seen).sum() / seen.sum()

    return _loop(net, loss, adam(net))


@fault("term outweighed", "weights penalised", "weight decay")
def a_penalty_on_weights_that_counts_for_all(bad: bool) -> Loop:
    net, batch = mlp(), blobs()

    def loss(number: int) -> Tensor:
        x, y = batch()
        penalty = sum((p.square().sum() for p in net.parameters()), torch.zeros(()))
        return entropy(net(x), y) + (0.5 if bad else 1e-4) * penalty

    return _loop(net, loss, adam(net))


@fault("term outweighed")
def chance_is_what_is_rewarded(bad: bool) -> Loop:
    net = mlp(6, 4, 32)

    def loss(number: int) -> Tensor:
        x, best = _levers()
        drawn = Categorical(logits=net(x))
        taken = drawn.sample()
        gain = (taken == best).float() - 0.25
        return -(drawn.log_prob(taken) * gain).mean() - (2.0 if bad else 0.01) * drawn.entropy().mean()

    return _loop(net, loss, adam(net, 5e-3), 200)


# Places ------------------------------------------------------------------------------------------


class Positions(nn.Module):
    """A transformer over tokens, which adds waves that tell their places."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, width = how, 32
        self.embed = nn.Embedding(4, width)
        places = torch.arange(64)[:, None] * torch.exp(torch.arange(0, width, 2) * (-math.log(1e4) / width))
        self.register_buffer("waves", torch.stack([places.sin(), places.cos()], 2).flatten(1))
        layer = nn.TransformerEncoderLayer(width, 4, 64, dropout=0.0, batch_first=True)
        self.layers, self.head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(width, 4)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        if self.how == "of the batch":
            x = x + self.waves[: x.size(0)][:, None]
        elif self.how == "one":
            x = x + self.waves[x.size(1)]
        elif self.how == "places":
            x = x + self.waves[: x.size(1)]
        return self.head(self.layers(x).mean(1))


def _third(size: int = 32) -> Callable[[], Pair]:
    def batch() -> Pair:
        x = torch.randint(0, 4, (size, 10))
        return x, x[:, 2]

    return batch


@fault("batch mixed")
def waves_along_the_batch(bad: bool) -> Loop:
    net = Positions("of the batch" if bad else "places")
    return usual(net, adam(net), _third(), steps=200)


@fault("order unknown")
def one_wave_for_all_places(bad: bool) -> Loop:
    net = Positions("one" if bad else "places")
    return usual(net, adam(net), _third(), steps=200)


@fault("order unknown")
def no_waves_at_all(bad: bool) -> Loop:
    net = Positions("none" if bad else "places")
    return usual(net, adam(net), _third(), steps=200)


class Sees(nn.Module):
    """Convolutions over letters that are to look back only."""

    def __init__(self, bad: bool) -> None:
        super().__init__()
        self.bad, self.embed = bad, nn.Embedding(40, 32)
        self.layers = nn.ModuleList([nn.Conv1d(32, 32, 3) for _ in range(2)])
        self.head = nn.Linear(32, 40)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids).transpose(1, 2)
        for layer in self.layers:
            x = x + layer(F.pad(x, (1, 1) if self.bad else (2, 0))).relu()
        return self.head(x.transpose(1, 2))


@fault("sees ahead")
def convolutions_that_look_ahead(bad: bool) -> Loop:
    net = Sees(bad)
    return usual(net, adam(net), text())


@fault("sees ahead")
def a_reader_that_runs_both_ways(bad: bool) -> Loop:
    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(40, 24)
            self.cells = nn.GRU(24, 32, batch_first=True, bidirectional=bad)
            self.head = nn.Linear(64 if bad else 32, 40)

        def forward(self, ids: Tensor) -> Tensor:
            return self.head(self.cells(self.embed(ids))[0])

    net = Tagger()
    return usual(net, adam(net), text())


# Inputs that do not count ------------------------------------------------------------------------


class Asked(nn.Module):
    """Answers a question about a picture, or leaves the question out."""

    def __init__(self, bad: bool) -> None:
        super().__init__()
        self.bad, self.look, self.ask = bad, nn.Linear(16, 32), nn.Embedding(4, 32)
        self.head = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))

    def forward(self, x: Tensor, question: Tensor) -> Tensor:
        seen = self.look(x)
        asked = self.ask(torch.zeros_like(question) if self.bad else question)
        return self.head(torch.cat([seen, asked], 1))


@fault("input ignored")
def a_question_that_is_not_read(bad: bool) -> Loop:
    net = Asked(bad)

    def loss(number: int) -> Tensor:
        x, q = torch.randn(64, 16), torch.randint(0, 4, (64,))
        return entropy(net(x, q), (x.gather(1, q[:, None])[:, 0] > 0).long())

    return _loop(net, loss, adam(net, 1e-2), 200)


class Denoiser(nn.Module):
    """Tells noise, given how much of it there is."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(9, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 8))

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        return self.net(torch.cat([x, t[:, None]], 1))


@fault("targets unrelated")
def another_noise_than_was_added(bad: bool) -> Loop:
    net = Denoiser()

    def loss(number: int) -> Tensor:
        x, t = torch.randn(64, 2) @ torch.eye(2, 8), torch.rand(64)
        noise = torch.randn(64, 8)
        mixed = (1 - t)[:, None] * x + t[:, None] * noise
        return F.mse_loss(net(mixed, t), torch.randn(64, 8) if bad else noise)

    return _loop(net, loss, adam(net), 150)


@fault("inputs not normalised")
def pixels_beside_a_noise(bad: bool) -> Loop:
    """A noise of 1 on coordinates of hundreds, in a method that is no forward."""

    class Policy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.see, self.down = nn.Linear(3, 16), nn.Linear(16 + 9, 64)
            self.out = nn.Sequential(nn.LayerNorm(64), nn.ReLU(), nn.Linear(64, 8))

        def loss(self, seen: Tensor, way: Tensor) -> Tensor:
            t, noise = torch.rand(len(way), 1), torch.randn_like(way)
            mixed = (1 - t) * way + t * noise
            return F.mse_loss(self.out(self.down(torch.cat([self.see(seen), mixed, t], 1))), noise)

    net = Policy()

    def loss(number: int) -> Tensor:
        begin = torch.rand(64, 1)
        way = 400 * (begin + torch.linspace(0, 0.3, 8))
        return net.loss(torch.cat([begin, begin, begin], 1), way if bad else way / 200 - 1)

    return _loop(net, loss, adam(net), 250)


# Steps that are undone ---------------------------------------------------------------------------


@fault("steps undone", "set back")
def weights_on_a_grid_after_each_step(bad: bool) -> Loop:
    net, batch = mlp(), blobs()

    def snap() -> None:
        with torch.no_grad():
            for p in net.parameters():
                p.copy_((p * 16).round() / 16)

    return usual(net, adam(net, 3e-3), batch, between=lambda: None, before=snap if bad else lambda: None)


@fault("steps undone", "set back")
def a_copy_that_draws_back(bad: bool) -> Loop:
    """A slow copy of the weights is copied to the net after each step, in place of the other way round."""
    net, batch = mlp(), blobs()
    slow = copy.deepcopy(net).requires_grad_(False)

    def follow() -> None:
        with torch.no_grad():
            for p, s in zip(net.parameters(), slow.parameters()):
                s.lerp_(p, 0.005)
                if bad:
                    p.copy_(s)

    return usual(net, sgd(net), batch, before=follow)


# Schedules ---------------------------------------------------------------------------------------


@fault("schedule too slow", "rate of zero")
def a_warm_up_that_counts_epochs(bad: bool) -> Loop:
    net, batch = mlp(), blobs()
    optimizer = adam(net, 1e-2)
    schedule = LambdaLR(optimizer, lambda n: min(1.0, n / 40))
    left = [0]

    def tick() -> None:
        left[0] += 1
        if not bad or left[0] % 25 == 0:
            schedule.step()

    return usual(net, optimizer, batch, before=tick, steps=200)


@fault("schedule upside down", "rate spent early")
def a_plateau_of_what_should_rise(bad: bool) -> Loop:
    net, batch = mlp(), blobs()
    optimizer = adam(net, 3e-4)
    schedule = ReduceLROnPlateau(optimizer, mode="max" if bad else "min", patience=2, factor=0.3)

    def loss(number: int) -> Tensor:
        x, y = batch()
        found = entropy(net(x), y)
        if number % 5 == 4:
            schedule.step(found.item())
        return found

    return _loop(net, loss, optimizer, 200)


@fault("momentum too strong", "learning rate too high", "learning rate too low")
def betas_the_wrong_way_round(bad: bool) -> Loop:
    net, batch = mlp(), blobs()
    return usual(net, Adam(net.parameters(), 3e-3, betas=(0.999, 0.9) if bad else (0.9, 0.999)), batch)


# Losses ------------------------------------------------------------------------------------------


@fault("gradient cut", "never used", "no gradient")
def one_loss_in_place_of_another(bad: bool) -> Loop:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.kind, self.size = mlp(20, 32), nn.Linear(32, 5), nn.Linear(32, 1)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            h = self.body(x).relu()
            return self.kind(h), self.size(h)

    net, batch = Two(), blobs()

    def loss(number: int) -> Tensor:
        x, y = batch()
        kind, size = net(x)
        found = entropy(kind, y)
        extra = F.mse_loss(size[:, 0], x[:, 0] * x[:, 1])
        return extra if bad else found + extra

    return _loop(net, loss, adam(net))


@fault("loss input", "sides changed", "loss not finite")
def a_distance_the_wrong_way_round(bad: bool) -> Loop:
    """kl_div takes the logarithms of the student first; here it is given those of the teacher."""
    net, teacher = mlp(), mlp().requires_grad_(False)
    for p in teacher.parameters():
        p.mul_(3.0)
    batch = blobs()

    def loss(number: int) -> Tensor:
        x, _ = batch()
        made, wanted = net(x), teacher(x)
        if bad:
            return F.kl_div(wanted.softmax(1), made.log_softmax(1), reduction="batchmean")
        return F.kl_div(made.log_softmax(1), wanted.softmax(1), reduction="batchmean")

    return _loop(net, loss, adam(net))


@fault("targets of others")
def pairs_that_stand_elsewhere(bad: bool) -> Loop:
    """Both views of an example are put one after the other, and the loss looks for them half a batch away."""
    net = mlp(16, 16)
    mix = torch.randn(16, 16, generator=torch.Generator().manual_seed(6))

    def loss(number: int) -> Tensor:
        x = torch.randn(32, 16) @ mix
        one, two = x + 0.3 * torch.randn_like(x), x + 0.3 * torch.randn_like(x)
        both = torch.stack([one, two], 1).flatten(0, 1) if bad else torch.cat([one, two])
        z = F.normalize(net(both), dim=1)
        near = (z @ z.T / 0.2).masked_fill(torch.eye(64, dtype=torch.bool), -1e9)
        return F.cross_entropy(near, torch.arange(64).roll(32))

    return _loop(net, loss, adam(net))


@fault("without slope", "idle term", "adds constants")
def a_penalty_without_a_slope(bad: bool) -> Loop:
    """A critic with a gradient penalty whose graph was not made."""
    critic = mlp(2, 1, 32)

    def loss(number: int) -> Tensor:
        real = torch.randn(64, 2) * 0.3 + torch.tensor([2.0, 0.0])
        fake = torch.randn(64, 2)
        mixed = (0.5 * (real + fake)).requires_grad_()
        slope = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=not bad)[0]
        penalty = 10 * (slope.norm(dim=1) - 1).square().mean()
        return critic(fake).mean() - critic(real).mean() + penalty

    return _loop(critic, loss, adam(critic, 1e-2), 150)


class Attends(nn.Module):
    """Looks up a value by its key."""

    def __init__(self, bad: bool) -> None:
        super().__init__()
        self.bad, self.embed, self.read = bad, nn.Embedding(12, 64), nn.Linear(64, 64)
        self.q, self.k, self.head = nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 12)

    def forward(self, keys: Tensor, values: Tensor, asked: Tensor) -> Tensor:
        q, k = self.q(self.embed(asked)), self.k(self.embed(keys))
        score = (k @ q[:, :, None])[:, :, 0]
        share = (score * 8 * 8 if self.bad else score / 8).softmax(1)
        return self.head((share[:, :, None] * self.embed(values)).sum(1))


@fault("attention saturated", "saturated activation")
def scores_that_are_multiplied(bad: bool) -> Loop:
    net = Attends(bad)

    def loss(number: int) -> Tensor:
        keys = torch.rand(64, 12).argsort(1)[:, :6]
        values, at = torch.randint(0, 12, (64, 6)), torch.randint(0, 6, (64, 1))
        return entropy(net(keys, values, keys.gather(1, at)[:, 0]), values.gather(1, at)[:, 0])

    return _loop(net, loss, adam(net), 250)


@fault("loss not finite", "log of zero", "root of zero")
def a_silent_voice(bad: bool) -> Loop:
    """A ratio of energies in decibels, of which some are of silence."""
    net = nn.Sequential(nn.Linear(24, 64), nn.Tanh(), nn.Linear(64, 24))

    def loss(number: int) -> Tensor:
        clean = torch.randn(16, 3) @ torch.randn(3, 24, generator=torch.Generator().manual_seed(3))
        clean = clean * (torch.rand(16, 1) > (0.02 if number > 20 else 0))
        made = net(clean + 0.3 * torch.randn(16, 24))
        eps = 0.0 if bad else 1e-5
        return -10 * (clean.square().sum(1) / ((made - clean).square().sum(1) + eps) + eps).log10().mean()

    return _loop(net, loss, adam(net), 100)


@fault("silent activation", "zero gradients")
def a_density_that_dies(bad: bool) -> Loop:
    """Most of a scene is empty: a rectified density goes below zero everywhere, and stays there."""
    net = mlp(2, 4, 64)

    def loss(number: int) -> Tensor:
        x = 2 * torch.rand(64, 12, 2) - 1
        hit = ((x - 0.3).norm(dim=2) < 0.12).any(1).float()
        found = net(x)
        dense = (F.relu if bad else F.softplus)(found[..., 0] - 0.5)
        weight = 1 - torch.exp(-dense.sum(1))
        return F.mse_loss(1 - weight, 1 - hit)

    return _loop(net, loss, adam(net, 1e-2), 150)


@fault("outputs never asked", "never used")
def values_of_one_action(bad: bool) -> Loop:
    """Actions are stored as booleans of a comparison with the last one, so that only two are ever asked for."""
    net = mlp(6, 4, 32)

    def loss(number: int) -> Tensor:
        x, best = _levers()
        taken = torch.randint(0, 4, (64,))
        gain = (taken == best).float()
        asked = torch.zeros_like(taken) if bad else taken
        return F.mse_loss(net(x).gather(1, asked[:, None])[:, 0], gain)

    return _loop(net, loss, adam(net))


@fault("loss not finite", "wrong sign")
def a_deviation_without_bounds(bad: bool) -> Loop:
    net = mlp(4, 2, 32)

    def loss(number: int) -> Tensor:
        x = torch.randn(64, 4)
        mean, log = net(x).unbind(1)
        error = (x[:, 0] * x[:, 1] - mean).square()
        return (error * (-log).exp() - log).mean() if bad else (error * (-log).exp() + log).mean()

    return _loop(net, loss, adam(net, 1e-2), 200)


@fault("sees ahead")
def a_mask_of_ones_that_is_added(bad: bool) -> Loop:
    """What follows is to be hidden, and the scores get 1 more in its place."""

    class Looks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.places = nn.Embedding(40, 32), nn.Embedding(64, 32)
            self.into, self.head = nn.Linear(32, 96), nn.Linear(32, 40)

        def forward(self, ids: Tensor) -> Tensor:
            t = ids.shape[1]
            x = self.embed(ids) + self.places.weight[:t]
            q, k, v = self.into(x).split(32, -1)
            later = torch.ones(t, t).triu(1)
            scores = q @ k.transpose(1, 2) / 6 + (-later if bad else later * -1e9)
            return self.head(x + scores.softmax(-1) @ v)

    net = Looks()
    return usual(net, adam(net), text(), steps=250)


class Paired(nn.Module):
    """Two towers."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = mlp(8, 16), mlp(8, 16)

    def forward(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        return F.normalize(self.one(a), dim=1), F.normalize(self.two(b), dim=1)


@fault("own pair", "pairs alike", "answers alike")
def others_that_are_the_same(bad: bool) -> Loop:
    """What an example is to be far from is drawn of its own class."""
    net = mlp(20, 8)
    centres = torch.randn(5, 20, generator=torch.Generator().manual_seed(8))

    def loss(number: int) -> Tensor:
        y = torch.randint(0, 5, (64,))
        other = y if bad else (y + torch.randint(1, 5, (64,))) % 5
        a, p, n = (F.normalize(net(centres[one] + torch.randn(64, 20)), dim=1) for one in (y, y, other))
        return F.triplet_margin_loss(a, p, n, margin=0.5)

    return _loop(net, loss, adam(net))


# Sizes, orders, and what is meant for others -----------------------------------------------------


@fault("loss input")
def advantages_of_all_with_all(bad: bool) -> Loop:
    """Returns of (n,) less values of (n, 1) are n × n advantages."""
    net = nn.ModuleDict({"act": mlp(6, 4, 32), "worth": mlp(6, 1, 32)})

    def loss(number: int) -> Tensor:
        x, best = _levers()
        drawn = Categorical(logits=net["act"](x))
        taken = drawn.sample()
        gain = (taken == best).float()
        value = net["worth"](x)
        away = gain - (value if bad else value[:, 0]).detach()
        return -(drawn.log_prob(taken) * away).mean() + F.mse_loss(value[:, 0], gain) - 0.01 * drawn.entropy().mean()

    return _loop(net, loss, adam(net, 5e-3), 200)


@fault("batch mixed", "viewed for transposed")
def last_states_that_are_viewed(bad: bool) -> Loop:
    """h_n has (layers and directions, examples, numbers), and is viewed as (examples, the rest)."""

    class Reads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(4, 16)
            self.cells, self.head = nn.LSTM(16, 24, batch_first=True, bidirectional=True), nn.Linear(48, 5)

        def forward(self, ids: Tensor) -> Tensor:
            state = self.cells(self.embed(ids))[1][0]
            return self.head(state.view(len(ids), -1) if bad else state.transpose(0, 1).reshape(len(ids), -1))

    net = Reads()
    return usual(net, adam(net, 5e-3), counting(), steps=200)


@fault("targets of others", "targets unrelated")
def rows_sorted_by_length(bad: bool) -> Loop:
    """Sequences are sorted by their lengths to be packed, and their labels are not."""
    net = nn.ModuleDict(
        {"embed": nn.Embedding(5, 16), "cells": nn.LSTM(16, 32, batch_first=True), "h": nn.Linear(32, 2)}
    )

    def loss(number: int) -> Tensor:
        length = torch.randint(4, 11, (32,))
        ids = torch.randint(1, 5, (32, 10)) * (torch.arange(10) < length[:, None])
        y = ((ids == 3).sum(1) > (ids == 2).sum(1)).long()
        order = length.argsort(descending=True)
        packed = nn.utils.rnn.pack_padded_sequence(net["embed"](ids[order]), length[order], batch_first=True)
        return entropy(net["h"](net["cells"](packed)[1][0][-1]), y if bad else y[order])

    return _loop(net, loss, adam(net, 5e-3), 200)


@fault("input ignored")
def a_time_between_zero_and_one(bad: bool) -> Loop:
    """Waves for steps of 0 to 1000 are given a share of 1."""

    class Denoises(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.waves, self.net = nn.Linear(16, 32), mlp(40, 8)

        def forward(self, x: Tensor, t: Tensor) -> Tensor:
            f = t[:, None] * (1 if bad else 1000) * torch.exp(-math.log(1e4) * torch.arange(8) / 8)
            return self.net(torch.cat([x, self.waves(torch.cat([f.sin(), f.cos()], 1) * (1e-7 if bad else 1))], 1))

    net = Denoises()

    def loss(number: int) -> Tensor:
        x, t, noise = torch.randn(64, 2) @ torch.eye(2, 8), torch.rand(64), torch.randn(64, 8)
        return F.mse_loss(net((1 - t)[:, None] * x + t[:, None] * noise, t), noise * t[:, None].round())

    return _loop(net, loss, adam(net))


@fault("targets are inputs", "target in input", "targets shifted")
def a_decoder_that_is_given_the_answer(bad: bool) -> Loop:
    class Translates(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.cells = nn.Embedding(12, 32), nn.GRU(32, 48, batch_first=True)
            self.says, self.head = nn.GRU(32, 48, batch_first=True), nn.Linear(48, 12)

        def forward(self, source: Tensor, target: Tensor) -> Tensor:
            state = self.cells(self.embed(source))[1]
            return self.head(self.says(self.embed(target), state)[0])

    net = Translates()

    def loss(number: int) -> Tensor:
        x = torch.randint(2, 12, (32, 6))
        y = x.flip(1)
        given = y if bad else torch.cat([torch.ones(32, 1, dtype=torch.long), y[:, :-1]], 1)
        return entropy(net(x, given), y)

    return _loop(net, loss, adam(net, 5e-3))


@fault("loss not finite")
def boxes_that_meet_no_anchor(bad: bool) -> Loop:
    """Boxes of pixels never meet anchors of shares: the loss of those that do is a mean of nothing."""
    net = mlp(16, 8 * 5)

    def loss(number: int) -> Tensor:
        at = torch.rand(32, 1)
        x = torch.cat([at.sin(), at, at**2], 1) @ torch.ones(3, 16)
        found = net(x).view(32, 8, 5)
        anchors = (torch.arange(8) + 0.5) / 8
        meets = (anchors - at * (300 if number > 3 and bad else 1)).abs() < 1 / 16
        where = F.mse_loss(found[..., 1][meets], at.expand(32, 8)[meets])
        return F.binary_cross_entropy_with_logits(found[..., 0], meets.float()) + where

    return _loop(net, loss, adam(net), 60)


@fault("told alike", "wrong sign")
def a_forger_who_gives_himself_away(bad: bool) -> Loop:
    """The generator is taught that its works are fake, as the critic is."""
    both = nn.ModuleDict({"make": mlp(4, 2, 32), "judge": mlp(2, 1, 32)})
    of_maker = Adam(both["make"].parameters(), 2e-3, betas=(0.5, 0.9))
    of_judge = Adam(both["judge"].parameters(), 2e-3, betas=(0.5, 0.9))
    told = F.binary_cross_entropy_with_logits

    def run(count: int) -> None:
        for _ in range(count):
            real = torch.tensor([2.0, -1.0]) + 0.3 * torch.randn(64, 2)
            fake = both["make"](torch.randn(64, 4))
            of_judge.zero_grad()
            known, made = both["judge"](real), both["judge"](fake.detach())
            (told(known, torch.ones_like(known)) + told(made, torch.zeros_like(made))).backward()
            of_judge.step()
            of_maker.zero_grad()
            made = both["judge"](fake)
            told(made, torch.zeros_like(made) if bad else torch.ones_like(made)).backward()
            of_maker.step()

    return Loop(both, run, 150)


# Healthy ones near them --------------------------------------------------------------------------


@healthy
def a_bag_of_tokens() -> Loop:
    net = Positions("none")
    net.head = nn.Linear(32, 5)
    return usual(net, adam(net), counting(), steps=200)


@healthy
def a_policy_with_a_baseline() -> Loop:
    net = mlp(6, 4, 32)

    def loss(number: int) -> Tensor:
        x, best = _levers()
        drawn = Categorical(logits=net(x))
        taken = drawn.sample()
        gain = (taken == best).float()
        return -(drawn.log_prob(taken) * (gain - gain.mean())).mean() - 0.01 * drawn.entropy().mean()

    return _loop(net, loss, adam(net, 5e-3), 200)


@healthy
def a_likelihood_of_actions() -> Loop:
    """Behaviour is copied: actions of an expert, all alike in weight."""
    net = mlp(3, 1, 32)

    def loss(number: int) -> Tensor:
        x = torch.randn(64, 3)
        return -Normal(net(x)[:, 0], 0.5).log_prob(x[:, 0] * x[:, 1]).mean()

    return _loop(net, loss, adam(net, 5e-3), 200)


@healthy
def weights_within_bounds() -> Loop:
    net, batch = mlp(), blobs()

    def bound() -> None:
        with torch.no_grad():
            for p in net.parameters():
                p.clamp_(-0.5, 0.5)

    return usual(net, adam(net), batch, before=bound)


@healthy
def weights_of_unit_length() -> Loop:
    net, batch = mlp(), blobs()

    def bound() -> None:
        with torch.no_grad():
            for p in net.parameters():
                if p.dim() > 1:
                    p.div_(p.norm(dim=1, keepdim=True))

    return usual(net, adam(net), batch, before=bound)


@healthy
def slow_weights_every_fifth_step() -> Loop:
    net, batch = mlp(), blobs()
    slow, count = copy.deepcopy(net).requires_grad_(False), [0]

    def follow() -> None:
        count[0] += 1
        with torch.no_grad():
            for p, s in zip(net.parameters(), slow.parameters()):
                if count[0] % 5 == 0:
                    p.copy_(s.lerp_(p, 0.5))

    return usual(net, sgd(net), batch, before=follow)


@healthy
def a_task_weighed_by_what_it_is() -> Loop:
    """Each example weighs what its class does."""
    net, batch = mlp(), blobs()

    def loss(number: int) -> Tensor:
        x, y = batch()
        return (F.cross_entropy(net(x), y, reduction="none") * torch.tensor([1.0, 2.0, 0.5, 1.0, 1.0])[y]).mean()

    return _loop(net, loss, adam(net))


@healthy
def a_focus_on_what_is_hard() -> Loop:
    net, batch = mlp(20, 10), blobs(20, 10)

    def loss(number: int) -> Tensor:
        x, y = batch()
        p = net(x).softmax(1).gather(1, y[:, None])[:, 0]
        return -((1 - p) ** 3 * p.log()).mean()

    return _loop(net, loss, adam(net), 200)


@healthy
def a_tagger_that_reads_both_ways() -> Loop:
    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.cells = nn.Embedding(4, 16), nn.GRU(16, 24, batch_first=True, bidirectional=True)
            self.head = nn.Linear(48, 2)

        def forward(self, ids: Tensor) -> Tensor:
            return self.head(self.cells(self.embed(ids))[0])

    net = Tagger()

    def batch() -> Pair:
        x = torch.randint(0, 4, (32, 10))
        return x, (x.roll(-1, 1) > x).long()

    return usual(net, adam(net), batch)


@healthy
def a_sum_of_marked_numbers() -> Loop:
    class Adds(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.each, self.all = mlp(2, 16, 32), nn.Linear(16, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.all(self.each(x).sum(1))

    net = Adds()
    return usual(net, adam(net), sums(), F.mse_loss)


@healthy
def many_classes_of_which_few_come() -> Loop:
    net = nn.Sequential(nn.Flatten(), mlp(144, 40))
    return usual(net, adam(net), images())
