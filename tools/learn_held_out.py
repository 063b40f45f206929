"""Trainings after public threads, two dozen with a fault and two dozen healthy ones; links are above each.

They were written without a look at the rules, and at the short lengths that people run first; the first answers are in
docs/learning.md.
"""

from __future__ import annotations

import copy
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import LBFGS, SGD, Adam, AdamW, Optimizer, RMSprop, lr_scheduler
from torch.utils.checkpoint import checkpoint

from learn_parts import (
    LETTERS,
    Cases,
    Conv,
    Loop,
    Mixer,
    Pair,
    Writer,
    adam,
    blobs,
    changed,
    counting,
    images,
    mlp,
    sgd,
    text,
    usual,
)

CASES = Cases()
fault, healthy = CASES.fault, CASES.healthy


def curve(noise: float = 0.1, size: int = 64) -> Pair:
    """Return points of a smooth function of four numbers, with noise."""
    x = torch.randn(size, 4)
    return x, torch.sin(x[:, :1]) + 0.5 * x[:, 1:2] * x[:, 2:3] + noise * torch.randn(size, 1)


def spots(size: int = 16) -> Pair:
    """Return images with a bright square, and the mask of the square."""
    x = 0.3 * torch.randn(size, 1, 12, 12)
    mask = torch.zeros(size, 1, 12, 12)
    for row, at in zip(mask, torch.randint(0, 8, (size, 2)).tolist(), strict=True):
        row[:, at[0] : at[0] + 4, at[1] : at[1] + 4] = 1.0
    return x + mask, mask


def pixels(outputs: int = 1) -> nn.Sequential:
    """Return a net with an answer for each pixel."""
    return nn.Sequential(
        nn.Conv2d(1, 12, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(12, 12, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(12, outputs, 1),
    )


def spoken(size: int = 16, length: int = 12, said: int = 3) -> tuple[Tensor, Tensor]:
    """Return sequences in which symbols are heard one after the other, and which they are, from 1 on."""
    labels = torch.randint(1, 5, (size, said))
    sound = 0.2 * torch.randn(size, length, 5)
    for row, label in enumerate(labels.tolist()):
        for at, symbol in enumerate(label):
            sound[row, at * (length // said) : at * (length // said) + 3, symbol] += 2.0
    return sound, labels


class Listener(nn.Module):
    """A GRU with the logarithms of chances at each moment."""

    def __init__(self) -> None:
        super().__init__()
        self.cells, self.head = nn.GRU(5, 32, batch_first=True, bidirectional=True), nn.Linear(64, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.cells(x)[0]).log_softmax(-1)


def heard(out: Tensor, labels: Tensor, moments: int) -> Tensor:
    """Return the CTC loss."""
    rows = out.shape[0]
    lengths = torch.full((rows,), moments), torch.full((rows,), labels.shape[1])
    return F.ctc_loss(out.transpose(0, 1), labels, *lengths, zero_infinity=True)


# github.com/yhenon/pytorch-retinanet/issues/41: chances cut off at 1e-4, and the loss stays at 2.302
@fault("learning rate too high", "answers alike", "zero gradients")
def chances_cut_off(bad: bool) -> Loop:
    net = nn.Sequential(pixels(), nn.Sigmoid())

    def loss(out: Tensor, y: Tensor) -> Tensor:
        out = out.clamp(1e-4, 1 - 1e-4)
        return -(y * out.log() + (1 - y) * (1 - out).log()).mean()

    return usual(net, Adam(net.parameters(), 0.5 if bad else 3e-3), spots, loss)


# github.com/ultralytics/yolov3/issues/191: a softmax over one class is 1, whatever the weights
@fault("loss input")
def one_class(bad: bool) -> Loop:
    net, made = Conv(), images()
    net.head = nn.Linear(48, 1 if bad else 2)
    return usual(net, adam(net), changed(made, lambda x, y: (x, (y * 0) if bad else y % 2)))


# github.com/Holmeyoung/crnn-pytorch/issues/34, shorter: more labels than moments, and infinity is set to 0
@fault("zero gradients")
def more_labels_than_moments(bad: bool) -> Loop:
    net = Listener()
    return usual(net, adam(net, 1e-2), spoken, lambda out, y: heard(out, y, 2 if bad else 12))


# a softmax over the batch instead of the classes
@fault("softmax over batch")
def softmax_over_the_batch(bad: bool) -> Loop:
    net = nn.Sequential(mlp(), nn.LogSoftmax(0 if bad else 1))
    return usual(net, adam(net), blobs(), F.nll_loss)


# an error written by hand, of [N, 1] and [N]: every answer against every target
@fault("loss input")
def every_answer_against_every_target(bad: bool) -> Loop:
    net = mlp(4, 1, 32)

    def loss(out: Tensor, y: Tensor) -> Tensor:
        return ((out - (y[:, 0] if bad else y)) ** 2).mean()

    return usual(net, Adam(net.parameters(), 5e-3), curve, loss)


class Adapted(nn.Module):
    """A frozen writer whose blocks are computed again in the backward, with small matrices that learn."""

    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.writer, self.reentrant = Writer(), reentrant
        self.writer.requires_grad_(False)
        self.low = nn.ModuleList([nn.Linear(48, 4, bias=False) for _ in self.writer.blocks])
        self.high = nn.ModuleList([nn.Linear(4, 48, bias=False) for _ in self.writer.blocks])
        for part in self.high:
            nn.init.zeros_(part.weight)

    def forward(self, ids: Tensor) -> Tensor:
        net = self.writer
        x = net.tokens(ids) + net.places.weight[: ids.shape[1]]
        for at, block in enumerate(net.blocks):

            def part(x: Tensor, at: int = at, block: nn.Module = block) -> Tensor:
                return block(x) + self.high[at](self.low[at](x))

            x = checkpoint(part, x, use_reentrant=self.reentrant)
        return net.head(net.norm(x))


# github.com/cloneofsimo/lora/issues/26, microsoft/LoRA/issues/120: checkpointed blocks, no input asks for gradients
@fault("gradient cut")
def adapters_in_checkpoints(bad: bool) -> Loop:
    net = Adapted(reentrant=bad)
    usual(net.writer.requires_grad_(True), adam(net.writer), text()).run(40)
    net.writer.requires_grad_(False)
    if bad:
        net.writer.head.requires_grad_(True)
    return usual(net, adam(net, 1e-2), text(), steps=150)


class Coder(nn.Module):
    """A variational autoencoder."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.out = nn.Sequential(nn.Flatten(), nn.Linear(144, 64), nn.ReLU(), nn.Linear(64, 16)), mlp(8, 144)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean, spread = self.into(x).chunk(2, -1)
        return self.out(mean + torch.randn_like(mean) * (spread / 2).exp()), mean, spread


def coded(share: float) -> Loop:
    net, made = Coder(), images()

    def loss(out: tuple[Tensor, Tensor, Tensor], x: Tensor) -> Tensor:
        again, mean, spread = out
        rest = -0.5 * (1 + spread - mean.square() - spread.exp()).sum(-1).mean()
        return F.mse_loss(again, x) + share * rest

    return usual(net, adam(net), changed(made, lambda x, y: (x, x.flatten(1))), loss)


# github.com/AppliedDataSciencePartners/WorldModels/issues/12: a mean over pixels beside a sum over the code
@fault("answers alike")
def code_says_nothing(bad: bool) -> Loop:
    return coded(5.0 if bad else 1e-3)


# every word is unknown to the tokenizer: all inputs are alike
@fault("inputs alike")
def every_word_unknown(bad: bool) -> Loop:
    class Bag(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.head = nn.Embedding(4, 16), mlp(16, 5, 32)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.words(x).mean(1))

    net = Bag()
    return usual(net, adam(net, 1e-2), changed(counting(), lambda x, y: (x * 0 if bad else x, y)), steps=120)


# the net is copied after the optimizer was made (to another device, for an average, out of a pool)
@fault("other optimizer")
def copied_after_the_optimizer(bad: bool) -> Loop:
    net = mlp()
    optimizer = adam(net)
    return usual(copy.deepcopy(net) if bad else net, optimizer, blobs(), steps=80)


# stackoverflow: "element 0 does not require grad", and so the loss is made anew with requires_grad=True
@fault("gradient cut", "no gradient")
def loss_made_anew(bad: bool) -> Loop:
    net = mlp()

    def loss(out: Tensor, y: Tensor) -> Tensor:
        found = F.cross_entropy(out, y)
        return torch.tensor(found.item(), requires_grad=True) if bad else found

    return usual(net, adam(net), blobs(), loss, steps=80)


# the class that was answered, as a number, against the label
@fault("gradient cut", "no gradient")
def answers_as_numbers(bad: bool) -> Loop:
    net = mlp()

    def loss(out: Tensor, y: Tensor) -> Tensor:
        if bad:
            return F.mse_loss(out.argmax(1).float().requires_grad_(), y.float())
        return F.cross_entropy(out, y)

    return usual(net, adam(net), blobs(), loss, steps=80)


# discuss.pytorch.org/t/94875: the root of an error that can be 0
@fault("root of zero")
def root_of_zero(bad: bool) -> Loop:
    net, made = mlp(classes=8), blobs()

    def loss(out: Tensor, y: Tensor) -> Tensor:
        far = ((out[:, None] - out[None]).square().sum(-1) + (0.0 if bad else 1e-6)).sqrt()
        same = (y[:, None] == y[None]).float()
        return (same * far + (1 - same) * F.relu(2.0 - far)).mean()

    return usual(net, adam(net), made, loss, steps=80)


# runebook.dev and many threads: a factor for epochs, used after every batch
@fault("rate spent early")
def factor_after_every_batch(bad: bool) -> Loop:
    net = Conv()
    optimizer = adam(net, 1e-3)
    return usual(net, optimizer, images(), schedule=lr_scheduler.ExponentialLR(optimizer, 0.9 if bad else 0.999))


# weight_decay=1.0, where 0.01 was meant
@fault("weight decay")
def weights_decay_away(bad: bool) -> Loop:
    net = Conv()
    return usual(net, SGD(net.parameters(), 0.05, momentum=0.9, weight_decay=0.5 if bad else 5e-4), images())


class Heads(nn.Module):
    """A net with a part for each kind of input, kept in a dictionary."""

    def __init__(self, plain: bool) -> None:
        super().__init__()
        parts = {"left": nn.Linear(10, 32), "right": nn.Linear(10, 32)}
        self.parts = parts if plain else nn.ModuleDict(parts)
        self.head = nn.Linear(64, 5)

    def forward(self, x: Tensor) -> Tensor:
        left, right = x.chunk(2, -1)
        return self.head(torch.relu(torch.cat([self.parts["left"](left), self.parts["right"](right)], -1)))


# parts in a dictionary that no optimizer sees
@fault("not registered")
def parts_in_a_dictionary(bad: bool) -> Loop:
    net = Heads(bad)
    return usual(net, adam(net), blobs())


# gradients clipped to 1e-4, with plain SGD
@fault("clipped away")
def clipped_to_nothing(bad: bool) -> Loop:
    net = Conv()

    def clip() -> None:
        nn.utils.clip_grad_norm_(net.parameters(), 1e-4 if bad else 1.0)

    return usual(net, SGD(net.parameters(), 0.05, momentum=0.9), images(), between=clip)


# masks of 0 and 255 as they were read, and a loss below zero
@fault("targets out of range")
def masks_of_255(bad: bool) -> Loop:
    net = pixels()
    return usual(
        net,
        adam(net),
        changed(spots, lambda x, y: (x, y * 255 if bad else y)),
        F.binary_cross_entropy_with_logits,
        steps=120,
    )


# all labels of some batches are those that are left out: a mean over nothing
@fault("targets ignored")
def nothing_left_to_average(bad: bool) -> Loop:
    net, count = pixels(2), [0]

    def batch() -> Pair:
        x, mask = spots(4)
        count[0] += 1
        labels = mask[:, 0].long()
        return x, labels * 0 + 255 if bad and count[0] % 15 == 0 else labels

    return usual(net, adam(net), batch, lambda out, y: F.cross_entropy(out, y, ignore_index=255), steps=100)


# pairs of two views of which one went through another shuffle: the loss stays at the logarithm of the batch
@fault("targets unrelated")
def views_of_others(bad: bool) -> Loop:
    net = nn.Sequential(nn.Flatten(), nn.Linear(144, 64), nn.ReLU(), nn.Linear(64, 32))
    optimizer, made = adam(net, 1e-3), images()

    def run(count: int) -> None:
        for _ in range(count):
            x = made()[0]
            other = x[torch.randperm(len(x))] if bad else x
            both = net(torch.cat([x, other]) + 0.3 * torch.randn(2 * len(x), 1, 12, 12))
            a, b = F.normalize(both, dim=1).chunk(2)
            optimizer.zero_grad()
            F.cross_entropy(a @ b.T / 0.1, torch.arange(len(x))).backward()
            optimizer.step()

    return Loop(net, run, 200, optimizer)


# github.com/VisualComputingInstitute/triplet-reid/issues/30: all vectors in one place, 0.7 for good
@fault("learning rate too high", "answers alike")
def one_place_for_all(bad: bool) -> Loop:
    net = mlp(classes=8)

    def loss(out: Tensor, y: Tensor) -> Tensor:
        far = ((out[:, None] - out[None]).square().sum(-1) + 1e-9).sqrt()
        same = y[:, None] == y[None]
        worst = far.masked_fill(~same, 0.0).amax(1)
        nearest = far.masked_fill(same, 1e9).amin(1)
        return F.softplus(worst - nearest).mean()

    return usual(net, Adam(net.parameters(), 0.1 if bad else 3e-4), blobs(noise=2.5), loss)


# Adam with eps of 1e-8 and weights of 16 bits: eps is 0, and 0 is divided by 0
@fault("eps of zero")
def half_with_adam(bad: bool) -> Loop:
    net, made = mlp(), blobs()
    net = net.half() if bad else net
    kind = torch.half if bad else torch.float

    def loss(out: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(out.float(), y)

    return usual(net, Adam(net.parameters(), 3e-3), changed(made, lambda x, y: (x.to(kind), y)), loss, steps=60)


class Maker(nn.Module):
    """A generator and a critic."""

    def __init__(self) -> None:
        super().__init__()
        self.maker = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 2))
        self.critic = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))


def played(cut: bool) -> Loop:
    net = Maker()
    of_maker, of_critic = (Adam(part.parameters(), 1e-3, (0.5, 0.9)) for part in (net.maker, net.critic))
    loss = F.binary_cross_entropy_with_logits

    def run(count: int) -> None:
        for _ in range(count):
            angle = torch.rand(64) * 2 * math.pi
            real = torch.stack([angle.cos(), angle.sin()], 1)
            fake = net.maker(torch.randn(64, 6))
            of_critic.zero_grad()
            (loss(net.critic(real), torch.ones(64, 1)) + loss(net.critic(fake.detach()), torch.zeros(64, 1))).backward()
            of_critic.step()
            of_maker.zero_grad()
            loss(net.critic(fake.detach() if cut else fake), torch.ones(64, 1)).backward()
            of_maker.step()

    return Loop(net, run)


# the generator's own loss is computed of samples without their history, too
@fault("idle optimizer", mends=False)
def maker_gets_nothing(bad: bool) -> Loop:
    return played(bad)


# a student beside a teacher: kl_div takes logarithms, and gets chances
@fault("loss input")
def student_gives_chances(bad: bool) -> Loop:
    teacher, student = Conv(), Conv()
    usual(teacher, sgd(teacher), images()).run(60)

    def batch() -> Pair:
        x, _ = images()()
        with torch.no_grad():
            return x, F.softmax(teacher(x), -1)

    def loss(out: Tensor, y: Tensor) -> Tensor:
        return F.kl_div(F.softmax(out, -1) if bad else F.log_softmax(out, -1), y, reduction="batchmean")

    return usual(student, adam(student), batch, loss)


class Attends(nn.Module):
    """A layer of attention over ten tokens, of which the last one is read."""

    def __init__(self, batch_first: bool) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(4, 32), nn.Parameter(0.1 * torch.randn(10, 32))
        self.layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=batch_first)
        self.head = nn.Linear(32, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer(self.words(x) + self.places)[:, -1])


# batch_first stands at its default: the tokens of other examples are looked at instead of one's own
@fault("batch mixed")
def attends_to_other_examples(bad: bool) -> Loop:
    net = Attends(not bad)
    return usual(net, adam(net), counting(), steps=300)


# ToTensor divides by 255, and so does the loop
@fault("inputs not normalised")
def divided_twice(bad: bool) -> Loop:
    net = Conv()
    return usual(
        net,
        SGD(net.parameters(), 0.02, momentum=0.9),
        changed(images(), lambda x, y: ((x - x.amin()) / (255 * 8 if bad else 1), y)),
    )


# an output between -1 and 1, and targets up to a hundred
@fault("targets not scaled", "targets out of reach")
def bounded_answers(bad: bool) -> Loop:
    net = nn.Sequential(mlp(4, 1, 32), nn.Tanh() if bad else nn.Identity())
    return usual(net, Adam(net.parameters(), 1e-2), changed(curve, lambda x, y: (x, 40 + 10 * y)), F.mse_loss)


# a warm-up in whole numbers: step // 1000 is 0
@fault("rate of zero")
def whole_numbers(bad: bool) -> Loop:
    net = Conv()
    optimizer = adam(net)
    schedule = lr_scheduler.LambdaLR(optimizer, lambda t: t // 1000 if bad else min(1.0, (t + 1) / 20))
    return usual(net, optimizer, images(), schedule=schedule)


class Anew(nn.Module):
    """A net that makes its weights in the forward."""

    def __init__(self, anew: bool) -> None:
        super().__init__()
        self.anew, self.first, self.head = anew, nn.Linear(20, 32), nn.Linear(32, 5)

    def forward(self, x: Tensor) -> Tensor:
        if self.anew:
            self.head = nn.Linear(32, 5)
        return self.head(torch.relu(self.first(x)))


# a layer that is made in forward: new at every step, unknown to the optimizer
@fault("not optimised", "not registered")
def layer_made_in_forward(bad: bool) -> Loop:
    net = Anew(bad)
    return usual(net, adam(net), blobs())


# label_smoothing=0.9 where 0.1 was meant
@fault("labels smoothed", mends=False)
def smoothed_away(bad: bool) -> Loop:
    net = Conv()
    return usual(net, adam(net), images(), lambda out, y: F.cross_entropy(out, y, label_smoothing=0.9 if bad else 0.1))


# Healthy -----------------------------------------------------------------------------------------


# warp-ctc issues: CTC gives blanks at first, and then jumps
@healthy
def blanks_at_first() -> Loop:
    net = Listener()
    return usual(net, adam(net, 5e-3), spoken, lambda out, y: heard(out, y, 12), steps=120)


# github.com/CompVis/vunet/issues/5: the weight of the divergence is small at first
@healthy
def code_with_small_share() -> Loop:
    return coded(1e-3)


# pytorch.org, DQN: a net that is copied at times gives the targets
@healthy
def values_of_actions() -> Loop:
    net = mlp(3, 2, 32)
    goal = copy.deepcopy(net)
    optimizer = AdamW(net.parameters(), 1e-3)

    def run(count: int) -> None:
        for at in range(count):
            state = torch.randn(64, 3)
            action = torch.randint(0, 2, (64,))
            after = 0.9 * state + 0.2 * (action[:, None].float() - 0.5)
            gain = (after[:, 0].abs() < 0.5).float()
            with torch.no_grad():
                worth = gain + 0.9 * goal(after).amax(1)
            loss = F.smooth_l1_loss(net(state).gather(1, action[:, None])[:, 0], worth)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_value_(net.parameters(), 100)
            optimizer.step()
            if at % 20 == 19:
                goal.load_state_dict(net.state_dict())

    return Loop(net, run, 200, optimizer)


# actor and critic of one net, an entropy beside: the loss is below zero and rises
@healthy
def actor_and_critic() -> Loop:
    net = mlp(4, 4, 32, act=nn.Tanh)
    optimizer, worth = Adam(net.parameters(), 3e-3), torch.randn(4, 3)

    def run(count: int) -> None:
        for _ in range(count):
            x = torch.randn(64, 4)
            out = net(x)
            chance = torch.distributions.Categorical(logits=out[:, :3])
            action = chance.sample()
            gain = (x @ worth).gather(1, action[:, None])[:, 0]
            ahead = gain - out[:, 3]
            loss = -(chance.log_prob(action) * ahead.detach()).mean() + 0.5 * ahead.square().mean()
            optimizer.zero_grad()
            (loss - 0.01 * chance.entropy().mean()).backward()
            nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            optimizer.step()

    return Loop(net, run, 200, optimizer)


# a generator and a critic, each with its optimizer
@healthy
def maker_and_critic() -> Loop:
    return played(False)


# WGAN-GP: five steps of the critic for one of the generator, and a gradient within the loss
@healthy
def penalty_on_gradients() -> Loop:
    net = Maker()
    of_maker, of_critic = (Adam(part.parameters(), 1e-3, (0.0, 0.9)) for part in (net.maker, net.critic))

    def run(count: int) -> None:
        for at in range(count):
            angle = torch.rand(64) * 2 * math.pi
            real = torch.stack([angle.cos(), angle.sin()], 1)
            fake = net.maker(torch.randn(64, 6)).detach()
            share = torch.rand(64, 1)
            mixed = (share * real + (1 - share) * fake).requires_grad_()
            (slope,) = torch.autograd.grad(net.critic(mixed).sum(), mixed, create_graph=True)
            loss = net.critic(fake).mean() - net.critic(real).mean() + 10 * (slope.norm(dim=1) - 1).square().mean()
            of_critic.zero_grad()
            loss.backward()
            of_critic.step()
            if at % 5 == 4:
                of_maker.zero_grad()
                (-net.critic(net.maker(torch.randn(64, 6))).mean()).backward()
                of_maker.step()

    return Loop(net, run, 150)


# the average of the weights is looked at between the steps
@healthy
def average_is_looked_at() -> Loop:
    net, made = Conv(norm=True), images()
    optimizer = sgd(net)
    average = torch.optim.swa_utils.AveragedModel(net, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))

    def run(count: int) -> None:
        for at in range(count):
            x, y = made()
            net.train()
            loss = F.cross_entropy(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            average.update_parameters(net)
            if at % 10 == 9:
                net.eval()
                with torch.no_grad():
                    average(x), net(x)

    return Loop(net, run, 120, optimizer)


# are two images of one class: one net, called twice
@healthy
def two_of_a_kind() -> Loop:
    net = nn.Sequential(nn.Flatten(), nn.Linear(144, 64), nn.ReLU(), nn.Linear(64, 16))
    optimizer, made = adam(net, 1e-3), images(64)

    def run(count: int) -> None:
        for _ in range(count):
            x, y = made()
            far = (net(x[::2]) - net(x[1::2])).square().mean(1)
            same = y[::2] % 2 == y[1::2] % 2
            optimizer.zero_grad()
            (far * same + F.relu(1 - far) * ~same).mean().backward()
            optimizer.step()

    return Loop(net, run, 150, optimizer)


# a small net learns the softened answers of a larger one
@healthy
def small_student() -> Loop:
    teacher, student = Conv(), nn.Sequential(nn.Flatten(), mlp(144, 10, 32, 1))
    usual(teacher, sgd(teacher), images()).run(60)
    teacher.eval()

    def batch() -> Pair:
        x, _ = images()()
        with torch.no_grad():
            return x, F.softmax(teacher(x) / 4, -1)

    def loss(out: Tensor, y: Tensor) -> Tensor:
        return 16 * F.kl_div(F.log_softmax(out / 4, -1), y, reduction="batchmean")

    return usual(student, adam(student), batch, loss)


# github.com/yhenon/pytorch-retinanet/issues/41, mended: rare spots, a focal loss, and a bias of the rare chance
@healthy
def rare_spots() -> Loop:
    net = pixels()
    with torch.no_grad():
        net[-1].weight.zero_()
        net[-1].bias.fill_(-math.log(99))

    def loss(out: Tensor, y: Tensor) -> Tensor:
        each = F.binary_cross_entropy_with_logits(out, y, reduction="none")
        return ((1 - (-each).exp()) ** 2 * each * (0.25 * y + 0.75 * (1 - y))).sum() / y.sum().clamp(min=1)

    return usual(net, adam(net), spots, loss)


# mixed images, mixed labels, smoothed
@healthy
def mixed_images() -> Loop:
    net, made = Conv(norm=True), images()

    def batch() -> Pair:
        (x, y), share = made(), 0.2 + 0.6 * torch.rand(())
        hot = F.one_hot(y, 10).float()
        return share * x + (1 - share) * x.flip(0), share * hot + (1 - share) * hot.flip(0)

    return usual(net, adam(net), batch, lambda out, y: F.cross_entropy(out, y, label_smoothing=0.1))


# sharpness-aware: a second forward and backward at weights that are moved uphill and put back
@healthy
def uphill_and_back() -> Loop:
    net, made = Conv(), images()
    optimizer = sgd(net)

    def run(count: int) -> None:
        for _ in range(count):
            x, y = made()
            F.cross_entropy(net(x), y).backward()
            with torch.no_grad():
                moves = [0.05 * p.grad / (p.grad.norm() + 1e-12) for p in net.parameters() if p.grad is not None]
                for p, move in zip(net.parameters(), moves, strict=True):
                    p.add_(move)
            optimizer.zero_grad()
            F.cross_entropy(net(x), y).backward()
            with torch.no_grad():
                for p, move in zip(net.parameters(), moves, strict=True):
                    p.sub_(move)
            optimizer.step()
            optimizer.zero_grad()

    return Loop(net, run, 100, optimizer)


# two tasks whose weights are learned: the loss falls below zero
@healthy
def weights_of_tasks() -> Loop:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.one, self.two = mlp(4, 32, 32), nn.Linear(32, 1), nn.Linear(32, 2)
            self.shares = nn.Parameter(torch.zeros(2))

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            x = torch.relu(self.body(x))
            return self.one(x), self.two(x)

    net = Both()

    def loss(out: tuple[Tensor, Tensor], y: Tensor) -> Tensor:
        losses = torch.stack([F.mse_loss(out[0], y), F.cross_entropy(out[1], (y[:, 0] > 0).long())])
        return (losses * (-net.shares).exp() + net.shares).sum()

    return usual(net, adam(net, 1e-2), curve, loss, steps=200)


# an optimizer written by hand: the sign of the momentum
class Signs(Optimizer):
    def __init__(self, parameters: object, lr: float) -> None:
        super().__init__(parameters, {"lr": lr})  # type: ignore[arg-type]

    @torch.no_grad()
    def step(self, closure: object = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    kept = self.state[p].setdefault("kept", torch.zeros_like(p))
                    p.add_((0.9 * kept + 0.1 * p.grad).sign(), alpha=-group["lr"])
                    kept.mul_(0.99).add_(p.grad, alpha=0.01)


@healthy
def signs_of_momentum() -> Loop:
    net = Conv()
    return usual(net, Signs(net.parameters(), 1e-3), images())


# huggingface forum: prompts are left out of the loss, most labels are -100
@healthy
def prompts_left_out() -> Loop:
    net = Writer()

    def hide(x: Tensor, y: Tensor) -> Pair:
        y = y.clone()
        y[:, :18] = -100
        return x, y

    return usual(net, adam(net), changed(text(), hide), steps=120)


# denoising-diffusion: the noise is the target, the loss begins at 1 and falls slowly
@healthy
def noise_is_sought() -> Loop:
    class Cleaner(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = mlp(3, 2, 64, act=nn.SiLU)

        def forward(self, x: Tensor, t: Tensor) -> Tensor:
            return self.body(torch.cat([x, t], -1))

    net = Cleaner()
    optimizer = Adam(net.parameters(), 1e-3)

    def run(count: int) -> None:
        for _ in range(count):
            angle, t, noise = torch.rand(128) * 2 * math.pi, torch.rand(128, 1), torch.randn(128, 2)
            clean = torch.stack([angle.cos(), angle.sin()], 1)
            loss = F.mse_loss(net((1 - t).sqrt() * clean + t.sqrt() * noise, t), noise)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    return Loop(net, run, 200, optimizer)


# a mean and a spread for each answer: the loss falls below zero
@healthy
def mean_and_spread() -> Loop:
    net = mlp(4, 2, 32)

    def loss(out: Tensor, y: Tensor) -> Tensor:
        return F.gaussian_nll_loss(out[:, :1], y, F.softplus(out[:, 1:]) + 1e-3)

    return usual(net, adam(net, 5e-3), lambda: curve(0.02), loss, steps=200)


# BYOL: a slow copy gives the targets, nothing pushes apart
@healthy
def slow_copy_gives_targets() -> Loop:
    class Views(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(
                nn.Flatten(), nn.Linear(144, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 16)
            )
            self.guess = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 16))

        def forward(self, x: Tensor) -> Tensor:
            return self.guess(self.body(x))

    net, made = Views(), images()
    slow = copy.deepcopy(net.body).requires_grad_(False)
    optimizer = adam(net, 1e-3)

    def run(count: int) -> None:
        for _ in range(count):
            x, _ = made()
            a, b = x + 0.3 * torch.randn_like(x), x + 0.3 * torch.randn_like(x)
            loss = 2 - 2 * F.cosine_similarity(net(a), slow(b).detach()).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                for p, q in zip(slow.parameters(), net.body.parameters(), strict=True):
                    p.lerp_(q, 0.01)

    return Loop(net, run, 120, optimizer)


# what goes in is to come out: letters that are hidden at random are to be filled in
@healthy
def letters_put_right() -> Loop:
    net = Writer(causal=False)

    def spoil(x: Tensor, y: Tensor) -> Pair:
        return torch.where(torch.rand(x.shape) < 0.2, torch.randint(0, len(LETTERS), x.shape), x), x

    return usual(net, adam(net), changed(text(), spoil), steps=120)


# a head first, and the body from step 40 on, at a tenth of the rate
@healthy
def body_is_freed_later() -> Loop:
    net, made = Conv(), images()
    usual(net, sgd(net), made).run(50)
    net.head = nn.Linear(48, 10)
    body = [p for name, p in net.named_parameters() if not name.startswith("head")]
    optimizer = AdamW([{"params": list(net.head.parameters()), "lr": 3e-3}, {"params": body, "lr": 3e-4}])
    for p in body:
        p.requires_grad_(False)

    def run(count: int) -> None:
        for at in range(count):
            if at == 40:
                for p in body:
                    p.requires_grad_(True)
            x, y = made()
            optimizer.zero_grad()
            F.cross_entropy(net(x), y).backward()
            optimizer.step()

    return Loop(net, run, 120, optimizer)


# most of what is to be foretold is noise: 5 % can be explained
@healthy
def mostly_noise() -> Loop:
    net = mlp(4, 1, 32)
    return usual(net, adam(net), lambda: curve(3.0, 256), F.mse_loss, steps=200)


# four labels of ten are wrong
@healthy
def four_of_ten_wrong() -> Loop:
    net = Conv()

    def spoil(x: Tensor, y: Tensor) -> Pair:
        return x, torch.where(torch.rand(y.shape) < 0.4, torch.randint(0, 10, y.shape), y)

    return usual(net, adam(net, 1e-3), changed(images(64), spoil), steps=150)


# a quantile instead of the mean, and RMSprop
@healthy
def quantile() -> Loop:
    net = mlp(4, 1, 32)

    def loss(out: Tensor, y: Tensor) -> Tensor:
        return torch.max(0.9 * (y - out), -0.1 * (y - out)).mean()

    return usual(net, RMSprop(net.parameters(), 1e-3), curve, loss, steps=200)


# the rate begins anew at times, and the loss rises with it
@healthy
def rate_begins_anew() -> Loop:
    net = Conv()
    optimizer = SGD(net.parameters(), 0.1, momentum=0.9)
    schedule = lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 40)
    return usual(net, optimizer, images(), schedule=schedule, steps=160)


# a differential equation: the gradient with respect to the input is in the loss, LBFGS
@healthy
def equation_is_solved() -> Loop:
    net = mlp(1, 1, 24, act=nn.Tanh)
    optimizer = LBFGS(net.parameters(), lr=0.5, max_iter=5, line_search_fn="strong_wolfe")
    at = torch.linspace(0, 3, 40)[:, None].requires_grad_()

    def closure() -> Tensor:
        optimizer.zero_grad()
        y = net(at)
        (slope,) = torch.autograd.grad(y.sum(), at, create_graph=True)
        loss = (slope + y).square().mean() + (net(torch.zeros(1, 1)) - 1).square().mean()
        loss.backward()
        return loss

    def run(count: int) -> None:
        for _ in range(count):
            optimizer.step(closure)

    return Loop(net, run, 40, optimizer)


# blocks are computed again in the backward, the usual way
@healthy
def computed_again() -> Loop:
    class Again(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.blocks = nn.Linear(20, 32), nn.ModuleList([Mixer(32, False) for _ in range(2)])
            self.head = nn.Linear(32, 5)

        def forward(self, x: Tensor) -> Tensor:
            x = self.first(x)[:, None]
            for block in self.blocks:
                x = checkpoint(block, x, use_reentrant=False)
            return self.head(x[:, 0])

    net = Again()
    return usual(net, adam(net, 1e-3), blobs())
