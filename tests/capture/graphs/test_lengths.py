"""Sizes that Python gets by ``len(x)``, or by operators on integers, stay symbolic: graphs hold for other batches."""

from __future__ import annotations

import copy
import math
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from fxdebug import fx_debug
from support.bodies import Body

BODIES: dict[str, Callable[[torch.Tensor], Any]] = {
    "arange": lambda x: x[torch.arange(len(x)).flip(0)] + torch.arange(len(x))[:, None],
    "a shape": lambda x: x.new_full((len(x), 4), 2.0) + x,
    "in a method's argument": lambda x: torch.ones(1, 4).repeat(len(x), 1) * x,
    "expand": lambda x: torch.cat([torch.ones(1, 4).expand(len(x), -1), x], 1),
    "arithmetic": lambda x: x.reshape(len(x) * 2, -1).view(-1, len(x[0]) // 2),
    "of a result": lambda x: torch.ones(len(x.t() @ x), len(x)) @ x,
    "abs": lambda x: x * abs(-len(x)),
    "divmod": lambda x: x * divmod(x.shape[0] * 7, 3)[1],
    "bits": lambda x: x * ((x.shape[0] << 1) | 1) + (x.shape[0] & 3) + (x.shape[0] ^ 1) + (64 >> x.shape[0]),
    "power": lambda x: x * x.shape[0] ** 2,
    "round": lambda x: x * round(x.shape[0]) * math.floor(x.shape[0]) + math.ceil(x.shape[0]) + math.trunc(len(x)),
}


@pytest.mark.parametrize("name", BODIES)
def test_a_graph_holds_for_another_batch(name: str) -> None:
    model = Body(BODIES[name])
    call = fx_debug(model, torch.randn(3, 4)).root
    assert (call.status, call.reason) == ("verified", "")
    for rows in (3, 5, 1):
        x = torch.randn(rows, 4)
        assert torch.equal(call.fx(x), model(x)) and torch.equal(copy.copy(call.fx)(x), model(x))


class Asks(nn.Module):
    """Asks in a function of its file for the length of a tensor, and of what is none."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return scaled(x, [1, 2])


def scaled(x: torch.Tensor, numbers: list[int]) -> torch.Tensor:
    return x * len(x) * len(numbers) * len(x.shape) * len("text")


def test_functions_in_the_file_of_a_module_find_sizes_too() -> None:
    model, x = Asks(), torch.randn(5, 4)
    assert torch.equal(fx_debug(model, torch.randn(3, 4)).root.fx(x), model(x))


def test_a_length_is_an_assumption_where_python_decides_by_it() -> None:
    call = fx_debug(Body(lambda x: x * 2 if len(x) < 4 else x), torch.randn(3, 4)).root
    assert call.status == "verified" and call.reason.startswith("3 < 4 is True")


def fails(x: torch.Tensor) -> torch.Tensor:
    x.numpy()
    return x * len(x)


@pytest.mark.parametrize("body", [BODIES["arange"], fails])
def test_nothing_is_left_in_the_file_afterwards(body: Any) -> None:
    names = list(globals())
    assert fx_debug(Body(body), torch.randn(3, 4)).root.status
    assert list(globals()) == names and "len" not in vars(torch.nn)


def test_a_len_of_the_program_s_own_is_left_alone() -> None:
    file = types.ModuleType("lengths_of_its_own")
    exec("def len(x): return x.shape[-1]\ndef body(x): return x * len(x)", vars(file))
    own, x = file.len, torch.randn(5, 4)
    call = fx_debug(Body(file.body), torch.randn(3, 4)).root
    assert torch.equal(call.fx(x), x * 4) and file.len is own
