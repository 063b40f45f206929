"""One training for each class of mistake that is often reported, each mended, too: terms, labels, teachers, steps."""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import SGD, Adam

from learn_parts import Cases, Loop, Pair, Reader, Writer, adam, blobs, entropy, images, mlp, sgd, text, usual

CASES = Cases()
fault, healthy = CASES.fault, CASES.healthy

# Terms of a loss ---------------------------------------------------------------------------------


class TwoHeads(nn.Module):
    """A body with a head of classes and one of numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(20, 64), nn.ReLU())
        self.kinds, self.sizes = nn.Linear(64, 5), nn.Linear(64, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = self.body(x)
        return self.kinds(h), self.sizes(h)


@fault("term outweighed")
def a_term_in_other_units(bad: bool) -> Loop:
    """Boxes in pixels beside a class."""
    net, scale = TwoHeads(), 300.0 if bad else 1.0

    def loss(out: tuple[Tensor, Tensor], y: Tensor) -> Tensor:
        size = scale * (y[:, None].float() + torch.randn(len(y), 1))
        return F.cross_entropy(out[0], y) + F.mse_loss(out[1], size)

    return usual(net, SGD(net.parameters(), lr=1e-6 if bad else 0.05), blobs(), loss)


@fault("weight decay")
def a_penalty_that_outweighs(bad: bool) -> Loop:
    net, rate = mlp(), 1.0 if bad else 1e-5

    def loss(out: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(out, y) + rate * sum(p.square().sum() for p in net.parameters())

    return usual(net, adam(net), blobs(), loss, steps=200)


@fault("idle term")
def a_term_that_is_constant(bad: bool) -> Loop:
    """An auxiliary loss on an argmax."""
    net = TwoHeads()

    def loss(out: tuple[Tensor, Tensor], y: Tensor) -> Tensor:
        wanted = y[:, None].float() / 5
        own = F.mse_loss(out[1].detach() if bad else out[1], wanted)
        return 0.1 * F.cross_entropy(out[0], y) + 3 * own

    return usual(net, adam(net), blobs(), loss)


# Classes -----------------------------------------------------------------------------------------


def _rare(share: float) -> Any:
    rule = torch.randn(20, generator=torch.Generator().manual_seed(4))

    def batch() -> Pair:
        x = torch.randn(256, 20)
        return x, ((x @ rule) > share * 4.47).float()[:, None]

    return batch


@fault("weights upturned")
def pos_weight_upside_down(bad: bool) -> Loop:
    net, batch = mlp(20, 1), _rare(1.3)
    weight = torch.tensor([0.1 if bad else 9.0])
    return usual(
        net, adam(net, 1e-3), batch, lambda out, y: F.binary_cross_entropy_with_logits(out, y, pos_weight=weight)
    )


@fault("weights upturned")
def class_weights_by_counts(bad: bool) -> Loop:
    net, shares = mlp(), torch.tensor([0.8, 0.1, 0.05, 0.03, 0.02])
    centres = 1.2 * torch.randn(5, 20, generator=torch.Generator().manual_seed(2))
    weight = 5 * shares if bad else 1 / (5 * shares)

    def batch() -> Pair:
        y = torch.multinomial(shares, 128, replacement=True)
        return centres[y] + 1.5 * torch.randn(128, 20), y

    return usual(net, adam(net), batch, lambda out, y: F.cross_entropy(out, y, weight=weight))


class Spoken(nn.Module):
    """Frames to letters."""

    def __init__(self, stride: int = 1) -> None:
        super().__init__()
        self.cells, self.head = nn.GRU(8, 48, batch_first=True, bidirectional=True), nn.Linear(96, 6)
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.cells(x)[0][:, :: self.stride]).log_softmax(-1).transpose(0, 1)


def _spoken(first: int) -> Any:
    sounds = 1.5 * torch.randn(6, 8, generator=torch.Generator().manual_seed(8))

    def batch() -> Pair:
        y = torch.randint(first, 6, (32, 5))
        y = torch.where(F.pad(y[:, :-1], (1, 0), value=-1) == y, first + (y - first + 1) % (6 - first), y)
        held = y.repeat_interleave(3, 1)
        return sounds[held] + 0.4 * torch.randn(32, 15, 8), y

    return batch


@fault("blank label")
def a_blank_that_is_a_letter(bad: bool) -> Loop:
    net = Spoken()

    def loss(out: Tensor, y: Tensor) -> Tensor:
        return F.ctc_loss(out, y, torch.full((32,), 15), torch.full((32,), 5), blank=0, zero_infinity=True)

    return usual(net, adam(net, 1e-2), _spoken(0 if bad else 1), loss)


@fault("outputs too short")
def outputs_shorter_than_the_labels(bad: bool) -> Loop:
    net = Spoken(4 if bad else 1)

    def loss(out: Tensor, y: Tensor) -> Tensor:
        return F.ctc_loss(out, y, torch.full((32,), len(out)), torch.full((32,), 5), blank=0, zero_infinity=True)

    return usual(net, adam(net, 1e-2), _spoken(1), loss)


@fault("targets ignored")
def a_class_that_is_left_out(bad: bool) -> Loop:
    net = mlp()
    return usual(net, adam(net), blobs(), lambda out, y: F.cross_entropy(out, y, ignore_index=0 if bad else -100))


@fault("loss input")
def a_softmax_inside_of_the_model(bad: bool) -> Loop:
    net = nn.Sequential(mlp(), *([nn.Softmax(1)] if bad else []))
    return usual(net, adam(net), blobs())


@fault("loss input")
def one_hot_along_the_wrong_axis(bad: bool) -> Loop:
    """Probabilities as targets of (batch, places, classes): classes are expected second."""
    net = nn.Sequential(nn.Embedding(7, 24), nn.Linear(24, 48), nn.ReLU(), nn.Linear(48, 7))

    def batch() -> Pair:
        ids = torch.randint(0, 7, (32, 9))
        return ids, F.one_hot((3 * ids + 1) % 7, 7).float()

    def loss(out: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(out, y) if bad else F.cross_entropy(out.transpose(1, 2), y.transpose(1, 2))

    return usual(net, adam(net), batch, loss)


class Looks(nn.Module):
    """An attention by hand."""

    def __init__(self, dimension: int) -> None:
        super().__init__()
        self.embed, self.dimension = nn.Embedding(10, 32), dimension
        self.place = nn.Embedding(8, 32)
        self.q, self.k, self.v, self.head = nn.Linear(32, 32), nn.Linear(32, 32), nn.Linear(32, 32), nn.Linear(32, 10)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids) + self.place.weight
        scores = self.q(x) @ self.k(x).transpose(-2, -1) / 32**0.5
        return self.head(x[:, 0] + (scores.softmax(self.dimension) @ self.v(x))[:, 0])


@fault("softmax misplaced")
def a_softmax_over_the_queries(bad: bool) -> Loop:
    net = Looks(1 if bad else 2)

    def batch() -> Pair:
        ids = torch.randint(0, 10, (64, 8))
        ids[:, 0] = torch.randint(1, 8, (64,))
        return ids, ids.gather(1, ids[:, :1]).squeeze(1)

    return usual(net, adam(net, 5e-3), batch, steps=300)


# Contrast ----------------------------------------------------------------------------------------


def _views() -> Any:
    bases = torch.randn(500, 20, generator=torch.Generator().manual_seed(3))

    def batch() -> Pair:
        rows = torch.randperm(500)[:64]
        return torch.cat([bases[rows] + 0.3 * torch.randn(64, 20) for _ in range(2)]), torch.arange(128).roll(64)

    return batch


def _similar(temperature: float, own: bool) -> Any:
    def loss(out: Tensor, y: Tensor) -> Tensor:
        z = F.normalize(out, dim=1)
        scores = z @ z.T / temperature
        if not own:
            scores = scores.masked_fill(torch.eye(len(z), dtype=torch.bool), float("-inf"))
        return F.cross_entropy(scores, y)

    return loss


@fault("own pair")
def similarity_with_itself_left_in(bad: bool) -> Loop:
    net = mlp(20, 16)
    return usual(net, adam(net), _views(), _similar(0.1, bad))


@fault("logits bounded")
def a_temperature_of_ten(bad: bool) -> Loop:
    net = mlp(20, 16)
    return usual(net, adam(net), _views(), _similar(10.0 if bad else 0.1, False))


# Codes and noise ---------------------------------------------------------------------------------


class Coder(nn.Module):
    """A variational autoencoder of 20 numbers."""

    def __init__(self, as_deviation: bool = False) -> None:
        super().__init__()
        self.enter, self.leave, self.as_deviation = mlp(20, 8), mlp(4, 20), as_deviation

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean, log_variance = self.enter(x).chunk(2, 1)
        deviation = log_variance if self.as_deviation else (0.5 * log_variance).exp()
        return self.leave(mean + deviation * torch.randn_like(mean)), mean, log_variance


def _low_rank() -> Any:
    ways = torch.randn(4, 20, generator=torch.Generator().manual_seed(6))
    return lambda: (lambda x: (x, x))(torch.randn(64, 4) @ ways)


def _elbo(weight: float = 1.0, sums: bool = True) -> Any:
    def loss(out: tuple[Tensor, Tensor, Tensor], y: Tensor) -> Tensor:
        made, mean, log_variance = out
        distance = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum()
        error = F.mse_loss(made, y, reduction="sum") if sums else F.mse_loss(made, y)
        return (error + weight * distance) / len(y) if sums else error + weight * distance

    return loss


@fault("deviation misread")
def a_log_variance_read_as_deviation(bad: bool) -> Loop:
    net = Coder(bad)
    return usual(net, adam(net), _low_rank(), _elbo())


@fault("answers alike", "term outweighed")
def a_sum_beside_a_mean(bad: bool) -> Loop:
    net = Coder()
    return usual(net, adam(net), _low_rank(), _elbo(sums=not bad))


@fault("term outweighed")
def a_distance_of_all_charged_to_each(bad: bool) -> Loop:
    net = Coder()

    def loss(out: tuple[Tensor, Tensor, Tensor], y: Tensor) -> Tensor:
        made, mean, log_variance = out
        inner = -0.5 * (1 + log_variance - mean.square() - log_variance.exp())
        distance = inner.sum() if bad else inner.sum(1)
        return ((made - y).square().sum(1) + 0.1 * distance).mean()

    return usual(net, adam(net), _low_rank(), loss)


class Denoiser(nn.Module):
    """Noise from numbers that have some."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = mlp(5, 4)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        return self.inner(torch.cat([x, t], 1))


@fault("targets unrelated", "targets differ")
def noise_drawn_twice(bad: bool) -> Loop:
    net = Denoiser()
    optimizer = adam(net)
    points = torch.randn(8, 4, generator=torch.Generator().manual_seed(1))

    def run(count: int) -> None:
        for _ in range(count):
            x, t = points[torch.randint(0, 8, (64,))], torch.rand(64, 1)
            noise = torch.randn_like(x)
            made = net((1 - t).sqrt() * x + t.sqrt() * noise, t)
            loss = F.mse_loss(made, torch.randn_like(x) if bad else noise)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    return Loop(net, run, 150, optimizer)


# Values ------------------------------------------------------------------------------------------


def _walk(size: int = 64) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    s, a = torch.randint(0, 6, (size,)), torch.randint(0, 2, (size,))
    after = (s + 2 * a - 1).clamp(0, 5)
    done = ((s == 5) & (a == 1)).float()
    return torch.eye(6)[s], a, done, torch.eye(6)[after], done


def _values(way: str) -> Loop:
    net = mlp(6, 2, 32)
    target, optimizer = copy.deepcopy(net), Adam(net.parameters(), 3e-3)

    def run(count: int) -> None:
        for step in range(count):
            s, a, reward, after, done = _walk()
            q = net(s).gather(1, a[:, None]).squeeze(1)
            following = (net if way == "learns" else target)(after).max(1).values
            following = following if way == "learns" else following.detach()
            keep = 1.0 if way == "endless" else 1 - done
            loss = F.mse_loss(q, reward + 0.95 * keep * following)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if way != "stale" and step % 20 == 19:
                target.load_state_dict(net.state_dict())

    return Loop(net, run, 250, optimizer)


@fault("target learns")
def a_target_with_gradient(bad: bool) -> Loop:
    return _values("learns" if bad else "")


@fault("target stays")
def a_target_that_is_never_synced(bad: bool) -> Loop:
    return _values("stale" if bad else "")


@fault("no end")
def a_value_after_the_end(bad: bool) -> Loop:
    return _values("endless" if bad else "")


# Modules and tensors -----------------------------------------------------------------------------


class Unused(nn.Module):
    """A branch whose result is dropped."""

    def __init__(self, bad: bool) -> None:
        super().__init__()
        self.body, self.branch, self.head = nn.Linear(20, 64), nn.Linear(64, 64), nn.Linear(64, 5)
        self.bad = bad

    def forward(self, x: Tensor) -> Tensor:
        h = self.body(x)
        made = torch.relu(self.branch(h))
        return self.head(h if self.bad else h + made)


@fault("no gradient", "never used", "gradient cut", "result unused")
def a_branch_whose_result_is_dropped(bad: bool) -> Loop:
    net = Unused(bad)
    return usual(net, adam(net), blobs())


@fault("loss anew", "no gradient", "gradient cut", "loss not connected")
def a_loss_wrapped_anew(bad: bool) -> Loop:
    net = mlp()

    def loss(out: Tensor, y: Tensor) -> Tensor:
        value = F.cross_entropy(out, y)
        return torch.tensor(value.item(), requires_grad=True) if bad else value

    return usual(net, adam(net), blobs(), loss)


@fault("no gradient", "gradient cut")
def features_copied_to_a_tensor(bad: bool) -> Loop:
    class Copied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = nn.Sequential(nn.Linear(6, 64), nn.Tanh()), nn.Linear(64, 2)

        def forward(self, x: Tensor) -> Tensor:
            h = self.body(x)
            return self.head(torch.tensor(h.tolist()) if bad else h)

    net = Copied()
    return usual(net, adam(net, 1e-2), lambda: (lambda x: (x, (x[:, 0] * x[:, 1] > 0).long()))(torch.randn(64, 6)))


@fault("other optimizer")
def an_optimizer_of_the_model_before(bad: bool) -> Loop:
    net = mlp()
    optimizer = adam(net)
    if bad:
        for module in net:
            if isinstance(module, nn.Linear):
                module.weight = nn.Parameter(module.weight.detach().clone())
                module.bias = nn.Parameter(module.bias.detach().clone())
    return usual(net, optimizer, blobs())


@fault("not optimised", "frozen at random")
def a_table_frozen_by_accident(bad: bool) -> Loop:
    net = nn.Sequential(nn.Embedding(60, 4), nn.Flatten(), nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 4))
    if bad:
        net[0].weight.requires_grad_(False)
    ids = torch.randint(0, 60, (4000, 3), generator=torch.Generator().manual_seed(2))

    def batch() -> Pair:
        x = ids[torch.randint(0, 4000, (64,))]
        return x, (x[:, 0] * 7 + 3) % 4

    return usual(net, Adam([p for p in net.parameters() if p.requires_grad], 3e-3), batch, steps=200)


# Steps -------------------------------------------------------------------------------------------


@fault("cleared before step")
def cleared_between_backward_and_step(bad: bool) -> Loop:
    net = mlp()
    optimizer = adam(net)
    return usual(net, optimizer, blobs(), between=(lambda: optimizer.zero_grad()) if bad else (lambda: None))


@fault("clipped away", "clipped before unscale")
def clipped_before_unscaled(bad: bool) -> Loop:
    net = mlp()
    optimizer = SGD(net.parameters(), lr=0.1)
    scale = 65536.0

    def between() -> None:
        if bad:
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        for p in net.parameters():
            p.grad.div_(scale)
        if not bad:
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)

    return usual(net, optimizer, blobs(), between=between, share=scale)


@fault("clipped away", "clipped before unscale")
def clipped_before_the_scaler_unscaled(bad: bool) -> Loop:
    net, batches = mlp(), blobs()
    optimizer, scaler = SGD(net.parameters(), lr=0.1), torch.amp.GradScaler("cpu")

    def run(count: int) -> None:
        for _ in range(count):
            x, y = batches()
            optimizer.zero_grad()
            scaler.scale(F.cross_entropy(net(x), y)).backward()
            if not bad:
                scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()

    return Loop(net, run, 150, optimizer)


@fault("rate spent early")
def a_schedule_in_batches(bad: bool) -> Loop:
    net = mlp()
    optimizer = sgd(net, 0.05)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 10 if bad else 1000, 0.5)
    return usual(net, optimizer, blobs(noise=2.0), schedule=schedule, steps=300)


@fault("weight decay")
def a_decay_that_outweighs(bad: bool) -> Loop:
    net = mlp()
    return usual(net, adam(net, 1e-2, weight_decay=20.0 if bad else 0.01), blobs(), steps=300)


@fault("not cleared")
def never_cleared(bad: bool) -> Loop:
    net = mlp()
    return usual(net, sgd(net, 0.05), blobs(), clear=not bad)


@fault("accumulated undivided")
def added_up_without_division(bad: bool) -> Loop:
    net = mlp()
    return usual(net, SGD(net.parameters(), lr=0.4), blobs(noise=1.5), parts=16, share=1.0 if bad else 1 / 16)


# Data --------------------------------------------------------------------------------------------


@fault("targets turned")
def images_flipped_and_masks_not(bad: bool) -> Loop:
    net = nn.Sequential(
        nn.Conv2d(1, 16, 5, padding=2), nn.ReLU(), nn.Conv2d(16, 16, 5, padding=2), nn.ReLU(), nn.Conv2d(16, 1, 1)
    )

    def batch() -> Pair:
        x = torch.zeros(16, 1, 16, 16)
        for one in x:
            i, j = torch.randint(0, 12, (2,)).tolist()
            one[0, i : i + 4, j : j + 3] = 1
        y = x.clone()
        flip = torch.rand(16) < 0.5
        x = torch.where(flip[:, None, None, None], x.flip(3), x)
        if not bad:
            y = torch.where(flip[:, None, None, None], y.flip(3), y)
        return x + 0.3 * torch.randn_like(x), y

    return usual(net, adam(net), batch, F.binary_cross_entropy_with_logits)


@fault("targets of others", "targets unrelated", "targets differ")
def labels_in_another_order(bad: bool) -> Loop:
    net = mlp()
    x, y = blobs(size=1024)()
    y = y[torch.randperm(1024)] if bad else y

    def batch() -> Pair:
        rows = torch.randint(0, 1024, (64,))
        return x[rows], y[rows]

    return usual(net, adam(net, 1e-3), batch, steps=250)


@fault("learning rate too high")
def a_head_that_moves_too_fast(bad: bool) -> Loop:
    net = nn.Sequential(nn.Flatten(), mlp(144, 10))
    return usual(net, sgd(net, 5.0 if bad else 0.05), images())


@fault("sees ahead")
def letters_that_see_ahead(bad: bool) -> Loop:
    net = Writer(causal=not bad)
    return usual(net, adam(net), text(), entropy)


@healthy
def two_heads_of_unequal_losses() -> Loop:
    net = TwoHeads()

    def loss(out: tuple[Tensor, Tensor], y: Tensor) -> Tensor:
        return F.cross_entropy(out[0], y) + 0.01 * F.mse_loss(out[1], 5 * y[:, None].float())

    return usual(net, adam(net), blobs(), loss)


@healthy
def a_reader_with_padding_ignored() -> Loop:
    net = Reader()

    def batch() -> Pair:
        x = torch.randint(0, 4, (32, 10))
        y = (x == 3).sum(1).clamp(max=4)
        return x, torch.where(torch.rand(32) < 0.3, -100, y)

    return usual(net, adam(net, 1e-2), batch)


# Healthy neighbours of the rules -----------------------------------------------------------------


class Slots(nn.Module):
    """Slots that compete for the places: a softmax over those that ask, made an average by its own sum."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.slots = nn.Linear(4, 32), nn.Parameter(torch.randn(6, 32))
        self.q, self.k, self.v, self.head = nn.Linear(32, 32), nn.Linear(32, 32), nn.Linear(32, 32), nn.Linear(192, 5)

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x)
        scores = self.q(self.slots).expand(len(x), -1, -1) @ self.k(h).transpose(1, 2) / 32**0.5
        shares = scores.softmax(1)
        return self.head((shares / shares.sum(2, keepdim=True) @ self.v(h)).flatten(1))


class Linear(nn.Module):
    """An attention that is linear in the places: queries are normalised over features, keys over places."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.into, self.head = nn.Linear(4, 6), nn.Linear(6, 18), nn.Linear(36, 5)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.into(self.embed(x)).chunk(3, -1)
        return self.head((q.softmax(-1) @ (k.softmax(1).transpose(1, 2) @ v)).flatten(1))


def _places() -> Pair:
    y = torch.randint(0, 5, (64,))
    x = torch.randn(64, 6, 4)
    x[:, :, 0] += y[:, None] - 2
    return x, y


@healthy
def slots_that_compete() -> Loop:
    net = Slots()
    return usual(net, adam(net), _places)


@healthy
def a_linear_attention_over_as_many_places() -> Loop:
    net = Linear()
    return usual(net, adam(net, 1e-2), _places)


@healthy
def rare_ones_weighed_more() -> Loop:
    net, weight = mlp(20, 1), torch.tensor([9.0])
    return usual(
        net, adam(net, 1e-3), _rare(1.3), lambda out, y: F.binary_cross_entropy_with_logits(out, y, pos_weight=weight)
    )


@healthy
def tokens_left_out_by_zero() -> Loop:
    """Masked tokens are to be told; 0 fills up the labels of all others, and is no word."""
    net = nn.Sequential(nn.Embedding(12, 32), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 12))

    def batch() -> Pair:
        ids = torch.randint(1, 12, (32, 9))
        return ids, torch.where(torch.rand(32, 9) < 0.3, 1 + ids % 11, 0)

    return usual(
        net, adam(net, 1e-2), batch, lambda out, y: F.cross_entropy(out.flatten(0, 1), y.flatten(), ignore_index=0)
    )


@healthy
def rows_filled_up_by_zero() -> Loop:
    net = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 5))

    def batch() -> Pair:
        y, length = torch.randint(1, 5, (32, 8)), torch.randint(3, 9, (32, 1))
        x = F.one_hot(y, 6).float() + 0.3 * torch.randn(32, 8, 6)
        return x, torch.where(torch.arange(8) < length, y, 0)

    return usual(net, adam(net), batch, lambda out, y: F.cross_entropy(out.flatten(0, 1), y.flatten(), ignore_index=0))


@healthy
def a_score_beside_a_large_distance() -> Loop:
    """A hundred times a distance, beside a class that is learned all the same."""
    net = TwoHeads()

    def loss(out: tuple[Tensor, Tensor], y: Tensor) -> Tensor:
        return F.cross_entropy(out[0], y) + 100 * F.mse_loss(out[1], 2 + y[:, None].float())

    return usual(net, adam(net), blobs(), loss)


@healthy
def a_chain_of_hidden_states() -> Loop:
    """Sums over what a state came from, of shares over where it goes to."""

    class Chain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.turns, self.tells = nn.Parameter(torch.randn(4, 4)), nn.Linear(6, 4)

        def forward(self, x: Tensor) -> Tensor:
            turns, tells = self.turns.log_softmax(-1), self.tells(x)
            now = tells[:, 0]
            for place in range(1, x.shape[1]):
                now = (now[:, :, None] + turns).logsumexp(1) + tells[:, place]
            return now

    net = Chain()
    return usual(net, adam(net, 1e-2), lambda: (lambda x, y: (x[:, :, :6], y))(*_chained()))


def _chained() -> Pair:
    y = torch.randint(0, 4, (64,))
    x = torch.randn(64, 5, 6)
    x[:, 4, :4] += 3 * F.one_hot(y, 4)
    return x, y


@healthy
def codes_with_their_own_deviation() -> Loop:
    """A deviation by softplus, whose logarithm is in the distance."""

    class Soft(Coder):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            mean, raw = self.enter(x).chunk(2, 1)
            deviation = F.softplus(raw) + 1e-3
            return self.leave(mean + deviation * torch.randn_like(mean)), mean, 2 * deviation.log()

    net = Soft()
    return usual(net, adam(net), _low_rank(), _elbo())


@healthy
def an_actor_that_is_raised() -> Loop:
    return _actor(-1.0)


@fault("wrong sign")
def an_actor_that_is_lowered(bad: bool) -> Loop:
    return _actor(1.0 if bad else -1.0)


def _actor(sign: float) -> Loop:
    net = nn.ModuleDict({"actor": nn.Sequential(mlp(3, 2, 32), nn.Tanh()), "critic": mlp(5, 1, 48)})
    first, second = Adam(net["actor"].parameters(), 3e-3), Adam(net["critic"].parameters(), 5e-3)

    def run(count: int) -> None:
        for _ in range(count):
            state = torch.rand(64, 3) * 2 - 1
            with torch.no_grad():
                action = (net["actor"](state) + 0.4 * torch.randn(64, 2)).clamp(-1, 1)
            reward = -((action - 0.6 * state[:, :2]) ** 2).sum(1, keepdim=True)
            second.zero_grad()
            F.mse_loss(net["critic"](torch.cat([state, action], 1)), reward).backward()
            second.step()
            first.zero_grad()
            (sign * net["critic"](torch.cat([state, net["actor"](state)], 1)).mean()).backward()
            first.step()

    return Loop(net, run, 150)


@fault("targets out of reach")
def heads_that_end_in_relu(bad: bool) -> Loop:
    """Of a sum of two losses, each of a head of its own."""
    net = TwoHeads()

    def loss(out: tuple[Tensor, Tensor], y: Tensor) -> Tensor:
        size = out[1].relu() if bad else out[1]
        return F.cross_entropy(out[0], y) + F.smooth_l1_loss(size, y[:, None] - 2.0)

    return usual(net, adam(net), blobs(), loss)


@fault("softmax misplaced")
def shares_of_a_mixture_over_the_examples(bad: bool) -> Loop:
    class Mixture(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.heads = mlp(4, 32), nn.Linear(32, 9)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            mean, spread, share = self.heads(self.body(x).relu()).chunk(3, 1)
            return mean, spread, share.log_softmax(0 if bad else 1)

    net = Mixture()

    def loss(out: tuple[Tensor, Tensor, Tensor], y: Tensor) -> Tensor:
        normal = torch.distributions.Normal(out[0], out[1].clamp(-4, 4).exp())
        return -(normal.log_prob(y) + out[2]).logsumexp(1).mean()

    def batch() -> Pair:
        x = torch.randn(64, 4)
        return x, torch.where(torch.rand(64, 1) < 0.6, 1.0, -1.0) * (1 + x[:, :1].abs())

    return usual(net, adam(net), batch, loss)
