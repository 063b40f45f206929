"""``fxdebug.watch``: training goes on as without it, and the first guilty step, operation and line are named."""

from __future__ import annotations

import contextlib
import copy
import gc
import inspect
import io
import json
import math
import pickle
import shutil
import signal
import sys
import threading
import types
import warnings
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks
from torch.utils.checkpoint import checkpoint

import fxdebug
from fxdebug.api import FxDebugWarning
from fxdebug.apps.cli.main import main
from fxdebug.features.training.saved.training_file import read_training


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer = nn.Linear(width, width)
        self.norm = nn.BatchNorm1d(width)

    def forward(self, x: Tensor) -> Tensor:
        scale = (x.abs().amax(1, keepdim=True) + 1).log()
        return x + torch.tanh(self.norm(self.layer(x))) * scale


class Checkpointed(Block):
    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = checkpoint(super().forward, x, use_reentrant=False)
        return result


def model(kind: type[Block] = Block, width: int = 16) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(kind(width), kind(width), nn.Dropout(0.1), nn.Linear(width, 1))


def batches(steps: int, spoil: dict[int, Callable[[Tensor], Tensor]] | None = None) -> Iterator[Tensor]:
    generator = torch.Generator().manual_seed(1)
    for number in range(steps):
        batch = torch.randn(8, 16, generator=generator)
        yield (spoil or {}).get(number, lambda x: x)(batch)


def train(
    net: nn.Module, steps: int = 12, spoil: dict[int, Callable[[Tensor], Tensor]] | None = None, accumulate: int = 1
) -> list[Any]:
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    losses = []
    torch.manual_seed(2)
    for number, batch in enumerate(batches(steps * accumulate, spoil)):
        loss = (net(batch) - 1).pow(2).mean()
        loss.backward()
        losses.append(loss.detach())
        if number % accumulate == accumulate - 1:
            optimizer.step()
            optimizer.zero_grad()
    return [*losses, *net.state_dict().values(), torch.get_rng_state()]


def inf_in_row_3(batch: Tensor) -> Tensor:
    batch[3, 0] = math.inf
    return batch


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FxDebugWarning)
        yield


@pytest.mark.parametrize("kind", [Block, Checkpointed])
@pytest.mark.parametrize("spoil", [None, {7: inf_in_row_3}], ids=["healthy", "poisoned"])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_training_is_bit_equal_with_and_without(kind: type[Block], spoil: Any, accumulate: int, tmp_path: Path) -> None:
    plain = train(model(kind), spoil=spoil, accumulate=accumulate)
    net = model(kind)
    with quiet(), fxdebug.watch(net, every=3, save=tmp_path):
        watched = train(net, spoil=spoil, accumulate=accumulate)
    assert all(torch.equal(a.nan_to_num(7), b.nan_to_num(7)) if a.is_floating_point() else torch.equal(a, b)
               for a, b in zip(plain, watched, strict=True))  # fmt: skip


def test_a_poisoned_batch_is_named_by_step_and_place(tmp_path: Path) -> None:
    net = model()
    with (
        pytest.warns(FxDebugWarning, match="step 7: the input 'input' has 1") as caught,
        fxdebug.watch(net, every=5, save=tmp_path) as watched,
    ):
        train(net, spoil={7: inf_in_row_3})
    assert [Path(warning.filename).name for warning in caught] == ["test_watch.py"]
    (incident,) = watched.incidents
    assert (incident.step, incident.trouble, incident.inputs) == (7, "loss", ("8×16 float32",))
    finding = watched.report().findings[0]
    assert (finding.rule, finding.severity) == ("loss not finite", "error") and "step 7" in finding.what
    assert str(fxdebug.check(tmp_path / "step-7")).count("input") > 0


def test_an_operation_that_makes_nan_is_named_with_its_line(tmp_path: Path) -> None:
    class Root(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.log(x.mean(1, keepdim=True) + 5) + x  # negative from some step on

    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(16, 16), Root(), nn.Linear(16, 1))
    with quiet(), fxdebug.watch(net, every=5, save=tmp_path) as watched:
        train(net, spoil={7: lambda batch: batch * 1e4})
    (incident,) = watched.incidents
    assert (incident.step, incident.path, incident.op) == (7, "1", "log")
    assert incident.source is not None and "test_watch.py" in incident.source


def test_a_backward_that_makes_nan_is_named_before_the_optimizer_steps(tmp_path: Path) -> None:
    class Root(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.abs().sum(1, keepdim=True).sqrt() + x  # the root of 0 has no derivative

    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(16, 4, bias=False), Root(), nn.Linear(4, 1))
    with quiet(), fxdebug.watch(net, every=5, save=tmp_path) as watched:
        train(net, spoil={7: lambda batch: batch * 0})
    (incident,) = watched.incidents
    assert (incident.step, incident.trouble, incident.path, incident.op) == (7, "gradient", "1", "sqrt")
    assert incident.source is not None and "test_watch.py" in incident.source


def test_a_loss_function_that_overflows_float16_is_told_apart_from_the_model(tmp_path: Path) -> None:
    net = nn.Linear(16, 4)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    with quiet(), fxdebug.watch(net, every=5, save=tmp_path) as watched:
        for number, batch in enumerate(batches(9)):
            output = net(batch).half()
            loss = (output * (300 if number == 7 else 1)).pow(2).sum()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    (incident,) = watched.incidents
    assert (incident.step, incident.path) == (7, "")
    assert incident.what == "the loss is inf, while every number in the model is finite: look at the loss function"


def test_a_spike_of_the_loss_is_kept_with_its_step(tmp_path: Path) -> None:
    net = model()
    with quiet(), fxdebug.watch(net, every=10, save=tmp_path) as watched:
        train(net, steps=40, spoil={33: lambda batch: batch * 1e4})
    assert [(incident.step, incident.trouble) for incident in watched.incidents] == [(33, "spike")]
    assert fxdebug.load(tmp_path / "step-33").root.inputs[0].stats.absmax > 1e3


def test_healthy_training_has_no_incident_and_no_finding(tmp_path: Path) -> None:
    net = model()
    with fxdebug.watch(net, every=10, save=tmp_path) as watched:
        train(net, steps=60)
    assert watched.incidents == () and [f for f in watched.report().findings if f.severity != "advice"] == []
    assert list(tmp_path.iterdir()) == [tmp_path / "training.jsonl"]


def test_an_exception_ends_the_file_with_its_step_and_passes_through(tmp_path: Path) -> None:
    net = model()

    def broken(batch: Tensor) -> Tensor:
        raise ZeroDivisionError("no data")

    with pytest.raises(ZeroDivisionError), fxdebug.watch(net, save=tmp_path):
        train(net, spoil={4: broken})
    (incident,) = read_training(tmp_path).incidents
    assert (incident.step, incident.what) == (4, "the training raised ZeroDivisionError: no data")


# Nothing is left, nothing is in the way ----------------------------------------------------------


def test_between_watched_steps_no_module_has_a_hook_and_afterwards_nothing_is_left(tmp_path: Path) -> None:
    net = model()
    before = [dict(vars(module)) for module in net.modules()]
    backward = torch.autograd.backward
    seen = []
    with fxdebug.watch(net, every=4, save=tmp_path):
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
        for batch in batches(6):
            net(batch).sum().backward()
            seen.append([path for path, module in net.named_modules() if "forward" in vars(module)])
            optimizer.step()
    assert seen == [[""]] * 6
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in net.modules())
    assert [vars(module).keys() for module in net.modules()] == [content.keys() for content in before]
    assert torch.autograd.backward is backward
    assert not _global_optimizer_pre_hooks and not _global_optimizer_post_hooks


def test_copies_of_the_model_made_meanwhile_run_their_own_forward(tmp_path: Path) -> None:
    net = model().eval()
    with fxdebug.watch(net, save=tmp_path):
        twin, thawed = copy.deepcopy(net), pickle.loads(pickle.dumps(net))
        for other in (twin, thawed):
            with torch.no_grad():
                other[3].weight.zero_()
                other[3].bias.zero_()
                assert not torch.equal(net(torch.ones(1, 16)), other(torch.ones(1, 16)))
                assert other(torch.ones(1, 16)).item() == 0


class CopiesItself(nn.Linear):
    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        twin = memo[id(self)] = type(self).__new__(type(self))
        vars(twin).update({name: copy.deepcopy(content, memo) for name, content in vars(self).items()})
        return twin


def saved(net: nn.Module) -> nn.Module:
    buffer = io.BytesIO()
    torch.save(net, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=False)  # type: ignore[no-any-return]


COPIES: dict[str, Callable[[nn.Module], nn.Module]] = {
    "deepcopy": copy.deepcopy,
    "copy": copy.copy,
    "pickle": lambda net: pickle.loads(pickle.dumps(net)),
    "torch.save": saved,
    "average": lambda net: torch.optim.swa_utils.AveragedModel(net).module,
    "in a list": lambda net: copy.deepcopy([net, net])[1],
}


@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("how", COPIES)
def test_copies_made_meanwhile_have_nothing_of_ours(how: str, own: bool, traced: bool, tmp_path: Path) -> None:
    net, made = model().eval(), []
    if own:
        net.forward = nn.Identity().forward
    names = [vars(module).keys() for module in net.modules()]
    with fxdebug.watch(net, every=1, save=tmp_path):
        made.append(COPIES[how](net))
        if traced:

            def copied(*_: Any) -> None:
                handle.remove()  # a function in here cannot be pickled
                made.append(COPIES[how](net))

            handle = net[0].register_forward_hook(copied)
            fxdebug.fx_debug(net, torch.ones(1, 16), graph=False)
            handle.remove()
    assert "__reduce_ex__" not in vars(nn.Module)
    for each in (net, *made):
        assert [vars(module).keys() for module in each.modules()] == names
        assert (type(vars(each).get("forward")), "forward" in vars(each)) == (
            (types.MethodType, True) if own else (type(None), False)
        )
    assert len(made) == 1 + (traced and not own)


def test_a_copy_by_a_class_of_its_own_runs_its_own_weights(tmp_path: Path) -> None:
    net = CopiesItself(2, 2)
    with fxdebug.watch(net, save=tmp_path):
        twin = copy.deepcopy(net)
    twin.weight.data.zero_()
    assert torch.equal(twin(torch.ones(1, 2)), twin.bias[None])
    assert not [each for each in vars(twin).values() if type(each).__module__.startswith("fxdebug")]


def test_evaluation_between_steps_is_no_step(tmp_path: Path) -> None:
    net = model()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    with fxdebug.watch(net, every=1, save=tmp_path) as watched:
        for batch in batches(3):
            net(batch).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            with torch.no_grad():
                net.eval()(batch)
                net.train()
    assert len(watched.steps) == 3 and {len(step.results) for step in read_training(tmp_path).watched} == {9}


def test_the_optimizer_of_another_model_makes_no_step(tmp_path: Path) -> None:
    net, other = model(), model()
    with fxdebug.watch(net, save=tmp_path) as watched:
        train(other, steps=3)
        train(net, steps=2)
    assert len(watched.steps) == 2


class Delegating(torch.optim.SGD):
    """Does something around the step of its parent, which torch counts as a step, too, once the parent was used."""

    def step(self, closure: Any = None) -> Any:
        return super().step(closure)


class Lookahead(torch.optim.Optimizer):
    """Wraps another optimizer."""

    def __init__(self, inner: torch.optim.Optimizer) -> None:
        super().__init__([p for group in inner.param_groups for p in group["params"]], {})
        self.inner = inner

    def step(self, closure: Any = None) -> Any:
        return self.inner.step(closure)


@pytest.mark.parametrize("which", ["all", "outer", "inner"])
@pytest.mark.parametrize("is_wrapped", [False, True], ids=["subclass", "wrapper"])
def test_a_step_inside_a_step_is_counted_once(is_wrapped: bool, which: str) -> None:
    net = model()
    torch.optim.SGD(nn.Linear(1, 1).parameters())
    inner = Delegating(net.parameters(), lr=1e-3)
    outer = Lookahead(inner) if is_wrapped else inner
    with fxdebug.watch(net, {"all": None, "outer": outer, "inner": inner}[which], save=None) as watch:
        for batch in batches(3):
            outer.zero_grad()
            net(batch).mean().backward()
            outer.step()
    norms = [step.norm for step in watch.steps]
    assert [step.number for step in watch.steps] == [0, 1, 2] and None not in norms


def test_a_step_that_raised_is_not_taken_for_one_around_the_next() -> None:
    net = model()
    optimizer = Delegating(net.parameters(), lr=1e-3)

    def fail() -> float:
        raise ValueError("no loss")

    with fxdebug.watch(net, save=None) as watch:
        for number, batch in enumerate(batches(4)):
            optimizer.zero_grad()
            net(batch).mean().backward()
            with contextlib.suppress(ValueError):
                optimizer.step(fail if number == 1 else None)
    assert [step.number for step in watch.steps] == [0, 1, 2]


def test_autocast_and_a_scaler_work_and_a_skipped_step_is_none(tmp_path: Path) -> None:
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)
    with fxdebug.watch(net, every=2, save=tmp_path) as watched:
        for batch in batches(12):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = (net(batch) - 1).float().pow(2).mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    assert watched.incidents == () and 0 < len(watched.steps) < 12


def test_a_step_under_autocast_runs_again_under_autocast(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    with quiet(), fxdebug.watch(net, save=tmp_path) as watched:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = net(torch.full((2, 16), math.nan)).float().sum()
        loss.backward()
        optimizer.step()
    assert len(watched.incidents) == 1
    assert fxdebug.load(tmp_path / "step-0")["0"].outputs[0].dtype == "bfloat16"


def test_a_compiled_model_is_watched_from_outside(tmp_path: Path) -> None:
    if shutil.which("g++") is None and shutil.which("c++") is None:
        pytest.skip("torch.compile needs a C++ compiler here")
    net = model()
    compiled = torch.compile(net, backend="aot_eager")
    with quiet(), fxdebug.watch(compiled, every=2, save=tmp_path) as watched:
        train(compiled, steps=6, spoil={3: inf_in_row_3})
    assert len(watched.steps) == 6 and [incident.step for incident in watched.incidents] == [3]


# Loops of other kinds ----------------------------------------------------------------------------


def test_a_part_that_is_compiled_is_named_and_the_rest_is_measured(tmp_path: Path) -> None:
    net = model()
    net[1] = torch.compile(net[1], backend="aot_eager")
    with quiet(), fxdebug.watch(net, every=2, save=tmp_path) as watched:
        train(net, steps=6, spoil={3: inf_in_row_3})
    assert [incident.step for incident in watched.incidents] == [3] and len(watched.steps) == 6
    assert [note.what for note in watched.report().notes] == [
        "compiled by torch.compile: calls inside 1 are not measured in watched steps"
    ]
    paths = {result.path for step in read_training(tmp_path).watched for result in step.results}
    assert {"", "0", "0.layer", "2", "3"} <= paths


def test_of_two_optimizers_each_step_has_the_gradients_that_it_uses(tmp_path: Path) -> None:
    class Gan(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.generator, self.critic = nn.Linear(4, 16), nn.Linear(16, 1)

        def forward(self, noise: Tensor) -> Tensor:
            score: Tensor = self.critic(self.generator(noise))
            return score

    torch.manual_seed(0)
    gan = Gan()
    makers = [torch.optim.SGD(part.parameters(), lr=1e-3) for part in (gan.generator, gan.critic)]
    norms = []
    with fxdebug.watch(gan, every=4, save=tmp_path) as watched, fxdebug.watch(gan, makers[1], save=None) as of_critic:
        for _ in range(4):
            for optimizer, sign in zip(makers, (1, -1), strict=True):
                (sign * gan(torch.randn(8, 4)).mean()).backward()
                gradients = [p.grad for p in optimizer.param_groups[0]["params"]]
                norms.append(float(torch.nn.utils.get_total_norm(gradients)))
                optimizer.step()
                gan.zero_grad()
    assert [step.norm for step in watched.steps] == pytest.approx(norms)
    assert [step.norm for step in of_critic.steps] == pytest.approx(norms[1::2])


def test_a_step_of_two_forwards_is_explained_by_the_guilty_one(tmp_path: Path) -> None:
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    with quiet(), fxdebug.watch(net, every=5, save=tmp_path) as watched:
        for number, batch in enumerate(batches(9)):
            left, right = net(batch), net(inf_in_row_3(batch.clone()) if number == 7 else batch.flip(0))
            (left - right).pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    (incident,) = watched.incidents
    assert incident.step == 7 and incident.what == "the input 'input' has 1 +Inf of 128"
    assert incident.run == str(tmp_path / "step-7" / "forward-1")


def test_an_optimizer_made_after_watching_began_is_followed(tmp_path: Path) -> None:
    net = model()
    with fxdebug.watch(net, save=tmp_path) as watched:
        train(net, steps=2)
        train(net, steps=3)
    assert len(watched.steps) == 5


def test_the_loss_is_that_of_the_backward_and_not_the_result_of_a_model_that_returns_one_number() -> None:
    class Energy(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x).sum()

    losses = []
    for net in (nn.Linear(16, 1), Energy(16, 1)):
        optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
        with fxdebug.watch(net, save=None) as watched:
            for batch in batches(3):
                loss = (net(batch[:1]) - 5).pow(2).sum()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                losses.append(float(loss.detach()))
        assert [step.loss for step in watched.steps] == pytest.approx(losses[-3:])


class WithLoss(nn.Module):
    """Returns its loss beside its logits, as transformers' models do."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(8, 8), nn.Linear(8, 3)
        self.logits: weakref.ref[Tensor] | None = None

    def forward(self, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
        logits = self.head(self.body(x))
        self.logits = weakref.ref(logits)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


@pytest.mark.parametrize("is_own", [True, False], ids=["loss of the model", "loss of the loop"])
def test_what_the_model_returned_is_free_in_the_backward_as_without_watching(is_own: bool) -> None:
    net = WithLoss()
    seen: list[bool] = []
    net.body.weight.register_hook(lambda gradient: seen.append(net.logits is not None and net.logits() is None))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    labels = torch.tensor([0, 1, 2, 0])
    with fxdebug.watch(net, save=None):
        for _ in range(3):
            out = net(torch.randn(4, 8), labels)
            loss = out["loss"] if is_own else nn.functional.cross_entropy(out["logits"], labels)
            del out
            loss.backward()
            held = [t for t in gc.get_objects() if type(t) is Tensor and t.shape == (4, 3)]
            assert len(held) == (0 if is_own else 1)  # the gradient of logits: the backward runs again from there
            del held
            optimizer.step()
            optimizer.zero_grad()
    assert seen == [True] * 3


def test_the_loss_of_a_second_backward_through_a_graph_that_is_kept_is_known() -> None:
    torch.manual_seed(0)
    net = nn.Linear(8, 3)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    with fxdebug.watch(net, save=None) as watched:
        for _ in range(20):
            x = torch.randn(16, 8)
            loss = nn.functional.cross_entropy(net(x), x[:, :3].argmax(1))
            loss.backward(retain_graph=True)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    assert watched.verdict().constant == pytest.approx(math.log(3), rel=0.05)


def test_a_factor_that_spoils_the_loss_of_the_model_is_seen() -> None:
    class Model(nn.Linear):
        def forward(self, x: Tensor) -> dict[str, Tensor]:
            return {"loss": super().forward(x).pow(2).mean()}

    net = Model(16, 1)
    with quiet(), fxdebug.watch(net, save=None) as watched:
        (net(torch.ones(2, 16))["loss"] * math.nan).backward()
    assert [(incident.trouble, incident.op) for incident in watched.incidents] == [("loss", "")]


@pytest.mark.parametrize("fused", [False, True])
def test_a_scaler_changes_neither_the_losses_nor_makes_incidents(fused: bool) -> None:
    torch.manual_seed(0)
    net = nn.Linear(16, 4)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127, growth_interval=3)
    made = []
    with fxdebug.watch(net, save=None) as watched:
        for batch in batches(60):
            loss = (net(batch) - 1).pow(2).mean() * 1e3
            scaler.scale(loss).backward()
            before = net.weight.detach().clone()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            if not torch.equal(before, net.weight):
                made.append(float(loss.detach()))
    assert watched.incidents == () and 0 < len(made) < 60
    losses = [step.loss for step in watched.steps]
    known = [(loss, other) for loss, other in zip(losses, made, strict=True) if loss is not None]
    assert (
        len(losses) == len(made)
        and len(known) > 2
        and [loss for loss, _ in known] == pytest.approx([other for _, other in known])
    )


# The file ----------------------------------------------------------------------------------------


def test_the_file_can_be_read_while_the_training_goes_on_and_after_a_crash(tmp_path: Path) -> None:
    net = model()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    counts = []
    with fxdebug.watch(net, every=2, save=tmp_path) as watched:
        for batch in batches(5):
            net(batch).sum().backward()
            optimizer.step()
            record = read_training(tmp_path)
            counts.append((len(record.steps), len(record.watched)))
        steps = watched.steps
    assert counts == [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3)]
    path = tmp_path / "training.jsonl"
    whole = path.read_text()
    assert read_training(tmp_path).steps == steps
    for cut in (len(whole) - 1, len(whole) - 20, len(whole) // 2):
        path.write_text(whole[:cut])
        assert len(read_training(tmp_path).steps) <= 5


@pytest.mark.parametrize(
    "damage",
    [
        lambda lines: ["[]", *lines[1:]],
        lambda lines: [lines[0].replace('"version":3', '"version":9'), *lines[1:]],
        lambda lines: [lines[0], '{"step":["a",1,2,3]}', ""],
        lambda lines: [lines[0], '{"what":1}', ""],
        lambda lines: [lines[0], "{" * 100_000, ""],
        lambda lines: ["\0"],
    ],
)
def test_a_damaged_file_is_a_load_error(damage: Callable[[list[str]], list[str]], tmp_path: Path) -> None:
    net = model()
    with fxdebug.watch(net, save=tmp_path):
        train(net, steps=1)
    path = tmp_path / "training.jsonl"
    path.write_text("\n".join(damage(path.read_text().split("\n"))))
    with pytest.raises(fxdebug.LoadError):
        read_training(tmp_path)


@pytest.mark.skipif(sys.platform == "win32", reason="limits of file sizes are POSIX")
def test_a_full_disk_is_told_once_and_the_training_is_followed_in_memory(tmp_path: Path) -> None:
    import resource

    net, limits = model(), resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        with warnings.catch_warnings(record=True) as told, fxdebug.watch(net, every=1, save=tmp_path) as watched:
            warnings.simplefilter("always")
            train(net, steps=1)
            size = (tmp_path / "training.jsonl").stat().st_size
            resource.setrlimit(resource.RLIMIT_FSIZE, (size + 50, limits[1]))  # the next lines do not fit
            train(net, steps=3, spoil={2: inf_in_row_3})
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            train(net, steps=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    full, incident = [str(one.message) for one in told if one.category is FxDebugWarning]
    assert full.startswith(f"fxdebug.watch: step 1: {tmp_path / 'training.jsonl'} cannot be written: File too large")
    assert incident.startswith("fxdebug.watch: step 3: ") and "fxdebug check" not in incident
    report = watched.report()
    assert "steps from here on may be missing in it" in report.text() and "step 3" in report.text()
    assert [step.number for step in watched.steps] == [0, 1, 2, 3, 4]
    assert report.rows[-1].step == "step 4"
    assert {path.name for path in tmp_path.iterdir()} == {"training.jsonl"}
    numbers = [step.number for step in read_training(tmp_path).steps]  # every line that is there is whole
    assert numbers[0] == 0 and numbers[-1] == 4


@pytest.mark.skipif(sys.platform == "win32", reason="limits of file sizes are POSIX")
def test_a_training_that_cannot_begin_its_file_leaves_the_earlier_one(tmp_path: Path) -> None:
    import resource

    net, limits = model(), resource.getrlimit(resource.RLIMIT_FSIZE)
    with fxdebug.watch(net, save=tmp_path / "old"):
        train(net, steps=2)
    before = (tmp_path / "old" / "training.jsonl").read_bytes()
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))
        for name in ("old", "new"):
            with pytest.raises(fxdebug.SaveError, match="cannot be written: File too large"):
                fxdebug.watch(net, save=tmp_path / name)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert (tmp_path / "old" / "training.jsonl").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["old"]


def test_the_folder_of_a_run_is_no_training_and_is_told_so(tmp_path: Path) -> None:
    fxdebug.fx_debug(model(), next(batches(1)), save=tmp_path)
    with pytest.raises(fxdebug.LoadError, match=r"holds no training\.jsonl: fxdebug\.watch"):
        read_training(tmp_path)
    with pytest.raises(fxdebug.LoadError, match=r"none is no folder: give the one that fxdebug\.watch"):
        read_training(tmp_path / "none")


def test_a_file_of_another_version_says_what_to_do(tmp_path: Path) -> None:
    net = model()
    with fxdebug.watch(net, save=tmp_path):
        train(net, steps=1)
    path = tmp_path / "training.jsonl"
    text = path.read_text()
    for version, told in (
        ("4", "upgrade with pip"),
        ("0", "watch the training again"),
        ("null", "has no format version"),
    ):
        path.write_text(text.replace('"version":3', f'"version":{version}', 1))
        with pytest.raises(fxdebug.LoadError, match=told):
            read_training(tmp_path)


def test_each_line_is_strict_json(tmp_path: Path) -> None:
    net = model()
    with quiet(), fxdebug.watch(net, every=1, save=tmp_path):
        train(net, steps=9, spoil={7: inf_in_row_3})
    for line in (tmp_path / "training.jsonl").read_text().splitlines():
        json.loads(line, parse_constant=lambda word: pytest.fail(word))


# Several threads, and what could not be looked at ------------------------------------------------


@pytest.mark.parametrize("optimizer_is_known", [True, False])
def test_threads_that_each_watch_a_training_leave_each_others_steps_alone(optimizer_is_known: bool) -> None:
    raised: list[BaseException] = []
    together = threading.Barrier(4)

    def train() -> None:
        net = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        together.wait()
        try:
            for _ in range(10):
                with fxdebug.watch(net, optimizer if optimizer_is_known else None, save=None) as watched:
                    net(torch.ones(4, 8)).sum().backward()
                    optimizer.step()
                assert len(watched.steps) == 1
        except BaseException as error:
            raised.append(error)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=train) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert raised == []
    with fxdebug.watch(nn.Linear(1, 1), save=None):  # the threads are over: the last watcher takes the hooks out
        pass
    assert not _global_optimizer_pre_hooks and not _global_optimizer_post_hooks


def test_a_known_optimizer_is_seen_by_hooks_of_its_own_also_inside_a_wrapper() -> None:
    class Wrapper(torch.optim.Optimizer):
        def __init__(self, optimizer: torch.optim.Optimizer) -> None:
            self.optimizer = optimizer
            self.param_groups = optimizer.param_groups

        def step(self, closure: Any = None) -> None:  # type: ignore[override]
            self.optimizer.step()

    net = nn.Linear(2, 1)
    inner, other = (torch.optim.SGD(net.parameters(), lr=0.1) for _ in range(2))
    for known in (inner, Wrapper(inner)):
        with fxdebug.watch(net, known, save=None) as watched:
            assert not _global_optimizer_pre_hooks and len(inner._optimizer_step_pre_hooks) == 1
            for optimizer in (known, other):
                net(torch.ones(1, 2)).sum().backward()
                optimizer.step()
        assert len(watched.steps) == 1 and not inner._optimizer_step_pre_hooks


def test_what_could_not_be_looked_at_is_a_warning_on_the_first_screen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(gradients: Any) -> float:
        raise RuntimeError("planted")

    monkeypatch.setattr("fxdebug.features.training.recorder.watcher.norm_of_all", broken)
    net = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    with fxdebug.watch(net, optimizer, save=tmp_path) as watched:
        for _ in range(3):
            net(torch.ones(1, 2)).sum().backward()
            optimizer.step()
    assert len(watched.steps) == 3
    for found in (watched.report().findings, fxdebug.check(tmp_path).findings):
        (gap,) = [finding for finding in found if finding.rule == "not looked at"]
        assert str(gap) == ("warning: Linear#0: step 0: a part of it was not looked at: RuntimeError: planted")
    assert "not looked at" in str(fxdebug.check(tmp_path)) and "not looked at" in watched.report().text()
    assert (
        main(["check", str(tmp_path)]) == 1 and main(["check", str(tmp_path), "--off", "training.not looked at"]) == 0
    )


class Lookup(nn.Module):
    """Large matrices: their gradients are not all read in each step."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(1 << 14, 128), nn.Linear(128, 1 << 14)

    def forward(self, ids: torch.Tensor, spoilt: bool) -> torch.Tensor:
        x = self.table(ids)
        return self.head(x + (x - x.detach()).abs().sqrt() if spoilt else x)  # NaN in the rows that were looked up


@pytest.mark.parametrize("spoilt", [67, None])
def test_of_large_matrices_a_gradient_that_is_not_finite_is_seen_in_its_step_and_the_norm_is_taken_less_often(
    spoilt: int | None,
) -> None:
    model = Lookup()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with warnings.catch_warnings(), fxdebug.watch(model, save=None, every=1000) as watched:
        warnings.simplefilter("ignore")
        for step in range(72):
            optimizer.zero_grad()
            ids = torch.tensor([3, 5, 9])
            nn.functional.cross_entropy(model(ids, step == spoilt), ids).backward()
            optimizer.step()
    if spoilt is None:
        assert [step.number for step in watched.steps if step.norm is None] == [64, 65, 66, 67, 68, 69, 71]
        assert not watched.incidents
    else:
        assert [(one.step, one.trouble) for one in watched.incidents[:1]] == [(spoilt, "gradient")]


def test_sparse_gradients_have_a_norm() -> None:
    net = nn.Embedding(5, 3, sparse=True)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    with fxdebug.watch(net, optimizer, save=None, histograms=True) as watched:
        net(torch.tensor([0, 2, 2])).sum().backward()
        optimizer.step()
    assert watched.steps[0].norm == pytest.approx((3 * 1 + 3 * 4) ** 0.5) and watched.report().findings == ()


@pytest.mark.parametrize("is_part", [False, True])
def test_a_model_that_is_compiled_around_the_watched_one_trains_as_before_and_a_note_says_what_is_not_seen(
    is_part: bool,
) -> None:
    torch._dynamo.reset()
    net = model()
    whole = torch.compile(nn.Sequential(net) if is_part else net, backend="eager", fullgraph=True)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
    with warnings.catch_warnings(), fxdebug.watch(net, every=2, save=None) as watched:
        warnings.simplefilter("error")
        for batch in batches(4):
            whole(batch).pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    assert len(watched.steps) == 4 and watched.incidents == ()
    (note,) = watched.report().notes
    assert note.what.startswith("no forward of Sequential was seen: its losses are not known")


def test_a_loop_that_calls_another_method_is_told_how_to_watch_it() -> None:
    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(16, 1)

        def encode(self, x: Tensor) -> Tensor:
            result: Tensor = self.layer(x)
            return result

    net = Encoder()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
    seen = {}
    for method in ("forward", "encode"):
        with fxdebug.watch(net, every=2, save=None, method=method) as watched:
            for batch in batches(4):
                net.encode(batch).pow(2).mean().backward()
                optimizer.step()
        seen[method] = (watched.steps[-1].loss is not None, len(watched.report().notes))
    assert seen == {"forward": (True, 1), "encode": (True, 0)}


def test_a_watched_model_names_the_arguments_of_its_forward_as_before() -> None:
    """Trainers leave out the columns of the data that the forward does not name."""
    net = model()
    before = (inspect.signature(net.forward), net.forward.__name__, net.forward.__doc__)
    with fxdebug.watch(net, save=None):
        assert (inspect.signature(net.forward), net.forward.__name__, net.forward.__doc__) == before
    assert (inspect.signature(net.forward), net.forward.__name__, net.forward.__doc__) == before
