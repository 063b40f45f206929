"""Short trainings with one fault each, by the rule that names it; most are loops of ``tools/learn_faults.py``."""

from __future__ import annotations

import random
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fxdebug
from support.tool import tool

Given = tuple[Any, dict[str, Any]]

OF_THE_BENCH = {  # the rule: the loop of learn_faults.py, and how many of its steps are enough
    "gradient cut": ("body_without_grad", 20),
    "cleared before step": ("cleared_too_soon", 10),
    "not cleared": ("never_cleared_sgd", 10),
    "clipped away": ("clipped_by_value", 30),
    "set back": ("loaded_each_step", 10),
    "optimizer anew": ("optimizer_in_loop", 8),
    "group stays": ("one_group_of_zero", 20),
    "zero weights": ("zeros_everywhere", 10),
    "wrong sign": ("uphill", 20),
    "softmax over batch": ("softmax_of_wrong_dim", 20),
    "loss is a sum": ("summed", 20),
    "log of zero": ("logarithm_of_zero", 10),
    "targets ignored": ("all_ignored", 5),
    "targets alike": ("one_class", 60),
    "targets are inputs": ("targets_not_shifted", 10),
    "targets shifted": ("targets_shifted_twice", 10),
    "target in input": ("label_as_column", 10),
    "targets unrelated": ("shuffled_labels", 100),
    "data sorted": ("class_after_class", 90),
    "same batch": ("one_batch", 20),
    "inputs not normalised": ("huge_inputs", 20),
    "eval mode": ("norms_in_eval", 5),
    "batch of one": ("batches_of_one", 10),
    "dropout too strong": ("drops_nine_tenths", 10),
    "frozen at random": ("frozen_body", 10),
    "no activation": ("linear_stack", 40),
    "silent activation": ("dead_layer", 20),
    "gradients vanish": ("ten_sigmoids", 20),
    "updates rounded away": ("rounded_adam", 20),
    "learning rate too high": ("rate_of_three", 40),
    "learning rate too low": ("rate_tiny_sgd", 30),
    "rate spent early": ("schedule_of_five", 30),
    "rate of zero": ("rate_of_zero", 10),
    "weight decay": ("decay_of_sgd", 30),
}


def watched(folder: Path, net: nn.Module, run: Callable[[], Any]) -> Given:
    """The folder of a training that was watched."""
    with warnings.catch_warnings(action="ignore"), fxdebug.watch(net, every=25, save=folder):
        run()
    return folder, {}


def of_the_bench(name: str, steps: int, file: str = "learn_faults") -> Callable[[Path], Given]:
    """A loop of ``tools/learn_faults.py``, or of another file there."""

    def make(folder: Path) -> Given:
        cases = tool(file).CASES.every
        torch.manual_seed(0)
        random.seed(0)
        loop = next(case for case in cases if case.name == name).make(True)
        return watched(folder, loop.model, lambda: loop.run(steps))

    return make


class Usual:
    """The usual loop on points of five kinds; what differs is given."""

    def __init__(
        self,
        *,
        steps: int = 30,
        rate: float = 0.05,
        parts: int = 1,
        net: Callable[[], nn.Module] | None = None,
        batch: Callable[[int, Tensor, Tensor], tuple[Tensor, Tensor]] = lambda step, x, y: (x, y),
        loss: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy,
        clear: Callable[[nn.Module], Any] = lambda net: None,
        rate_at: Callable[[int], float] = lambda step: 1.0,
    ) -> None:
        self.steps, self.rate, self.parts, self.net, self.batch = steps, rate, parts, net, batch
        self.loss, self.clear, self.rate_at = loss, clear, rate_at

    def __call__(self, folder: Path) -> Given:
        torch.manual_seed(0)
        net = self.net() if self.net else nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Linear(24, 5))
        return watched(folder, net, lambda: self.train(net))

    def train(self, net: nn.Module) -> None:
        centres = 2 * torch.randn(5, 8, generator=torch.Generator().manual_seed(1))
        optimizer = torch.optim.SGD(net.parameters(), self.rate)
        for step in range(self.steps):
            optimizer.param_groups[0]["lr"] = self.rate * self.rate_at(step)
            for _ in range(self.parts):
                y = torch.randint(0, 5, (32,))
                x, told = self.batch(step, centres[y] + torch.randn(32, 8), y)
                self.clear(net)
                self.loss(net(x), told).backward()
            optimizer.step()
            optimizer.zero_grad()


class Copied(nn.Module):
    """A table of tokens, and a head that began as its copy."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.head = nn.Embedding(16, 8), nn.Linear(8, 16, bias=False)
        self.head.weight.data.copy_(self.tokens.weight.data)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.tokens(ids))


def of_tokens(step: int, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    ids = torch.randint(0, 16, (32,))
    return ids, (3 * ids + 1) % 16


def of_hundreds(step: int, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return x, 500 + 10 * x[:, :5]


def one_is_large(step: int, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return (1000 * x.flip(1) if step == 30 else x), y


def after_a_while(step: int, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    time.sleep(0.01)
    return x, y


def resumed(folder: Path) -> Given:
    """A training that goes on with its weights, and with an optimizer that is new, in the middle of a schedule."""
    torch.manual_seed(0)
    net, usual = nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Linear(24, 5)), Usual(steps=150)
    usual.train(net)
    return watched(folder, net, lambda: moved_by_adam(net))


def moved_by_adam(net: nn.Module) -> None:
    centres = 2 * torch.randn(5, 8, generator=torch.Generator().manual_seed(1))
    optimizer = torch.optim.Adam(net.parameters(), 0.1)
    for _ in range(30):
        y = torch.randint(0, 5, (32,))
        F.cross_entropy(net(centres[y] + torch.randn(32, 8)), y).backward()
        optimizer.step()
        optimizer.zero_grad()


def under_one_autocast(folder: Path) -> Given:
    """A training inside of one autocast, which keeps the casts of the first weights."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Linear(24, 5))
    with torch.autocast("cpu", torch.bfloat16):
        return watched(folder, net, lambda: Usual(rate=0.2).train(net))


def with_a_dropout_that_rests(folder: Path) -> Given:
    """A training that is made again with a dropout, in eval mode: nothing changes."""
    for drops in ((), (nn.Dropout(0.5),)):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(8, 24), nn.ReLU(), *drops, nn.Linear(24, 5)).eval()
        watched(folder, net, lambda net=net: Usual().train(net))  # type: ignore[misc]
    return folder, {}


def with_momentum_of_zero() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 24), nn.BatchNorm1d(24, momentum=0.0), nn.ReLU(), nn.Linear(24, 5))


class Resting(nn.Module):
    """Two layers, and one that forward forgets."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.forgotten, self.last = nn.Linear(8, 24), nn.Linear(24, 24), nn.Linear(24, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.relu(self.first(x)))


def squashed() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Linear(24, 5), nn.Sigmoid())


TRAININGS: dict[str, Callable[[Path], Given]] = {
    **{f"training.{rule}": of_the_bench(name, steps) for rule, (name, steps) in OF_THE_BENCH.items()},
    "training.answers alike": of_the_bench("triplets_collapse", 150, "learn_threads"),
    "training.idle optimizer": of_the_bench("maker_gets_nothing", 8, "learn_held_out"),
    "training.batch mixed": of_the_bench("attends_to_other_examples", 20, "learn_held_out"),
    "training.root of zero": of_the_bench("root_of_zero", 5, "learn_held_out"),
    "training.eps of zero": of_the_bench("half_with_adam", 5, "learn_held_out"),
    "training.targets out of range": of_the_bench("masks_of_255", 10, "learn_held_out"),
    "training.labels smoothed": of_the_bench("smoothed_away", 30, "learn_held_out"),
    "training.zero gradients": of_the_bench("more_labels_than_moments", 10, "learn_held_out"),
    "training.weights too large": of_the_bench("convolutions_with_one", 30, "learn_begins"),
    "training.weights too small": of_the_bench("drawn_with_a_thousandth", 30, "learn_begins"),
    "training.units alike": of_the_bench("all_a_tenth", 40, "learn_begins"),
    "training.saturated activation": of_the_bench("sigmoids_of_fifty", 60, "learn_begins"),
    "training.targets unequal": of_the_bench("one_of_fifty", 120, "learn_begins"),
    "training.schedule too slow": of_the_bench("cycle_of_batches_in_epochs", 240, "learn_strangers"),
    "training.term outweighed": of_the_bench("a_term_in_other_units", 110, "learn_classes"),
    "training.blank label": of_the_bench("a_blank_that_is_a_letter", 12, "learn_classes"),
    "training.outputs too short": of_the_bench("outputs_shorter_than_the_labels", 12, "learn_classes"),
    "training.own pair": of_the_bench("similarity_with_itself_left_in", 30, "learn_classes"),
    "training.target learns": of_the_bench("a_target_with_gradient", 30, "learn_classes"),
    "training.softmax misplaced": of_the_bench("a_softmax_over_the_queries", 30, "learn_classes"),
    "training.deviation misread": of_the_bench("a_log_variance_read_as_deviation", 30, "learn_classes"),
    "training.mask inverted": of_the_bench("sees_the_padding", 20, "learn_strangers"),
    "training.targets out of reach": of_the_bench("rectified_answers", 100, "learn_others"),
    "training.logits bounded": of_the_bench("tanh_before_entropy", 60, "learn_others"),
    "training.answers dropped": of_the_bench("answers_are_dropped", 60, "learn_others"),
    "training.normalised alone": of_the_bench("layer_norm_of_one_feature", 40, "learn_strangers"),
    "training.clipped too late": of_the_bench("clips_after_the_step", 30, "learn_strangers"),
    "training.clipped too early": of_the_bench("clips_before_the_backward", 30, "learn_wide"),
    "training.warms up again": of_the_bench("a_warm_up_in_each_epoch", 80, "learn_wide"),
    "training.no end": of_the_bench("a_value_after_the_end", 60, "learn_classes"),
    "training.not unscaled": of_the_bench("a_step_beside_the_scaler", 20, "learn_wide"),
    "training.freezes nothing": of_the_bench("a_module_that_is_told_to_freeze", 20, "learn_wide"),
    "training.rate set beside": of_the_bench("a_rate_that_is_set_beside", 20, "learn_wide"),
    "training.copy stays": of_the_bench("a_teacher_whose_statistics_stay", 30, "learn_wide"),
    "training.padding counts": of_the_bench("padding_in_the_loss", 30, "learn_wide"),
    "training.answer masked": of_the_bench("actions_that_are_allowed_are_masked", 30, "learn_wide"),
    "training.norm misplaced": of_the_bench("vectors_normalised_over_the_batch", 30, "learn_wide"),
    "training.schedule too fast": of_the_bench("a_cosine_in_batches", 50, "learn_wide"),
    "training.schedule of others": of_the_bench("a_schedule_of_an_optimizer_of_before", 20, "learn_wide"),
    "training.inputs drift": of_the_bench("normalised_in_place_each_epoch", 150, "learn_strangers"),
    "training.viewed for transposed": of_the_bench("a_view_for_a_transpose", 30, "learn_strangers"),
    "training.never used": Usual(net=Resting, steps=25),
    "training.idle term": of_the_bench("a_generator_behind_detach", 10, "learn_general"),
    "training.targets differ": of_the_bench("shuffled_apart_in_each_pass", 60, "learn_links"),
    "training.targets of others": of_the_bench("labels_off_by_a_row", 60, "learn_links"),
    "training.targets turned": of_the_bench("masks_that_are_not_flipped", 30, "learn_links"),
    "training.targets not finite": of_the_bench("depths_of_zero", 30, "learn_links"),
    "training.ratio stays": of_the_bench("a_ratio_that_is_always_one", 60, "learn_links"),
    "training.rewards alike": of_the_bench("rewards_that_are_all_one", 30, "learn_links"),
    "training.advantage learns": of_the_bench("an_advantage_with_a_gradient", 30, "learn_links"),
    "training.examples alike": of_the_bench("shares_cast_to_integers", 40, "learn_general"),
    "training.sees ahead": of_the_bench("letters_without_a_mask", 30, "learn_general"),
    "training.targets grow": of_the_bench("values_beyond_the_end", 600, "learn_general"),
    "training.weights upturned": of_the_bench("weights_of_counts", 30, "learn_general"),
    "training.steps uphill": of_the_bench("steps_with_the_wrong_sign", 30, "learn_general"),
    "training.eps too large": of_the_bench("eps_of_a_hundred", 30, "learn_general"),
    "training.statistics stay": Usual(net=with_momentum_of_zero, steps=25),
    "training.as before": with_a_dropout_that_rests,
    "training.cleared between": Usual(steps=10, parts=4, clear=lambda net: net.zero_grad()),
    "training.accumulated undivided": Usual(steps=20, parts=8, rate=0.3),
    "training.targets not scaled": Usual(net=squashed, batch=of_hundreds, loss=F.mse_loss),
    "training.inputs alike": Usual(batch=lambda step, x, y: (torch.zeros_like(x), y)),
    "training.not tied": Usual(net=Copied, batch=of_tokens),
    "training.learning rate jumps": Usual(steps=50, rate_at=lambda step: 2000.0 if step == 40 else 1.0),
    "training.outlier batch": Usual(steps=45, batch=one_is_large),
    "training.optimizer state lost": resumed,
    "training.outdated weights": under_one_autocast,
    "training.input ignored": of_the_bench("a_question_that_is_not_read", 40, "learn_arrivals"),
    "training.order unknown": of_the_bench("no_waves_at_all", 40, "learn_arrivals"),
    "training.waits for data": Usual(steps=23, batch=after_a_while),
}
