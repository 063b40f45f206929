"""Tensors whose memory the program has given back, as sharded weights: to read them would end the process."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

import fxdebug
from fxdebug import fx_debug
from fxdebug.capture.tensors.parameters import AFFORDABLE
from fxdebug.errors import UsageError
from fxdebug.stats.cpu_sums import is_freed
from fxdebug.stats.measure import Unmeasurable, measure


def freed(count: int, left: int = 0) -> torch.Tensor:
    tensor = torch.ones(count)
    tensor.untyped_storage().resize_(left)
    return tensor


def part_of_freed() -> torch.Tensor:
    whole = torch.ones(100)
    part = whole[20:].view(8, 10).t()
    whole.untyped_storage().resize_(40)
    return part


class Gathers(nn.Module):
    """A weight that is there while it is needed."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4, 4))
        self.weight.untyped_storage().resize_(0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.weight.untyped_storage().resize_(64)
        self.weight.data.fill_(2.0)
        result = x @ self.weight
        self.weight.untyped_storage().resize_(0)
        return result


class Frees(nn.Module):
    def __init__(self, left: int) -> None:
        super().__init__()
        self.left = left

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x * 2
        y.untyped_storage().resize_(self.left)
        return y, x


class Hands(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


CASES = {
    "a weight that is gathered": lambda: (Gathers(), torch.ones(2, 4)),
    "a result that is freed": lambda: (nn.Sequential(Frees(0)), torch.ones(50)),
    "a result of which a part is freed": lambda: (nn.Sequential(Frees(8)), torch.ones(50)),
    "an input that is freed": lambda: (Hands(), freed(100)),
    "an input of which a part is freed": lambda: (Hands(), freed(100, 8)),
    "a part of an input": lambda: (Hands(), part_of_freed()),
}


@pytest.mark.parametrize("values", ["stats", "samples", "repr", "tensors"])
@pytest.mark.parametrize("case", CASES)
def test_memory_that_was_given_back_is_not_read(case, values, tmp_path):
    model, x = CASES[case]()
    with torch.no_grad():
        trace = fx_debug(model, x, values=values, save=tmp_path)
    assert fxdebug.load(tmp_path) == trace and len(trace.calls) == len(list(model.modules()))
    known = [value.stats is not None for value in trace.root.outputs]
    assert known == ([True] if isinstance(model, Gathers) else [False] if isinstance(model, Hands) else [True, True])
    assert any("freed tensor" in str(note) for note in trace.notes) is not isinstance(model, nn.Sequential)
    if isinstance(model, Gathers):
        (weight,) = trace.parameters
        assert (weight.shape, weight.stats) == ((4, 4), None) and trace.output.tolist() == [[8.0] * 4] * 2


@pytest.mark.parametrize("use_repr", [True, False])
@pytest.mark.parametrize("case", [case for case in CASES if "result" not in case])
def test_the_standard_tree_is_written_without_it(case, use_repr, tmp_path):
    model, x = CASES[case]()
    with torch.no_grad(), fxdebug.model_addition_debugger_context(model, str(tmp_path), False, use_repr):
        model(x)
    (tree,) = tmp_path.glob("*_FULL_TENSORS.json")
    assert json.loads(tree.read_text())["module_path"] == type(model).__name__


def test_a_twin_of_weights_that_are_not_there_is_refused():
    with pytest.raises(UsageError, match="weight of Gathers has given its memory back: gather the weights first"):
        fxdebug.shadow(Gathers(), torch.ones(2, 4))


def test_what_is_freed_is_told_by_the_elements_a_tensor_reaches():
    whole = torch.ones(10)
    assert not any(map(is_freed, (whole, whole[5:], whole.expand(100, 10), whole[:0], torch.empty(0), torch.ones(()))))
    reach = {"first": whole[:5], "all": whole, "late": whole[4:6], "beyond": whole[6:], "every other": whole[:6:2]}
    wide = [whole[:1].expand(1000), whole[8:8], whole.expand(3, 10)]
    whole.untyped_storage().resize_(20)  # five elements
    assert {name: is_freed(part) for name, part in reach.items()} == {
        "first": False, "all": True, "late": True, "beyond": True, "every other": False,
    }  # fmt: skip
    assert list(map(is_freed, wide)) == [False, False, True]
    with pytest.raises(Unmeasurable, match="its memory was given back"):
        measure(whole)


class GivesBack(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(AFFORDABLE + 1), requires_grad=False)

    def forward(self, x):
        x = x + self.weight[:2]
        self.weight.untyped_storage().resize_(0)
        return x


def test_a_large_weight_whose_memory_was_given_back_is_as_it_was():
    (weight,) = fxdebug.fx_debug(GivesBack(), torch.ones(2)).parameters
    assert not weight.changed
