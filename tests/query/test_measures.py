"""The numbers of a run by the names of their measures, and measures of reports that are attached to it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

import fxdebug
from fxdebug import UsageError, fx_debug, plugins
from fxdebug.data.measures import CALL, MEASURES, OPERATION, PARAMETER, quantity, register, scale
from fxdebug.data.report import ReportData
from fxdebug.query.measures import number_of, number_of_all
from support.trees import Does

NOISE = register("test.noise", "s", "a number of this test", [CALL, OPERATION, PARAMETER], adds=True)
LEVEL = register("test.level", "", "a number of this test that does not add up", [CALL])


def model(width: int = 4) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*[nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(3)], nn.Linear(width, 2))


@pytest.fixture(scope="module")
def trace() -> fxdebug.Trace:
    return fx_debug(model(), torch.ones(2, 4))


def report(measures: dict[str, dict[str, float]], subject: str = "Sequential", **more: Any) -> ReportData[Any]:
    return ReportData("noise", subject, (), measures=measures, settings={"repeats": 2}, **more)


def test_every_run_has_numbers_of_tensors_parameters_and_durations(trace: fxdebug.Trace) -> None:
    call = trace["0.0"]
    names = ("numel", "ndim", "requires_grad", "bytes", "params", "trainable", "flops", "macs", "zeros")
    assert [trace.number(name, call) for name in names] == [8, 2, True, 32, 20, 20, 64, 32.0, 0]
    assert trace.number("duration", call) == call.duration
    assert trace.number("bytes", call.inputs[0]) == 32 and trace.number("bytes", trace.parameters[0]) == 64
    assert trace.number("absmax", trace.node("0.1#0/relu")) == trace["0.1"].outputs[0].stats.absmax
    assert trace.number("duration", trace.node("0.1#0/relu")) is None


def test_numbers_are_by_the_ids_of_calls_and_operations_and_the_names_of_parameters(trace: fxdebug.Trace) -> None:
    assert list(trace.numbers("params").items())[:3] == [("Sequential#0", 70), ("0#0", 20), ("0.0#0", 20)]
    numbers = trace.numbers("numel")
    assert [numbers[id] for id in ("Sequential#0", "3#0/linear", "3.weight")] == [4, 4, 8]
    assert trace.numbers("flops") == fxdebug.flops(trace).measures["flops"]


def test_repeated_layers_are_summed_pooled_averaged_and_shared_parameters_count_once(trace: fxdebug.Trace) -> None:
    layers = [trace[str(i)] for i in range(3)]
    assert number_of_all(trace, layers, "params") == 60 and number_of_all(trace, layers, "bytes") == 96
    assert number_of_all(trace, layers, "ndim") == 2 and number_of_all(trace, layers, "count") == 24
    assert number_of_all(trace, layers, "max") == max(layer.outputs[0].stats.max for layer in layers)
    cell = nn.Linear(3, 3)
    shared = fx_debug(Does(lambda self, x: self.cell(self.cell(self.cell(x))), cell=cell), torch.ones(1, 3))
    assert number_of_all(shared, shared.find("cell"), "params") == 12


def test_a_report_is_attached_by_path_number_and_operation(trace: fxdebug.Trace) -> None:
    numbers = {"Sequential#0": 3.0, "0.0#0": 1.0, "0.0#0/linear": 0.5, "3.weight": 0.25}
    mine = trace.with_measures(report({"test.noise": numbers}))
    assert mine.numbers("test.noise") == numbers and mine.taken["test.noise"].by == "noise, repeats 2"
    assert mine.measures["test.noise"] is NOISE and "test.noise" not in trace.measures
    assert mine.number("test.noise", mine.parameters[-2]) == 0.25 and mine.number("test.noise", mine["1"]) is None
    assert mine.notes == trace.notes and mine != trace and replace(mine) == mine
    assert mine["0.0"].parent is mine["0"] and trace["0.0"].parent is trace["0"]


def test_a_profile_of_another_run_fits_a_saved_one(tmp_path: Any) -> None:
    fx_debug(model(), torch.ones(2, 4), save=tmp_path)
    again = model()
    profile = fxdebug.profile(again, torch.ones(5, 4), repeats=2, peak=False)
    trace = fxdebug.load(tmp_path).with_measures([profile, fxdebug.memory(again, torch.ones(5, 4))])
    assert {"time.self", "time.total", "memory.peak", "memory.saved_for_backward"} <= trace.measures.keys()
    assert len(trace.find(where="time.self > 0")) == len(trace.calls) and trace.ops("linear", where="time.self < 1000s")
    whole = sum(number for id, number in trace.numbers("time.self").items() if "/" not in id)
    assert math.isclose(whole, trace.numbers("time.total")["Sequential#0"], rel_tol=0.02)


def test_places_that_the_run_does_not_have_are_told(trace: fxdebug.Trace) -> None:
    numbers = {"Sequential#0": 1.0, "9#0": 2.0, "0.0#0/gelu": 3.0, "0.0#1": 4.0}
    (note,) = trace.with_measures(report({"test.noise": numbers})).notes
    assert note.what == "noise has numbers of 3 places not in this run: 9#0, 0.0#0/gelu, 0.0#1"


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (report({"test.noise": {"Net#0": 1.0}}, "Net"), "noise is of Net, and this run is of Sequential"),
        (report({}), "noise takes no measures: there is nothing to attach"),
        (report({"test.noise": {"a#0": 1.0}}), r"fits nothing in this run: it is of a#0; this run has Sequential#0, 0"),
        (
            fxdebug.flops(fx_debug(nn.Sequential(nn.Linear(4, 4)), torch.ones(1, 4))),
            "flops is of another model: 0#0 is a Linear there, a Sequential here",
        ),
    ],
)
def test_a_report_of_another_model_is_an_error(trace: fxdebug.Trace, made: ReportData[Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        trace.with_measures(made)


def test_a_module_of_the_models_name_is_not_mistaken_for_the_root() -> None:
    does = Does(lambda self, x: self.Does(x), Does=nn.ReLU())
    trace = fx_debug(does, torch.ones(2))
    mine = trace.with_measures(fxdebug.flops(trace))
    assert mine.numbers("flops.self").keys() == {"#0", "Does#0", "Does#0/relu"}


def test_a_measure_that_the_run_does_not_have_is_an_error_with_the_nearest(trace: fxdebug.Trace) -> None:
    for ask in (trace.numbers, lambda name: trace.number(name, trace.root)):
        with pytest.raises(UsageError, match=r"no measure 'parms'. Did you mean 'params'\? It has count, mean"):
            ask("parms")
    with pytest.raises(UsageError, match="flops needs operations, and this run has none: trace it with graph=True"):
        fx_debug(nn.ReLU(), torch.ones(1), graph=False).numbers("flops")


def test_a_measure_has_one_meaning() -> None:
    assert register("test.level", "", LEVEL.about, [CALL]) == LEVEL == MEASURES["test.level"]
    with pytest.raises(UsageError, match=r"a measure .test\.level. with another meaning: a number of this test"):
        register("test.level", "s", "another", [CALL])


def test_numbers_are_shown_in_the_unit_that_fits() -> None:
    assert [quantity(x, "s") for x in (0, 1e-12, 4.2e-8, 0.9996, 61.0)] == ["0 s", "0.001 ns", "42 ns", "1 s", "61 s"]
    assert [quantity(x, "B") for x in (0, 1023, 1024, 1 << 60)] == ["0 B", "1023 B", "1 KiB", "1024 PiB"]
    assert scale(0, "s") == ("s", 1.0) and scale(2.5e9, "FLOP/s") == ("GFLOP/s", 1e9) and scale(3, "%") == ("%", 1.0)


def test_a_sum_in_which_a_number_is_missing_is_not_known(trace: fxdebug.Trace) -> None:
    noisy = trace.with_measures(report({NOISE.name: {"0#0": 1.0, "1#0": 2.0}, LEVEL.name: {"0#0": 1.0, "1#0": 2.0}}))
    layers = [noisy[str(i)] for i in range(3)]
    assert number_of_all(noisy, layers[:2], NOISE.name) == 3 and number_of_all(noisy, layers, NOISE.name) is None
    assert number_of_all(noisy, layers, LEVEL.name) == 1.5  # a mean is one of what is known


def test_sizes_of_ragged_tensors_are_those_of_their_elements_and_of_sparse_ones_unknown() -> None:
    ragged = torch.nested.nested_tensor([torch.ones(2, 4), torch.ones(5, 4)], layout=torch.jagged)
    trace = fx_debug(Does(lambda self, x: x * 2), ragged)
    assert [trace.number(name, trace.root.outputs[0]) for name in ("numel", "bytes")] == [28, 112]
    trace = fx_debug(Does(lambda self, x: x.to_sparse()), torch.eye(3))
    assert [trace.number(name, trace.root) for name in ("numel", "bytes")] == [9, None]
    assert "bytes: n/a of tensors that are sparse or of unknown length" in trace.text(width=80, columns="bytes")


def test_numbers_by_the_id_of_a_root_call_are_attached() -> None:
    trace = fxdebug.fx_debug(torch.nn.Sequential(torch.nn.Linear(2, 3)), torch.ones(1, 2))
    register("depth_of_a_test", "", "calls around a call", [CALL])
    numbers = {call.id: float(call.depth) for call in trace.calls}
    found = trace.with_measures(
        plugins.report("depths", trace, [{"call": "0#0"}], measures={"depth_of_a_test": numbers})
    )
    assert found.notes == trace.notes
    assert [number_of(found, call, "depth_of_a_test") for call in found.calls] == [0.0, 1.0]


def test_a_measure_whose_name_would_be_read_as_a_statistic_is_refused() -> None:
    with pytest.raises(UsageError, match="would be read as the statistic 'zeros' of an output"):
        register("output.zeros", "%", "zeros of a result", ["call"])


def test_the_answer_of_a_report_stands_first() -> None:
    trace = fxdebug.fx_debug(torch.nn.Linear(2, 3), torch.ones(1, 2))
    made = fxdebug.Report.of(plugins.report("widths", trace, [{"call": "#0"}], answer="all is wide"))
    assert str(made).splitlines()[0] == "all is wide"
