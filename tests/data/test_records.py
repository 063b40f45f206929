"""Records are frozen and small; what they say of themselves holds."""

from __future__ import annotations

import dataclasses
import importlib
import math
import pkgutil
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

import fxdebug
import fxdebug.data
from fxdebug.data.calls import Call
from fxdebug.data.findings import number_as_json
from fxdebug.data.measured.gradients import norm_of
from fxdebug.data.trace import trace_of
from fxdebug.data.values import Sharding, Stats, Value
from fxdebug.errors import UsageError

GATHERED = {"Timings", "OpTiming", "RegionTiming"}  # filled while a profile runs


WITHOUT_SLOTS = {"Call", "Padded", "ReportData", "RuleBook", "RuleSpec", "Surroundings", "TraceData", "Units"}


def records() -> Iterator[type[Any]]:
    """Yield every dataclass of the room."""
    for found in pkgutil.walk_packages(fxdebug.data.__path__, "fxdebug.data."):
        module = importlib.import_module(found.name)
        for thing in vars(module).values():
            if isinstance(thing, type) and dataclasses.is_dataclass(thing) and thing.__module__ == found.name:
                yield thing


@pytest.mark.parametrize("kind", list(records()), ids=lambda kind: kind.__name__)
def test_a_record_is_frozen(kind: Any) -> None:
    assert kind.__dataclass_params__.frozen != (kind.__name__ in GATHERED)


def test_records_have_slots_but_those_that_remember_something() -> None:
    assert {kind.__name__ for kind in records() if "__slots__" not in vars(kind)} == WITHOUT_SLOTS


def test_fields_that_a_value_may_lack_have_their_plain_defaults() -> None:
    value = Value(3, (2, 5), "float32", "cpu")
    assert (value.layout, value.offset, value.type, value.requires_grad) == ("strided", 0, "Tensor", False)
    assert value.numel == 10 and value.label == "float32[2, 5]"
    assert repr(value) == "<value 3 float32[2, 5]>"
    assert repr(dataclasses.replace(value, stats=Stats(10, 0.5, 1.0, -1.0, 2.0, 2.0))).endswith(" mean 0.5>")


def test_finite_elements_are_those_that_are_neither_nan_nor_infinite() -> None:
    stats = Stats(10, 0.5, 1.0, -1.0, 2.0, 2.0)
    assert (stats.nan, stats.posinf, stats.neginf, stats.zeros, stats.finite) == (0, 0, 0, 0, 10)
    assert dataclasses.replace(stats, nan=1, posinf=2, neginf=3).finite == 4


@pytest.mark.parametrize(
    ("placements", "said"),
    [
        (("R",), ""),
        (("P(sum)",), "partial sum"),
        (("P()",), "partial sum"),
        (("S(0)", "P(avg)"), "local shard of 6×4, partial avg"),
        (("P(max)", "P(max)"), "partial max"),
    ],
)
def test_a_sharding_says_what_the_local_part_is(placements: tuple[str, ...], said: str) -> None:
    assert str(Sharding((6, 4), (4, 1), (2,) * len(placements), None, placements)) == said


def test_numbers_for_json_are_text_where_they_are_not_finite_and_pairs_where_they_are_complex() -> None:
    assert [number_as_json(number) for number in (3, 0.5, None, True)] == [3, 0.5, None, True]
    assert number_as_json(math.inf) == "inf" and number_as_json(math.nan) == "nan"
    assert number_as_json(complex(1, math.inf)) == [1.0, "inf"]


def test_the_norm_of_elements_that_are_not_finite_is_nan_or_infinite() -> None:
    stats = Stats(3, 1.0, 0.0, 1.0, 1.0, 1.0)
    assert norm_of(stats) == pytest.approx(3**0.5)
    assert math.isnan(norm_of(dataclasses.replace(stats, nan=1, posinf=1)))
    assert norm_of(dataclasses.replace(stats, posinf=1)) == math.inf
    assert norm_of(Stats(0, None, None, None, None, None)) == 0.0


def test_a_call_knows_its_trace_and_one_without_says_so() -> None:
    trace = fxdebug.fx_debug(nn.Sequential(nn.ReLU()), torch.ones(2))
    call = trace.find("0")[0]
    assert trace_of(call) == trace and call.parent is not None and call.parent.id == "#0"
    alone = dataclasses.replace(call)
    assert isinstance(alone, Call) and alone.parent is None and alone.notes == () and alone.body is None
    with pytest.raises(UsageError, match=r"call 0#0 belongs to no trace"):
        trace_of(alone)


def test_never_called_are_modules_without_a_call_but_not_plain_containers() -> None:
    model = nn.Module()
    model.parts = nn.ModuleList([nn.ReLU(), nn.Linear(2, 2)])
    model.forward = lambda x: model.parts[0](x)
    assert fxdebug.fx_debug(model, torch.ones(2)).never_called == ("parts.1",)
