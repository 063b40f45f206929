"""A run that is paused is bit for bit the run without us, and one that is quit leaves nothing behind."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch

from fxdebug import api
from fxdebug.capture.pausing.paused_run import PausedRun
from support.outcome import assert_same
from support.same import difference
from support.sweep import sampled, whole
from zoo import zoo, zoo_sample

pytestmark = pytest.mark.usefixtures("no_remarks_on_python_3_13_0")
SLOW = frozenset({"scale/layers-500", "scale/wide-2000", "scale/calls-3000"})


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "build" in metafunc.fixturenames:
        entries = dict(zoo_sample.entries(whole=whole()))
        names = [name for name in entries if whole() or name not in SLOW]
        chosen = sampled(names, 18)
        metafunc.parametrize("build", [entries[name] for name in chosen], ids=chosen)


def paused_everywhere(model: Any, inputs: Any) -> Any:
    """Run a model that is paused at each of its moments, and looked at there."""
    run = api.paused_run(model, inputs)
    while not run.over:
        assert run.moment.id is not None and len(run.moment.results) >= 0
        run.go(lambda moment: True)
    return outcome_of(run)


def never_paused(model: Any, inputs: Any) -> Any:
    """Run a model under a condition that is never true."""
    run = api.paused_run(model, inputs)
    run.go(lambda moment: moment.path == "nowhere" or moment.op == "nothing")
    run.finish()
    return outcome_of(run)


def outcome_of(run: PausedRun) -> Any:
    if run.error is not None:
        raise run.error
    return run.trace().output


@pytest.mark.parametrize("call", [paused_everywhere, never_paused])
@pytest.mark.parametrize("grad", [False, True])
def test_a_paused_run_equals_a_plain_one_bit_for_bit(build: Any, call: Any, grad: bool) -> None:
    with torch.random.fork_rng(devices=[]):
        assert_same(build, call, grad)


RAISING = list(zoo.raising())


@pytest.mark.parametrize("failing", [build for _, build in RAISING], ids=[name for name, _ in RAISING])
@pytest.mark.parametrize("call", [paused_everywhere, never_paused])
def test_a_model_that_raises_raises_the_same_error_when_paused(failing: Any, call: Any) -> None:
    with torch.random.fork_rng(devices=[]):
        assert_same(zoo_sample.quietly(failing), call, grad=False)


# Quit -----------------------------------------------------------------------------------------------


def state_of(model: torch.nn.Module) -> Any:
    """Return what a run may change: random state, weights, buffers, gradients, modes; attributes by identity."""
    return {
        "random": torch.get_rng_state(),
        "tensors": {
            name: each.detach().clone()
            for name, each in [*model.named_parameters(), *model.named_buffers()]
            if each is not None
        },
        "gradients": {name: each.grad for name, each in model.named_parameters()},
        "attributes": [{name: id(held) for name, held in vars(module).items()} for module in model.modules()],
        "hooks": [len(held) for module in model.modules() for name, held in vars(module).items() if "hooks" in name],
        "modes": (torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack()),
        "grad": (torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"), torch.get_default_dtype()),
        "call": id(torch.nn.Module._call_impl.__code__),
        "threads": [thread.name for thread in threading.enumerate()],
    }


def quit_cases() -> list[tuple[str, Any]]:
    every = dict(zoo_sample.entries(whole=False))
    chosen = [name for name in every if name.split("/")[0] in ("flow", "state", "modes", "hooks", "tensors")]
    names = [*sampled(chosen, 15), *(name for name in every if name.startswith("hf/gpt2"))]
    return [(name, every[name]) for name in names]


@pytest.mark.parametrize("case", [build for _, build in quit_cases()], ids=[name for name, _ in quit_cases()])
def test_quit_at_every_kth_stop_leaves_everything_as_it_was(case: Any) -> None:
    model, inputs = case()
    count = length(case)
    before = state_of(model)
    for stop in range(0, count, max(1, count // 6)):
        run = api.paused_run(model, inputs)
        run.go(lambda moment, stop=stop: moment.number >= stop)  # type: ignore[misc]
        run.quit()
        assert run.over and run.error is None
        assert difference(before, state_of(model), f"after quit at stop {stop}") is None


def length(case: Any) -> int:
    """Return the number of stops of a run; of a copy, since a run may change the model."""
    with torch.random.fork_rng(devices=[]):
        model, inputs = case()
        run = api.paused_run(model, inputs)
        run.finish()
        return len(run.pauses.moments)


def trained() -> tuple[Any, Any]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Dropout(), torch.nn.ReLU())
    return model.train(), torch.randn(3, 4)


def test_a_backward_that_is_paused_makes_the_gradients_of_a_plain_one() -> None:
    outcomes = []
    for paused in (False, True):
        model, x = trained()
        if paused:
            run = api.paused_run(model, x, backward=lambda out: out.square().sum())
            while not run.over:
                run.go(lambda moment: moment.op == "gradient")
            output = outcome_of(run)
        else:
            output = model(x)
            output.square().sum().backward()
        outcomes.append([output, {n: p.grad for n, p in model.named_parameters()}, dict(model.named_buffers()),
                         torch.get_rng_state()])  # fmt: skip
    assert difference(*outcomes) is None


def test_quit_in_the_backward_restores_the_gradients_that_were_there() -> None:
    model, x = trained()
    model(x).sum().backward()
    before = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}  # type: ignore[union-attr]
    state = state_of(model)
    for count in range(1, 4):
        run = api.paused_run(model, x, backward=True)
        for _ in range(count):
            assert run.go(lambda moment: moment.op == "gradient")
        run.quit()
        assert {name: parameter.grad for name, parameter in model.named_parameters()}.keys() == before.keys()
        assert difference(before, {n: p.grad for n, p in model.named_parameters()}, "gradients") is None
        assert difference(state, state_of(model), "state") is None


def test_a_model_that_catches_everything_is_quit_all_the_same() -> None:
    class Stubborn(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(3):
                try:
                    x = x + 1
                except BaseException:
                    x = x * 0 if False else x
            return x

    model = Stubborn()
    before = state_of(model)
    run = api.paused_run(model, torch.ones(2))
    run.go(lambda moment: moment.kind == "op")
    run.quit()
    assert run.over and difference(before, state_of(model)) is None
