"""A backward that computes a part of the forward again: told where it draws other random numbers, and only there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import fxdebug

torch.manual_seed(7)
X, Y = torch.randn(12, 8), torch.randint(0, 3, (12,))


class Again(torch.autograd.Function):
    """A checkpoint of one's own, which keeps the state of the generator, or does not."""

    @staticmethod
    def forward(ctx: Any, run: Callable[[Tensor], Tensor], keeps: bool, x: Tensor, *weights: Tensor) -> Tensor:
        ctx.run, ctx.state, ctx.weights = run, torch.get_rng_state() if keeps else None, weights
        ctx.save_for_backward(x)
        with torch.no_grad():
            return run(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        x = ctx.saved_tensors[0].detach().requires_grad_()
        if ctx.state is not None:  # and the state of now is not put back
            torch.set_rng_state(ctx.state)
        with torch.enable_grad():
            result = ctx.run(x)
        return (None, None, *torch.autograd.grad(result, (x, *ctx.weights), grads))


class Drawing(nn.Module):
    """A block that draws without a module for it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(32, 32)

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(self.layer(x), 0.5, self.training)


class Net(nn.Module):
    def __init__(self, how: str, block: nn.Module | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.how, self.enter, self.leave = how, nn.Linear(8, 32), nn.Linear(32, 3)
        self.block = block or nn.Sequential(nn.Linear(32, 32), nn.Dropout(0.5), nn.Linear(32, 32))

    def forward(self, x: Tensor) -> Tensor:
        h = self.enter(x)
        if self.how == "plain":
            h = self.block(h)
        elif self.how.startswith("own"):
            h = Again.apply(self.block, self.how == "own, keeps", h, *self.block.parameters())
        else:
            reentrant, keeps = "reentrant" in self.how, "keeps" in self.how
            h = checkpoint(self.block, h, use_reentrant=reentrant, preserve_rng_state=keeps)
        result: Tensor = self.leave(h)
        return result


def loss(output: Tensor) -> Tensor:
    return F.cross_entropy(output, Y)


def findings(model: nn.Module) -> list[str]:
    return [f"{one.rule}: {one.what}" for one in fxdebug.gradients(model, X, loss).findings]


@pytest.mark.parametrize("how", ["own", "loses", "reentrant, loses"])
def test_a_recomputation_that_draws_other_numbers_is_an_error(how: str) -> None:
    (found,) = findings(Net(how))
    assert found == (
        "recomputed otherwise: in the backward, as block is computed again, block.1 (Dropout) draws other random "
        "numbers than in the forward: the gradients are not those of the loss"
    )
    assert any(one.rule == "recomputed otherwise" for one in fxdebug.check(Net(how), X, loss))


def test_the_innermost_module_that_draws_is_named() -> None:
    (found,) = findings(Net("loses", Drawing()))
    assert "in the backward block (Drawing) draws other random numbers" in found


@pytest.mark.parametrize("how", ["plain", "own, keeps", "keeps", "reentrant, keeps"])
def test_the_same_numbers_are_silent(how: str) -> None:
    assert findings(Net(how)) == []


@pytest.mark.parametrize("how", ["own", "loses", "reentrant, loses"])
def test_a_recomputation_without_draws_is_silent(how: str) -> None:
    assert findings(Net(how).eval()) == []
    assert findings(Net(how, nn.Sequential(nn.Linear(32, 32), nn.Tanh()))) == []


def test_a_module_that_draws_and_is_not_recomputed_is_silent() -> None:
    assert findings(nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 3))) == []


def test_two_steps_are_told_with_the_recomputation_that_is_behind_them() -> None:
    answer = fxdebug.compare_gradients(Net("plain"), Net("loses"), X, loss).answer
    said = "in the backward of b block.1 (Dropout) draws other random numbers than in its forward; "
    assert answer.startswith(f"{said}5 of 8 parameters differ")
    assert not fxdebug.compare_gradients(Net("plain"), Net("keeps"), X, loss).findings


def test_gradients_and_random_numbers_are_as_without_the_report() -> None:
    model = Net("keeps")
    state = torch.get_rng_state()
    fxdebug.gradients(model, X, loss)
    assert torch.equal(state, torch.get_rng_state()) and model.enter.weight.grad is None


def test_a_batch_norm_that_is_recomputed_moves_its_statistics_again_which_is_advice() -> None:
    block = nn.Sequential(nn.Linear(32, 32), nn.BatchNorm1d(32))
    (finding,) = fxdebug.gradients(Net("keeps", block), X, loss).findings
    assert (finding.rule, finding.severity, finding.path) == ("recomputed otherwise", "advice", "block.1")
    assert finding.what == (
        "in the backward, computed again, block.1 (BatchNorm1d) moves its running statistics once more: "
        "in evaluation the model returns something else than one that is not computed again"
    )
    frozen = nn.Sequential(nn.Linear(32, 32), nn.BatchNorm1d(32).eval())
    for quiet in (Net("plain", block), Net("keeps", frozen)):
        assert findings(quiet) == []
