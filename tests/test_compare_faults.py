"""The bench of planted faults: each is named, and in pairs that compute the same nothing is found.

The bench itself is tested, too: every fault changes what the model returns, every equal pair does not.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from faults.bench import EQUAL, FAULTS
from faults.case import Pair


def _results(pair: Pair) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    inputs_b = pair.inputs if pair.inputs_b is None else pair.inputs_b
    with torch.no_grad():
        return [
            _tensors(model(**{name: x.clone() if isinstance(x, torch.Tensor) else x for name, x in inputs.items()}))
            for model, inputs in ((pair.a, pair.inputs), (pair.b, inputs_b))
        ]  # type: ignore[return-value]


def _tensors(result: Any) -> list[torch.Tensor]:
    """The logits or states, and what was pooled of them."""
    if isinstance(result, torch.Tensor):
        return [result]
    if isinstance(result, tuple):
        return list(result)
    names = ("logits",) if "logits" in result else ("last_hidden_state", "pooler_output")
    return [result[name] for name in names]


def test_at_least_fifty_faults_are_planted_and_many_of_them_in_ports():
    places = [fault.place for fault in FAULTS.values()]
    assert len(places) >= 50
    assert places.count("port") >= len(places) * 0.4


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_changes_what_the_model_returns(name):
    a, b = _results(FAULTS[name].build())
    error = max(((x - y).norm() / x.norm()).item() if x.shape == y.shape else 1.0 for x, y in zip(a, b))
    assert not error < 2e-5, error  # thirty times what the order of additions makes; or NaN


@pytest.mark.parametrize("name", EQUAL)
def test_an_equal_pair_returns_the_same(name):
    a, b = _results(EQUAL[name].build())
    tolerance = 5e-2 if "bfloat16" in name else 1e-5
    for x, y in zip(a, b, strict=True):
        assert ((x - y).norm() / x.norm()).item() < tolerance
