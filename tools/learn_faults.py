"""Trainings with one known fault each, written beside the rules of the verdict."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, lr_scheduler

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
    checkered,
    counting,
    entropy,
    images,
    mlp,
    sgd,
    sums,
    text,
    usual,
)

CASES = Cases()
fault = CASES.fault

# The learning rate -------------------------------------------------------------------------------


@fault("learning rate too high")
def rate_of_three(bad: bool) -> Loop:
    net = Conv()
    return usual(net, sgd(net, 3.0 if bad else 0.02), images())


@fault("learning rate too high")
def rate_of_adam(bad: bool) -> Loop:
    net = Writer()
    return usual(net, adam(net, 0.3 if bad else 3e-3), text())


@fault("learning rate too high")
def rate_of_cells(bad: bool) -> Loop:
    net = Reader()
    return usual(net, adam(net, 0.5 if bad else 5e-3), counting(), steps=200)


@fault("learning rate too low")
def rate_tiny_sgd(bad: bool) -> Loop:
    net = Conv()
    return usual(net, sgd(net, 2e-5 if bad else 0.02), images())


@fault("learning rate too low")
def rate_tiny_adam(bad: bool) -> Loop:
    net = Reader()
    return usual(net, adam(net, 1e-6 if bad else 5e-3), counting(), steps=200)


@fault("rate spent early")
def schedule_of_five(bad: bool) -> Loop:
    net = Patches()
    optimizer = adam(net)
    return usual(net, optimizer, images(), schedule=lr_scheduler.PolynomialLR(optimizer, 5 if bad else 1000))


@fault("rate spent early")
def epochs_in_batches(bad: bool) -> Loop:
    net = Conv()
    optimizer = sgd(net)
    return usual(net, optimizer, images(), schedule=lr_scheduler.StepLR(optimizer, 10 if bad else 1000, 0.1))


@fault("rate spent early")
def shrinks_each_batch(bad: bool) -> Loop:
    net = Writer()
    optimizer = adam(net)
    return usual(net, optimizer, text(), schedule=lr_scheduler.ExponentialLR(optimizer, 0.7 if bad else 0.999))


@fault("rate of zero")
def rate_of_zero(bad: bool) -> Loop:
    net = mlp()
    optimizer = sgd(net)
    return usual(net, optimizer, blobs(), schedule=lr_scheduler.LambdaLR(optimizer, lambda t: 0.0 if bad else 1.0))


@fault("group stays")
def one_group_of_zero(bad: bool) -> Loop:
    net = Conv()
    head = {id(p) for p in net.head.parameters()}
    body = [p for p in net.parameters() if id(p) not in head]
    groups = [{"params": body, "lr": 0.0 if bad else 0.02}, {"params": net.head.parameters()}]
    return usual(net, SGD(groups, lr=0.02, momentum=0.9), images())


# The optimizer and its parameters ----------------------------------------------------------------


@fault("other optimizer")
def of_another_model(bad: bool) -> Loop:
    net = mlp()
    return usual(net, sgd(mlp() if bad else net), blobs())


@fault("other optimizer")
def of_a_copy(bad: bool) -> Loop:
    net = Writer()
    optimizer = adam(net)
    moved = copy.deepcopy(net) if bad else net
    return usual(moved, optimizer, text())


@fault("not optimised")
def head_alone(bad: bool) -> Loop:
    net = Patches()
    return usual(net, AdamW((net.head if bad else net).parameters(), lr=3e-3), images())


@fault("not optimised")
def before_new_head(bad: bool) -> Loop:
    net = Conv(norm=True)
    optimizer = adam(net, 1e-3)
    if bad:
        net.head = nn.Linear(48, 10)
    return usual(net, optimizer, images())


@fault("not optimised")
def before_new_embedding(bad: bool) -> Loop:
    net = Writer()
    optimizer = adam(net)
    if bad:
        net.tokens = nn.Embedding(len(LETTERS), 48)
    return usual(net, optimizer, text())


class Listed(nn.Module):
    def __init__(self, plain: bool) -> None:
        super().__init__()
        layers = [nn.Linear(20, 48), nn.Linear(48, 48)]
        self.layers = layers if plain else nn.ModuleList(layers)
        self.head = nn.Linear(48, 5)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x))
        return self.head(x)


@fault("not registered")
def layers_in_list(bad: bool) -> Loop:
    net = Listed(bad)
    return usual(net, adam(net), blobs())


class Keyed(nn.Module):
    def __init__(self, plain: bool) -> None:
        super().__init__()
        layers = {"near": nn.Conv2d(1, 8, 3), "far": nn.Conv2d(8, 8, 3)}
        self.layers = layers if plain else nn.ModuleDict(layers)
        self.head = nn.Linear(8 * 64, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.layers["near"](x))
        return self.head(torch.relu(self.layers["far"](x)).flatten(1))


@fault("not registered")
def layers_in_dict(bad: bool) -> Loop:
    net = Keyed(bad)
    return usual(net, sgd(net), images())


@fault("optimizer anew", mends=False)
def optimizer_in_loop(bad: bool) -> Loop:
    net = Writer()

    def run(count: int) -> None:
        kept = adam(net, 3e-6)
        for _ in range(count):
            optimizer = adam(net, 3e-6) if bad else kept
            x, y = text()()
            optimizer.zero_grad()
            entropy(net(x), y).backward()
            optimizer.step()

    return Loop(net, run)


@fault("set back")
def loaded_each_step(bad: bool) -> Loop:
    net = mlp()
    first = copy.deepcopy(net.state_dict())
    return usual(net, sgd(net), blobs(), before=(lambda: net.load_state_dict(first)) if bad else lambda: None)


# Gradients ---------------------------------------------------------------------------------------


@fault("gradient cut")
def detached_features(bad: bool) -> Loop:
    net = Conv(cut=bad)
    return usual(net, sgd(net), images())


@fault("gradient cut")
def data_of_cells(bad: bool) -> Loop:
    net = Reader(cut=bad)
    return usual(net, adam(net, 5e-3), counting(), steps=200)


class Numpy(nn.Module):
    def __init__(self, through: bool) -> None:
        super().__init__()
        self.through = through
        self.body = nn.Sequential(nn.Linear(20, 48), nn.ReLU(), nn.Linear(48, 32), nn.ReLU())
        self.head = nn.Linear(32, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.body(x)
        return self.head(torch.tensor(x.detach().numpy() * 1.0) if self.through else x)


@fault("gradient cut")
def through_numpy(bad: bool) -> Loop:
    net = Numpy(bad)
    return usual(net, adam(net), blobs())


class WithoutGrad(nn.Module):
    def __init__(self, off: bool) -> None:
        super().__init__()
        self.off = off
        self.body, self.head = nn.Sequential(nn.Linear(20, 48), nn.ReLU()), nn.Linear(48, 5)

    def forward(self, x: Tensor) -> Tensor:
        with torch.set_grad_enabled(not self.off):
            x = self.body(x)
        return self.head(x)


@fault("gradient cut")
def body_without_grad(bad: bool) -> Loop:
    net = WithoutGrad(bad)
    return usual(net, adam(net), blobs())


@fault("no gradient")
def loss_detached(bad: bool) -> Loop:
    net = mlp()

    def loss(out: Tensor, y: Tensor) -> Tensor:
        found = entropy(out, y)
        return found.detach().requires_grad_() if bad else found

    return usual(net, adam(net), blobs(), loss)


@fault("no step")
def step_forgotten(bad: bool) -> Loop:
    net = mlp()
    optimizer = adam(net)

    def run(count: int) -> None:
        for _ in range(count):
            x, y = blobs()()
            optimizer.zero_grad()
            entropy(net(x), y).backward()
            if not bad:
                optimizer.step()

    return Loop(net, run)


@fault("not cleared")
def never_cleared_sgd(bad: bool) -> Loop:
    net = mlp()
    return usual(net, SGD(net.parameters(), lr=0.05), blobs(), clear=not bad)


@fault("not cleared")
def never_cleared_adam(bad: bool) -> Loop:
    net = Patches()
    return usual(net, adam(net, 1e-3), images(), clear=not bad)


@fault("cleared before step")
def cleared_too_soon(bad: bool) -> Loop:
    net = Conv()
    optimizer = sgd(net)
    return usual(net, optimizer, images(), between=optimizer.zero_grad if bad else lambda: None)


@fault("cleared before step")
def cleared_too_soon_adam(bad: bool) -> Loop:
    net = Reader()
    optimizer = adam(net, 5e-3)
    return usual(net, optimizer, counting(), between=(lambda: net.zero_grad()) if bad else lambda: None, steps=200)


@fault("clipped away")
def clipped_to_nothing(bad: bool) -> Loop:
    net = Reader()
    most = 1e-6 if bad else 1.0
    clip = lambda: nn.utils.clip_grad_norm_(net.parameters(), most)  # noqa: E731
    return usual(net, sgd(net, 0.2), counting(), between=clip, steps=300)


@fault("clipped away")
def clipped_by_value(bad: bool) -> Loop:
    net = mlp()
    most = 1e-7 if bad else 1.0
    clip = lambda: nn.utils.clip_grad_value_(net.parameters(), most)  # noqa: E731
    return usual(net, SGD(net.parameters(), lr=0.1), blobs(), between=clip)


@fault("accumulated undivided")
def sixteen_undivided(bad: bool) -> Loop:
    net = mlp()
    return usual(net, sgd(net, 0.3), blobs(), parts=16, share=1 if bad else 1 / 16, steps=80)


class Rooted(nn.Module):
    def __init__(self, bad: bool) -> None:
        super().__init__()
        self.bad, self.body = bad, mlp(20, 8)

    def forward(self, x: Tensor) -> Tensor:
        out = self.body(x)
        return out[:, :5] + ((out.relu() * 0).sum(1, keepdim=True).sqrt() if self.bad else 0)


@fault("steps skipped")
def scaler_collapses(bad: bool) -> Loop:
    net = Rooted(bad)
    optimizer, scaler = sgd(net), torch.amp.GradScaler("cpu")

    def run(count: int) -> None:
        for _ in range(count):
            x, y = blobs()()
            scaler.scale(entropy(net(x), y)).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()

    return Loop(net, run)


@fault("gradients vanish")
def ten_sigmoids(bad: bool) -> Loop:
    net = mlp(act=nn.Sigmoid if bad else nn.ReLU, layers=10 if bad else 3)
    return usual(net, sgd(net, 0.05), blobs())


@fault("updates rounded away")
def rounded_sgd(bad: bool) -> Loop:
    net = Writer() if not bad else Writer().bfloat16()
    return usual(net, SGD(net.parameters(), lr=5e-4 if bad else 0.5), text(), lambda o, y: entropy(o.float(), y))


@fault("updates rounded away", mends=False)
def rounded_adam(bad: bool) -> Loop:
    net = Patches().bfloat16()
    return usual(
        net, adam(net, 1e-5), changed(images(), lambda x, y: (x.bfloat16(), y)), lambda o, y: entropy(o.float(), y)
    )


# The loss ----------------------------------------------------------------------------------------


@fault("loss input")
def softmax_twice(bad: bool) -> Loop:
    net = nn.Sequential(mlp(), nn.Softmax(-1) if bad else nn.Identity())
    return usual(net, sgd(net, 0.05), blobs())


@fault("loss input")
def sigmoid_twice(bad: bool) -> Loop:
    net = nn.Sequential(mlp(6, 1, act=nn.Tanh), nn.Sigmoid() if bad else nn.Identity())
    batches = changed(checkered(), lambda x, y: (x, y[:, None].float()))
    return usual(net, adam(net, 1e-2), batches, F.binary_cross_entropy_with_logits, steps=250)


@fault("loss input")
def column_against_row(bad: bool) -> Loop:
    net = mlp(20, 1)
    batches = changed(blobs(), lambda x, y: (x, x[:, 0] * x[:, 1] if bad else (x[:, 0] * x[:, 1])[:, None]))
    return usual(net, adam(net, 1e-2), batches, F.mse_loss, steps=250)


@fault("softmax over batch")
def softmax_of_wrong_dim(bad: bool) -> Loop:
    net = mlp()
    return usual(net, adam(net), blobs(), lambda o, y: F.nll_loss(F.log_softmax(o, 0 if bad else 1), y))


@fault("wrong sign")
def uphill(bad: bool) -> Loop:
    net = mlp()
    return usual(net, sgd(net), blobs(), share=-1 if bad else 1)


@fault("loss is a sum")
def summed(bad: bool) -> Loop:
    net = Conv()
    loss = lambda o, y: F.cross_entropy(o, y, reduction="sum" if bad else "mean")  # noqa: E731
    return usual(net, sgd(net, 0.1), images(64), loss)


@fault("loss is a sum")
def summed_by_hand(bad: bool) -> Loop:
    net = Conv()

    def loss(out: Tensor, y: Tensor) -> Tensor:
        each = F.cross_entropy(out, y, reduction="none")
        return each.sum() if bad else each.mean()

    return usual(net, sgd(net, 0.1), images(64), loss)


@fault("log of zero", mends=False)
def logarithm_of_zero(bad: bool) -> Loop:
    net = nn.Sequential(mlp(), nn.Softmax(-1))
    seen = [0]

    def loss(p: Tensor, y: Tensor) -> Tensor:
        seen[0] += 1
        p = p * (torch.arange(5) != y[0]) if bad and seen[0] == 8 else p
        return -p.log().gather(1, y[:, None]).mean()

    return usual(net, adam(net), blobs(), loss, steps=40)


class Standard(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = mlp()

    def forward(self, x: Tensor) -> Tensor:
        return self.body((x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True))


@fault("loss not finite")
def constant_row(bad: bool) -> Loop:
    net, batches, seen = Standard(), blobs(), [0]

    def batch() -> tuple[Tensor, Tensor]:
        x, y = batches()
        seen[0] += 1
        if bad and seen[0] == 10:
            x[3] = 1.0
        return x, y

    return usual(net, adam(net), batch, steps=60)


# Targets and inputs ------------------------------------------------------------------------------


@fault("targets unrelated")
def shuffled_labels(bad: bool) -> Loop:
    net = Conv()
    return usual(net, sgd(net), changed(images(), lambda x, y: (x, y[torch.randperm(len(y))]), bad))


@fault("targets unrelated")
def shuffled_numbers(bad: bool) -> Loop:
    net = Reader(0, 1)
    batches = changed(sums(), lambda x, y: (x, y[torch.randperm(len(y))]), bad)
    return usual(net, adam(net, 1e-2), batches, F.mse_loss, steps=300)


@fault("targets are inputs")
def targets_not_shifted(bad: bool) -> Loop:
    net = Writer()
    return usual(net, adam(net), text(ahead=0 if bad else 1))


@fault("targets shifted")
def targets_shifted_twice(bad: bool) -> Loop:
    net = Writer()
    return usual(net, adam(net), text(ahead=2 if bad else 1))


@fault("targets alike")
def one_class(bad: bool) -> Loop:
    net = mlp()
    return usual(net, sgd(net), changed(blobs(), lambda x, y: (x, y * 0), bad))


@fault("targets alike")
def one_number(bad: bool) -> Loop:
    net = mlp(20, 1)
    batches = changed(blobs(), lambda x, y: (x, torch.full((64, 1), 3.0) if bad else x[:, :1] * x[:, 1:2]))
    return usual(net, adam(net, 1e-2), batches, F.mse_loss, steps=250)


@fault("targets ignored")
def all_ignored(bad: bool) -> Loop:
    net = Writer()
    return usual(net, adam(net), changed(text(), lambda x, y: (x, torch.full_like(y, -100)), bad))


@fault("data sorted")
def class_after_class(bad: bool) -> Loop:
    net, batches, seen = mlp(), blobs(size=400), [0]

    def batch() -> tuple[Tensor, Tensor]:
        x, y = batches()
        seen[0] += 1
        kept = y == (seen[0] // 30) % 5 if bad else y >= 0
        return x[kept][:64], y[kept][:64]

    return usual(net, sgd(net), batch)


@fault("same batch", mends=False)
def one_batch(bad: bool) -> Loop:
    net, (x, y) = mlp(), blobs(size=512)()
    one = x[:64], y[:64]
    return usual(net, adam(net), lambda: one)


@fault("target in input", mends=False)
def label_as_column(bad: bool) -> Loop:
    net = mlp()
    return usual(
        net, adam(net), changed(blobs(noise=3.0), lambda x, y: (torch.cat([x[:, :19], y[:, None].float()], 1), y))
    )


@fault("target in input", mends=False)
def label_as_pixel(bad: bool) -> Loop:
    net = Conv()

    def mark(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        x = torch.randn_like(x)
        x[:, 0, 3, 3] = y / 4.5 - 1
        return x, y

    return usual(net, adam(net), changed(images(), mark))


@fault("inputs not normalised")
def tiny_inputs(bad: bool) -> Loop:
    net = Conv()
    return usual(net, sgd(net), changed(images(), lambda x, y: (x * 1e-4, y), bad))


@fault("inputs not normalised")
def huge_inputs(bad: bool) -> Loop:
    net = mlp()
    return usual(net, sgd(net), changed(blobs(), lambda x, y: (x * 1e3, y), bad))


@fault("inputs not normalised")
def pixels(bad: bool) -> Loop:
    net = Conv()
    return usual(net, sgd(net), changed(images(), lambda x, y: (((x + 4) * 32).clamp(0, 255), y), bad))


@fault("inputs not normalised")
def far_from_zero(bad: bool) -> Loop:
    net = mlp()
    return usual(net, sgd(net), changed(blobs(), lambda x, y: (x + 1000, y), bad))


@fault("inputs not normalised")
def huge_sequence(bad: bool) -> Loop:
    net = Reader(0, 1)
    return usual(net, adam(net, 1e-2), changed(sums(), lambda x, y: (x * 1e3, y), bad), F.mse_loss, steps=300)


# The model ---------------------------------------------------------------------------------------


@fault("silent activation")
def dead_layer(bad: bool) -> Loop:
    net = mlp()
    if bad:
        nn.init.constant_(net[2].bias, -30.0)
    return usual(net, sgd(net), blobs())


@fault("silent activation")
def dead_convolution(bad: bool) -> Loop:
    net = Conv()
    if bad:
        nn.init.constant_(net.second.bias, -20.0)
    return usual(net, sgd(net), images())


@fault("no activation")
def linear_stack(bad: bool) -> Loop:
    net = mlp(6, 2, layers=3, act=nn.Identity if bad else nn.ReLU)
    return usual(net, adam(net), checkered(), steps=250)


@fault("eval mode", mends=False)
def norms_in_eval(bad: bool) -> Loop:
    net = Conv(norm=True).eval()
    return usual(net, sgd(net), changed(images(), lambda x, y: (x * 3 + 2, y)))


@fault("eval mode", mends=False)
def part_in_eval(bad: bool) -> Loop:
    net = Conv(norm=True)
    assert net.norms is not None
    net.norms.eval()
    return usual(net, sgd(net), images())


@fault("batch of one", mends=False)
def batches_of_one(bad: bool) -> Loop:
    net = Conv(norm=True)
    return usual(net, sgd(net, 0.01), images(1))


@fault("dropout too strong")
def drops_nine_tenths(bad: bool) -> Loop:
    drops = [nn.Dropout(0.97 if bad else 0.1) for _ in range(2)]
    net = nn.Sequential(
        nn.Linear(20, 48), nn.ReLU(), drops[0], nn.Linear(48, 48), nn.ReLU(), drops[1], nn.Linear(48, 5)
    )
    return usual(net, adam(net, 1e-3), blobs())


@fault("weight decay")
def decay_of_ten(bad: bool) -> Loop:
    net = Writer()
    return usual(net, adam(net, weight_decay=10.0 if bad else 0.01), text())


@fault("weight decay")
def decay_of_sgd(bad: bool) -> Loop:
    net = mlp()
    return usual(net, sgd(net, 0.05, weight_decay=5.0 if bad else 1e-4), blobs())


@fault("frozen at random")
def frozen_body(bad: bool) -> Loop:
    net = Conv()
    for layer in (net.first, net.second, net.inner) if bad else ():
        layer.requires_grad_(False)
    return usual(net, SGD([p for p in net.parameters() if p.requires_grad], lr=0.02, momentum=0.9), images(), steps=60)


@fault("frozen at random")
def frozen_patches(bad: bool) -> Loop:
    net = Patches()
    for name, p in net.named_parameters():
        p.requires_grad_(name.startswith("head") or not bad)
    return usual(net, adam(net, 1e-3), images(), steps=120)


@fault("zero weights")
def zeros_everywhere(bad: bool) -> Loop:
    net = mlp()
    for p in net.parameters() if bad else ():
        nn.init.zeros_(p)
    return usual(net, sgd(net), blobs())


@fault("optimizer state lost", mends=False)
def resumed_without_state(bad: bool) -> Loop:
    net = Conv()
    usual(net, adam(net), images()).run(120)
    optimizer = Adam(net.parameters(), lr=3e-3)
    optimizer.param_groups[0]["initial_lr"] = 3e-3
    schedule = lr_scheduler.CosineAnnealingLR(optimizer, 400, last_epoch=119)
    return usual(net, optimizer, images(), schedule=schedule)
