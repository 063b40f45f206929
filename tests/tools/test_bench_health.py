"""``tools/bench_health.py``: a sample of it, and what makes a case fail."""

from __future__ import annotations

from types import ModuleType

import pytest

FAULTS = [
    "encoder frozen by mistake", "unused head", "learning rate 100 times too high", "poisoned batch at step 7",
    "dead ReLU unit", "outlier channel", "attention sink", "mask that lets padding through",
    "layers in a plain list", "head in no optimizer", "optimizer of another model", "a layer that returns only zeros",
    "learning rate of 0", "loss overflows float16 at step 7", "sigmoid stack of 10 layers",
    "one weight drawn 3 times too wide",
]  # fmt: skip


def test_bench_health_finds_nothing_in_healthy_training(tool: ModuleType) -> None:
    case = tool.healthy("LSTM, 2 layers, sequences", 60)
    assert case.right, case.found


@pytest.mark.parametrize("name", FAULTS)
def test_bench_health_names_a_planted_fault(tool: ModuleType, name: str) -> None:
    case = tool.fault(name)
    assert case.right, case.found


def test_bench_health_has_no_other_faults_and_counts_one_that_is_not_named(tool: ModuleType) -> None:
    assert sorted(FAULTS) == sorted(tool.FAULTS)
    tool.FAULTS["unseen"] = (lambda: (), "vanishing", "", "")
    assert not tool.fault("unseen").right
