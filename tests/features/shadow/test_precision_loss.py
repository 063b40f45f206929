"""The same run with wider numbers: where digits are lost."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import fxdebug
from support.bodies import Body
from support.numerics_cases import bert, gpt2, mlp


def test_s4_the_twin_finds_cancellation_at_the_subtraction():
    shadow = fxdebug.shadow(Body(lambda x: ((x + 1e4) - 1e4) * 2), torch.linspace(-1, 1, 101))
    assert [(f.kind, f.op) for f in shadow.findings] == [("cancellation", "sub")]
    assert shadow.worst.op == "sub" and shadow.worst.inherited < 1e-7 < 1e-5 < shadow.worst.error
    assert shadow.worst.ratio < 1e-4 and shadow.error > 1e-5
    assert "sub" in str(shadow) and "cancel" in str(shadow)


def test_the_twin_finds_a_variance_of_squares_less_the_square_of_the_mean():
    def norm(x):
        variance = (x * x).mean(-1, keepdim=True) - x.mean(-1, keepdim=True) ** 2
        return (x - x.mean(-1, keepdim=True)) / (variance + 1e-5).sqrt()

    torch.manual_seed(0)
    shadow = fxdebug.shadow(Body(norm), torch.randn(4, 64) + 500)
    assert [(f.kind, f.op) for f in shadow.findings] == [("cancellation", "sub")]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=lambda dtype: str(dtype)[6:])
def test_s4_healthy_models_lose_no_digits(dtype):
    for build in (mlp, gpt2, bert):
        model, inputs = build()
        inputs = inputs.to(dtype) if isinstance(inputs, torch.Tensor) else inputs
        shadow = fxdebug.shadow(model.to(dtype), inputs)
        assert shadow.findings == () and shadow.notes == ()
        assert shadow.error < 4 * torch.finfo(dtype).eps and len(shadow.rows) > 10


def test_the_twin_leaves_model_inputs_and_process_alone():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.runs = nn.BatchNorm1d(4), 0

        def forward(self, x):
            self.runs += 1
            return self.norm(x.add_(1))

    model, x = Counting().train(), torch.randn(3, 4)
    state, given, draws = {k: v.clone() for k, v in model.state_dict().items()}, x.clone(), torch.get_rng_state()
    fxdebug.shadow(model, x)
    assert model.runs == 0 and torch.equal(x, given) and torch.equal(torch.get_rng_state(), draws)
    assert all(torch.equal(state[name], tensor) for name, tensor in model.state_dict().items())
    assert torch.get_default_dtype() is torch.float32


def test_a_twin_that_goes_another_way_is_said_so():
    def branching(x):
        return x * 3 if bool((x + 1e8 - 1e8).sum() == 0) else torch.relu(x)

    shadow = fxdebug.shadow(Body(branching), torch.full((4,), 0.25))
    assert any("a branch on a value" in note.what for note in shadow.notes)


def test_a_twin_that_cannot_run_is_a_clear_error():
    outside = nn.Linear(3, 3)
    with pytest.raises(fxdebug.UsageError, match="the float64 twin of Body cannot run"):
        fxdebug.shadow(Body(lambda x: outside(x)), torch.ones(2, 3))


def test_a_twin_that_has_numbers_where_the_run_has_none_differs_infinitely():
    class Squares(nn.Module):
        def forward(self, x):
            return (x * x).sum()

    shadow = fxdebug.shadow(Squares(), torch.tensor([300.0, 2.0]).half())
    assert shadow.error == math.inf
    assert [finding.op for finding in shadow.findings] == ["mul"]
