"""Tensors that Python makes of others without any operation: each run has another object, in the same memory."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from fxdebug import fx_debug
from fxdebug.errors import UsageError
from support.reasons import reason_of

X = torch.arange(6.0).reshape(2, 3)


class Holds(nn.Module):
    """Has a buffer, a weight and a tensor in a dict; its forward is ``body``."""

    def __init__(self, body: Callable[[Any, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.body = body
        self.register_buffer("table", torch.ones(3, 3))
        self.weight = nn.Parameter(torch.eye(3))
        self.store = {"weight": torch.full((3, 3), 2.0)}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(self, x)


def of_buffer(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x @ nn.Parameter(self.table)


def of_weight(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x @ nn.Parameter(self.weight, requires_grad=False)


def of_store(self: Any, x: torch.Tensor) -> torch.Tensor:
    weight = nn.Parameter(self.store["weight"], requires_grad=False)
    return x @ weight + weight.sum()


def two_of_one(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x @ nn.Parameter(self.table, requires_grad=False) + x @ nn.Parameter(self.table, requires_grad=False)


def on_meta(self: Any, x: torch.Tensor) -> torch.Tensor:
    gone = nn.Parameter(self.weight.to("meta"))
    assert gone.to("meta").shape == (3, 3)
    return x @ self.weight


BODIES = (of_buffer, of_weight, of_store, two_of_one, on_meta)


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("body", BODIES)
def test_they_are_verified_and_the_graph_runs_on_other_inputs(body: Any, grad: bool) -> None:
    model = Holds(body).eval()
    with torch.set_grad_enabled(grad):
        call = fx_debug(model, X).calls[0]
        assert call.status == "verified"
        for x in (X, torch.randn(5, 3)):
            assert torch.equal(call.fx(x), model(x))


def replaced(model: Any) -> None:
    model.table = torch.randn(3, 3)
    model.weight = nn.Parameter(torch.randn(3, 3))
    model.store["weight"] = torch.randn(3, 3)


def moved(model: Any) -> None:
    model.table.data, model.weight.data = torch.randn(3, 3), torch.randn(3, 3)
    model.store["weight"].data = torch.randn(3, 3)


@pytest.mark.parametrize("change", [replaced, moved])
@pytest.mark.parametrize("body", [of_buffer, of_weight, of_store, two_of_one])
def test_the_graph_is_refused_once_they_would_lie_elsewhere(body: Any, change: Callable[[Any], None]) -> None:
    model = Holds(body).eval()
    call = fx_debug(model, X).calls[0]
    assert call.status == "verified"
    change(model)
    with pytest.raises(UsageError, match="it does something else"):
        call.fx(X)


def test_the_graph_has_the_new_numbers_in_the_same_memory() -> None:
    model = Holds(of_buffer).eval()
    call = fx_debug(model, X).calls[0]
    model.load_state_dict({"table": torch.randn(3, 3), "weight": torch.eye(3)})
    assert torch.equal(call.fx(X), model(X))


def test_one_of_memory_of_its_own_is_recorded() -> None:
    model = Holds(lambda self, x: x @ torch.from_numpy(self.table.numpy().copy()))
    fresh = Holds(lambda self, x: x @ nn.Parameter(torch.zeros(3, 3), requires_grad=False))
    assert [fx_debug(each, X).calls[0].status for each in (model, fresh)] == ["recorded", "recorded"]
    assert reason_of(fx_debug(model, X).calls[0])


def test_a_buffer_that_the_run_replaced_is_not_taken_for_one_made_anew() -> None:
    def counts(self: Any, x: torch.Tensor) -> torch.Tensor:
        self.table = self.table + 1
        return x * 2

    call = fx_debug(Holds(counts), X).calls[0]
    assert (call.status, reason_of(call)[0]) == (
        "recorded",
        "since it ran, table was replaced by another tensor, in add",
    )


def moved_only(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x.to("meta")


def moved_and_used(self: Any, x: torch.Tensor) -> torch.Tensor:
    gone = x.to("meta")
    return gone * 2 + gone.sum()


def moved_inside(self: Any, x: torch.Tensor) -> list[torch.Tensor]:
    return [x * 2, (x @ self.weight).to(device="meta")]


@pytest.mark.parametrize("body", [moved_only, moved_and_used, moved_inside])
def test_what_is_moved_to_meta_is_the_operation_s_result_and_no_constant(body: Any) -> None:
    x = X.clone().requires_grad_()
    call = fx_debug(Holds(body), x).root
    assert call.status == "verified" and call.code is not None
    assert "_tensor_constant" not in call.code
    for given in (x, torch.ones(5, 3, requires_grad=True)):
        made = call.fx(given)
        moved = made[-1] if isinstance(made, list) else made
        assert (moved.device.type, moved.requires_grad) == ("meta", True)
        assert moved.shape == (() if moved.dim() == 0 else given.shape)


def test_what_torch_imports_when_it_is_needed_first_counts_as_no_change_of_the_body() -> None:
    program = """
import sys, torch, fxdebug

class Moves(torch.nn.Module):
    def forward(self, x):
        return x.to("meta")

call = fxdebug.fx_debug(Moves(), torch.ones(2)).root
print(call.status, call.fx(torch.ones(3)).shape)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("verified torch.Size([3])\n", "")
