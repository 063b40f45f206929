"""Records are frozen and small; what they say of themselves holds."""

from __future__ import annotations

import dataclasses
import importlib
import math
import pickle
import pkgutil
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

import fxdebug
import fxdebug.data
import fxdebug.features.shared.records
from fxdebug.data.calls import Call
from fxdebug.data.findings import Finding, at_root_of, number_as_json, value_as_json
from fxdebug.data.measures import UNITS
from fxdebug.data.trace import trace_of
from fxdebug.data.values import Group, Sharding, Stats, Value, pooled, sample_positions
from fxdebug.errors import NotFound, UsageError
from fxdebug.features.shared.records.distributions import Distribution
from fxdebug.features.shared.records.gradients import norm_of

GATHERED = {"Timings", "OpTiming", "RegionTiming"}  # filled while a profile runs


# What is so wherever a record does not say otherwise; all else that it does not say is none, empty, zero or false.
USUAL = {
    "Call": {"method": "forward", "origin": "registered", "grad": True},
    "Column": {"shown": True},
    "Distribution": {"exact": True},
    "LearningFacts": {"first_scale": 1.0, "last_scale": 1.0, "alone": True, "called": True, "kept": 1.0},
    "LossFacts": {"factor": 1.0},
    "Op": {"grad": True},
    "Parameter": {"persistent": True},
    "ReportData": {"ranked": True, "folds": True},
    "StepSigns": {"training": True, "scale": 1.0},
    "Surroundings": {"device": "cpu", "threads": 1, "cores": 1},
    "Threshold": {"settable": True},
    "Value": {"layout": "strided", "type": "Tensor"},
}
WITHOUT_SLOTS = {"Call", "Padded", "ReportData", "RuleBook", "RuleSpec", "Surroundings", "TraceData", "Units"}


def records() -> Iterator[type[Any]]:
    """Yield every dataclass of the room, and of the records that features measure."""
    names = [
        found.name
        for room in (fxdebug.data, fxdebug.features.shared.records)
        for found in pkgutil.walk_packages(room.__path__, f"{room.__name__}.")
    ]
    for name in (*names, "fxdebug.features.profile.wasted.surroundings"):
        for thing in vars(importlib.import_module(name)).values():
            if isinstance(thing, type) and dataclasses.is_dataclass(thing) and thing.__module__ == name:
                yield thing


@pytest.mark.parametrize("kind", list(records()), ids=lambda kind: kind.__name__)
def test_a_record_is_frozen(kind: Any) -> None:
    assert kind.__dataclass_params__.frozen != (kind.__name__ in GATHERED)


@pytest.mark.parametrize("kind", list(records()), ids=lambda kind: kind.__name__)
def test_what_a_record_does_not_say_is_none_empty_zero_or_false(kind: Any) -> None:
    missing = dataclasses.MISSING
    given = {
        field.name: field.default if field.default is not missing else field.default_factory()
        for field in dataclasses.fields(kind)
        if field.default is not missing or field.default_factory is not missing
    }
    said = {name: default for name, default in given.items() if default and not _is_default(default)}
    said.pop("_output", None)  # a value that stands for no output
    assert said == USUAL.get(kind.__name__, {})


def _is_default(record: object) -> bool:
    """Is it a record that says nothing?"""
    return dataclasses.is_dataclass(record) and record == type(record)()


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


def test_a_call_without_a_trace_has_no_graph_and_can_be_pickled() -> None:
    call = fxdebug.fx_debug(nn.Sequential(nn.ReLU()), torch.ones(2)).find("0")[0]
    assert (call.status, call.reason, call.guards, len(call.graph.ops)) == ("verified", "", (), 3)
    alone = pickle.loads(pickle.dumps(call))
    assert alone == call
    assert (alone.status, alone.reason, alone.guards, alone.graph) == (None, "", (), None)


def test_statistics_of_parts_taken_together_are_those_of_the_whole() -> None:
    torch.manual_seed(0)
    whole = 3 * torch.randn(40, dtype=torch.float64) + 7
    parts = [_stats(part) for part in whole.split([3, 30, 7])]
    together, right = pooled(parts), _stats(whole)
    assert dataclasses.astuple(together) == pytest.approx(dataclasses.astuple(right), rel=1e-12)
    assert pooled([Stats(2, None, None, None, None, None, nan=2)]) == Stats(2, None, None, None, None, None, nan=2)


def _stats(x: torch.Tensor) -> Stats:
    low, high = float(x.min()), float(x.max())
    return Stats(x.numel(), float(x.mean()), float(x.std()), low, high, max(abs(low), abs(high)))


def test_a_distribution_knows_its_finite_elements_its_largest_and_its_median() -> None:
    empty = Distribution(9, 1, 2, 3, 0)
    assert (empty.finite, empty.absmax, empty.median) == (3, None, None)
    known = dataclasses.replace(empty, min=-4.0, max=1.0, quantiles=(0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0))
    assert (known.absmax, known.median) == (4.0, 3.0)


def test_a_value_is_sampled_where_every_version_samples_it() -> None:
    places = [34, 90, 180, 236, 270, 326, 416, 472, 562, 618, 652, 708, 798, 854, 888, 944]
    assert sample_positions(1000) == places and sample_positions(16) == list(range(16))


def test_values_for_json_have_what_a_tensor_is_and_its_statistics() -> None:
    value = Value(3, (2,), "float32", "cpu", name="w", stats=Stats(2, 0.5, 1.0, 0.0, math.inf, math.inf, posinf=1))
    assert value_as_json(None) is None
    assert value_as_json(value) == {
        "dtype": "float32", "shape": [2], "name": "w", "count": 2, "mean": 0.5, "std": 1.0, "min": 0.0, "max": "inf",
        "absmax": "inf", "nan": 0, "posinf": 1, "neginf": 0, "zeros": 0,
    }  # fmt: skip
    part = dataclasses.replace(value, stats=None, sharding=Sharding((4,), (1,), (2,), None, ("S(0)",)))
    assert value_as_json(part) == {"dtype": "float32", "shape": [2], "name": "w", "part": "local shard of 4"}


def test_a_finding_about_the_run_itself_is_named_by_the_model() -> None:
    one = Finding("rule", "error", "", "#0", "op", "is wrong")
    assert [each.call for each in at_root_of("Net", [one, dataclasses.replace(one, call="a#0")])] == ["Net#0", "a#0"]
    assert str(dataclasses.replace(one, node="a#0/add", source="m.py:3")) == "error: a#0/add: is wrong (m.py:3)"
    assert one.kind == "rule" and one.as_json()["inputs"] == [] and one.as_json()["output"] is False


def test_items_of_a_container_are_found_by_position_or_key() -> None:
    named, plain = Group("mapping", "dict", (1, 2), ("a", "b")), Group("sequence", "list", (1, 2))
    assert named["b"] == 2 and plain[-1] == 2
    assert repr(plain) == "Group(kind='sequence', type='list', items=(1, 2))"
    deep: Any = 1
    for _ in range(100_000):
        deep = Group("sequence", "list", (deep,))
    assert repr(deep) == "Group(kind='sequence', type='list', items=(Group(…),))"
    with pytest.raises(NotFound, match="'c'"):
        named["c"]


def test_units_have_their_prefixes() -> None:
    kept = ("s", "us", "%", "KiB", "PiB", "kB", "PB", "MB/s", "GFLOP", "EFLOP")
    assert {name: UNITS.get(name) for name in kept} == {
        "s": (1.0, "s"), "us": (1e-6, "s"), "%": (1.0, "%"), "KiB": (1024.0, "B"), "PiB": (1024.0**5, "B"),
        "kB": (1000, "B"), "PB": (1000**5, "B"), "MB/s": (1000**2, "B/s"),
        "GFLOP": (1e9, "FLOP"), "EFLOP": (1e18, "FLOP"),
    }  # fmt: skip
