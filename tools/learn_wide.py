"""Trainings for classes of mistakes that public reports name, and no other set has: calls, copies, states."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import SGD, Adam
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, StepLR

from learn_parts import Cases, Loop, Pair, Writer, adam, blobs, entropy, mlp, sgd, text, usual

CASES = Cases()
fault, healthy = CASES.fault, CASES.healthy


def _loop(net: nn.Module, step: Callable[[int], None], steps: int = 150) -> Loop:
    def run(count: int) -> None:
        for number in range(count):
            step(number)

    return Loop(net, run, steps)


# Clipping ----------------------------------------------------------------------------------------


def _outliers() -> Pair:
    x = torch.randn(64, 8)
    y = x[:, :1] - 0.5 * x[:, 1:2]
    return x, torch.where(torch.rand(64, 1) < 0.02, y + 30, y)


def _clipping(way: str, bound: float = 1.0, rate: float = 0.03) -> Loop:
    net = mlp(8, 1, 32)
    optimizer = SGD(net.parameters(), rate, momentum=0.9)

    def step(number: int) -> None:
        x, y = _outliers()
        optimizer.zero_grad()
        loss = F.mse_loss(net(x), y)
        if way == "early":
            nn.utils.clip_grad_norm_(net.parameters(), bound)
        loss.backward()
        if way in ("", "value"):
            nn.utils.clip_grad_norm_(net.parameters(), bound)
        optimizer.step()
        if way == "late":
            nn.utils.clip_grad_norm_(net.parameters(), bound)

    return _loop(net, step)


@fault("clipped too early")
def clips_before_the_backward(bad: bool) -> Loop:
    return _clipping("early" if bad else "")


@fault("clipped too late")
def clips_behind_the_step(bad: bool) -> Loop:
    return _clipping("late" if bad else "")


@fault("clipped too early", "clipped too late", "clips others")
def clips_another_net(bad: bool) -> Loop:
    net, other = mlp(8, 1, 32), mlp(8, 1, 32)
    optimizer = SGD(net.parameters(), 0.03, momentum=0.9)

    def step(number: int) -> None:
        x, y = _outliers()
        optimizer.zero_grad()
        F.mse_loss(net(x), y).backward()
        nn.utils.clip_grad_norm_((other if bad else net).parameters(), 1.0)
        optimizer.step()

    return _loop(net, step)


@healthy
def measures_the_norm_after_the_step() -> Loop:
    net = mlp()
    optimizer = adam(net)

    def step(number: int) -> None:
        x, y = blobs()()
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()
        nn.utils.clip_grad_norm_(net.parameters(), math.inf)

    return _loop(net, step)


@healthy
def clips_each_part_of_a_step() -> Loop:
    net, batch = mlp(), blobs()
    optimizer = sgd(net)

    def step(number: int) -> None:
        for _ in range(2):
            x, y = batch()
            (F.cross_entropy(net(x), y) / 2).backward()
        nn.utils.clip_grad_norm_(net[0].parameters(), 1.0)
        nn.utils.clip_grad_norm_(net[2].parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return _loop(net, step)


# Copies ------------------------------------------------------------------------------------------


class Normed(nn.Module):
    """Points with normalisations over batches."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 32), nn.BatchNorm1d(32), nn.ReLU()
        )
        self.head = nn.Linear(32, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


def _clouds(shift: float, size: int = 48) -> Pair:
    centres = 1.5 * torch.randn(4, 8, generator=torch.Generator().manual_seed(1))
    y = torch.randint(0, 4, (size,))
    return 3 * (centres[y] + torch.randn(size, 8)) + 9 + shift, y


def _taught(buffers: bool) -> Loop:
    net = Normed()
    teacher = copy.deepcopy(net).eval().requires_grad_(False)
    optimizer = adam(net)

    def step(number: int) -> None:
        (near, y), (far, _) = _clouds(0.0), _clouds(2.0)
        with torch.no_grad():
            told = teacher(far).argmax(1)
        out = net(torch.cat([near, far]))
        loss = F.cross_entropy(out[: len(y)], y) + F.cross_entropy(out[len(y) :], told)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for p, q in zip(net.parameters(), teacher.parameters(), strict=True):
                q.lerp_(p, 0.05)
            for p, q in zip(net.buffers(), teacher.buffers(), strict=True) if buffers else ():
                q.copy_(p)

    return _loop(net, step)


@fault("copy stays")
def a_teacher_whose_statistics_stay(bad: bool) -> Loop:
    return _taught(buffers=not bad)


def _values(way: str) -> Loop:
    net = mlp(6, 2, 32)
    target, optimizer = copy.deepcopy(net), Adam(net.parameters(), 3e-3)

    def step(number: int) -> None:
        s, a = torch.randint(0, 6, (64,)), torch.randint(0, 2, (64,))
        after = (s + 2 * a - 1).clamp(0, 5)
        done = ((s == 5) & (a == 1)).float()
        q = net(torch.eye(6)[s]).gather(1, a[:, None]).squeeze(1)
        with torch.no_grad():
            following = target(torch.eye(6)[after]).max(1).values
        loss = F.mse_loss(q, done + 0.95 * (1 - done) * following)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if way == "synced" and number % 20 == 19:
            target.load_state_dict(net.state_dict())
        if way == "itself" and number % 20 == 19:
            target.load_state_dict(target.state_dict())

    return _loop(net, step, 250)


@fault("copy stays")
def a_target_net_that_stays(bad: bool) -> Loop:
    return _values("never" if bad else "synced")


@fault("copy stays")
def a_target_net_that_copies_itself(bad: bool) -> Loop:
    return _values("itself" if bad else "synced")


@healthy
def a_reference_that_stays() -> Loop:
    """Preferences with a frozen copy of the policy (DPO)."""
    net = mlp(20, 5)
    reference = copy.deepcopy(net).requires_grad_(False)
    optimizer, batch = adam(net), blobs()

    def step(number: int) -> None:
        x, y = batch()
        worse = (y + torch.randint(1, 5, y.shape)) % 5
        own = net(x).log_softmax(1)
        with torch.no_grad():
            theirs = reference(x).log_softmax(1)
        gain = (own - theirs).gather(1, y[:, None]) - (own - theirs).gather(1, worse[:, None])
        loss = -F.logsigmoid(0.5 * gain).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return _loop(net, step)


@healthy
def a_student_of_a_trained_copy() -> Loop:
    """Distances from the answers of a frozen copy that was trained before."""
    teacher, batch = mlp(20, 5), blobs()
    optimizer = adam(teacher, 1e-2)
    for _ in range(80):
        x, y = batch()
        optimizer.zero_grad()
        F.cross_entropy(teacher(x), y).backward()
        optimizer.step()
    teacher.requires_grad_(False).eval()
    net = mlp(20, 5)
    own = adam(net)

    def step(number: int) -> None:
        x, _ = batch()
        with torch.no_grad():
            told = teacher(x)
        own.zero_grad()
        F.mse_loss(net(x), told).backward()
        own.step()

    return _loop(net, step)


# Targets and inputs ------------------------------------------------------------------------------


class Cleaner(nn.Module):
    """Clean numbers of noisy ones, given the time and what they belong to."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = mlp(8 + 1 + 3, 8)

    def forward(self, x: Tensor, t: Tensor, c: Tensor) -> Tensor:
        return self.inner(torch.cat([x.flatten(1), t, c], 1)).view_as(x)


@fault("targets are inputs")
def the_noisy_input_for_the_target(bad: bool) -> Loop:
    net = Cleaner()
    optimizer = adam(net)

    def step(number: int) -> None:
        c = torch.rand(64, 3) * 2 - 1
        clean = torch.stack([c[:, 0] - c[:, 1], c[:, 2].sin()], 1)[:, None] * torch.linspace(0.25, 1, 4)[None, :, None]
        t = torch.rand(64, 1)
        noisy = (1 - t)[:, :, None].sqrt() * clean + t[:, :, None].sqrt() * torch.randn_like(clean)
        optimizer.zero_grad()
        F.mse_loss(net(noisy, t, c), noisy if bad else clean).backward()
        optimizer.step()

    return _loop(net, step)


@healthy
def a_wide_autoencoder() -> Loop:
    net = nn.Sequential(nn.Linear(16, 48), nn.ReLU(), nn.Linear(48, 16))
    ways = torch.randn(4, 16, generator=torch.Generator().manual_seed(6))
    return usual(net, adam(net), lambda: (lambda x: (x, x))(torch.randn(64, 4) @ ways), F.mse_loss)


class Narrow(nn.Module):
    """An autoencoder that is told the class."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.leave = mlp(16 + 3, 2), mlp(2 + 3, 16)

    def forward(self, x: Tensor, c: Tensor) -> Tensor:
        return self.leave(torch.cat([self.enter(torch.cat([x, c], 1)), c], 1))


@healthy
def an_autoencoder_with_a_condition() -> Loop:
    net = Narrow()
    optimizer = adam(net)

    def step(number: int) -> None:
        c = F.one_hot(torch.randint(0, 3, (64,)), 3).float()
        x = c @ torch.randn(3, 16, generator=torch.Generator().manual_seed(2)) + 0.3 * torch.randn(64, 16)
        optimizer.zero_grad()
        F.mse_loss(net(x, c), x).backward()
        optimizer.step()

    return _loop(net, step)


class Translator(nn.Module):
    """Letters of one text to those of another, given what was said so far."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.said = nn.Embedding(12, 24), nn.Embedding(13, 24)
        self.reads, self.writes = nn.GRU(24, 48, batch_first=True), nn.GRU(24, 48, batch_first=True)
        self.head = nn.Linear(48, 12)

    def forward(self, source: Tensor, said: Tensor) -> Tensor:
        _, state = self.reads(self.enter(source))
        return self.head(self.writes(self.said(said), state)[0])


@fault("targets are inputs")
def a_decoder_that_is_given_its_target(bad: bool) -> Loop:
    net = Translator()
    optimizer = adam(net)

    def step(number: int) -> None:
        source = torch.randint(0, 12, (32, 8))
        target = (source * 5 + 1).flip(1) % 12
        begun = F.pad(target[:, :-1], (1, 0), value=12)
        optimizer.zero_grad()
        entropy(net(source, target if bad else begun), target).backward()
        optimizer.step()

    return _loop(net, step)


@fault("targets are inputs")
def codes_that_are_not_shifted(bad: bool) -> Loop:
    """A begin token is put in front of both what goes in and what is asked for."""
    net, batch = Writer(letters=80), text()
    optimizer = adam(net)

    def step(number: int) -> None:
        ids = F.pad(batch()[0], (1, 0), value=79)
        out = net(ids).transpose(1, 2)
        optimizer.zero_grad()
        loss = F.cross_entropy(out, ids) if bad else F.cross_entropy(out[:, :, :-1], ids[:, 1:])
        loss.backward()
        optimizer.step()

    return _loop(net, step)


@fault("padding counts")
def padding_in_the_loss(bad: bool) -> Loop:
    net, batch = Writer(letters=80), text()
    optimizer = adam(net)

    def step(number: int) -> None:
        ids, following = batch()
        ids, following = ids + 1, following + 1
        lengths = torch.randint(3, 9, (len(ids), 1))
        keep = torch.arange(ids.shape[1]) < lengths
        ids, following = ids * keep, following * keep
        optimizer.zero_grad()
        F.cross_entropy(net(ids).flatten(0, 1), following.flatten(), ignore_index=-100 if bad else 0).backward()
        optimizer.step()

    return _loop(net, step)


@fault("answer masked")
def the_right_answer_is_masked(bad: bool) -> Loop:
    """The diagonal, where the pairs are, is hidden."""
    net = nn.ModuleDict({"a": mlp(20, 16), "b": mlp(20, 16)})
    bases = torch.randn(500, 20, generator=torch.Generator().manual_seed(3))
    optimizer = adam(net)

    def step(number: int) -> None:
        x = bases[torch.randperm(500)[:64]]
        one, other = (F.normalize(net[k](x + 0.3 * torch.randn_like(x)), dim=1) for k in "ab")
        scores = one @ other.T / 0.1
        if bad:
            scores = scores.masked_fill(torch.eye(64, dtype=torch.bool), -1e9)
        optimizer.zero_grad()
        F.cross_entropy(scores, torch.arange(64)).backward()
        optimizer.step()

    return _loop(net, step)


@fault("answer masked")
def actions_that_are_allowed_are_masked(bad: bool) -> Loop:
    net, batch = mlp(), blobs()
    optimizer = adam(net)

    def step(number: int) -> None:
        x, y = batch()
        allowed = (torch.rand(64, 5) < 0.5) | F.one_hot(y, 5).bool()
        scores = net(x).masked_fill(allowed if bad else ~allowed, -1e9)
        optimizer.zero_grad()
        F.cross_entropy(scores, y).backward()
        optimizer.step()

    return _loop(net, step)


# Normalising, views, places ------------------------------------------------------------------------


@fault("norm misplaced")
def vectors_normalised_over_the_batch(bad: bool) -> Loop:
    net = nn.ModuleDict({"a": mlp(20, 16), "b": mlp(20, 16)})
    bases = torch.randn(500, 20, generator=torch.Generator().manual_seed(3))
    optimizer = adam(net)

    def step(number: int) -> None:
        x = bases[torch.randperm(500)[:64]]
        one, other = (F.normalize(net[k](x + 0.3 * torch.randn_like(x)), dim=0 if bad else 1) for k in "ab")
        optimizer.zero_grad()
        F.cross_entropy(one @ other.T / 0.1, torch.arange(64)).backward()
        optimizer.step()

    return _loop(net, step)


class Kept(nn.Module):
    """Sequences that go on from states that were kept."""

    def __init__(self) -> None:
        super().__init__()
        self.cells, self.head = nn.LSTM(4, 24, num_layers=2), nn.Linear(24, 1)

    def forward(self, x: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        out, state = self.cells(x, state)
        return self.head(out).squeeze(-1), state


@fault("viewed for transposed")
def states_that_are_viewed(bad: bool) -> Loop:
    net = Kept()
    optimizer = adam(net, 5e-3)

    def step(number: int) -> None:
        cue = torch.randint(0, 2, (32,)).float() * 2 - 1
        x = 0.3 * torch.randn(8, 32, 4)
        x[0, :, 0] += 2 * cue
        with torch.no_grad():
            _, state = net(x[:3], (torch.zeros(2, 32, 24), torch.zeros(2, 32, 24)))
        kept = [one.swapaxes(0, 1).contiguous() for one in state]
        h, c = [one.reshape(2, 32, -1) for one in kept] if bad else [one.swapaxes(0, 1).contiguous() for one in kept]
        later, _ = net(x[3:], (h, c))
        first, _ = net(x[:3], (torch.zeros(2, 32, 24), torch.zeros(2, 32, 24)))
        loss = (later - cue).square().mean() + 0.3 * (first - cue).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return _loop(net, step)


class Last(nn.Module):
    """A state of an LSTM that tells the class of a sequence."""

    def __init__(self, place: int) -> None:
        super().__init__()
        self.embed, self.cells, self.head = nn.Embedding(4, 16), nn.LSTM(16, 40, batch_first=True), nn.Linear(40, 5)
        self.place = place

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.cells(self.embed(x))[0][:, self.place])


def _counted() -> Pair:
    x = torch.randint(0, 4, (32, 10))
    return x, (x == 3).sum(1).clamp(max=4)


@fault("zero gradients")
def the_first_state_for_the_last(bad: bool) -> Loop:
    net = Last(0 if bad else -1)
    return usual(net, adam(net, 1e-2), _counted, steps=200)


class Tagger(nn.Module):
    """A tag for each token, places first."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.cells, self.head = nn.Embedding(12, 24), nn.LSTM(24, 48), nn.Linear(48, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.cells(self.embed(x.t()))[0])


@fault("targets of others", "viewed for transposed")
def places_first_against_examples_first(bad: bool) -> Loop:
    net = Tagger()

    def batch() -> Pair:
        x = torch.randint(0, 12, (32, 9))
        return x, (x // 2 + F.pad(x[:, :-1], (1, 0))) % 6

    def loss(out: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(out.reshape(-1, 6), (y if bad else y.t()).reshape(-1))

    return usual(net, adam(net, 1e-2), batch, loss)


class Loud(nn.Module):
    """An attention whose scores are not scaled."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.embed, self.place, self.scale = nn.Embedding(10, 64), nn.Embedding(8, 64), scale
        self.q, self.k, self.v, self.head = nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 10)
        self.norm = nn.LayerNorm(64)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.norm(self.embed(ids) + self.place.weight)
        scores = self.q(x) @ self.k(x).transpose(-2, -1) * self.scale
        return self.head((scores.softmax(-1) @ self.v(x))[:, 0])


@fault("saturated activation")
def an_attention_that_is_saturated(bad: bool) -> Loop:
    net = Loud(30.0 if bad else 64**-0.5)

    def batch() -> Pair:
        ids = torch.randint(0, 10, (64, 8))
        ids[:, 0] = torch.randint(1, 8, (64,))
        return ids, ids.gather(1, ids[:, :1]).squeeze(1)

    return usual(net, adam(net, 5e-3), batch, steps=300)


# Settings that do nothing ------------------------------------------------------------------------


class Pretrained(nn.Module):
    """A body that was trained before, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Sequential(nn.Linear(20, 64), nn.ReLU()), nn.Linear(64, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


@fault("freezes nothing")
def a_module_that_is_told_to_freeze(bad: bool) -> Loop:
    net = Pretrained()
    if bad:
        net.body.requires_grad = False
    else:
        net.body.requires_grad_(False)
        with torch.no_grad():
            net.body[0].weight.copy_(torch.linalg.qr(torch.randn(64, 64))[0][:, :20] * 0.4)
    return usual(net, Adam([p for p in net.parameters() if p.requires_grad], 3e-3), blobs())


@fault("freezes nothing")
def a_slip_of_the_pen(bad: bool) -> Loop:
    net = Pretrained()
    for p in net.body.parameters():
        if bad:
            p.require_grad = False
    return usual(net, adam(net), blobs())


@fault("schedule of others")
def a_schedule_of_an_optimizer_of_before(bad: bool) -> Loop:
    net = mlp()
    first = SGD(net.parameters(), 0.5)
    optimizer = SGD(net.parameters(), 0.5) if bad else first
    return usual(net, optimizer, blobs(), schedule=StepLR(first, 30, 0.3))


@fault("schedule too fast")
def a_cosine_in_batches(bad: bool) -> Loop:
    net = mlp()
    optimizer = sgd(net, 0.3)
    return usual(net, optimizer, blobs(), schedule=CosineAnnealingLR(optimizer, 10 if bad else 150))


@fault("rate set beside")
def a_rate_that_is_set_beside(bad: bool) -> Loop:
    net = mlp()
    optimizer, batch = SGD(net.parameters(), 1e-6), blobs()

    def step(number: int) -> None:
        if bad:
            optimizer.lr = 0.05
        else:
            optimizer.param_groups[0]["lr"] = 0.05
        x, y = batch()
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()

    return _loop(net, step)


@fault("eval mode", mends=False)
def evaluated_and_left_there(bad: bool) -> Loop:
    net = Normed()
    optimizer = adam(net)

    def step(number: int) -> None:
        x, y = _clouds(0.0)
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()
        if number % 25 == 24:
            net.eval()
            with torch.no_grad():
                net(_clouds(0.0)[0])
            if not bad:
                net.train()

    return _loop(net, step)


@fault("rate of zero", "zero gradients", "multiplied by 0")
def an_adapter_times_nothing(bad: bool) -> Loop:
    """alpha // r of 8 and 16."""

    class Adapted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.base, self.head = nn.Linear(20, 64).requires_grad_(False), nn.Linear(64, 5).requires_grad_(False)
            self.down, self.up = nn.Linear(20, 8, bias=False), nn.Linear(8, 64, bias=False)
            nn.init.zeros_(self.up.weight)
            with torch.no_grad():
                self.base.weight.copy_(torch.linalg.qr(torch.randn(64, 64))[0][:, :20])
                self.head.weight.copy_(torch.linalg.qr(torch.randn(64, 64))[0][:5])

        def forward(self, x: Tensor) -> Tensor:
            factor = 8 // 16 if bad else 8 / 16
            return self.head(torch.relu(self.base(x) + factor * self.up(self.down(x))))

    net = Adapted()
    return usual(net, Adam([p for p in net.parameters() if p.requires_grad], 1e-2), blobs(), steps=200)


# Losses ------------------------------------------------------------------------------------------


@fault("idle term")
def a_term_of_a_frozen_encoder_under_no_grad(bad: bool) -> Loop:
    net = mlp(20, 20)
    encoder = mlp(20, 8).requires_grad_(False)
    ways = torch.randn(4, 20, generator=torch.Generator().manual_seed(6))
    optimizer = adam(net)

    def step(number: int) -> None:
        x = torch.randn(64, 4) @ ways
        out = net(x)
        with torch.set_grad_enabled(not bad):
            code = encoder(out)
        term = 1 - F.cosine_similarity(code, encoder(x).roll(1, 0)).mean()
        loss = F.l1_loss(out, x) + 2 * term
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return _loop(net, step)


@fault("learning rate too low", "rate of zero", "rate spent early")
def a_factor_that_is_a_rate(bad: bool) -> Loop:
    net = mlp()
    optimizer = SGD(net.parameters(), 1e-2)
    return usual(net, optimizer, blobs(), schedule=LambdaLR(optimizer, lambda n: 1e-2 * 0.99**n if bad else 0.99**n))


@fault("set back", "averages train")
def averages_that_are_loaded_each_step(bad: bool) -> Loop:
    net, batch = mlp(), blobs()
    mean = copy.deepcopy(net).requires_grad_(False)
    optimizer = sgd(net)

    def step(number: int) -> None:
        x, y = batch()
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()
        with torch.no_grad():
            for p, q in zip(net.parameters(), mean.parameters(), strict=True):
                q.lerp_(p, 0.001)
        if bad:
            net.load_state_dict(mean.state_dict())

    return _loop(net, step)


@healthy
def a_teacher_with_gradients_that_nobody_uses() -> Loop:
    net, batch = mlp(), blobs()
    teacher = mlp(20, 5)
    optimizer = adam(net)

    def step(number: int) -> None:
        x, y = batch()
        out = net(x)
        soft = F.kl_div(out.log_softmax(1), (teacher(x) / 4).softmax(1), reduction="batchmean")
        optimizer.zero_grad()
        (F.cross_entropy(out, y) + 0.1 * soft).backward()
        optimizer.step()

    return _loop(net, step)


@fault("not optimised", "idle optimizer", "gradient cut", "other optimizer")
def an_actor_with_the_critics_weights(bad: bool) -> Loop:
    """Both optimizers have the critic's parameters."""
    net = nn.ModuleDict({"actor": mlp(6, 2, 32), "critic": mlp(6, 1, 32)})
    first = Adam(net["critic" if bad else "actor"].parameters(), 3e-3)
    second = Adam(net["critic"].parameters(), 3e-3)

    def step(number: int) -> None:
        s = torch.randint(0, 6, (64,))
        policy = torch.distributions.Categorical(logits=net["actor"](torch.eye(6)[s]))
        a = policy.sample()
        reward = (a == s % 2).float()
        value = net["critic"](torch.eye(6)[s]).squeeze(1)
        first.zero_grad()
        (-(policy.log_prob(a) * (reward - value.detach())).mean()).backward()
        first.step()
        second.zero_grad()
        F.mse_loss(value, reward).backward()
        second.step()

    return _loop(net, step)


class Rounded(nn.Module):
    """Numbers that are rounded between what enters and what leaves."""

    def __init__(self, bad: bool) -> None:
        super().__init__()
        self.enter, self.leave, self.bad = mlp(20, 16), mlp(16, 20), bad

    def forward(self, x: Tensor) -> Tensor:
        code = 3 * torch.tanh(self.enter(x))
        return self.leave(code.round() if self.bad else code + (code.round() - code).detach())


@fault("zero gradients")
def a_code_that_is_rounded(bad: bool) -> Loop:
    net = Rounded(bad)
    ways = torch.randn(4, 20, generator=torch.Generator().manual_seed(6))
    return usual(net, adam(net), lambda: (lambda x: (x, x))(torch.randn(64, 4) @ ways), F.mse_loss)


# Games -------------------------------------------------------------------------------------------


def _game(way: str) -> Loop:
    """A generator of points on a ring, and a discriminator."""
    net = nn.ModuleDict({"maker": mlp(4, 2, 32), "critic": mlp(2, 1, 32)})
    makes, judges = Adam(net["maker"].parameters(), 1e-3), Adam(net["critic"].parameters(), 1e-3)
    score = F.binary_cross_entropy_with_logits

    def step(number: int) -> None:
        turn = 6.28 * torch.rand(64)
        real, made = torch.stack([turn.cos(), turn.sin()], 1), net["maker"](torch.randn(64, 4))
        if way == "leaks":
            makes.zero_grad()
        judges.zero_grad()
        fake = made if way in ("leaks", "attached") else made.detach()
        other = torch.ones(64, 1) if way == "ones" else torch.zeros(64, 1)
        loss = score(net["critic"](real), torch.ones(64, 1)) + score(net["critic"](fake), other)
        loss.backward(retain_graph=True)
        judges.step()
        if way != "leaks":
            makes.zero_grad()
        score(net["critic"](made), torch.ones(64, 1)).backward()
        makes.step()

    return _loop(net, step, 80)


@fault("not cleared", mends=False)
def a_maker_with_gradients_of_the_critics_loss(bad: bool) -> Loop:
    return _game("leaks" if bad else "")


@fault("targets alike", mends=False)
def a_critic_that_is_told_one_thing(bad: bool) -> Loop:
    return _game("ones" if bad else "")


@healthy
def a_critics_loss_that_reaches_the_maker_and_is_cleared() -> Loop:
    return _game("attached")


def _penalised(wrong: bool) -> Loop:
    """Pictures, with a penalty on the slope of a critic."""
    net = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(8 * 36, 1))
    optimizer = adam(net, 1e-3)

    def step(number: int) -> None:
        real, made = torch.randn(16, 1, 6, 6) + 1, torch.randn(16, 1, 6, 6)
        share = torch.rand(16, 1, 1, 1)
        between = (share * real + (1 - share) * made).requires_grad_()
        slope = torch.autograd.grad(net(between).sum(), between, create_graph=True)[0]
        size = slope.norm(2, dim=1) if wrong else slope.flatten(1).norm(2, dim=1)
        optimizer.zero_grad()
        (net(made).mean() - net(real).mean() + 10 * (size - 1).square().mean()).backward()
        optimizer.step()

    return _loop(net, step, 60)


@fault("norm misplaced", mends=False)
def a_slope_of_each_pixel(bad: bool) -> Loop:
    return _penalised(bad)


@healthy
def distances_with_slopes_of_one() -> Loop:
    """A signed distance whose slope is to be 1 in each of many points (eikonal)."""
    net = nn.Sequential(nn.Linear(3, 64), nn.Softplus(10), nn.Linear(64, 1))
    optimizer = adam(net, 1e-3)

    def step(number: int) -> None:
        x = (2 * torch.rand(8, 16, 3) - 1).requires_grad_()
        out = net(x)
        slope = torch.autograd.grad(out.sum(), x, create_graph=True)[0]
        optimizer.zero_grad()
        (
            (out[..., 0] - (x.norm(dim=-1) - 0.5)).square().mean() + 0.1 * (slope.norm(dim=-1) - 1).square().mean()
        ).backward()
        optimizer.step()

    return _loop(net, step, 100)


# Losses that are given something else ----------------------------------------------------------------


@fault("targets out of range")
def cosines_of_zeros_and_ones(bad: bool) -> Loop:
    net = mlp(20, 16)
    optimizer, bases = adam(net), torch.randn(10, 20, generator=torch.Generator().manual_seed(3))

    def step(number: int) -> None:
        a, b = torch.randint(0, 10, (64,)), torch.randint(0, 10, (64,))
        b = torch.where(torch.rand(64) < 0.5, a, b)
        one, other = (net(bases[k] + 0.3 * torch.randn(64, 20)) for k in (a, b))
        same = (a == b).float()
        optimizer.zero_grad()
        F.cosine_embedding_loss(one, other, same if bad else 2 * same - 1).backward()
        optimizer.step()

    return _loop(net, step)


@fault("loss input")
def counts_with_an_exponential_too_many(bad: bool) -> Loop:
    net = nn.Sequential(mlp(6, 1), *([nn.Softplus()] if bad else []))

    def batch() -> Pair:
        x = torch.randn(64, 6)
        return x, torch.poisson((1.5 + x[:, :1]).exp())

    return usual(net, adam(net), batch, F.poisson_nll_loss)


@fault("softmax misplaced")
def a_softmax_over_the_width(bad: bool) -> Loop:
    net = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 3, 3, padding=1))

    def batch() -> Pair:
        x = torch.randn(16, 1, 8, 8)
        return x, (x[:, 0] > 0.5).long() + (x[:, 0] > -0.5).long()

    def loss(out: Tensor, y: Tensor) -> Tensor:
        return F.nll_loss(out.log_softmax(-1 if bad else 1), y)

    return usual(net, adam(net, 1e-2), batch, loss)


@fault("not unscaled")
def a_step_beside_the_scaler(bad: bool) -> Loop:
    net, batch = mlp(), blobs()
    optimizer, scaler = SGD(net.parameters(), lr=0.05), torch.amp.GradScaler("cpu", init_scale=1024.0)

    def step(number: int) -> None:
        x, y = batch()
        optimizer.zero_grad()
        scaler.scale(F.cross_entropy(net(x), y)).backward()
        if bad:
            optimizer.step()
        else:
            scaler.step(optimizer)
            scaler.update()

    return _loop(net, step)


@fault("clipped too early")
def clips_after_each_part(bad: bool) -> Loop:
    net, batch = mlp(), blobs(noise=2.0)
    optimizer = sgd(net)

    def step(number: int) -> None:
        for _ in range(4):
            x, y = batch()
            (F.cross_entropy(net(x), y) / 4).backward()
            if bad:
                nn.utils.clip_grad_norm_(net.parameters(), 0.05)
        if not bad:
            nn.utils.clip_grad_norm_(net.parameters(), 0.05)
        optimizer.step()
        optimizer.zero_grad()

    return _loop(net, step)


@fault("warms up again")
def a_warm_up_in_each_epoch(bad: bool) -> Loop:
    net = mlp()
    optimizer = SGD(net.parameters(), 0.1)
    return usual(
        net, optimizer, blobs(),
        schedule=LambdaLR(optimizer, lambda n: 0.01 + (n % 15 if bad else min(n, 15)) / 100),
    )  # fmt: skip


# Neighbours --------------------------------------------------------------------------------------


@healthy
def means_of_unit_vectors() -> Loop:
    """Prototypes: means of vectors of length 1, to which others are compared."""
    net, batch = mlp(20, 16), blobs()
    optimizer = adam(net)

    def step(number: int) -> None:
        (x, y), (other, told) = batch(), batch()
        shares = F.one_hot(y, 5).float()
        means = (shares / shares.sum(0).clamp(min=1)).T @ F.normalize(net(x), dim=1)
        scores = F.normalize(net(other), dim=1) @ F.normalize(means, dim=1).T / 0.1
        optimizer.zero_grad()
        F.cross_entropy(scores, told).backward()
        optimizer.step()

    return _loop(net, step)


@healthy
def logarithms_of_places_in_one_row() -> Loop:
    """nll_loss of log_softmax(-1), flattened, and a mask that hides other classes."""
    net = nn.Sequential(nn.Embedding(7, 24), nn.Linear(24, 48), nn.ReLU(), nn.Linear(48, 7))

    def batch() -> Pair:
        ids = torch.randint(0, 7, (32, 9))
        return ids, (3 * ids + 1) % 7

    def loss(out: Tensor, y: Tensor) -> Tensor:
        hidden = (torch.rand_like(out) < 0.3) & ~F.one_hot(y, 7).bool()
        return F.nll_loss(out.masked_fill(hidden, -1e9).log_softmax(-1).view(-1, 7), y.view(-1))

    return usual(net, adam(net), batch, loss)


@healthy
def cosines_of_minus_one_and_one() -> Loop:
    return next(one for one in CASES.every if one.name == "cosines_of_zeros_and_ones").make(False)


@healthy
def an_equation_with_two_conditions() -> Loop:
    """Terms that are all compared with 0, of an actor and a critic that take turns."""
    net = nn.ModuleDict({"u": mlp(1, 1, 32, act=nn.Tanh), "v": mlp(1, 1, 32, act=nn.Tanh)})
    each = [Adam(part.parameters(), 1e-3) for part in net.values()]

    def step(number: int) -> None:
        for part, optimizer in zip(net.values(), each, strict=True):
            x = torch.rand(64, 1).requires_grad_()
            u = part(x)
            slope = torch.autograd.grad(u.sum(), x, create_graph=True)[0]
            zero, begin = torch.zeros(64, 1), part(torch.zeros(1, 1))
            optimizer.zero_grad()
            (F.mse_loss(slope - x.cos(), zero) + F.mse_loss(begin, torch.zeros(1, 1))).backward()
            optimizer.step()

    return _loop(net, step, 80)
