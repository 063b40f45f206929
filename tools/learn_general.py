"""One training for each general conclusion: what is lost, what teaches nothing, what draws answers together."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import SGD, Adam, Optimizer

from learn_parts import LETTERS, Cases, Loop, Pair, adam, blobs, entropy, mlp, text, usual

CASES = Cases()
fault, healthy = CASES.fault, CASES.healthy

# Terms of a loss ---------------------------------------------------------------------------------


def _game(cut: bool) -> Loop:
    """Return a generator and a discriminator of points on a ring."""
    model = nn.ModuleDict({"maker": mlp(4, 2, 32), "judge": mlp(2, 1, 32)})
    maker, judge = model["maker"], model["judge"]
    makes, judges = (Adam(one.parameters(), lr=1e-3, betas=(0.5, 0.99)) for one in (maker, judge))

    def run(count: int) -> None:
        for _ in range(count):
            real = F.normalize(torch.randn(64, 2)) + 2
            made = maker(torch.randn(64, 4))
            judges.zero_grad()
            ((judge(real) - 1).square().mean() + judge(made.detach()).square().mean()).backward()
            judges.step()
            makes.zero_grad()
            seen = judge(made.detach() if cut else made)
            ((seen - 1).square().mean() + 1e-3 * made.square().mean()).backward()
            makes.step()

    return Loop(model, run, 150)


@fault("idle term", mends=False)
def a_generator_behind_detach(bad: bool) -> Loop:
    return _game(bad)


@healthy
def a_generator_with_a_penalty() -> Loop:
    return _game(False)


@healthy
def two_parts_with_an_optimizer_each() -> Loop:
    net, batches = nn.ModuleDict({"one": mlp(), "other": mlp()}), blobs()
    steps = [adam(net["one"]), adam(net["other"])]

    def run(count: int) -> None:
        for _ in range(count):
            x, y = batches()
            (F.cross_entropy(net["one"](x), y) + F.cross_entropy(net["other"](x), y)).backward()
            for one in steps:
                one.step()
                one.zero_grad()

    return Loop(net, run, 100)


# Answers that are drawn together -----------------------------------------------------------------


class Twins(nn.Module):
    """An encoder of two views, and a predictor."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(20, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 16))
        self.predictor = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 16))

    def forward(self, a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        one, other = self.encoder(a), self.encoder(b)
        return self.predictor(one), self.predictor(other), one, other


def _views(detached: bool, spread: float = 0.0, squared: bool = False) -> Loop:
    net, batches = Twins(), blobs()
    optimizer = SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3)

    def near(p: Tensor, z: Tensor) -> Tensor:
        z = z.detach() if detached else z
        return F.mse_loss(p, z) if squared else -F.cosine_similarity(p, z).mean()

    def run(count: int) -> None:
        for _ in range(count):
            x, _ = batches()
            p, q, one, other = net(x + 0.3 * torch.randn_like(x), x + 0.3 * torch.randn_like(x))
            loss = (near(p, other) + near(q, one)) / 2
            if spread:
                loss = loss + spread * (torch.relu(1 - one.std(0)).mean() + torch.relu(1 - other.std(0)).mean())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    return Loop(net, run, 300, optimizer)


@fault("answers alike")
def twins_that_both_learn(bad: bool) -> Loop:
    return _views(not bad)


@fault("answers alike")
def squares_without_anything_apart(bad: bool) -> Loop:
    return _views(False, 0.0 if bad else 2.0, squared=True)


@healthy
def twins_with_one_side_detached() -> Loop:
    return _views(True)


# Rewards -----------------------------------------------------------------------------------------


def _policy(sign: float) -> Loop:
    net = mlp(6, 4, 32, 1, nn.Tanh)
    optimizer, rule = Adam(net.parameters(), lr=3e-3), torch.randn(6, 4)

    def run(count: int) -> None:
        for step in range(count):
            if step % 4 == 0:
                x = torch.randn(256, 6)
                with torch.no_grad():
                    actions = torch.distributions.Categorical(logits=net(x))
                    taken = actions.sample()
                    old = actions.log_prob(taken)
                reward = (taken == (x @ rule).argmax(1)).float()
                advantage = (reward - reward.mean()) / (reward.std() + 1e-6)
            now = torch.distributions.Categorical(logits=net(x))
            ratio = (now.log_prob(taken) - old).exp()
            raised = torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
            optimizer.zero_grad()
            (sign * raised - 0.01 * now.entropy().mean()).backward()
            optimizer.step()

    return Loop(net, run, 200, optimizer)


@fault("wrong sign", mends=False)
def a_surrogate_without_its_minus(bad: bool) -> Loop:
    return _policy(1.0 if bad else -1.0)


@healthy
def a_surrogate_with_its_minus() -> Loop:
    return _policy(-1.0)


def _values(ends: bool) -> Loop:
    """Return a loop of Q-learning on a chain of eight places, with a reward at one end."""
    net, places, random_ = mlp(8, 2, 32, 1), torch.eye(8), random.Random(0)
    slow, optimizer = copy.deepcopy(net), Adam(net.parameters(), lr=2e-3)

    def moves(count: int) -> Iterable[tuple[int, int, float, int, float]]:
        for _ in range(count):
            place, action = random_.randrange(8), random_.randrange(2)
            there = place + (1 if action else -1)
            out = there < 0 or there > 7
            yield place, action, (1.0 if there > 7 else -1.0) if out else -0.02, min(max(there, 0), 7), float(out)

    def run(count: int) -> None:
        for step in range(count):
            here, action, reward, there, over = (torch.tensor(one) for one in zip(*moves(48), strict=True))
            with torch.no_grad():
                later = slow(places[there]).max(1)[0]
                target = reward + 0.99 * later * ((1 - over) if ends else 1.0)
            value = net(places[here]).gather(1, action[:, None]).squeeze(1)
            optimizer.zero_grad()
            F.mse_loss(value, target).backward()
            optimizer.step()
            if step % 20 == 19:
                slow.load_state_dict(net.state_dict())

    return Loop(net, run, 1100, optimizer)


@fault("targets grow")
def values_beyond_the_end(bad: bool) -> Loop:
    return _values(not bad)


@healthy
def values_up_to_the_end() -> Loop:
    return _values(True)


# What is lost ------------------------------------------------------------------------------------


class Changed(nn.Module):
    """A net whose input or inner numbers are changed by a function."""

    def __init__(self, first: bool, change: object) -> None:
        super().__init__()
        self.into, self.net, self.first, self.change = nn.Linear(20, 32), mlp(32), first, change

    def forward(self, x: Tensor) -> Tensor:
        if self.first:
            return self.net(self.into(self.change(x)))  # type: ignore[operator]
        return self.net(self.change(self.into(x)))  # type: ignore[operator]


def _shares(size: int = 64) -> Pair:
    x = torch.rand(size, 20)
    return x, (5 * x[:, :5].mean(1)).long().clamp(max=4)


@fault("examples alike")
def shares_cast_to_integers(bad: bool) -> Loop:
    net = Changed(True, (lambda x: x.long().float()) if bad else (lambda x: x))
    return usual(net, adam(net), _shares)


@fault("examples alike")
def a_mean_over_the_batch(bad: bool) -> Loop:
    net = Changed(False, lambda x: x.mean(0 if bad else 1, keepdim=True).expand_as(x) + (0 if bad else x))
    return usual(net, adam(net), blobs())


@healthy
def places_that_are_the_same_for_all() -> Loop:
    net = Changed(False, lambda x: x + torch.sin(torch.arange(32.0)).expand_as(x))
    return usual(net, adam(net), blobs())


@healthy
def a_head_of_zeros() -> Loop:
    net = mlp()
    nn.init.zeros_(net[-1].weight)  # type: ignore[arg-type]
    nn.init.zeros_(net[-1].bias)  # type: ignore[arg-type]
    return usual(net, adam(net), blobs())


@fault("softmax over batch")
def gates_of_the_whole_batch(bad: bool) -> Loop:
    class Gated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate, self.parts = nn.Linear(20, 4), nn.ModuleList([mlp() for _ in range(4)])

        def forward(self, x: Tensor) -> Tensor:
            share = torch.softmax(self.gate(x), 0 if bad else 1)
            return sum(share[:, i : i + 1] * part(x) for i, part in enumerate(self.parts))  # type: ignore[return-value]

    net = Gated()
    return usual(net, adam(net), blobs())


# What is seen ------------------------------------------------------------------------------------


class Teller(nn.Module):
    """A transformer of torch's own layers, or an LSTM, that is to tell the next letter."""

    def __init__(self, masked: bool, layers: bool = True, both: bool = False) -> None:
        super().__init__()
        self.masked, self.layers = masked, layers
        self.tokens, self.places = nn.Embedding(len(LETTERS), 32), nn.Embedding(64, 32)
        layer = nn.TransformerEncoderLayer(32, 4, 64, 0.0, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 1) if layers else nn.LSTM(32, 32, batch_first=True, bidirectional=both)
        self.head = nn.Linear(64 if both else 32, len(LETTERS))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) + self.places.weight[: ids.shape[1]]
        if not self.layers:
            return self.head(self.body(x)[0])
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1]) if self.masked else None
        return self.head(self.body(x, mask=mask))


@fault("sees ahead")
def letters_without_a_mask(bad: bool) -> Loop:
    net = Teller(not bad)
    return usual(net, adam(net), text())


@fault("sees ahead")
def letters_read_in_both_directions(bad: bool) -> Loop:
    net = Teller(True, layers=False, both=bad)
    return usual(net, adam(net), text())


@healthy
def letters_with_a_mask() -> Loop:
    net = Teller(True)
    return usual(net, adam(net), text())


def _by_pass(net: nn.Module, optimizer: Optimizer, mixed: bool, noise: float = 2.0) -> Loop:
    """Return a loop of passes through 3,200 examples, whose labels are mixed up or not."""
    whole = [blobs(noise=noise, size=64)() for _ in range(50)]
    x, y = torch.cat([one for one, _ in whole]), torch.cat([one for _, one in whole])
    y = y[torch.randperm(len(y))] if mixed else y

    def run(count: int) -> None:
        while True:
            for rows in torch.randperm(len(x)).split(64):
                optimizer.zero_grad()
                F.cross_entropy(net(x[rows]), y[rows]).backward()
                optimizer.step()
                count -= 1
                if not count:
                    return

    return Loop(net, run, 250, optimizer)


@fault("targets unrelated")
def labels_of_others_learned_by_heart(bad: bool) -> Loop:
    net = mlp(hidden=256)
    return _by_pass(net, adam(net, 1e-3), bad)


@healthy
def noisy_points_in_passes() -> Loop:
    net = mlp(hidden=256)
    return _by_pass(net, adam(net, 1e-3), False, noise=4.0)


# Weights of classes, steps -----------------------------------------------------------------------


def _rare(size: int = 64) -> Pair:
    x, y = blobs(noise=2.0, size=size)()
    rare = (y == 4) & (torch.rand(size) < 0.85)
    return x[~rare], y[~rare]


@fault("weights upturned", mends=False)
def weights_of_counts(bad: bool) -> Loop:
    net = mlp()
    share = torch.tensor([0.24, 0.24, 0.24, 0.23, 0.05])
    weight = share / share.mean() if bad else (1 / share) / (1 / share).mean()
    return usual(net, adam(net), _rare, lambda out, y: F.cross_entropy(out, y, weight=weight))


@healthy
def weights_of_inverse_counts() -> Loop:
    net, weight = mlp(), torch.tensor([1.0, 1.0, 1.0, 1.0, 5.0])
    return usual(net, adam(net), _rare, lambda out, y: F.cross_entropy(out, y, weight=weight))


@fault("eps too large")
def eps_of_a_hundred(bad: bool) -> Loop:
    net = mlp()
    return usual(net, Adam(net.parameters(), lr=1e-3, eps=100.0 if bad else 1e-8), blobs())


class Uphill(Optimizer):
    """Plain descent, or the other way."""

    def __init__(self, parameters: Iterable[Tensor], lr: float) -> None:
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: object = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                p.add_(p.grad, alpha=group["lr"])


@fault("steps uphill")
def steps_with_the_wrong_sign(bad: bool) -> Loop:
    net = mlp()
    return usual(net, Uphill(net.parameters(), 0.03 if bad else -0.03), blobs(), entropy)


# What the last operation returns -----------------------------------------------------------------


@fault("targets out of reach")
def clamped_answers(bad: bool) -> Loop:
    class Clamped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = mlp(20, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.net(x).clamp(0, 1) if bad else self.net(x)

    net = Clamped()

    def batch() -> Pair:
        x = torch.randn(64, 20)
        return x, 2 * x[:, :1] + x[:, 1:2]

    return usual(net, adam(net), batch, F.mse_loss)


@fault("targets out of reach")
def chances_behind_a_rectifier(bad: bool) -> Loop:
    net = nn.Sequential(mlp(20, 1), nn.ReLU() if bad else nn.Identity())

    def batch() -> Pair:
        x = torch.randn(64, 20)
        return x, (x[:, :1] + x[:, 1:2] > 0).float()

    return usual(net, adam(net), batch, F.binary_cross_entropy_with_logits)


@healthy
def chances_between_bounds_that_are_wide() -> Loop:
    net = nn.Sequential(mlp(20, 1), nn.Hardtanh(-8, 8))

    def batch() -> Pair:
        x = torch.randn(64, 20)
        return x, (x[:, :1] + x[:, 1:2] > 0).float()

    return usual(net, adam(net), batch, F.binary_cross_entropy_with_logits)
