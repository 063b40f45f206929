"""What the native core notes of operations: entry for entry, and value for value, what Python notes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

import fxdebug
from fxdebug.capture.tape.call_tape import CallTape
from fxdebug.capture.tape.tape_mode import Tape
from fxdebug.capture.tensors.nested_items import without_addresses
from fxdebug.native import core, dispatch


class Body(nn.Module):
    """A module whose forward is a function of it and of its input, with a weight and a child."""

    def __init__(self, run: Callable[[Any, Tensor], Any]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.run = run
        self.child = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.weight = nn.Parameter(torch.randn(4, 4))

    def forward(self, x: Tensor) -> Any:
        return self.run(self, x)


class Doubling(TorchFunctionMode):
    """A mode of the program's own, which calls a function more."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        return result * 2 if func is torch.relu else result


def writes_in_place(module: Any, x: Tensor) -> Tensor:
    y = x + 1
    part = y[0]
    y.mul_(2)  # `part` has another value now
    part.add_(1)
    return (y + part).relu_()


def is_refused(module: Any, x: Tensor) -> Tensor:
    assert Tensor.__add__(x, object()) is NotImplemented
    with contextlib.suppress(RuntimeError):
        x @ torch.ones(3, 3)
    return x.exp()


def under_a_mode(module: Any, x: Tensor) -> Tensor:
    with Doubling():
        return torch.relu(x) + 1


def in_autocast(module: Any, x: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return module.child(x).float()


def shares_with_numpy(module: Any, x: Tensor) -> Tensor:
    y = x.detach() * 2
    y.numpy()[0] = 3.0
    return y + 1


def norms_in_turn(module: Any, x: Tensor) -> Tensor:
    mean, variance = module.norm.running_mean, module.norm.running_var
    x = F.batch_norm(x, mean, variance)
    x = F.batch_norm(x, mean, variance, training=True)
    x = x + mean  # written to by the line before
    x = F.batch_norm(x, running_mean=mean, running_var=variance, training=True, momentum=0.5)
    x = F.instance_norm(x[..., None], mean, variance, use_input_stats=False)[..., 0] + variance
    return torch.batch_norm(x, None, None, mean, variance, True, 0.1, 1e-5, False) + mean


def norms_without_statistics(module: Any, x: Tensor) -> Tensor:
    x = F.batch_norm(x, None, None, training=True)
    return F.instance_norm(x[None])[0] + F.batch_norm(x, None, None, module.norm.weight, training=True)


BODIES: dict[str, Callable[[Any, Tensor], Any]] = {
    "a child and a weight": lambda module, x: module.child(x) @ module.weight,
    "containers": lambda module, x: torch.cat([x, x[1:, ::2].repeat(1, 2), torch.stack((x, x))[0]]),
    "keywords": lambda module, x: F.softmax(x, dim=-1, dtype=torch.float64).sum(dim=(0, 1), keepdim=True),
    "several results": lambda module, x: [part * 2 for part in x.split(1)] + list(x.topk(2)),
    "iteration": lambda module, x: sum(row * 2 for row in x),
    "a result that is an argument": lambda module, x: F.dropout(x, 0.5, training=False).contiguous() + 1,
    "writes": writes_in_place,
    "numbers": lambda module, x: x * float(x.sum() > 0) + x.numel() * x.shape[0],
    "sizes": lambda module, x: x.view(x.size()).reshape(x.shape[0], -1).expand(3, *x.shape),
    "views of weights": lambda module, x: x + module.weight.t()[0] + module.weight.data[1],
    "running statistics": lambda module, x: module.norm(x),
    "running statistics that are only read": lambda module, x: module.eval().norm(module.norm(x)),
    "norms that write to their statistics, and norms that do not": norms_in_turn,
    "norms without running statistics": norms_without_statistics,
    "attention": lambda module, x: F.scaled_dot_product_attention(x[None], x[None], x[None]),
    "what is refused": is_refused,
    "a mode of the program": under_a_mode,
    "autocast": in_autocast,
    "memory of numpy": shares_with_numpy,
    "an empty tensor, and integers": lambda module, x: (x[:0].sum(), torch.arange(4) // 2, x > 0),
}


@pytest.fixture(scope="module")
def build() -> ModuleType:
    found = core.loaded()
    if found.module is None:
        pytest.skip(f"no build of the native core is in use: {found.why}")
    return found.module


def noted(name: str, build: ModuleType | None) -> Any:
    module, x = Body(BODIES[name]), torch.linspace(-1.0, 1.0, 12).view(3, 4)
    with dispatch.using(build):
        trace = fxdebug.fx_debug(module, x)
    source: Any = trace.graph_source
    tapes = source._tape.call_tapes
    entries = [
        [
            (
                type(entry.what).__name__,
                getattr(entry.what, "__name__", ""),
                without_addresses(repr((entry.args, entry.kwargs, entry.out))),
                entry.context,
                None if entry.line is None else entry.line.text(),
                entry.changed,
                [(tensor_id, value.number) for tensor_id, value in entry.writes],
                [value.number for value in entry.values],
            )
            for entry in tape.entries
        ]
        for tape in tapes.values()
    ]
    values = [replace(value, stats=None) for value in trace.values]
    calls = [replace(call, duration=0.0, inputs=None, outputs=None) for call in trace.calls]
    statuses = [(call.status, call.reason) for call in trace.call_graphs.bodies]
    return entries, values, calls, trace.notes, statuses


@pytest.mark.parametrize("gradients", [False, True], ids=["without gradients", "with gradients"])
@pytest.mark.parametrize("name", BODIES)
def test_the_core_notes_what_python_notes(name: str, gradients: bool, build: ModuleType) -> None:
    with torch.set_grad_enabled(gradients):
        assert noted(name, build) == noted(name, None)


def test_a_norm_that_only_reads_its_running_statistics_stays_in_the_core(
    build: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = []

    def note(self: Tape, tape: CallTape, func: Any, *args: Any) -> None:
        left.append(func.__name__)

    monkeypatch.setattr(Tape, "_note", note)
    norms = nn.Sequential(nn.BatchNorm1d(4).eval(), nn.InstanceNorm1d(4), nn.BatchNorm1d(4, track_running_stats=False))
    with dispatch.using(build):
        fxdebug.fx_debug(norms, torch.rand(3, 4, 5))
    assert left == []
    with dispatch.using(build):
        fxdebug.fx_debug(norms.train(), torch.rand(3, 4, 5))
    assert left == ["add_", "batch_norm"]  # of the number of batches, in place; of mean and variance
