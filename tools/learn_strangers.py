"""One training for each class of faults that a set written by somebody else taught, and healthy ones like them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, lr_scheduler

from learn_parts import Cases, Loop, Pair, adam, blobs, images, mlp, usual

CASES = Cases()
fault, healthy = CASES.fault, CASES.healthy

# Schedules ---------------------------------------------------------------------------------------


def _scheduled(planned: int, every: int, *, make: str = "cycle", peak: float = 0.05) -> Loop:
    """Return a loop of 240 steps whose schedule of a planned length goes on once in so many steps."""
    net = mlp(classes=10)
    optimizer = SGD(net.parameters(), lr=peak, momentum=0.9)
    kind = lr_scheduler.CosineAnnealingLR(optimizer, planned)
    if make == "cycle":
        kind = lr_scheduler.OneCycleLR(optimizer, peak, total_steps=planned)  # type: ignore[assignment]
    batches = blobs(classes=10, noise=2.0)

    def run(count: int) -> None:
        for step in range(1, count + 1):
            x, y = batches()
            F.cross_entropy(net(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()
            if step % every == 0:
                kind.step()

    return Loop(net, run, 240, optimizer)


@fault("schedule too slow", "learning rate too low")
def cycle_of_batches_in_epochs(bad: bool) -> Loop:
    return _scheduled(241, 24 if bad else 1, peak=0.01)


@healthy
def cycle_of_epochs() -> Loop:
    return _scheduled(11, 24)


@healthy
def cosine_that_hardly_falls() -> Loop:
    return _scheduled(240, 24, make="cosine")


# Masks -------------------------------------------------------------------------------------------


class Heard(nn.Module):
    """Attention over tokens that are filled up with 0."""

    def __init__(self, inverted: bool) -> None:
        super().__init__()
        self.inverted = inverted
        self.tokens = nn.Embedding(20, 32)
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        self.inner, self.head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(32, 2)

    def forward(self, ids: Tensor) -> Tensor:
        padding = ids == 0
        x = self.inner(self.tokens(ids), src_key_padding_mask=~padding if self.inverted else padding)
        return self.head(x[:, 0])


def _sentences() -> Pair:
    length = torch.randint(5, 12, (48, 1))
    ids = torch.randint(2, 20, (48, 12))
    ids[:, 0] = 1
    ids = ids * (torch.arange(12) < length)
    return ids, (2 * ((ids > 1) & (ids < 11)).sum(1) > length[:, 0]).long()


@fault("mask inverted")
def sees_the_padding(bad: bool) -> Loop:
    net = Heard(bad)
    return usual(net, adam(net, 2e-3), _sentences)


# Gradients ---------------------------------------------------------------------------------------


class Coded(nn.Module):
    """Codes from a table, straight through."""

    def __init__(self) -> None:
        super().__init__()
        self.into = nn.Sequential(nn.Linear(24, 48), nn.ReLU(), nn.Linear(48, 8), nn.LayerNorm(8))
        self.table, self.out = nn.Embedding(16, 8), nn.Sequential(nn.Linear(8, 48), nn.ReLU(), nn.Linear(48, 24))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        code = self.into(x)
        found = self.table(torch.cdist(code, self.table.weight).argmin(1))
        through = code + (found - code).detach()
        return self.out(through), code, found, through


@fault("gradient cut")
def table_gets_nothing(bad: bool) -> Loop:
    net = Coded()
    means = torch.randn(12, 24)

    def batch() -> Pair:
        x = means[torch.randint(0, 12, (50,))] + 0.2 * torch.randn(50, 24)
        return x, x

    def loss(answer: tuple[Tensor, ...], x: Tensor) -> Tensor:
        made, code, found, through = answer
        to_codes = F.mse_loss(through if bad else found, code.detach())
        return F.mse_loss(made, x) + to_codes + 0.25 * F.mse_loss(code, found.detach())

    return usual(net, adam(net, 2e-3), batch, loss, steps=300)


class Pooled(nn.Module):
    """A net with a part that runs, and that no loss uses."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.pooler, self.head = nn.Linear(20, 48), nn.Linear(48, 48), nn.Linear(48, 5)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = torch.relu(self.body(x))
        return self.head(x), torch.tanh(self.pooler(x))


@healthy
def nobody_uses_the_pooler() -> Loop:
    net = Pooled()
    return usual(net, adam(net), blobs(), lambda answer, y: F.cross_entropy(answer[0], y))


class LowRank(nn.Module):
    """A frozen layer, and two narrow matrices beside it."""

    def __init__(self, inner: nn.Linear, zeros: bool) -> None:
        super().__init__()
        self.inner = inner.requires_grad_(False)
        first = torch.zeros(4, inner.in_features) if zeros else torch.randn(4, inner.in_features) / 4
        self.a, self.b = nn.Parameter(first), nn.Parameter(torch.zeros(inner.out_features, 4))

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) + 2 * (x @ self.a.T) @ self.b.T


def _adapted(zeros: bool) -> Loop:
    net = mlp(layers=2)
    usual(net, adam(net), blobs()).run(60)
    F.cross_entropy(net(blobs()()[0]), torch.zeros(64, dtype=torch.long)).backward()  # gradients stay behind
    for place in (0, 2, 4):
        net[place] = LowRank(net[place], zeros)  # type: ignore[arg-type]
    optimizer = AdamW([p for p in net.parameters() if p.requires_grad], lr=3e-3)
    turned = blobs()

    def batch() -> Pair:
        x, y = turned()
        return x, (y + 1) % 5

    return usual(net, optimizer, batch)


@fault("zero weights")
def both_begin_as_zeros(bad: bool) -> Loop:
    return _adapted(bad)


@healthy
def frozen_ones_have_old_gradients() -> Loop:
    return _adapted(False)


@fault("updates rounded away")
def slowly_in_bfloat16(bad: bool) -> Loop:
    net = mlp(classes=10)
    batches = blobs(classes=10)
    if bad:
        net = net.to(torch.bfloat16)

    def batch() -> Pair:
        x, y = batches()
        return x.to(torch.bfloat16) if bad else x, y

    return usual(net, Adam(net.parameters(), lr=1.5e-5 if bad else 1e-3), batch, steps=300)


# Containers of which the parts are called --------------------------------------------------------


@healthy
def parts_of_a_dict() -> Loop:
    parts = nn.ModuleDict({"body": nn.Linear(20, 64), "head": nn.Linear(64, 5)})
    optimizer, batches = adam(parts), blobs()

    def run(count: int) -> None:
        for _ in range(count):
            x, y = batches()
            F.cross_entropy(parts["head"](torch.relu(parts["body"](x))), y).backward()
            optimizer.step()
            optimizer.zero_grad()

    return Loop(parts, run, 150, optimizer)


@healthy
def game_in_a_dict() -> Loop:
    maker = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
    judge = nn.Sequential(nn.Linear(2, 48), nn.LeakyReLU(0.2), nn.Linear(48, 1))
    players = nn.ModuleDict({"maker": maker, "judge": judge})
    one, other = Adam(maker.parameters(), 1e-3), Adam(judge.parameters(), 1e-3)
    entropy = F.binary_cross_entropy_with_logits

    def run(count: int) -> None:
        for _ in range(count // 2):
            real, made = 1 + 0.5 * torch.randn(64, 2), maker(torch.randn(64, 4))
            other.zero_grad()
            (entropy(judge(real), torch.ones(64, 1)) + entropy(judge(made.detach()), torch.zeros(64, 1))).backward()
            other.step()
            one.zero_grad()
            entropy(judge(maker(torch.randn(64, 4))), torch.ones(64, 1)).backward()
            one.step()

    return Loop(players, run, 300, one)


# Embeddings --------------------------------------------------------------------------------------


def _hard(embedded: Tensor, y: Tensor) -> Tensor:
    far = (torch.cdist(embedded, embedded).square() + 1e-12).sqrt()
    same = y[:, None] == y[None]
    return F.relu(far.masked_fill(~same, 0).amax(1) - far.masked_fill(same, 1e9).amin(1) + 0.5).mean()


@fault("learning rate too high", "answers alike")
def hard_triplets_at_a_high_rate(bad: bool) -> Loop:
    net = mlp(32, 16)
    centres = torch.randn(30, 32)

    def batch() -> Pair:
        y = torch.randperm(30)[:10].repeat_interleave(6)
        return centres[y] + torch.randn(60, 32), y

    return usual(net, Adam(net.parameters(), 2e-2 if bad else 1e-3), batch, _hard, steps=500)


# transformers' Trainer clips at 1: with a rate of 30 norms of 400 are clipped, and Adam's steps are as large as before
@fault("learning rate too high")
def clipped_and_far_too_fast(bad: bool) -> Loop:
    net = mlp()
    optimizer = AdamW(net.parameters(), lr=10.0 if bad else 3e-3)
    return usual(net, optimizer, blobs(), between=lambda: nn.utils.clip_grad_norm_(net.parameters(), 0.01))


@healthy
def pictures_with_an_unused_second_head() -> Loop:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.one, self.other = nn.Linear(144, 48), nn.Linear(48, 10), nn.Linear(48, 3)

        def forward(self, x: Tensor) -> dict[str, Tensor]:
            x = torch.relu(self.body(x.flatten(1)))
            return {"one": self.one(x), "other": self.other(x)}

    net = Two()
    return usual(net, adam(net), images(), lambda answer, y: F.cross_entropy(answer["one"], y))


# A second set of somebody else's taught these ------------------------------------------------------


class Weighs(nn.Module):
    """Weighs five rows by a softmax of their scores, which is to run over the rows."""

    def __init__(self, dimension: int) -> None:
        super().__init__()
        self.dimension = dimension
        self.score = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))

    def forward(self, x: Tensor) -> Tensor:
        weights = self.score(x).softmax(self.dimension)
        return (weights * x[..., 1:2]).sum(1).expand(-1, 2) * torch.tensor([1.0, -1.0])


def _marked() -> Pair:
    """Return five rows, of which that with a 3 in front has the class behind it."""
    x, row = torch.randn(64, 5, 8), torch.randint(0, 5, (64,))
    x[..., 1] *= 3
    x[torch.arange(64), row, 0] += 4
    return x, (x[torch.arange(64), row, 1] < 0).long()


@fault("normalised alone")
def softmax_over_one_score(bad: bool) -> Loop:
    net = Weighs(2 if bad else 1)
    return usual(net, adam(net, 1e-2), _marked)


@fault("normalised alone")
def layer_norm_of_one_feature(bad: bool) -> Loop:
    norm = nn.LayerNorm(1) if bad else nn.Identity()
    net = nn.Sequential(nn.Unflatten(1, (-1, 1)), norm, nn.Flatten(), mlp())
    return usual(net, adam(net), blobs())


@healthy
def layer_norm_of_all_features() -> Loop:
    net = nn.Sequential(nn.LayerNorm(20), mlp())
    return usual(net, adam(net), blobs())


@fault("clipped too late")
def clips_after_the_step(bad: bool) -> Loop:
    net = mlp(layers=4)
    optimizer, batches = SGD(net.parameters(), lr=1.0), blobs()

    def run(count: int) -> None:
        for _ in range(count):
            x, y = batches()
            optimizer.zero_grad()
            (20 * F.cross_entropy(net(x), y)).backward()
            if bad:
                optimizer.step()
            nn.utils.clip_grad_norm_(net.parameters(), 0.1)
            if not bad:
                optimizer.step()

    return Loop(net, run, 150, optimizer)


@healthy
def clips_in_time_and_clears_first() -> Loop:
    net = mlp()
    optimizer = adam(net)
    return usual(net, optimizer, blobs(), between=lambda: nn.utils.clip_grad_norm_(net.parameters(), 0.1))


@fault("inputs drift")
def normalised_in_place_each_epoch(bad: bool) -> Loop:
    draw = blobs(size=256)
    x, y = draw()
    x, at, net = 3 * x + 2, [0], mlp()
    level = x.mean(), x.std()

    def batch() -> Pair:
        rows = slice(64 * (at[0] % 4), 64 * (at[0] % 4) + 64)
        at[0] += 1
        given = x[rows] if bad else x[rows].clone()
        return given.sub_(level[0]).div_(level[1]).clone(), y[rows]

    return usual(net, SGD(net.parameters(), lr=0.05), batch)


@healthy
def inputs_of_a_curriculum() -> Loop:
    draw, at, net = blobs(), [0], mlp()

    def batch() -> Pair:
        at[0] += 1
        x, y = draw()
        return x * (1 + at[0] / 150), y

    return usual(net, adam(net), batch)


@fault("dropout too strong")
def keeps_a_tenth_and_learns_little(bad: bool) -> Loop:
    p = 0.9 if bad else 0.1
    net = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Dropout(p), nn.Linear(64, 64), nn.ReLU(), nn.Dropout(p))
    net.append(nn.Linear(64, 5))
    return usual(net, adam(net), blobs(noise=2.0))


@fault("rate spent early")
def rate_is_nothing_after_a_tenth(bad: bool) -> Loop:
    net = mlp()
    optimizer = adam(net, 3e-3)
    schedule = lr_scheduler.StepLR(optimizer, 1 if bad else 100, 0.1)
    return usual(net, optimizer, blobs(), schedule=schedule)


@fault("silent activation", "targets out of reach", "logits bounded")
def relu_before_logits(bad: bool) -> Loop:
    net = nn.Sequential(mlp(classes=1), nn.ReLU() if bad else nn.Identity())
    with torch.no_grad():
        net[0][-1].bias.fill_(-3.0)

    return usual(net, adam(net, 1e-2), _of_two, lambda o, y: F.binary_cross_entropy_with_logits(o[:, 0], y))


def _of_two() -> Pair:
    x, y = blobs(classes=2)()
    return x, y.float()


class Reads(nn.Module):
    """A recurrent net over rows; without ``batch_first`` the places come first."""

    def __init__(self, viewed: bool) -> None:
        super().__init__()
        self.viewed = viewed
        self.first, self.inner, self.head = nn.Linear(8, 8), nn.GRU(8, 32), nn.Linear(32, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        x = x.view(x.shape[1], x.shape[0], 8) if self.viewed else x.transpose(0, 1)
        return self.head(self.inner(x)[1][0])


def _ends() -> Pair:
    x = torch.randn(64, 5, 8)
    return x, (x[:, 4, 0] + x[:, 3, 0] > 0).long()


@fault("viewed for transposed", "batch mixed")
def a_view_for_a_transpose(bad: bool) -> Loop:
    net = Reads(bad)
    return usual(net, adam(net, 1e-2), _ends)
