"""A loop inside of one autocast computes with the casts of its first weights: the verdict names that, or is silent."""

from __future__ import annotations

import contextlib

import pytest
import torch
from torch import Tensor, nn

import fxdebug
from fxdebug.features.training.verdict.judge import Verdict

X = torch.randn(64, 8, generator=torch.Generator().manual_seed(1))
Y = X.sum(1, keepdim=True)


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 1))


def trained(
    model: nn.Module, *, outer: bool = False, inner: bool = False, cache: bool = True, clears: bool = False
) -> Verdict:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)

    def block(on: bool) -> contextlib.AbstractContextManager[object]:
        return torch.autocast("cpu", torch.bfloat16, cache_enabled=cache) if on else contextlib.nullcontext()

    with fxdebug.watch(model, optimizer, every=10, save=None) as watched, block(outer):
        for _ in range(30):
            with block(inner):
                loss = (model(X) - Y).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if clears:
                torch.clear_autocast_cache()
    verdict: Verdict = watched.verdict()
    return verdict


def test_a_loop_inside_of_one_autocast_uses_the_first_weights() -> None:
    verdict = trained(net(), outer=True)
    assert verdict.rule == "outdated weights"
    assert verdict.sentence.startswith(
        "the forward does not use the weights of now: under autocast 0, 2 return something else than their weights "
        "make of the input"
    )


@pytest.mark.parametrize(
    "options",
    [{}, {"inner": True}, {"outer": True, "clears": True}, {"outer": True, "cache": False}],
    ids=["no autocast", "for each forward", "cleared", "no cache"],
)
def test_weights_of_now_are_silent(options: dict[str, bool]) -> None:
    assert "outdated weights" not in [one.rule for one in trained(net(), **options).findings]


def test_a_layer_with_another_forward_is_not_judged() -> None:
    model = net()
    first = model[0]
    assert isinstance(first, nn.Linear)
    weight = first.weight

    def scaled(x: Tensor) -> Tensor:
        return 3 * nn.functional.linear(x, weight)

    first.forward = scaled  # type: ignore[method-assign]
    assert "outdated weights" not in [one.rule for one in trained(model, inner=True).findings]


def test_of_two_runs_with_the_same_result_of_other_weights_the_cache_is_told() -> None:
    model = net()
    with torch.autocast("cpu", torch.bfloat16):
        before = fxdebug.fx_debug(model, X)
        with torch.no_grad():
            model[0].weight.mul_(2)
        after = fxdebug.fx_debug(model, X)
    found = fxdebug.compare(before, after).first
    assert found is not None and (found.path, found.kind) == ("0", "weights")
    assert found.because.startswith("0.weight holds other numbers than that of a, and the result is the same")
    assert "autocast keeps in its cache" in found.because
    with torch.autocast("cpu", torch.bfloat16):
        fresh = fxdebug.fx_debug(model, X)
    assert fxdebug.compare(before, fresh).verdict == "different"
