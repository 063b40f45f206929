"""Healthy trainings with whatever looks unusual: short runs, plateaus, games, rewards, warm-ups, frozen parts."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import LBFGS, SGD, Adam, AdamW, lr_scheduler

from learn_parts import (
    LETTERS,
    Cases,
    Conv,
    Loop,
    Patches,
    Reader,
    Writer,
    adam,
    blobs,
    changed,
    counting,
    images,
    mlp,
    sgd,
    sums,
    text,
    usual,
)

CASES = Cases()
healthy = CASES.healthy


@healthy
def plain_mlp() -> Loop:
    net = mlp()
    return usual(net, sgd(net), blobs())


@healthy
def norms() -> Loop:
    net = Conv(norm=True)
    return usual(net, sgd(net), images())


@healthy
def writer_with_warmup() -> Loop:
    net = Writer(64, 3)
    optimizer = adam(net, 1e-3, weight_decay=0.1)
    schedule = lr_scheduler.LambdaLR(optimizer, lambda t: min(1.0, (t + 1) / 60))
    clip = lambda: nn.utils.clip_grad_norm_(net.parameters(), 1.0)  # noqa: E731
    return usual(net, optimizer, text(), schedule=schedule, between=clip)


@healthy
def long_warmup() -> Loop:
    net = Patches()
    optimizer = adam(net, 1e-3)
    return usual(
        net, optimizer, images(), schedule=lr_scheduler.LambdaLR(optimizer, lambda t: (t + 1) / 2000), steps=60
    )


@healthy
def twelve_steps() -> Loop:
    net = Conv()
    return usual(net, sgd(net), images(), steps=12)


@healthy
def reader() -> Loop:
    net = Reader()
    return usual(net, adam(net), counting(), steps=250)


@healthy
def patches_with_dropout() -> Loop:
    net = Patches(drop=0.1)
    return usual(net, adam(net), images())


@healthy
def regression() -> Loop:
    net = Reader(0, 1)
    return usual(net, adam(net, 1e-2), sums(), F.mse_loss, steps=300)


@healthy
def whole_data() -> Loop:
    net, one = mlp(), blobs(size=512)()
    return usual(net, adam(net), lambda: one)


@healthy
def autoencoder() -> Loop:
    net = nn.Sequential(nn.Flatten(), nn.Linear(144, 32), nn.ReLU(), nn.Linear(32, 144))
    return usual(net, adam(net), changed(images(), lambda x, y: (x, x.flatten(1))), F.mse_loss)


@healthy
def frozen_trained_norms() -> Loop:
    net = Conv(norm=True)
    usual(net, sgd(net), images()).run(60)
    net.head = nn.Linear(48, 10)
    assert net.norms is not None
    net.norms.eval()
    return usual(net, sgd(net, 0.01), images())


@healthy
def frozen_trained_body() -> Loop:
    net = Conv()
    usual(net, sgd(net), images()).run(80)
    net.requires_grad_(False)
    net.head = nn.Linear(48, 10)
    return usual(net, AdamW(net.head.parameters(), lr=3e-3), images(), steps=80)


class Low(nn.Module):
    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Linear(base.in_features, 4, bias=False)
        self.up = nn.Linear(4, base.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.up(self.down(x))


@healthy
def low_rank() -> Loop:
    net = Writer()
    usual(net, adam(net), text()).run(100)
    net.requires_grad_(False)
    for block in net.blocks:
        block.into, block.up = Low(block.into), Low(block.up)
    return usual(net, AdamW([p for p in net.parameters() if p.requires_grad], lr=3e-3), text())


@healthy
def game() -> Loop:
    maker = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 2))
    critic = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
    of_maker, of_critic = (Adam(net.parameters(), 1e-3, (0.5, 0.9)) for net in (maker, critic))
    loss = F.binary_cross_entropy_with_logits

    def run(count: int) -> None:
        for _ in range(count):
            angle = torch.rand(64) * 2 * math.pi
            real = torch.stack([angle.cos(), angle.sin()], 1)
            of_critic.zero_grad()
            fake = critic(maker(torch.randn(64, 6)).detach())
            (loss(critic(real), torch.ones(64, 1)) + loss(fake, torch.zeros(64, 1))).backward()
            of_critic.step()
            of_maker.zero_grad()
            loss(critic(maker(torch.randn(64, 6))), torch.ones(64, 1)).backward()
            of_maker.step()

    return Loop(critic, run)


@healthy
def rewards() -> Loop:
    net = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 3))
    optimizer, worth = Adam(net.parameters(), 5e-3), torch.randn(4, 3)

    def run(count: int) -> None:
        for _ in range(count):
            x = torch.randn(32, 4)
            chance = torch.distributions.Categorical(logits=net(x))
            action = chance.sample()
            gain = (x @ worth).gather(1, action[:, None])[:, 0] + torch.randn(32)
            optimizer.zero_grad()
            (-(chance.log_prob(action) * (gain - gain.mean())).mean()).backward()
            optimizer.step()

    return Loop(net, run, 200)


@healthy
def accumulated_adam() -> Loop:
    net = mlp()
    return usual(net, adam(net), blobs(), parts=4)


@healthy
def accumulated_divided() -> Loop:
    net = mlp()
    return usual(net, sgd(net), blobs(), parts=4, share=0.25)


@healthy
def cosine_to_zero() -> Loop:
    net = Conv()
    optimizer = sgd(net)
    return usual(net, optimizer, images(), schedule=lr_scheduler.CosineAnnealingLR(optimizer, 150))


@healthy
def one_layer() -> Loop:
    net = nn.Linear(20, 5)
    return usual(net, SGD(net.parameters(), lr=0.1), blobs())


@healthy
def large_rate() -> Loop:
    net = mlp()
    return usual(net, SGD(net.parameters(), lr=0.4), blobs())


@healthy
def rare_class() -> Loop:
    net = mlp(20, 2)
    return usual(net, adam(net), changed(blobs(), lambda x, y: (x, ((y == 0) & (x[:, 0] > 1)).long())))


@healthy
def masked_letters() -> Loop:
    net = Writer(letters=len(LETTERS) + 1, causal=False)

    def mask(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        hidden = torch.rand(x.shape) < 0.15
        return x.masked_fill(hidden, len(LETTERS)), x.masked_fill(~hidden, -100)

    return usual(net, adam(net), changed(text(), mask), steps=200)


@healthy
def contrast() -> Loop:
    net = nn.Sequential(nn.Flatten(), nn.Linear(144, 64), nn.ReLU(), nn.Linear(64, 32))
    optimizer = adam(net, 1e-3)

    def run(count: int) -> None:
        for _ in range(count):
            x, _ = images()()
            a, b = (F.normalize(net(x + 0.3 * torch.randn_like(x)), dim=1) for _ in range(2))
            optimizer.zero_grad()
            F.cross_entropy(a @ b.T / 0.1, torch.arange(32)).backward()
            optimizer.step()

    return Loop(net, run)


@healthy
def smoothed_labels() -> Loop:
    drops = [nn.Dropout(0.5), nn.Dropout(0.5)]
    net = nn.Sequential(
        nn.Linear(20, 64), nn.ReLU(), drops[0], nn.Linear(64, 64), nn.ReLU(), drops[1], nn.Linear(64, 5)
    )
    return usual(net, adam(net, 1e-3), blobs(), lambda o, y: F.cross_entropy(o, y, label_smoothing=0.1))


class Variational(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.into, self.middle, self.spread = nn.Linear(144, 64), nn.Linear(64, 8), nn.Linear(64, 8)
        self.back = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 144))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        inner = torch.relu(self.into(x.flatten(1)))
        middle, spread = self.middle(inner), self.spread(inner)
        return self.back(middle + torch.randn_like(middle) * (spread / 2).exp()), middle, spread


@healthy
def variational() -> Loop:
    net = Variational()

    def loss(out: tuple[Tensor, Tensor, Tensor], y: Tensor) -> Tensor:
        made, middle, spread = out
        apart = -0.5 * (1 + spread - middle**2 - spread.exp()).sum()
        return (F.mse_loss(made, y, reduction="sum") + apart) / len(y)

    return usual(net, adam(net, 1e-3), changed(images(), lambda x, y: (x, x.flatten(1))), loss)


@healthy
def plateau_of_sums() -> Loop:
    net = Reader(0, 1)
    return usual(net, adam(net, 1e-3), sums(length=20), F.mse_loss, steps=200)


@healthy
def plateau_of_parity() -> Loop:
    net = mlp(10, 2, hidden=96)

    def batch() -> tuple[Tensor, Tensor]:
        x = torch.randint(0, 2, (64, 10)).float() * 2 - 1
        return x, (x[:, :4].prod(1) > 0).long()

    return usual(net, SGD(net.parameters(), lr=0.05), batch)


@healthy
def curriculum() -> Loop:
    net, easy, hard, seen = mlp(), blobs(noise=0.3), blobs(noise=2.0), [0]

    def batch() -> tuple[Tensor, Tensor]:
        seen[0] += 1
        return easy() if seen[0] < 80 else hard()

    return usual(net, adam(net), batch)


@healthy
def second_order() -> Loop:
    net, one = mlp(), blobs(size=256)()
    optimizer = LBFGS(net.parameters(), lr=0.5, max_iter=5)

    def run(count: int) -> None:
        def closure() -> Tensor:
            optimizer.zero_grad()
            loss = F.cross_entropy(net(one[0]), one[1])
            loss.backward()
            return loss

        for _ in range(count):
            optimizer.step(closure)

    return Loop(net, run, 30)


@healthy
def validated() -> Loop:
    net, batches = Conv(norm=True), images()
    optimizer = sgd(net)

    def run(count: int) -> None:
        for step in range(count):
            net.train()
            x, y = batches()
            optimizer.zero_grad()
            F.cross_entropy(net(x), y).backward()
            optimizer.step()
            if step % 10 == 9:
                net.eval()
                with torch.no_grad():
                    net(batches()[0])

    return Loop(net, run)


@healthy
def scaled_autocast() -> Loop:
    net = mlp()
    optimizer, scaler, batches = sgd(net), torch.amp.GradScaler("cpu", init_scale=2.0**30), blobs()

    def run(count: int) -> None:
        for _ in range(count):
            x, y = batches()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = F.cross_entropy(net(x), y)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()

    return Loop(net, run)


@healthy
def distilled() -> Loop:
    teacher, net = mlp(), mlp(hidden=32)
    batches = blobs()

    def batch() -> tuple[Tensor, Tensor]:
        x, _ = batches()
        with torch.no_grad():
            return x, teacher(x * 3).softmax(1)

    return usual(net, adam(net), batch, F.cross_entropy)


@healthy
def tuned_with_warmup() -> Loop:
    net = Writer()
    usual(net, adam(net), text()).run(150)
    optimizer = adam(net, 3e-4)
    return usual(net, optimizer, text(), schedule=lr_scheduler.LambdaLR(optimizer, lambda t: min(1.0, (t + 1) / 10)))
