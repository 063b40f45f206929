"""One training for each link from the data to the update that may be broken: pairs, parts of a loss, states, views."""

from __future__ import annotations

import random
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributions import Categorical
from torch.optim import Adam

from learn_parts import Cases, Loop, Pair, adam, blobs, changed, entropy, images, mlp, usual

CASES = Cases()
fault, healthy = CASES.fault, CASES.healthy

# Pairs -------------------------------------------------------------------------------------------


def _stored(apart: bool, noise: float = 0.0) -> Loop:
    """Return passes through 512 examples, whose labels may be shuffled apart from them, or in part be wrong."""
    net, (x, y) = mlp(), blobs(size=512)()
    y = torch.where(torch.rand(512) < noise, torch.randint(0, 5, (512,)), y)
    optimizer = adam(net)

    def run(count: int) -> None:
        for step in range(count):
            if step % 8 == 0:
                rows = torch.randperm(512)
                labels = torch.randperm(512) if apart else rows
            part = slice(64 * (step % 8), 64 * (step % 8) + 64)
            optimizer.zero_grad()
            F.cross_entropy(net(x[rows[part]]), y[labels[part]]).backward()
            optimizer.step()

    return Loop(net, run, 150, optimizer)


@fault("targets differ")
def shuffled_apart_in_each_pass(bad: bool) -> Loop:
    return _stored(bad)


@healthy
def labels_of_which_a_third_is_wrong() -> Loop:
    return _stored(False, 0.3)


@fault("targets differ")
def classes_numbered_anew_in_each_batch(bad: bool) -> Loop:
    net = mlp()
    return usual(net, adam(net), changed(blobs(), lambda x, y: (x, torch.randperm(5)[y]), bad))


@fault("targets of others")
def labels_off_by_a_row(bad: bool) -> Loop:
    net = mlp()
    return usual(net, adam(net), changed(blobs(), lambda x, y: (x, y.roll(1)), bad))


@fault("targets of others")
def numbers_in_reverse_order(bad: bool) -> Loop:
    net, rule = mlp(8, 1), torch.randn(8, generator=torch.Generator().manual_seed(5))

    def batch() -> Pair:
        x = torch.randn(64, 8)
        y = (x @ rule).tanh()[:, None]
        return x, y.flip(0) if bad else y

    return usual(net, adam(net), batch, F.mse_loss)


@fault("targets differ")
def states_stored_by_reference(bad: bool) -> Loop:
    state, rule, kept = torch.zeros(4), torch.randn(4, 3), list[Pair]()
    net = mlp(4, 3)

    def batch() -> Pair:
        for _ in range(8):
            state.copy_(torch.randn(4))
            kept.append((state if bad else state.clone(), state @ rule))
        some = random.sample(kept, min(32, len(kept)))
        return torch.stack([one for one, _ in some]), torch.stack([value for _, value in some])

    return usual(net, adam(net), batch, F.mse_loss)


@fault("inputs alike")
def tokens_that_are_nearly_all_unknown(bad: bool) -> Loop:
    draw = torch.Generator().manual_seed(1)
    ids = torch.randint(2, 50, (400, 10), generator=draw)
    known, y = torch.rand(400, 10, generator=draw) < 0.02, ids[:, 0] % 4
    x = torch.where(known, ids, 1) if bad else ids
    net = nn.Sequential(nn.Embedding(50, 16), nn.Flatten(), nn.Linear(160, 64), nn.ReLU(), nn.Linear(64, 4))

    def batch() -> Pair:
        rows = torch.randint(0, 400, (32,))
        return x[rows], y[rows]

    return usual(net, adam(net), batch)


@healthy
def the_next_token_of_one() -> Loop:
    shares = torch.randn(12, 12, generator=torch.Generator().manual_seed(3)).mul(2).softmax(1)
    net = nn.Sequential(nn.Embedding(12, 16), nn.Flatten(), nn.Linear(16, 12))

    def batch() -> Pair:
        x = torch.randint(0, 12, (64, 1))
        return x, shares[x[:, 0]].multinomial(1)[:, 0]

    return usual(net, adam(net, 1e-2), batch)


def _masks(apart: bool) -> Loop:
    net = nn.Sequential(nn.Conv2d(1, 16, 5, padding=2), nn.ReLU(), nn.Conv2d(16, 1, 5, padding=2))

    def batch() -> Pair:
        y = (F.avg_pool2d(torch.randn(16, 1, 16, 16), 5, 1, 2) > 0.05).float()
        x, turned = y + 0.3 * torch.randn_like(y), torch.rand(16) < 0.5
        x[turned] = x[turned].flip(-1)
        if not apart:
            y[turned] = y[turned].flip(-1)
        return x, y

    return usual(net, adam(net), batch, F.binary_cross_entropy_with_logits, steps=100)


@fault("targets turned")
def masks_that_are_not_flipped(bad: bool) -> Loop:
    return _masks(bad)


@fault("targets not finite")
def depths_of_zero(bad: bool) -> Loop:
    net = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 3, padding=1))

    def batch() -> Pair:
        depth = 2 + torch.rand(8, 1, 12, 12)
        if bad and random.random() < 0.2:
            depth[0, 0, 3:5] = 0
        return 4 / (depth + 0.1), 10 / depth

    return usual(net, adam(net), batch, lambda p, y: (p - y).abs().mean(), steps=200)


@fault("targets shifted")
def captions_shifted_twice(bad: bool) -> Loop:
    class Told(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.cells, self.head = (
                nn.Embedding(12, 24),
                nn.GRU(24, 48, batch_first=True),
                nn.Linear(48, 12),
            )
            self.seen = nn.Linear(8, 48)

        def forward(self, x: Tensor, ids: Tensor) -> Tensor:
            return self.head(self.cells(self.tokens(ids), self.seen(x)[None])[0])

    net, follows = Told(), torch.randperm(12)
    optimizer = adam(net)

    def run(count: int) -> None:
        for _ in range(count):
            free = torch.randint(0, 12, (32, 6))
            ids = torch.stack([free, follows[free]], -1).flatten(1)
            labels = ids[:, 1:]
            labels = F.pad(labels, (0, 1), value=-100)[:, 1:] if bad else labels
            optimizer.zero_grad()
            entropy(net(torch.randn(32, 8), ids)[:, :-1], labels).backward()
            optimizer.step()

    return Loop(net, run, 150, optimizer)


@healthy
def a_net_that_drops_a_place() -> Loop:
    class Pairs(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.net = nn.Embedding(12, 24), mlp(48, 12)

        def forward(self, ids: Tensor) -> Tensor:
            x = self.tokens(ids)
            return self.net(torch.cat([x[:, 1:], x[:, :-1]], -1))

    net, follows = Pairs(), torch.randperm(12)

    def batch() -> Pair:
        ids = [torch.randint(0, 12, (32,)), torch.randint(0, 12, (32,))]
        for _ in range(8):
            ids.append(follows[ids[-2]])
        whole = torch.stack(ids, 1)
        return whole[:, :-1], whole[:, 2:]

    return usual(net, adam(net), batch)


# Parts of a loss ---------------------------------------------------------------------------------


def _actions(loss: Callable[[Categorical, Tensor, Tensor], Tensor]) -> Loop:
    """Return a loop of actions that are rewarded at once."""
    net, rule = mlp(8, 4), torch.randn(8, 4, generator=torch.Generator().manual_seed(2))
    optimizer = Adam(net.parameters(), 3e-3)

    def run(count: int) -> None:
        for _ in range(count):
            x = torch.randn(64, 8)
            drawn = Categorical(logits=net(x))
            taken = drawn.sample()
            reward = (x @ rule).softmax(1).gather(1, taken[:, None])[:, 0]
            optimizer.zero_grad()
            loss(drawn, taken, reward).backward()
            optimizer.step()

    return Loop(net, run, 150, optimizer)


@fault("wrong sign", mends=False)
def rewards_without_their_minus(bad: bool) -> Loop:
    sign = 1 if bad else -1
    return _actions(lambda drawn, taken, reward: sign * (drawn.log_prob(taken) * reward).mean())


@healthy
def costs_that_are_made_rarer() -> Loop:
    return _actions(lambda drawn, taken, reward: (drawn.log_prob(taken) * (1 - reward)).mean())


@fault("wrong sign", mends=False)
def an_entropy_that_is_minimised(bad: bool) -> Loop:
    def loss(drawn: Categorical, taken: Tensor, reward: Tensor) -> Tensor:
        gain = reward - reward.mean()
        return (0.5 if bad else -0.01) * drawn.entropy().mean() - (drawn.log_prob(taken) * gain).mean()

    return _actions(loss)


@fault("rewards alike", mends=False)
def rewards_that_are_all_one(bad: bool) -> Loop:
    return _actions(lambda d, taken, r: -(d.log_prob(taken) * (torch.ones_like(r) if bad else r)).mean())


@fault("advantage learns", mends=False)
def an_advantage_with_a_gradient(bad: bool) -> Loop:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.acts, self.values = mlp(8, 32), nn.Linear(32, 4), nn.Linear(32, 1)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            x = self.body(x).relu()
            return self.acts(x), self.values(x)[:, 0]

    net, rule = Both(), torch.randn(8, 4)
    optimizer = Adam(net.parameters(), 3e-3)

    def run(count: int) -> None:
        for _ in range(count):
            x = torch.randn(64, 8)
            logits, value = net(x)
            drawn = Categorical(logits=logits)
            taken = drawn.sample()
            reward = (x @ rule).gather(1, taken[:, None])[:, 0]
            gain = reward - (value if bad else value.detach())
            optimizer.zero_grad()
            (0.5 * F.mse_loss(value, reward) - (drawn.log_prob(taken) * gain).mean()).backward()
            optimizer.step()

    return Loop(net, run, 100, optimizer)


@fault("ratio stays", mends=False)
def a_ratio_that_is_always_one(bad: bool) -> Loop:
    net, rule = mlp(8, 4), torch.randn(8, 4)
    optimizer = Adam(net.parameters(), 3e-3)

    def run(count: int) -> None:
        for step in range(count):
            if step % 8 == 0:
                x = torch.randn(64, 8)
                with torch.no_grad():
                    drawn = Categorical(logits=net(x))
                    taken = drawn.sample()
                    before = drawn.log_prob(taken)
                reward = (x @ rule).gather(1, taken[:, None])[:, 0]
                gain = (reward - reward.mean()) / reward.std()
            now = Categorical(logits=net(x)).log_prob(taken)
            ratio = (now - (now.detach() if bad else before)).exp()
            optimizer.zero_grad()
            (-torch.min(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()).backward()
            optimizer.step()

    return Loop(net, run, 100, optimizer)


class Coder(nn.Module):
    """A variational autoencoder of points."""

    def __init__(self, has_gradient: bool = True) -> None:
        super().__init__()
        self.into, self.out, self.has_gradient = mlp(20, 8), mlp(4, 20), has_gradient

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        mean, log = self.into(x).chunk(2, 1)
        code = torch.distributions.Normal(mean, (0.5 * log).exp())
        return self.out(code.rsample() if self.has_gradient else code.sample()), mean, log


def _codes(net: Coder, weight: float) -> Loop:
    optimizer, batches = adam(net, 1e-3), blobs()

    def run(count: int) -> None:
        for _ in range(count):
            x, _ = batches()
            made, mean, log = net(x)
            apart = -0.5 * (1 + log - mean.pow(2) - log.exp()).sum(1).mean()
            optimizer.zero_grad()
            (F.mse_loss(made, x, reduction="none").sum(1).mean() + weight * apart).backward()
            optimizer.step()

    return Loop(net, run, 150, optimizer)


@fault("wrong sign")
def a_prior_that_is_fled(bad: bool) -> Loop:
    return _codes(Coder(), -0.01 if bad else 0.01)


@fault("gradient cut")
def codes_drawn_without_a_gradient(bad: bool) -> Loop:
    return _codes(Coder(not bad), 0.1)


@fault("wrong sign")
def an_overlap_that_is_minimised(bad: bool) -> Loop:
    net = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 3, padding=1), nn.Sigmoid())

    def batch() -> Pair:
        y = (F.avg_pool2d(torch.randn(16, 1, 16, 16), 5, 1, 2) > 0.05).float()
        return y + 0.3 * torch.randn_like(y), y

    def loss(p: Tensor, y: Tensor) -> Tensor:
        overlap = (2 * (p * y).sum() + 1) / (p.sum() + y.sum() + 1)
        return overlap if bad else 1 - overlap

    return usual(net, adam(net), batch, loss, steps=100)


@fault("wrong sign")
def others_driven_apart_without_a_margin(bad: bool) -> Loop:
    net, batches = mlp(20, 8), blobs()
    optimizer = adam(net)

    def run(count: int) -> None:
        for _ in range(count):
            x, y = batches()
            made, same = net(x), (y[:32] == y[32:]).float()
            apart = (made[:32] - made[32:]).pow(2).sum(1)
            driven = -(1 - same) * apart if bad else (1 - same) * F.relu(4 - apart)
            optimizer.zero_grad()
            ((same * apart).mean() + driven.mean()).backward()
            optimizer.step()

    return Loop(net, run, 100, optimizer)


def _margin(loss: Callable[[Tensor, Tensor], Tensor], bad: bool) -> Loop:
    net = mlp(20, 1)
    signed = changed(blobs(classes=2), lambda x, y: (x, y.float() if bad else 2.0 * y - 1))
    return usual(net, adam(net), signed, loss)


@fault("targets out of range")
def a_hinge_of_zeros_and_ones(bad: bool) -> Loop:
    return _margin(lambda p, y: F.relu(1 - y * p[:, 0]).mean(), bad)


@fault("targets out of range")
def a_soft_margin_of_zeros_and_ones(bad: bool) -> Loop:
    return _margin(lambda p, y: F.soft_margin_loss(p[:, 0], y), bad)


@fault("logits bounded")
def a_contrast_without_a_temperature(bad: bool) -> Loop:
    net = mlp(20, 16)
    optimizer = adam(net)

    def run(count: int) -> None:
        for _ in range(count):
            x = torch.randn(64, 20)
            one, other = (F.normalize(net(x + 0.1 * torch.randn_like(x))) for _ in range(2))
            optimizer.zero_grad()
            F.cross_entropy(one @ other.T / (1 if bad else 0.1), torch.arange(64)).backward()
            optimizer.step()

    return Loop(net, run, 150, optimizer)


@healthy
def a_focal_loss() -> Loop:
    def focal(out: Tensor, y: Tensor) -> Tensor:
        log = F.log_softmax(out, -1).gather(1, y[:, None])[:, 0]
        return -((1 - log.exp()) ** 2 * log).mean()

    net = mlp()
    return usual(net, adam(net), blobs(), focal)


@fault("answers alike")
def the_hardest_of_all_triplets(bad: bool) -> Loop:
    net = nn.Sequential(mlp(24, 64), nn.ReLU(), nn.Linear(64, 16))
    optimizer, centres, y = adam(net, 1e-3), torch.randn(8, 24), torch.arange(8).repeat_interleave(6)
    same = y[:, None] == y[None]
    valid = (same & ~torch.eye(48, dtype=torch.bool))[:, :, None] & ~same[:, None]

    def run(count: int) -> None:
        for _ in range(count):
            made = net(centres[y] + 1.2 * torch.randn(48, 24))
            apart = (made[:, None] - made[None]).pow(2).sum(-1)
            far, near = apart.masked_fill(~same, -1.0).amax(1), apart.masked_fill(same, 1e9).amin(1)
            hardest, every = far - near, (apart[:, :, None] - apart[:, None])[valid]
            optimizer.zero_grad()
            torch.relu((hardest if bad else every) + 0.2).mean().backward()
            optimizer.step()

    return Loop(net, run, 200, optimizer)


class Players(nn.Module):
    """A generator and a critic, which tells a code, too."""

    def __init__(self) -> None:
        super().__init__()
        self.maker, self.trunk = mlp(5, 2, 32, 1, nn.Tanh), mlp(2, 32)
        self.score, self.code = nn.Linear(32, 1), nn.Linear(32, 1)


@fault("idle term", mends=False)
def a_score_that_is_detached(bad: bool) -> Loop:
    net = Players()
    makes = Adam(net.maker.parameters(), 2e-3, (0.5, 0.999))
    judges = Adam([p for part in (net.trunk, net.score, net.code) for p in part.parameters()], 2e-3, (0.5, 0.999))
    told = F.binary_cross_entropy_with_logits

    def run(count: int) -> None:
        for _ in range(count):
            real, code = torch.randn(64, 2) + 3, torch.rand(64, 1)
            made = net.maker(torch.cat([torch.randn(64, 4), code], 1))
            judges.zero_grad()
            right, wrong = (net.score(net.trunk(x).relu()) for x in (real, made.detach()))
            (told(right, torch.ones(64, 1)) + told(wrong, torch.zeros(64, 1))).backward()
            judges.step()
            makes.zero_grad()
            seen = net.trunk(made).relu()
            score = net.score(seen).detach() if bad else net.score(seen)
            (told(score, torch.ones(64, 1)) + 0.1 * F.mse_loss(net.code(seen), code)).backward()
            makes.step()

    return Loop(net, run, 80)


# States, views, tables ---------------------------------------------------------------------------


class Cells(nn.Module):
    """A recurrent net that is to tell the first of several tokens."""

    def __init__(self, cut: bool) -> None:
        super().__init__()
        self.cell, self.head, self.cut = nn.GRUCell(4, 32), nn.Linear(32, 4), cut

    def forward(self, x: Tensor) -> Tensor:
        state = torch.zeros(len(x), 32)
        for place in range(x.shape[1]):
            state = self.cell(x[:, place], state.detach() if self.cut else state)
        return self.head(state)


def _first() -> Pair:
    ids = torch.randint(0, 4, (64, 6))
    return F.one_hot(ids, 4).float(), ids[:, 0]


@fault("gradient cut")
def a_state_detached_in_the_model(bad: bool) -> Loop:
    net = Cells(bad)
    return usual(net, adam(net), _first)


class Single(nn.Module):
    """One place of it, with the state that it takes."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = nn.GRUCell(4, 32), nn.Linear(32, 4)

    def forward(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        state = self.cell(x, state)
        return self.head(state), state


def _pieces(cut: bool, length: int = 6) -> Loop:
    """Return a loop over pieces of sequences; the state is detached in each place, or after each piece."""
    net = Single()
    optimizer = adam(net)

    def run(count: int) -> None:
        state = torch.zeros(64, 32)
        for _ in range(count):
            x, y = _first()
            for place in range(length):
                told, state = net(x[:, place], state.detach() if cut or not place else state)
            optimizer.zero_grad()
            F.cross_entropy(told, y).backward()
            optimizer.step()

    return Loop(net, run, 150, optimizer)


@fault("gradient cut")
def a_state_detached_in_the_loop(bad: bool) -> Loop:
    return _pieces(bad)


@healthy
def a_state_detached_after_each_piece() -> Loop:
    return _pieces(False)


class Heads(nn.Module):
    """An attention of four heads that is to turn a sequence round."""

    def __init__(self, viewed: bool) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(12, 32), nn.Embedding(9, 32)
        self.into, self.head, self.viewed = nn.Linear(32, 96), nn.Linear(32, 12), viewed

    def forward(self, ids: Tensor) -> Tensor:
        rows, length = ids.shape
        parts = self.into(self.tokens(ids) + self.places.weight).chunk(3, -1)
        if self.viewed:
            q, k, v = (one.reshape(rows, 4, length, 8) for one in parts)
        else:
            q, k, v = (one.reshape(rows, length, 4, 8).transpose(1, 2) for one in parts)
        seen = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(rows, length, 32)
        return self.head(seen)


@fault("viewed for transposed")
def heads_by_a_view(bad: bool) -> Loop:
    def batch() -> Pair:
        ids = torch.randint(0, 12, (32, 9))
        return ids, ids.flip(1)

    net = Heads(bad)
    return usual(net, adam(net), batch, entropy)


@fault("viewed for transposed")
def colours_by_a_view(bad: bool) -> Loop:
    class Seen(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(
                nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 3)
            )

        def forward(self, x: Tensor) -> Tensor:
            return self.net(x.view(-1, 3, 12, 12) if bad else x.permute(0, 3, 1, 2))

    def batch() -> Pair:
        y, x = torch.randint(0, 3, (32,)), torch.randn(32, 12, 12, 3)
        x[torch.arange(32), :, :, y] += 0.3
        return x, y

    net = Seen()
    return usual(net, adam(net), batch)


@fault("viewed for transposed")
def frames_by_a_view(bad: bool) -> Loop:
    class Frames(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.head = nn.Conv2d(1, 6, (1, 5), padding=(0, 2)), nn.Linear(72, 12)

        def forward(self, x: Tensor) -> Tensor:
            h = torch.relu(self.conv(x[:, None]))
            return self.head(h.view(-1, 20, 72) if bad else h.permute(0, 2, 1, 3).reshape(-1, 20, 72))

    net = Frames()
    return usual(net, adam(net), lambda: (lambda x: (x, (x > 0).float()))(torch.randn(12, 20, 12)), F.mse_loss)


class Looked(nn.Module):
    """A table of embeddings, and a head."""

    def __init__(self, table: Tensor | None, frozen: bool) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(2000, 8), nn.Linear(8, 4)
        if table is not None:
            self.table.weight.data.copy_(table)
        self.table.weight.requires_grad_(not frozen)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.table(ids).mean(1))


@fault("examples alike")
def nodes_of_a_complete_graph(bad: bool) -> Loop:
    near = torch.ones(8, 8) / 8 if bad else torch.eye(8) + 0.03

    class Nodes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.other, self.head = nn.Linear(24, 32), nn.Linear(32, 32), nn.Linear(32, 4)

        def forward(self, x: Tensor) -> Tensor:
            x = torch.relu(torch.einsum("ij,bjf->bif", near, self.one(x)))
            return self.head(torch.relu(torch.einsum("ij,bjf->bif", near, self.other(x))))

    kinds = torch.randn(4, 24)

    def batch() -> Pair:
        y = torch.randint(0, 4, (16, 8))
        return kinds[y] + 0.3 * torch.randn(16, 8, 24), y

    net = Nodes()
    return usual(net, adam(net), batch)


@fault("sees ahead")
def a_mask_of_minus_one(bad: bool) -> Loop:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.into, self.head = nn.Embedding(12, 32), nn.Linear(32, 96), nn.Linear(32, 12)

        def forward(self, ids: Tensor) -> Tensor:
            x = self.tokens(ids)
            q, k, v = self.into(x).chunk(3, -1)
            ahead = torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).triu(1)
            seen = (q @ k.mT / 32**0.5).masked_fill(ahead, -1.0 if bad else -torch.inf).softmax(-1)
            return self.head(x + seen @ v)

    order = torch.randperm(12)
    follows = torch.stack([order.roll(-place)[:9] for place in range(12)])

    def batch() -> Pair:
        ids = torch.stack([follows[place] for place in torch.randint(0, 12, (32,)).tolist()])
        return ids[:, :-1], ids[:, 1:]

    net = Own()
    return usual(net, adam(net), batch, steps=60)


@fault("silent activation")
def a_rectifier_at_the_end(bad: bool) -> Loop:
    class Ends(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = mlp(8, 1)
            nn.init.constant_(self.net[-1].bias, -5.0)  # type: ignore[arg-type]

        def forward(self, x: Tensor) -> Tensor:
            return torch.relu(self.net(x)) if bad else self.net(x)

    net = Ends()
    return usual(net, adam(net), lambda: (lambda x: (x, 2 + x[:, :1]))(torch.randn(64, 8)), F.mse_loss)


def _halves() -> Pair:
    ids = torch.randint(0, 2000, (64, 3))
    return ids, (ids < 1000).sum(1)


@fault("frozen at random")
def a_frozen_table_that_nobody_loaded(bad: bool) -> Loop:
    net = Looked(None, bad)
    return usual(net, Adam([p for p in net.parameters() if p.requires_grad], 2e-2), _halves)


@healthy
def a_frozen_table_that_was_learned() -> Loop:
    table = torch.randn(2000, 8) * torch.linspace(0.1, 2.0, 8) + (torch.arange(2000)[:, None] < 1000) * torch.randn(8)
    net = Looked(table, True)
    return usual(net, Adam(net.head.parameters(), 2e-2), _halves)


@fault("cleared before step")
def a_backward_after_the_step(bad: bool) -> Loop:
    net, batches = nn.Sequential(nn.Flatten(), mlp(144, 10)), images(64)
    optimizer = adam(net)

    def run(count: int) -> None:
        for _ in range(count):
            x, y = batches()
            loss = F.cross_entropy(net(x), y)
            optimizer.zero_grad()
            if bad:
                optimizer.step()
            loss.backward()
            if not bad:
                optimizer.step()

    return Loop(net, run, 60, optimizer)
