"""What ``watch`` says of a training whose numbers are all finite: the true state, never a cause that is not one."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import astuple
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fxdebug
from fxdebug.api import FxDebugWarning
from fxdebug.data.findings import Finding
from fxdebug.features.training.saved.training_file import read_training

Steps = Callable[[int, torch.optim.Optimizer], None]


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def mlp(width: int = 8) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(width, 16), nn.ReLU(), nn.Linear(16, 1))


def squares(output: Tensor, x: Tensor) -> Tensor:
    return (output.float() - x.float().sum(1, keepdim=True)).pow(2).mean()


def train(
    net: nn.Module,
    optimizer: torch.optim.Optimizer,
    steps: int = 40,
    loss: Callable[[Tensor, Tensor], Tensor] = squares,
    between: Steps = lambda step, optimizer: None,
    before: Steps = lambda step, optimizer: None,
    every: int = 3,
) -> tuple[Finding, ...]:
    """Train, and return the findings; ``between`` runs after each backward, ``before`` before each forward."""
    dtype = next(net.parameters()).dtype
    with warnings.catch_warnings(), fxdebug.watch(net, every=every, save=None) as watched:
        warnings.simplefilter("ignore", FxDebugWarning)
        for step in range(steps):
            before(step, optimizer)
            x = normal(16, 8, seed=step).to(dtype)
            optimizer.zero_grad()
            loss(net(x), x).backward()
            between(step, optimizer)
            optimizer.step()
    return watched.report().findings


def sgd(net: nn.Module, lr: float = 1e-2) -> torch.optim.Optimizer:
    return torch.optim.SGD(net.parameters(), lr=lr)


def rate(lr: Callable[[int], float]) -> Steps:
    def set_rate(step: int, optimizer: torch.optim.Optimizer) -> None:
        optimizer.param_groups[0]["lr"] = lr(step)

    return set_rate


def dead(net: nn.Sequential) -> nn.Sequential:
    with torch.no_grad():
        net[0].bias.fill_(-100)  # type: ignore[union-attr, operator]
    return net


def told(findings: tuple[Finding, ...]) -> list[tuple[str, str]]:
    return [(finding.rule, finding.severity) for finding in findings]


def advises_a_higher_rate(findings: tuple[Finding, ...]) -> bool:
    return any("aise the learning rate" in finding.advice for finding in findings)


STATES: dict[str, tuple[Callable[[], tuple[Finding, ...]], list[tuple[str, str]], str]] = {
    "the rate is 0 since step 10": (
        lambda: train(net := mlp(), sgd(net), before=rate(lambda step: 1e-2 if step < 10 else 0.0)),
        [("rate spent early", "error")], "the learning rate fell from 0.01 to 0, ",
    ),
    "the rate was always 0": (
        lambda: train(net := mlp(), sgd(net, 0.0)), [("rate of zero", "error"), ("no update", "warning")], "the "
        "learning rate of 0.weight",
    ),
    "the rate is 0 at the first step of a warm-up": (
        lambda: train(net := mlp(), sgd(net), steps=2, before=rate(lambda step: step * 1e-3)),
        [("no update", "advice")], "",
    ),
    "the rate fell to the end of a schedule": (
        lambda: train(
            net := mlp(), sgd(net), loss=lambda y, x: squares(y, x) * 0 + y.mean(),
            before=rate(lambda step: 1e-2 * (1 - step / 40) ** 3),
        ), [], "",
    ),
    "no unit of a layer is active": (
        lambda: train(net := dead(mlp()), sgd(net)),
        [("silent activation", "error"), ("zero gradient", "warning")], "1 (ReLU) returned only zeros",
    ),
    "gradients are zeroed before the step": (
        lambda: train(net := mlp(), sgd(net), between=lambda step, optimizer: optimizer.zero_grad()),
        [("cleared before step", "error"), ("zero gradient", "warning")], "no parameter has one when the optimizer "
        "steps",
    ),
    "gradients are filled with 0 before the step": (
        lambda: train(net := mlp(), sgd(net), between=lambda step, optimizer: optimizer.zero_grad(set_to_none=False)),
        [("cleared before step", "error"), ("zero gradient", "warning")], "no parameter has one when the optimizer "
        "steps",
    ),
    "the loss has a factor of 0": (
        lambda: train(net := mlp(), sgd(net), loss=lambda y, x: squares(y, x).detach() + 0 * y.mean()),
        [("zero gradients", "error")], "are exactly 0 in all 40 steps",
    ),
    "all margins are kept": (
        lambda: train(net := mlp(), sgd(net), loss=lambda y, x: (y - 1e3).relu().mean()),
        [("zero gradients", "error")], "are exactly 0 in all 40 steps (loss 0 → 0)",
    ),
    "the loss rises in steps too small to be the cause": (
        lambda: train(net := mlp(), sgd(net, 1e-7), loss=lambda y, x: squares(y, x) + next(GROWING)),
        [("idle term", "warning"), ("update too small", "advice")], "and the loss rises",  # by a part without one
    ),
    "bfloat16 rounds the updates away": (
        lambda: train(net := mlp().bfloat16(), sgd(net, 1e-6)),
        [("updates rounded away", "error")], "half a unit in the last place of bfloat16",
    ),
    "the rate is too low": (
        lambda: train(net := mlp(), sgd(net, 1e-7)),
        [("learning rate too low", "error")], "in 40 steps they moved next to nothing",
    ),
    "the rate fell far, and the loss stays": (
        lambda: train(
            net := mlp(), sgd(net), loss=lambda y, x: squares(y, x).detach() + 0.1 * y.mean(),
            before=rate(lambda step: 1e-2 if step < 10 else 1e-5),
        ), [("rate spent early", "error"), ("update too small", "warning")], "the learning rate fell from 0.01 to "
        "1e-05, below a tenth since step 10",
    ),
    "a scheduler of epochs is called in every step": (
        lambda: train(net := mlp(), sgd(net), steps=60, before=rate(lambda step: 1e-2 * 0.1 ** (step // 5))),
        [("rate spent early", "error")], "the learning rate fell from 0.01 to 1e-13",
    ),
    "the loss falls": (lambda: train(net := mlp(), sgd(net)), [], ""),
}  # fmt: skip
GROWING = iter([1.3**step for step in range(1000)])


@pytest.mark.parametrize("name", STATES)
def test_the_state_is_told_as_it_is(name: str) -> None:
    run, expected, words = STATES[name]
    findings = run()
    assert [pair for pair in told(findings) if pair[0] != "loss spike"] == expected
    assert not words or any(words in finding.what for finding in findings)
    assert advises_a_higher_rate(findings) == (name == "the rate is too low")


# The loop itself ----------------------------------------------------------------------------------


class Listed(nn.Module):
    def __init__(self, content: Any) -> None:
        super().__init__()
        self.first, self.hidden = nn.Linear(8, 8), content

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for layer in self.layers():
            x = layer(x) if isinstance(layer, nn.Module) else x * layer
        return x

    def layers(self) -> list[Any]:
        content = self.hidden
        found = list(content.values()) if isinstance(content, dict) else content
        return [inner for one in found for inner in (one if isinstance(one, (list, tuple)) else [one])]


class Local(nn.Module):
    def __init__(self, keeps: bool = False) -> None:
        super().__init__()
        self.first, self.kept, self.keeps = nn.Linear(8, 8), {}, keeps  # type: ignore[var-annotated]

    def forward(self, x: Tensor) -> Any:
        layer = self.kept.setdefault("last", nn.Linear(8, 1)) if self.keeps else nn.Linear(8, 1)
        return layer(self.first(x))


def linear() -> nn.Linear:
    return nn.Linear(8, 8)


UNREGISTERED: dict[str, tuple[Callable[[], nn.Module], list[str], str]] = {
    "a list": (lambda: Listed([linear(), linear()]), ["hidden[0]", "hidden[1]"], "nn.ModuleList"),
    "a tuple": (lambda: Listed((linear(),)), ["hidden[0]"], "nn.ModuleList"),
    "a dict": (lambda: Listed({"a": linear()}), ["hidden['a']"], "nn.ModuleDict"),
    "lists in a list": (lambda: Listed([[linear()], [linear()]]), ["hidden[0][0]", "hidden[1][0]"], "nn.ModuleList"),
    "a list of a part": (lambda: nn.Sequential(linear(), Listed([linear()])), ["1.hidden[0]"], "nn.ModuleList"),
    "a tensor": (lambda: Listed([torch.ones(8, requires_grad=True)]), ["hidden[0]"], "nn.Parameter"),
    "parameters in a list": (lambda: Listed([nn.Parameter(torch.ones(8))]), ["hidden[0]"], "nn.Parameter"),
    "a layer of the forward": (Local, ["<Linear>"], "__init__"),
    "a layer that the first forward makes": (lambda: Local(keeps=True), ["kept['last']"], "nn.ModuleDict"),
}


@pytest.mark.parametrize("name", UNREGISTERED)
def test_what_learns_without_being_registered_is_named_by_its_place(name: str) -> None:
    make, places, remedy = UNREGISTERED[name]
    net = make()
    findings = [*train(net, sgd(net), steps=3, loss=lambda y, x: y.pow(2).mean())]
    found = [finding for finding in findings if finding.rule == "not registered"]
    assert [(one.severity, one.path) for one in found] == [("error", places[0])]
    assert all(place in found[0].what for place in places) and remedy in found[0].advice
    (checked,) = [
        finding
        for finding in fxdebug.check(make(), normal(4, 8), lambda output: output.mean(), config=False)
        if finding.rule == "not registered"
    ]
    assert (checked.path, *checked.others) == tuple(places) and remedy in checked.advice


class HasParent(nn.Module):
    """A part that reads a number of the module that holds it, out of a list that hides it."""

    def __init__(self, parent: nn.Module) -> None:
        super().__init__()
        self.layer, self.parent = nn.Linear(8, 8), [parent]

    def forward(self, x: Tensor) -> Any:
        return self.layer(x) * self.parent[0].scale


class Parent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))
        self.part = HasParent(self)

    def forward(self, x: Tensor) -> Any:
        return self.part(x)


class Forces(nn.Module):
    """A potential whose positions ask for gradients inside of the forward."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Any:
        x = x.detach().requires_grad_()
        (force,) = torch.autograd.grad(self.layer(x).tanh().sum(), x, create_graph=True)
        return force + x


def teacher() -> nn.Module:
    return linear().requires_grad_(False)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Listed([teacher()]), Parent, Forces, lambda: Listed(nn.ModuleList([linear()])),
        lambda: Listed([torch.ones(8)]),
    ],
    ids=["frozen teacher", "parent", "forces", "module list", "constant"],
)  # fmt: skip
def test_what_is_registered_or_does_not_learn_is_not_named(make: Callable[[], nn.Module]) -> None:
    net = make()
    findings = train(net, sgd(net), steps=3, loss=lambda y, x: y.pow(2).mean())
    assert "not registered" not in {finding.rule for finding in findings}
    attacked = normal(4, 8).requires_grad_()
    found = fxdebug.check(net, attacked, lambda output: output.mean(), config=False)
    assert "not registered" not in {finding.rule for finding in found}


def test_a_generator_whose_images_a_discriminator_sees_is_no_part_of_it() -> None:
    generator, discriminator = mlp(), nn.Sequential(nn.Linear(1, 8), nn.ReLU(), nn.Linear(8, 1))
    players = [sgd(generator), sgd(discriminator)]
    with fxdebug.watch(discriminator, every=2, save=None) as watched:
        for step in range(8):
            players[step % 2].zero_grad()
            discriminator(generator(normal(16, 8, seed=step))).mean().backward()
            players[step % 2].step()
    assert watched.incidents == () and [f for f in watched.report().findings if f.severity != "advice"] == []


def test_two_optimizers_that_take_turns_leave_no_parameter_out() -> None:
    net = mlp()
    players = [torch.optim.SGD(net[i].parameters(), lr=1e-2) for i in (0, 2)]
    with fxdebug.watch(net, every=50, save=None) as watched:
        for step in range(6):
            net.zero_grad()
            squares(net(x := normal(16, 8, seed=step)), x).backward()
            players[step % 2].step()
    assert watched.incidents == () and watched.report().findings == ()


def test_a_layer_that_an_optimizer_has_by_hand_learns() -> None:
    net = Listed([linear()])
    optimizer = torch.optim.SGD([*net.parameters(), *net.hidden[0].parameters()], lr=1e-2)
    assert train(net, optimizer, steps=3, loss=lambda y, x: y.pow(2).mean()) == ()


def test_parameters_in_no_optimizer_are_named_at_the_end() -> None:
    net = mlp()
    (finding,) = train(net, torch.optim.SGD(net[2].parameters(), lr=1e-2), steps=4)
    assert (finding.rule, finding.severity, finding.path) == ("not optimised", "warning", "0")
    assert finding.what.startswith("0.weight, 0.bias (89.4 % of all elements) get gradients and are in no optimizer")


@pytest.mark.parametrize("is_given", [True, False])
def test_an_optimizer_of_another_model_is_an_error(is_given: bool) -> None:
    net, optimizer = mlp(), torch.optim.AdamW(mlp().parameters())
    with (
        pytest.warns(FxDebugWarning, match="AdamW has none of the model's parameters") as warned,
        fxdebug.watch(net, optimizer if is_given else None, save=None) as watched,
    ):
        for step in range(6):
            net(normal(4, 8, seed=step)).mean().backward()
            optimizer.step()
    assert len(warned) == 1
    assert told(watched.report().findings)[0] == ("other optimizer", "error")
    found = fxdebug.check(net, normal(4, 8), lambda output: output.mean(), optimizer=optimizer, config=False)
    assert ("other optimizer", "error") in told(tuple(found))


def test_a_loop_without_a_step_is_told_after_five_forwards_and_accumulation_is_none() -> None:
    net = mlp()
    optimizer = sgd(net)
    for count, expected in ((4, []), (6, [("no step", "warning")])):
        with warnings.catch_warnings(record=True) as said, fxdebug.watch(net, save=None) as watched:
            warnings.simplefilter("always")
            for step in range(count):
                net(normal(4, 8, seed=step)).mean().backward()
            assert told(watched.report().findings) == expected
        assert told(watched.report().findings) == expected
        assert [str(one.message).partition(", and ")[2] for one in said] == [
            "no optimizer with its parameters made a step"
        ][: len(expected)]
    with fxdebug.watch(net, save=None) as watched:
        for step in range(16):
            net(normal(4, 8, seed=step)).mean().backward()
            if step % 8 == 7:
                optimizer.step()
                optimizer.zero_grad()
    assert watched.incidents == ()


@pytest.mark.parametrize("is_given", [False, True])
def test_a_loop_whose_optimizer_holds_copies_of_the_weights_has_no_finding(is_given: bool) -> None:
    net = mlp()
    masters = [parameter.detach().clone().requires_grad_() for parameter in net.parameters()]
    optimizer = torch.optim.SGD(masters, lr=1e-2)
    with fxdebug.watch(net, optimizer if is_given else None, save=None) as watched:
        for step in range(8):
            squares(net(x := normal(4, 8, seed=step)), x).backward()
            for master, parameter in zip(masters, net.parameters()):
                master.grad = parameter.grad
            optimizer.step()
            net.zero_grad()
            with torch.no_grad():
                for master, parameter in zip(masters, net.parameters()):
                    parameter.copy_(master)
    report = watched.report()
    assert told(report.findings) == []
    assert ["though its weights changed" in note.what for note in report.notes] == ([] if is_given else [True])


class Rooted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8, bias=False)

    def forward(self, x: Tensor) -> Any:
        return self.layer(x).abs().sqrt()


@pytest.mark.parametrize("bad, expected", [((7,), 0), ((7, 8, 9), 0), (range(5, 40), 1)])
def test_a_scaler_that_skips_every_step_is_told_and_a_few_are_not(bad: Any, expected: int) -> None:
    torch.manual_seed(0)
    net = Rooted()
    optimizer, scaler = sgd(net), torch.amp.GradScaler("cpu", init_scale=1024.0)
    with warnings.catch_warnings(), fxdebug.watch(net, optimizer, every=5, save=None) as watched:
        warnings.simplefilter("ignore", FxDebugWarning)
        for step in range(25):
            x = normal(4, 8, seed=step) * (step not in bad)
            loss = net(x).square().mean()
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    assert len(watched.incidents) == expected
    for incident in watched.incidents:
        assert (incident.trouble, incident.op, incident.step) == ("skipped", "sqrt", 5)
        assert "left out 10 steps in a row" in incident.what and "the backward of sqrt makes 32 NaN" in incident.what


def scaled(net: nn.Module, first: float, steps: int, loss_of: Callable[[Tensor, Tensor], Tensor]) -> Any:
    optimizer, scaler = torch.optim.Adam(net.parameters(), 1e-2), torch.amp.GradScaler("cpu", init_scale=first)
    with warnings.catch_warnings(), fxdebug.watch(net, save=None) as watched:
        warnings.simplefilter("ignore", FxDebugWarning)
        for step in range(steps):
            x = normal(16, 8, seed=step)
            with torch.autocast("cpu", torch.float16):
                loss = loss_of(net(x), (x[:, 0] > 0).long())
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    return watched


def test_a_factor_of_a_scaler_that_begins_too_high_is_no_fault_of_a_training_that_went_on() -> None:
    torch.manual_seed(0)
    verdict = scaled(nn.Linear(8, 2), 2.0**40, 120, nn.functional.cross_entropy).verdict()
    assert verdict.state == "learns" and verdict.sentence.startswith("it learns: ")
    (advice,) = verdict.findings
    assert (advice.rule, advice.severity) == ("steps skipped", "advice")
    assert advice.what.startswith("a GradScaler left out ") and " of 120 steps, ten of them in a row" in advice.what
    assert advice.advice.startswith("Begin with a smaller one: GradScaler(init_scale=2.0**")


def test_of_steps_that_a_scaler_skips_for_the_loss_function_that_is_told() -> None:
    def rooted(logits: Tensor, _: Tensor) -> Tensor:
        return (logits - logits.detach()).norm(dim=-1).sqrt().mean()

    incident, none = scaled(nn.Linear(8, 2), 1024.0, 20, rooted).incidents
    assert (incident.trouble, none.trouble) == ("skipped", "no step")
    assert incident.what.endswith("what the loss function gives back to the model is not finite already: look there")


def test_a_training_that_an_older_version_wrote_is_read(tmp_path: Path) -> None:
    """Its lines end before the fields that came later: the rates of a step, and what the optimizer has."""
    net = mlp()
    optimizer = sgd(net)
    with fxdebug.watch(net, every=1, save=tmp_path) as watched:
        squares(net(x := normal(4, 8)), x).backward()
        optimizer.step()
    (now,) = read_training(tmp_path).watched
    lines = [json.loads(line) for line in (tmp_path / "training.jsonl").read_text().splitlines()]
    for line in lines:
        if "step" in line:
            assert line["step"].pop() == [0.01]
        if "watched" in line:
            line["watched"] = [now.number, *(list(map(astuple, rows)) for rows in (now.results, now.parameters))]
            line["watched"][2] = [row[:-2] for row in line["watched"][2]]
    (tmp_path / "training.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    older = read_training(tmp_path)
    assert older.steps[0].rates == () and watched.steps[0].rates == (0.01,)
    assert [(p.optimised, p.rate) for p in now.parameters] == [(True, 0.01)] * 4
    assert [(p.optimised, p.rate) for p in older.watched[0].parameters] == [(None, None)] * 4
    assert told(tuple(fxdebug.check(tmp_path))) == []


def _item(output: Tensor) -> Tensor:
    return torch.tensor(output.mean().item(), requires_grad=True)


@pytest.mark.parametrize(
    "loss, why",
    [
        (lambda output: output.detach().mean().requires_grad_(), "the loss does not depend on them"),
        (lambda output: output.argmax(1).float().requires_grad_().mean(), "the loss does not depend on them"),
        (_item, "the loss does not depend on them"),
        (None, "no backward() followed what it returned"),
    ],
)
def test_steps_without_any_gradient_are_told_with_the_reason(loss: Any, why: str) -> None:
    net = mlp()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    with warnings.catch_warnings(record=True) as said, fxdebug.watch(net, every=2, save=None) as watched:
        warnings.simplefilter("always")
        for step in range(7):
            optimizer.zero_grad()
            output = net(normal(4, 8, seed=step))
            if loss is not None:
                loss(output).backward()
            optimizer.step()
    assert told(watched.report().findings) == [("no gradient", "error")]
    assert [str(one.message) for one in said] == [
        f"fxdebug.watch: no gradient reaches any parameter in 5 steps of an optimizer: {why}"
    ]
    if loss is not None:
        found = fxdebug.check(net, normal(4, 8), loss, config=False)
        assert ("no gradient", "error") in told(tuple(found))


def test_a_forward_without_gradients_and_frozen_parameters_are_reasons_for_steps_without_a_gradient() -> None:
    net, factor = mlp(), torch.ones((), requires_grad=True)
    optimizer = torch.optim.SGD([*net.parameters(), factor], lr=1e-2)
    reasons = []
    for frozen in (False, True):
        net.requires_grad_(not frozen)
        with warnings.catch_warnings(action="ignore"), fxdebug.watch(net, every=2, save=None) as watched:
            for step in range(3):
                with torch.set_grad_enabled(frozen):
                    output = net(normal(4, 8, seed=step))
                (output * factor).mean().backward()
                optimizer.step()
        reasons += [incident.what.rpartition(": ")[2] for incident in watched.incidents]
    assert reasons == [
        "Sequential was not called with gradients on (no_grad(), inference_mode())",
        "none asks for one (requires_grad is False)",
    ]


def test_steps_whose_gradients_are_made_inside_of_them_or_by_hand_are_healthy() -> None:
    net = mlp()
    bfgs = torch.optim.LBFGS(net.parameters(), lr=0.1, max_iter=2)

    def closure() -> Tensor:
        bfgs.zero_grad()
        loss: Tensor = net(normal(4, 8)).pow(2).mean()
        loss.backward()
        return loss

    with fxdebug.watch(net, every=2, save=None) as watched:
        for _ in range(6):
            bfgs.zero_grad()
            bfgs.step(closure)  # type: ignore[no-untyped-call, unused-ignore]
    assert watched.incidents == ()
    optimizer = sgd(net)
    with fxdebug.watch(net, every=2, save=None) as watched:
        for step in range(6):
            gradients = torch.autograd.grad(net(normal(4, 8, seed=step)).pow(2).mean(), list(net.parameters()))
            for parameter, gradient in zip(net.parameters(), gradients):
                parameter.grad = gradient
            optimizer.step()
    assert watched.incidents == ()


def test_two_losses_of_a_step_that_mean_different_things_are_no_spikes_of_one_another() -> None:
    maker, judge = nn.Linear(4, 8), mlp()
    makes, judges = sgd(maker), sgd(judge)
    with fxdebug.watch(maker, every=5, save=None) as watched:
        for step in range(40):
            given = normal(16, 4, seed=step)
            (judge(maker(given).detach()).pow(2).mean() + 10).backward()  # far above the other one
            judges.step()
            (judge(maker(given)).pow(2).mean() * 1e-3 + 0.1).backward()
            makes.step()
            makes.zero_grad()
            judges.zero_grad()
    assert watched.incidents == ()
