"""What a run, its calls and its values say of themselves."""

from __future__ import annotations

import copy
import math
import pickle
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import nn

import fxdebug
from fxdebug.data.calls import Code, Parameter
from fxdebug.data.measures import UNITS, counted, quantity, scale
from fxdebug.data.rules import RuleBook, RuleSpec, Threshold
from fxdebug.data.trace import TraceData
from fxdebug.data.values import (
    UNKNOWN,
    Group,
    Inputs,
    Outputs,
    Sharding,
    Stats,
    Thing,
    Value,
    as_item,
    numbers,
    shape_text,
)
from fxdebug.errors import LoadError, NotFound, UsageError
from fxdebug.features.shared.records.gradients import TensorGradient


@dataclass(frozen=True)
class _Limits:
    most: int = 4


class Fails(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise ValueError("planted")


class Deep(nn.Module):
    """Calls a module with a module in it, with an argument by name and a dict as result."""

    def __init__(self, last: nn.Module) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.ReLU(), nn.Identity())
        self.last = last

    def forward(self, x: torch.Tensor, *, scale: float) -> Any:
        return {"y": self.inner(x) * scale, "n": [self.last(x), 3, True, "text"]}


def run(last: nn.Module | None = None, **options: Any) -> fxdebug.Trace:
    return fxdebug.fx_debug(Deep(last or nn.Tanh()), torch.ones(2), kwargs={"scale": 2.0}, **options)


@pytest.fixture(scope="module")
def raised() -> fxdebug.Trace:
    with pytest.raises(ValueError, match="planted"):
        run(Fails())
    found = fxdebug.last_failed()
    assert found is not None
    return found


def test_a_run_says_how_large_it_is_and_what_it_raised(raised: fxdebug.Trace) -> None:
    assert repr(run()) == "<trace of Deep: 5 calls, 4 values>"
    assert repr(raised) == "<trace of Deep: 5 calls, 3 values, raised ValueError>"
    assert raised.error is not None and raised.error.type == "ValueError" and run().error is None
    assert repr(TraceData("Net", ())) == "<trace of Net: 0 calls, 0 values>"


def test_a_call_says_what_it_returned_or_that_it_raised(raised: fxdebug.Trace) -> None:
    assert repr(raised.find("last")[0]) == "<call last#0 Fails → raised>"
    assert repr(run().find("last")[0]) == "<call last#0 Tanh → float32[2]>"
    many = replace(run().root, outputs=Outputs(Group("sequence", "list", tuple(run().values) * 2)))
    assert repr(many) == f"<call #0 Deep → {', '.join(['float32[2]'] * 3)} and 5 more>"


def test_calls_are_walked_downwards_in_order_and_upwards_from_the_innermost() -> None:
    trace = run()
    assert [call.id for call in trace.root.walk()] == ["#0", "inner#0", "inner.0#0", "inner.1#0", "last#0"]
    assert [call.id for call in trace.find("inner.1")[0].with_ancestors()] == ["inner.1#0", "inner#0", "#0"]
    assert trace.root.parent is None and trace.find("last")[0].children == ()


def test_a_run_is_equal_to_its_copy_and_to_itself_from_a_pickle_and_to_nothing_else() -> None:
    trace = run()
    assert copy.copy(trace) == trace == pickle.loads(pickle.dumps(trace))
    assert trace != replace(trace, model="Other") and trace != 3
    assert len(trace.graphs) == len(trace.call_graphs.graphs) > 1
    assert run(graph=False).graphs == () and run(graph=False).call_graphs is None


def test_a_pickled_run_has_the_lines_it_names_and_no_live_objects() -> None:
    trace = run(values="tensors")
    again = pickle.loads(pickle.dumps(trace))
    assert again.named_lines() == trace.named_lines() != {}
    assert again.find("inner")[0].source in again.source_lines
    with pytest.raises(UsageError, match="holds no output"):
        _ = again.output
    assert trace.output["n"][1] == 3


def test_data_that_was_not_kept_says_how_to_keep_it() -> None:
    plain, kept = run(), run(values="tensors")
    with pytest.raises(LoadError, match=r"of value 0 \(float32\[2\]\) was not kept: run with values='tensors'"):
        plain.tensor(plain.values[0])
    assert kept.tensor(kept.root.inputs[0]).tolist() == [1.0, 1.0]
    with pytest.raises(LoadError, match="only inputs and outputs of module calls are kept"):
        kept.tensor(replace(kept.values[0], saved=None))


def test_a_graph_runs_again_where_the_model_is_at_hand() -> None:
    trace = run()
    assert trace.find("last")[0].fx(torch.zeros(2)).tolist() == [0.0, 0.0]
    for lost, why in ((run(graph=False).root, "graph=False"), (replace(trace.root), "belongs to no trace")):
        with pytest.raises(UsageError, match=why):
            _ = lost.fx
    with pytest.raises(UsageError, match="this trace was loaded"):
        _ = pickle.loads(pickle.dumps(trace)).root.fx


def test_code_is_shown_as_lines() -> None:
    code = run().find("last")[0].code
    assert isinstance(code, Code) and repr(code) == str(code) and "tanh" in code
    assert run(graph=False).root.code == ""


def test_a_parameter_has_a_shape_over_all_ranks_and_none_before_a_lazy_module_ran() -> None:
    plain = Parameter(("w", "tied"), "parameter", (2, 3), "float32", "cpu", True, storage=1)
    assert (plain.name, plain.whole_shape, plain.elements) == ("w", (2, 3), 6)
    part = replace(plain, sharding=Sharding((4, 3), (3, 1), (2,), None, ("S(0)",)))
    assert (part.whole_shape, part.elements) == ((4, 3), 12)
    lazy = replace(plain, shape=(), storage=None)
    assert lazy.elements is None
    assert (replace(lazy, device="meta").elements, replace(lazy, storage=1).elements) == (1, 1)


def test_tensors_of_arguments_and_results_are_found_by_slot_and_position() -> None:
    root = run().root
    assert root.inputs.slots == ("args[0]",) and root.outputs.slots == ("y", "n[0]")
    assert root.outputs["n[0]"] is root.outputs[1] and root.outputs[-2] is root.outputs["y"]
    assert len(root.outputs) == 2 and list(root.outputs) == [root.outputs[0], root.outputs[1]]
    assert numbers(root.outputs.item) == {"n[1]": 3, "n[2]": True, "n[3]": "text"}
    assert root.inputs.kwargs == {"scale": 2.0}
    for key, why in ((2, "no tensor 2 here: there are 2"), (-3, "no tensor -3"), ("z", "no tensor in slot 'z'")):
        with pytest.raises(NotFound, match=why):
            _ = root.outputs[key]
    assert Inputs() == Inputs((), {}) and Outputs(math.nan) != Outputs(1.0) and Outputs() != 3
    assert Outputs(as_item(math.nan)) == Outputs(as_item(float("nan")))


def test_items_of_objects_have_slots_but_their_numbers_are_not_told() -> None:
    value = Value(0, (2,), "float32", "cpu")
    inside = Group("object", "Out", (value, 5), ("logits", "odd key"))
    item = Group("mapping", "dict", (inside, 1.5), ("out", 3))
    assert [slot for slot, _ in Outputs(item).named()] == ["out.logits"]
    assert numbers(item) == {"[3]": 1.5}
    assert Outputs(Group("object", "Out", (value,), ("odd key",))).slots == ("['odd key']",)


def test_long_integers_are_kept_as_text() -> None:
    assert as_item(2**1999) == 2**1999 and isinstance(as_item(2**2000), Thing)
    assert as_item(True) is True and as_item("x") == "x"


def test_sizes_that_are_not_known_are_a_question_mark() -> None:
    assert shape_text((2, UNKNOWN)) == "2×?" and shape_text(()) == "·"
    assert Value(0, (2, UNKNOWN), "int64", "cpu").label == "int64[2, ?]"


def test_the_mean_size_of_a_gradient_does_not_grow_with_its_elements() -> None:
    stats = Stats(4, 3.0, 0.0, 3.0, 3.0, 3.0)
    assert TensorGradient(6.0, stats, 0, "float32").rms == 3.0
    assert TensorGradient(0.0, replace(stats, count=0), 0, "float32").rms == 0.0


def test_quantities_have_three_digits_and_the_prefix_that_fits() -> None:
    shown = [quantity(n, "B") for n in (0, 1, 1023, 1023.6, 1024, 0.9995 * 2**20, 2**50, 2**60)]
    assert shown == ["0 B", "1 B", "1023 B", "1 KiB", "1 KiB", "1 MiB", "1 PiB", "1024 PiB"]
    shown = [quantity(n, "s") for n in (0, 3600, 1.0, 0.9995, 0.9994, 1e-6, 1e-12)]
    assert shown == ["0 s", "3600 s", "1 s", "1 s", "999 ms", "1 µs", "0.001 ns"]
    assert [quantity(n) for n in (9999.4, 12345.0, -0.5, -math.inf)] == ["9999", "1.23e+04", "-0.5", "-Inf"]
    assert [quantity(n, "FLOP") for n in (999.4, 999.6, -2e9)] == ["999 FLOP", "1 kFLOP", "-2 GFLOP"]
    assert scale(5.0, "%") == ("%", 1.0) and counted(0, "call") == "0 calls"
    assert UNITS["ms"] == (1e-3, "s")


def test_rules_and_thresholds_are_named_by_their_analysis() -> None:
    book = RuleBook(
        "widths", (RuleSpec("wide", "error", "is wide", "most"),), limits=_Limits, about={"most": ("B", "b", "c")}
    )
    first, last = book.every_rule()
    assert (first.id, first.thresholds, last.name, last.severity) == (
        "widths.wide",
        ("widths.most",),
        "not looked at",
        "warning",
    )
    assert book.settable() == [Threshold("widths.most", 4, "B", "b", "c")]
    assert RuleBook("widths", ()).settable() == []
