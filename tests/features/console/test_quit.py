"""A session that is quit leaves everything as it was: the model, what it holds, its inputs, hooks, threads."""

from __future__ import annotations

import array
import copy
import random
import threading
from collections import deque
from typing import Any

import pytest
import torch
from torch import nn

from fxdebug import api
from fxdebug.features.console import all_commands
from fxdebug.features.console.live import LiveMachine
from fxdebug.features.console.session import Session

assert all_commands.__all__


class Log:
    """An object of the program's, with attributes and a slot."""

    __slots__ = ("__dict__", "last")

    def __init__(self) -> None:
        self.rows: list[float] = []
        self.last = 0


class Writer(nn.Module):
    """Writes to everything that it can reach."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.other, self.swapped = nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2)
        self.register_buffer("count", torch.zeros(()))
        self.plain = torch.zeros(2)  # no buffer
        self.log, self.rows, self.seen, self.last = Log(), [1, [2]], {1, 2}, deque([1])
        self.by_name: dict[str, Any] = {"a": {"b": 1}}
        self.numbers, self.draws = array.array("d", [1.0]), random.Random(0)
        self.generator = torch.Generator().manual_seed(3)
        self.layer.register_forward_hook(lambda module, args, out: None)

    def forward(self, x: torch.Tensor, cache: Any) -> torch.Tensor:
        with torch.no_grad():
            self.layer.weight.data = self.layer.weight.data * 2
            self.layer.bias.data.add_(1)
            self.other.weight.mul_(3)
            self.other.bias.requires_grad_(False)
            self.count += 1
            self.plain[0] = 5
            x += torch.rand(2, generator=self.generator)
        cache.rows.append(x)
        cache.state.zero_()
        self.log.rows.append(1.5)
        self.log.last = 9
        self.rows[1].append(3)
        self.rows.pop(0)
        self.seen.clear()
        self.last.append(random.random())
        self.by_name["a"]["b"] = 2
        self.by_name["new"] = x
        self.numbers[0] = self.draws.random()
        self.layer.register_forward_hook(lambda module, args, out: out)
        self.swapped = nn.Identity()
        self.other.extra = nn.Parameter(torch.ones(1))
        return self.layer(self.other(x))


class Cache:
    def __init__(self) -> None:
        self.rows: list[torch.Tensor] = []
        self.state = torch.ones(2)


def held(module: Writer, inputs: tuple[Any, ...]) -> Any:
    """Everything that the module and its inputs hold: objects by identity, and what they contain."""
    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers()), "plain": module.plain}
    x, cache = inputs
    return copy.deepcopy(
        (
            [{name: id(content) for name, content in vars(each).items()} for each in module.modules()],
            [list(each._forward_hooks) for each in module.modules()],
            {name: (id(t), t.data_ptr(), t.requires_grad, t.tolist()) for name, t in tensors.items()},
            (module.log.rows, module.log.last, module.rows, module.seen, module.last, module.by_name),
            (module.numbers.tolist(), module.draws.getstate(), module.generator.get_state().tolist()),
            (x.tolist(), [row.tolist() for row in cache.rows], cache.state.tolist()),
            (torch.get_rng_state().tolist(), random.getstate()),
            (threading.stack_size(), torch.is_grad_enabled(), [thread.name for thread in threading.enumerate()]),
        )
    )


class Quit:
    """A live session on a ``Writer``, and what everything was before it."""

    def __init__(self) -> None:
        self.module, self.inputs = Writer(), (torch.zeros(2), Cache())
        self.before = held(self.module, self.inputs)
        self.machine = LiveMachine(api.paused_run(self.module, self.inputs))
        self.written: list[str] = []
        self.session = Session(self.machine, self.written.append)


@pytest.mark.parametrize("lines", [[], ["step 12"], ["continue layer"], ["continue layer", "finish"]])
def test_what_the_forward_wrote_is_put_back_wherever_the_session_is_quit(lines: list[str]) -> None:
    run = Quit()
    for line in [*lines, "quit"]:
        run.session.run_line(line)
    assert held(run.module, run.inputs) == run.before
    assert torch.equal(run.module.layer.weight, Writer().layer.weight)


@pytest.mark.parametrize(
    "line",
    [
        "print self.weight.data.zero_()",
        "print self.weight.detach().numpy().shape",
        "print model.rows.append(3)",
        "print model.other.register_forward_pre_hook(print)",
        "print setattr(model, 'training', False)",
        "print setattr(self.weight, 'data', torch.zeros(2, 2))",
        "set input = input + self.bias.data.fill_(7)",
        "set args[0] = model.plain.mul_(0) + input",
        "break addmm if self.weight.data.add_(1).sum() > 1e9",
        "watch self.bias.data.add_(1).sum()",
        "replay layer",
        "ablate layer",
    ],
)
def test_what_a_typed_line_wrote_is_put_back(line: str) -> None:
    run = Quit()
    for each in ["continue other", line, "step 2", "quit"]:
        run.session.run_line(each)
    assert held(run.module, run.inputs) == run.before


def test_a_run_that_has_ended_is_left_as_the_forward_left_it() -> None:
    run = Quit()
    for line in ["continue", "quit"]:
        run.session.run_line(line)
    assert run.module.by_name["a"]["b"] == 2 and run.inputs[0].sum() > 0 and len(run.inputs[1].rows) == 1
    assert isinstance(run.module.swapped, nn.Identity) and run.module.plain[0] == 5


def test_a_lazy_module_stays_what_it_became() -> None:
    layer = nn.LazyLinear(2)
    session = Session(LiveMachine(api.paused_run(layer, torch.ones(1, 3))), lambda text: None)
    for line in ["step 2", "quit"]:
        session.run_line(line)
    assert type(layer) is nn.Linear and layer(torch.ones(1, 3)).shape == (1, 2)
