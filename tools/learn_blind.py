"""Trainings written after the rules of the verdict, with the rules as they were."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import SGD, Adagrad, Adam, AdamW, RMSprop, lr_scheduler

from learn_parts import Batches, Cases, Loop, Pair, changed, text, usual

CASES = Cases()
fault, healthy = CASES.fault, CASES.healthy


# Other data and models ---------------------------------------------------------------------------


def squares(size: int = 8) -> Batches:
    """Return batches of noisy pictures with a bright square, and the mask of it."""

    def batch() -> Pair:
        x, mask = 0.5 * torch.randn(size, 1, 16, 16), torch.zeros(size, 16, 16, dtype=torch.long)
        for i, (a, b) in enumerate(torch.randint(0, 10, (size, 2)).tolist()):
            mask[i, a : a + 6, b : b + 6] = 1
        return x + 1.5 * mask[:, None], mask

    return batch


def table(size: int = 48) -> Batches:
    """Return batches of twelve numbers, and a smooth function of them."""

    def batch() -> Pair:
        x = torch.randn(size, 12)
        return x, (x[:, :1] * x[:, 1:2] + x[:, 2:3].sin() + 0.5 * x[:, 3:4])

    return batch


def tags(size: int = 40) -> Batches:
    """Return batches of sixteen numbers with four labels that do not exclude one another."""
    weights = torch.randn(16, 4, generator=torch.Generator().manual_seed(2))

    def batch() -> Pair:
        x = torch.randn(size, 16)
        return x, (x @ weights > 0.5).float()

    return batch


def brackets(size: int = 24, length: int = 14) -> Batches:
    """Return batches of sequences of which the class is the token that comes most often."""

    def batch() -> Pair:
        x = torch.randint(0, 6, (size, length))
        y = torch.randint(0, 3, (size,))
        x[:, ::2] = torch.where(torch.rand(size, (length + 1) // 2) < 0.7, y[:, None], x[:, ::2])
        return x, y

    return batch


class Mask(nn.Module):
    """A small net for masks, with a way around its middle."""

    def __init__(self, stopped: bool = False) -> None:
        super().__init__()
        self.stopped = stopped
        self.down, self.middle = nn.Conv2d(1, 12, 3, padding=1), nn.Conv2d(12, 12, 3, padding=1)
        self.up, self.last = nn.Conv2d(24, 12, 3, padding=1), nn.Conv2d(12, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.stopped):
            wide = F.silu(self.down(x))
            low = F.silu(self.middle(F.avg_pool2d(wide, 2)))
        return self.last(F.silu(self.up(torch.cat([wide, F.interpolate(low, scale_factor=2)], 1))))


class Gated(nn.Module):
    """A GRU over tokens, read at its end."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.gru, self.out = nn.Embedding(6, 12), nn.GRU(12, 24, batch_first=True), nn.Linear(24, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.gru(self.embed(x))[1][0])


def tabular(out: int = 1, width: int = 12, norm: bool = False, act: Callable[[], nn.Module] = nn.GELU) -> nn.Sequential:
    """Return a net for tables."""
    parts = [nn.Linear(width, 40), *([nn.BatchNorm1d(40)] if norm else []), act(), nn.Linear(40, 40), act()]
    return nn.Sequential(*parts, nn.Linear(40, out))


def pixels(out: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(out, y)


# Faults ------------------------------------------------------------------------------------------


@fault("targets alike")
def masks_of_zeros(bad: bool) -> Loop:
    net = Mask()
    return usual(net, Adam(net.parameters(), 3e-3), changed(squares(), lambda x, y: (x, y * 0), bad), pixels, steps=80)


@fault("gradient cut")
def encoder_without_grad(bad: bool) -> Loop:
    net = Mask(stopped=bad)
    return usual(net, Adam(net.parameters(), 3e-3), squares(), pixels, steps=80)


@fault("not optimised")
def gru_replaced(bad: bool) -> Loop:
    net = Gated()
    optimizer = RMSprop(net.parameters(), 3e-3)
    if bad:
        net.gru = nn.GRU(12, 24, batch_first=True)
    return usual(net, optimizer, brackets(), F.cross_entropy, steps=200)


@fault("other optimizer")
def made_again(bad: bool) -> Loop:
    net = Gated()
    optimizer = Adam(net.parameters(), 5e-3)
    net = Gated() if bad else net
    return usual(net, optimizer, brackets(), F.cross_entropy)


@fault("loss input")
def tags_squashed_twice(bad: bool) -> Loop:
    net = nn.Sequential(tabular(4, 16), nn.Sigmoid() if bad else nn.Identity())
    return usual(net, Adam(net.parameters(), 5e-3), tags(), F.binary_cross_entropy_with_logits)


@fault("loss input")
def nll_of_probabilities(bad: bool) -> Loop:
    net = nn.Sequential(Gated(), nn.Softmax(1) if bad else nn.LogSoftmax(1))
    return usual(net, Adam(net.parameters(), 5e-3), brackets(), F.nll_loss)


@fault("learning rate too high")
def rmsprop_of_one(bad: bool) -> Loop:
    net = Gated()
    return usual(net, RMSprop(net.parameters(), 1.0 if bad else 3e-3), brackets(), F.cross_entropy)


@fault("learning rate too high")
def sgd_of_two(bad: bool) -> Loop:
    net = tabular()
    return usual(net, SGD(net.parameters(), 2.0 if bad else 0.05), table(), F.mse_loss, steps=200)


@fault("learning rate too low")
def adagrad_of_a_millionth(bad: bool) -> Loop:
    net = Gated()
    return usual(net, Adagrad(net.parameters(), 1e-6 if bad else 0.05), brackets(), F.cross_entropy)


@fault("learning rate too low")
def nesterov_too_slow(bad: bool) -> Loop:
    net = Mask()
    optimizer = SGD(net.parameters(), 1e-6 if bad else 0.1, momentum=0.9, nesterov=True)
    return usual(net, optimizer, squares(), pixels, steps=100)


@fault("no gradient")
def loss_of_argmax(bad: bool) -> Loop:
    net = Gated()

    def loss(out: Tensor, y: Tensor) -> Tensor:
        return (out.argmax(1) - y).float().square().mean().requires_grad_() if bad else F.cross_entropy(out, y)

    return usual(net, Adam(net.parameters(), 5e-3), brackets(), loss)


class Denoiser(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(9, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 8))

    def forward(self, pair: Tensor) -> Tensor:
        return self.body(pair)


def noised(other: bool) -> Batches:
    def batch() -> Pair:
        clean, noise, share = torch.sign(torch.randn(64, 8)), torch.randn(64, 8), torch.rand(64, 1)
        mixed = clean * (1 - share).sqrt() + noise * share.sqrt()
        return torch.cat([mixed, share], 1), torch.randn(64, 8) if other else noise

    return batch


@fault("targets unrelated")
def noise_drawn_twice(bad: bool) -> Loop:
    net = Denoiser()
    return usual(net, Adam(net.parameters(), 2e-3), noised(bad), F.mse_loss, steps=250)


@fault("targets unrelated")
def rows_of_another_file(bad: bool) -> Loop:
    net, batches = tabular(), table()

    def batch() -> Pair:
        return (batches()[0], batches()[1]) if bad else batches()

    return usual(net, Adam(net.parameters(), 3e-3), batch, F.mse_loss, steps=250)


@fault("not cleared")
def clears_another_model(bad: bool) -> Loop:
    net, other = Gated(), Gated()
    return usual(net, Adam(net.parameters(), 3e-3), brackets(), F.cross_entropy, clear=not bad, before=other.zero_grad)


@fault("cleared before step")
def sets_to_none_too_soon(bad: bool) -> Loop:
    net = tabular()

    def forget() -> None:
        for p in net.parameters() if bad else ():
            p.grad = None

    return usual(net, Adam(net.parameters(), 5e-3), table(), F.mse_loss, between=forget, steps=250)


@fault("weight decay")
def decay_of_one(bad: bool) -> Loop:
    net = Gated()
    return usual(
        net, SGD(net.parameters(), 0.2, weight_decay=1.0 if bad else 0.0), brackets(), F.cross_entropy, steps=300
    )


@fault("rate spent early")
def plateau_in_batches(bad: bool) -> Loop:
    net, batches = Gated(), brackets()
    optimizer = Adam(net.parameters(), 3e-3)
    schedule = lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, factor=0.3)

    def run(count: int) -> None:
        for _ in range(count):
            x, y = batches()
            loss = F.cross_entropy(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if bad:
                schedule.step(loss)

    return Loop(net, run, 200)


@fault("inputs not normalised")
def sixteen_bits(bad: bool) -> Loop:
    net = Mask()
    batches = changed(squares(), lambda x, y: ((x + 2) * 10_000, y), bad)
    return usual(net, SGD(net.parameters(), 0.05, momentum=0.9), batches, pixels, steps=100)


@fault("data sorted")
def three_files_in_turn(bad: bool) -> Loop:
    net, batches, seen = Gated(), brackets(200), [0]

    def batch() -> Pair:
        x, y = batches()
        seen[0] += 1
        kept = y == (seen[0] // 50) % 3 if bad else y >= 0
        return x[kept][:24], y[kept][:24]

    return usual(net, SGD(net.parameters(), 0.1, momentum=0.9), batch, F.cross_entropy, steps=200)


@fault("same batch", mends=False)
def seed_in_the_loop(bad: bool) -> Loop:
    net = tabular()
    return usual(net, Adam(net.parameters(), 3e-3), table(), F.mse_loss, before=lambda: torch.manual_seed(1))


@fault("frozen at random")
def body_frozen_in_gru(bad: bool) -> Loop:
    net = Gated()
    for name, p in net.named_parameters():
        p.requires_grad_(not bad or name.startswith("out"))
    return usual(net, AdamW([p for p in net.parameters() if p.requires_grad], 5e-3), brackets(), F.cross_entropy)


@fault("wrong sign")
def minus_mse(bad: bool) -> Loop:
    net = tabular()
    return usual(
        net,
        SGD(net.parameters(), 0.02),
        table(),
        lambda o, y: -F.mse_loss(o, y) if bad else F.mse_loss(o, y),
        steps=300,
    )


@fault("loss is a sum")
def sum_of_squares(bad: bool) -> Loop:
    net = tabular()
    return usual(
        net,
        SGD(net.parameters(), 0.05),
        table(),
        lambda o, y: ((o - y) ** 2).sum() if bad else ((o - y) ** 2).mean(),
        steps=300,
    )


@fault("clipped away")
def clipped_before_unscale(bad: bool) -> Loop:
    net, batches = tabular(), table()
    optimizer, scaler = SGD(net.parameters(), 0.1), torch.amp.GradScaler("cpu")

    def run(count: int) -> None:
        for _ in range(count):
            x, y = batches()
            scaler.scale(F.mse_loss(net(x), y)).backward()
            if not bad:
                scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()

    return Loop(net, run, 300)


@fault("eval mode", mends=False)
def table_in_eval(bad: bool) -> Loop:
    net = tabular(norm=True).eval()
    return usual(net, Adam(net.parameters(), 3e-3), table(), F.mse_loss)


@fault("dropout too strong")
def inputs_dropped(bad: bool) -> Loop:
    net = nn.Sequential(nn.Dropout(0.99 if bad else 0.05), tabular(4, 16))
    return usual(net, Adam(net.parameters(), 3e-3), tags(), F.binary_cross_entropy_with_logits)


@fault("silent activation")
def bias_far_below(bad: bool) -> Loop:
    net = nn.Sequential(nn.Linear(12, 40), nn.ReLU(), nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 1))
    if bad:
        nn.init.constant_(net[0].bias, -50.0)
    return usual(net, Adam(net.parameters(), 3e-3), table(), F.mse_loss, steps=250)


@fault("target in input", mends=False)
def answer_in_the_table(bad: bool) -> Loop:
    net = tabular()
    return usual(
        net, Adam(net.parameters(), 3e-3), changed(table(), lambda x, y: (torch.cat([x[:, :11], y], 1), y)), F.mse_loss
    )


@fault("targets not scaled", "targets out of reach", "learning rate too low")
def sigmoid_for_hundreds(bad: bool) -> Loop:
    net = nn.Sequential(tabular(), nn.Sigmoid() if bad else nn.Identity())
    return usual(
        net, Adam(net.parameters(), 3e-3), changed(table(), lambda x, y: (x, 100 + 10 * y)), F.mse_loss, steps=150
    )


# Healthy -----------------------------------------------------------------------------------------


@healthy
def masks() -> Loop:
    net = Mask()
    return usual(net, Adam(net.parameters(), 3e-3), squares(), pixels, steps=80)


@healthy
def gated() -> Loop:
    net = Gated()
    return usual(net, RMSprop(net.parameters(), 3e-3), brackets(), F.cross_entropy, steps=200)


@healthy
def tables_of_l1() -> Loop:
    net = tabular(norm=True)
    return usual(net, Adam(net.parameters(), 5e-3), table(), F.l1_loss, steps=250)


@healthy
def many_tags() -> Loop:
    net = tabular(4, 16)
    return usual(net, Adam(net.parameters(), 5e-3), tags(), F.binary_cross_entropy_with_logits)


@healthy
def denoised() -> Loop:
    net = Denoiser()
    return usual(net, Adam(net.parameters(), 2e-3), noised(False), F.mse_loss, steps=250)


@healthy
def huber_with_adagrad() -> Loop:
    net = tabular()
    return usual(net, Adagrad(net.parameters(), 0.05), table(), F.huber_loss, steps=250)


@healthy
def quantiles() -> Loop:
    net = tabular(3)

    def loss(out: Tensor, y: Tensor) -> Tensor:
        gap = y - out
        return torch.maximum(gap * torch.tensor([0.1, 0.5, 0.9]), gap * torch.tensor([-0.9, -0.5, -0.1])).mean()

    return usual(net, Adam(net.parameters(), 3e-3), table(), loss, steps=200)


@healthy
def focal() -> Loop:
    net = tabular(4, 16)

    def loss(out: Tensor, y: Tensor) -> Tensor:
        each = F.binary_cross_entropy_with_logits(out, y, reduction="none")
        return ((1 - torch.exp(-each)) ** 2 * each).mean()

    return usual(net, Adam(net.parameters(), 5e-3), tags(), loss)


@healthy
def triplets() -> Loop:
    net = tabular(8, 16)
    optimizer, centres = Adam(net.parameters(), 2e-3), torch.randn(6, 16)

    def run(count: int) -> None:
        for _ in range(count):
            a = torch.randint(0, 6, (32,))
            b = (a + torch.randint(1, 6, (32,))) % 6
            anchor, near, far = (net(centres[k] + 0.5 * torch.randn(32, 16)) for k in (a, a, b))
            optimizer.zero_grad()
            F.triplet_margin_loss(anchor, near, far).backward()
            optimizer.step()

    return Loop(net, run)


@healthy
def critic_with_penalty() -> Loop:
    maker, critic = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2)), tabular(1, 2)
    of_maker, of_critic = Adam(maker.parameters(), 1e-3, (0.0, 0.9)), Adam(critic.parameters(), 1e-3, (0.0, 0.9))

    def run(count: int) -> None:
        for step in range(count):
            real, fake = torch.randn(48, 2) * 0.3 + 1, maker(torch.randn(48, 4))
            between = (0.5 * real + 0.5 * fake.detach()).requires_grad_()
            (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
            of_critic.zero_grad()
            loss = critic(fake.detach()).mean() - critic(real).mean() + 10 * ((slope.norm(dim=1) - 1) ** 2).mean()
            loss.backward()
            of_critic.step()
            if step % 3 == 2:
                of_maker.zero_grad()
                (-critic(maker(torch.randn(48, 4))).mean()).backward()
                of_maker.step()

    return Loop(critic, run, 120)


@healthy
def q_values() -> Loop:
    net = tabular(3, 4)
    target, optimizer = copy.deepcopy(net), Adam(net.parameters(), 2e-3)
    way = torch.randn(3, 4)

    def run(count: int) -> None:
        for step in range(count):
            state, action = torch.randn(32, 4), torch.randint(0, 3, (32,))
            after = 0.5 * state + way[action]
            with torch.no_grad():
                wanted = -after.norm(dim=1) + 0.9 * target(after).max(1).values
            optimizer.zero_grad()
            F.smooth_l1_loss(net(state).gather(1, action[:, None])[:, 0], wanted).backward()
            optimizer.step()
            if step % 20 == 19:
                target.load_state_dict(net.state_dict())

    return Loop(net, run, 200)


@healthy
def actor_and_critic() -> Loop:
    body, actor, critic = tabular(16, 4), nn.Linear(16, 3), nn.Linear(16, 1)
    net = nn.ModuleDict({"body": body, "actor": actor, "critic": critic})
    optimizer, worth = Adam(net.parameters(), 2e-3), torch.randn(4, 3)

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def forward(self, x: Tensor) -> Any:
            inner = self.net["body"](x)
            return self.net["actor"](inner), self.net["critic"](inner)[:, 0]

    both = Both()

    def run(count: int) -> None:
        for _ in range(count):
            x = torch.randn(48, 4)
            scores, value = both(x)
            chance = torch.distributions.Categorical(logits=scores)
            action = chance.sample()
            gain = (x @ worth).gather(1, action[:, None])[:, 0] + 0.5 * torch.randn(48)
            ahead = (gain - value).detach()
            loss = (
                -(chance.log_prob(action) * ahead).mean()
                + 0.5 * F.mse_loss(value, gain)
                - 0.01 * chance.entropy().mean()
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    return Loop(both, run, 200)


@healthy
def two_optimizers_one_loss() -> Loop:
    net, batches = Gated(), brackets()
    fast, slow = (
        Adam(net.embed.parameters(), 5e-3),
        SGD([*net.gru.parameters(), *net.out.parameters()], 0.1, momentum=0.9),
    )

    def run(count: int) -> None:
        for _ in range(count):
            x, y = batches()
            fast.zero_grad()
            slow.zero_grad()
            F.cross_entropy(net(x), y).backward()
            fast.step()
            slow.step()

    return Loop(net, run)


@healthy
def averaged_twin() -> Loop:
    net = tabular(8, 16)
    twin, optimizer = copy.deepcopy(net).requires_grad_(False), Adam(net.parameters(), 1e-3)

    def run(count: int) -> None:
        for _ in range(count):
            x = torch.randn(48, 16)
            with torch.no_grad():
                wanted = F.normalize(twin(x + 0.1 * torch.randn_like(x)), dim=1)
            optimizer.zero_grad()
            (2 - 2 * (F.normalize(net(x), dim=1) * wanted).sum(1).mean()).backward()
            optimizer.step()
            with torch.no_grad():
                for p, q in zip(twin.parameters(), net.parameters()):
                    p.lerp_(q, 0.01)

    return Loop(net, run)


@healthy
def warm_restarts() -> Loop:
    net = Gated()
    optimizer = AdamW(net.parameters(), 5e-3)
    schedule = lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 40)
    return usual(net, optimizer, brackets(), F.cross_entropy, schedule=schedule, steps=160)


@healthy
def one_cycle() -> Loop:
    net = Mask()
    optimizer = SGD(net.parameters(), 0.1, momentum=0.9)
    return usual(net, optimizer, squares(), pixels, schedule=lr_scheduler.OneCycleLR(optimizer, 0.2, 100), steps=100)


@healthy
def rare_tags() -> Loop:
    net = tabular(4, 16)
    batches = changed(tags(), lambda x, y: (x, y * (torch.rand_like(y) < 0.1)))
    return usual(net, Adam(net.parameters(), 3e-3), batches, F.binary_cross_entropy_with_logits)


@healthy
def weighted_classes() -> Loop:
    net = Mask()
    return usual(
        net,
        Adam(net.parameters(), 3e-3),
        squares(),
        lambda o, y: F.cross_entropy(o, y, torch.tensor([1.0, 8.0])),
        steps=80,
    )


@healthy
def few_of_many_parameters() -> Loop:
    net = Gated()
    usual(net, Adam(net.parameters(), 5e-3), brackets(), F.cross_entropy).run(150)
    net.requires_grad_(False)
    net.out.bias.requires_grad_(True)
    net.gru.bias_ih_l0.requires_grad_(True)
    return usual(net, Adam([net.out.bias, net.gru.bias_ih_l0], 1e-2), brackets(), F.cross_entropy, steps=60)


@healthy
def auxiliary_loss() -> Loop:
    net = tabular(2)

    def loss(out: Tensor, y: Tensor) -> Tensor:
        return F.mse_loss(out[:, :1], y) + 0.3 * F.binary_cross_entropy_with_logits(out[:, 1:], (y > 0).float())

    return usual(net, Adam(net.parameters(), 3e-3), table(), loss, steps=200)


@healthy
def letters_of_a_gru() -> Loop:
    class Letters(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.gru, self.out = nn.Embedding(32, 24), nn.GRU(24, 48, batch_first=True), nn.Linear(48, 32)

        def forward(self, x: Tensor) -> Any:
            return self.out(self.gru(self.embed(x))[0])

    net = Letters()
    return usual(
        net, Adam(net.parameters(), 5e-3), text(), lambda o, y: F.cross_entropy(o.transpose(1, 2), y), steps=120
    )


@healthy
def flat_on_purpose() -> Loop:
    net = tabular()
    return usual(
        net,
        Adam(net.parameters(), 1e-3),
        changed(table(), lambda x, y: (x, y + 5 * torch.randn_like(y))),
        F.mse_loss,
        steps=90,
    )


@healthy
def reward_climbs() -> Loop:
    net = tabular(1, 4)
    optimizer = SGD(net.parameters(), 0.01, maximize=True)

    def run(count: int) -> None:
        for _ in range(count):
            x = torch.randn(32, 4)
            out = net(x)
            optimizer.zero_grad()
            (-(out - x[:, :1]).square()).mean().backward()
            optimizer.step()

    return Loop(net, run, 120)
