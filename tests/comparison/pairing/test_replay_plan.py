"""The plan of an isolated run: the values of a that replace those of b, call by call."""

from __future__ import annotations

import torch
from torch import nn

from fxdebug import compare_models, fx_debug
from fxdebug.comparison.compare_traces import pair_traces
from fxdebug.comparison.pairing.replay_plan import replay_plan
from support.blocks import model, run


def test_every_paired_call_but_the_root_gets_the_inputs_and_outputs_of_its_partner():
    a, b = run(model(), values="tensors"), run(model())
    plan = replay_plan(pair_traces(a, b))
    inner = a.calls[1:]
    assert plan.inputs == {(call.path, call.number): dict(call.inputs.named()) for call in inner}
    assert plan.outputs == {(call.path, call.number): dict(call.outputs.named()) for call in inner}


def test_nothing_is_planned_without_the_tensors_of_a():
    plan = replay_plan(pair_traces(run(model()), run(model())))
    assert not any([*plan.inputs.values(), *plan.outputs.values()])


class Adds(nn.Module):
    def forward(self, total, x):
        return total.add_(x)


class Accumulates(nn.Module):
    def __init__(self):
        super().__init__()
        self.adds = Adds()

    def forward(self, x):
        total = torch.zeros_like(x)
        self.adds(total, x)
        return total


def test_memory_that_a_call_writes_to_is_not_replaced():
    a, b = (fx_debug(Accumulates(), torch.ones(2, 3), values="tensors") for _ in range(2))
    plan = replay_plan(pair_traces(a, b))
    assert list(plan.inputs["adds", 0]) == ["args[1]"]


class Fused(nn.BatchNorm2d):
    """A norm with its activation, as in timm."""

    def forward(self, x):
        return torch.relu(super().forward(x))


def test_calls_of_one_name_that_end_at_other_steps_are_left_as_they_are():
    def net(norm, act):
        torch.manual_seed(0)
        parts = [("conv", nn.Conv2d(3, 4, 3)), ("norm", norm(4)), ("act", act()), ("head", nn.Conv2d(4, 2, 3))]
        made = nn.Sequential()
        for name, part in parts:
            made.add_module(name, part)
        return made.eval()

    x = torch.randn(2, 3, 8, 8)
    apart, fused = net(nn.BatchNorm2d, nn.ReLU), net(Fused, nn.Identity)
    assert compare_models(apart, fused, x).equal and compare_models(fused, apart, x).equal
    wrong = net(Fused, nn.Identity)
    wrong.norm.eps = 0.5
    assert compare_models(apart, wrong, x).first.path == "norm"
    left_out = net(nn.BatchNorm2d, nn.Identity)
    assert not compare_models(apart, left_out, x).equal and not compare_models(fused, left_out, x).equal
