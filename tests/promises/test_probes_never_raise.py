"""Whatever a model does, no probe that looks at it raises into it: its results are its own, and a note has the rest."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import optimizer as torch_optimizer

import fxdebug
from fxdebug.capture.torch_state import internals
from fxdebug.data.calls import Note
from support import sweep
from support.awkward import COMPILING, KINDS, RETURNED, awkward, x


def loss(output: Tensor) -> Tensor:
    return output


def trained(model: nn.Module, *, optimizer_is_known: bool, histograms: bool) -> fxdebug.Report[Any]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    known = optimizer if optimizer_is_known else None
    with fxdebug.watch(model, known, every=1, save=None, histograms=histograms) as watched:
        for _ in range(2):
            optimizer.zero_grad()
            model(x()).backward()
            optimizer.step()
    assert len(watched.steps) == 2 and not watched.incidents
    return watched.report()


PROBES: dict[str, Callable[[nn.Module], Sequence[Note]]] = {
    "fx_debug": lambda model: fxdebug.fx_debug(model, x()).notes,
    "watch": lambda model: trained(model, optimizer_is_known=True, histograms=False).notes,
    "histograms": lambda model: trained(model, optimizer_is_known=False, histograms=True).notes,
    "gradients": lambda model: fxdebug.gradients(model, x(), loss=loss).notes,
    "profile": lambda model: fxdebug.profile(model, x(), loss=loss, repeats=1, warmup=0, peak=False).notes,
    "memory": lambda model: fxdebug.memory(model, x(), loss=loss).notes,
    "activations": lambda model: fxdebug.activations(model, x()).notes,
    "attention": lambda model: fxdebug.attention(model, x()).notes,
    "check": lambda model: fxdebug.check(model, x(), loss=loss).notes,
    "flops": lambda model: fxdebug.flops(model, x()).notes,
    "summary": lambda model: fxdebug.summary(model, x()).notes,
    "weights": lambda model: fxdebug.weights(model).notes,
    "shadow": lambda model: fxdebug.shadow(model, x()).notes,
}
# Where the answer cannot exist, a probe says why.
REFUSED = {
    ("quantised", "shadow"): "Quantize only works on Float Tensor",
    ("jit_traced", "memory"): "torch.jit.trace, which fails under any mode",
}
# What a note says was not looked at.
TOLD = {
    ("hessian", "watch"): "inside a functorch transform",
    ("hessian", "gradients"): "inside a functorch transform",
    ("vmapped_gradient", "activations"): "inside a functorch transform",
    ("cond", "gradients"): "what torch.compile compiled ran as one piece",
    ("cond", "memory"): "cond was followed as one operation",
    ("flex", "memory"): "flex_attention was followed as one operation",
    ("jagged", "activations"): "NestedTensor without data",
    ("refusing_subclass", "activations"): "Refusing without data",
}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    if "_dynamo" in dir(torch):
        torch._dynamo.reset()


def left(model: nn.Module) -> list[Any]:
    """What would be there if a probe had left something behind."""
    return [
        internals.len_torch_function_stack(),
        internals.len_torch_dispatch_stack(),
        [path for path, module in model.named_modules() if "forward" in vars(module)],
        [path for path, module in model.named_modules() if module._forward_hooks or module._forward_pre_hooks],
        [name for name, parameter in model.named_parameters() if parameter._backward_hooks],
        len(torch_optimizer._global_optimizer_pre_hooks),
        torch.autograd.backward.__module__,
    ]


SAMPLE = tuple(name for name in KINDS if name not in COMPILING or name in ("cond", "flex"))


@pytest.mark.parametrize("name", KINDS if sweep.whole() else SAMPLE)
def test_no_probe_raises_into_an_awkward_model_or_changes_what_it_returns(name: str) -> None:
    plain = returned_by(name, lambda model: model(x()).backward())
    clean = left(awkward("plain"))
    for probe, ask in PROBES.items():
        model, notes = awkward(name), list[Note]()
        try:
            got = returned_by(name, lambda model, ask=ask, notes=notes: notes.extend(ask(model)), model)  # type: ignore[misc]
        except fxdebug.FxDebugError as error:
            assert REFUSED.get((name, probe), "not expected") in str(error), probe
            continue
        assert left(model) == clean, probe
        assert TOLD.get((name, probe), "") in " ".join(note.what for note in notes), probe
        if probe not in ("weights", "shadow"):  # which runs no model, or a copy in another dtype
            assert torch.equal(got, plain), probe


def returned_by(name: str, ask: Callable[[nn.Module], object], model: nn.Module | None = None) -> Tensor:
    """What the first forward returns of a model that is asked something."""
    RETURNED.clear()
    model = awkward(name) if model is None else model
    torch.manual_seed(1)
    ask(model)
    return RETURNED[0] if RETURNED else torch.zeros(())
