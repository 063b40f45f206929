"""Conditions on statistics, as text."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import fxdebug
from fxdebug import UsageError, fx_debug
from fxdebug.query.measures import STATISTICS
from fxdebug.query.where import Subject, compile_condition
from support.trees import Does


@pytest.mark.parametrize(
    ("line", "holds"),
    [
        ("count == 6", True), ("numel == 6 and ndim == 2", True), ("nan", True), ("not nan", False), ("inf == 2", True),
        ("posinf == neginf == 1", True), ("zeros == 1", True), ("-3 < min < max", True), ("absmax > 2 ** 3", False),
        ("mean > 1e300 * 1e300", False), ("std / 0 > 1", False), ("finite < count", True), ("requires_grad", False),
        ("(nan + inf) / count >= 0.5", True), ("absmax > 9 ** 9 ** 9 ** 9", False),
    ],
)  # fmt: skip
def test_a_line_is_arithmetic_over_statistics(line, holds):
    trace = fx_debug(Does(lambda self, x: x * 1), torch.tensor([[math.nan, math.inf, -1], [-math.inf, 2, 0]]))
    subject = Subject(outputs=trace.root.outputs)
    assert (compile_condition(line).match(subject) is not None) is holds


def test_a_fact_that_is_not_known_makes_its_comparison_false():
    trace = fx_debug(Does(lambda self, x: x * 1), torch.ones(2, device="meta"))
    outputs = Subject(outputs=trace.root.outputs)

    def holds(line):
        return compile_condition(line).match(outputs) is not None

    assert [name for name in STATISTICS if holds(f"{name} > 0") or holds(f"{name} <= 0")] == []
    assert holds("numel == 2") and not holds("input.numel > 0") and not holds("duration > 0")


class Scaled(nn.Module):
    """A module with a parameter and a buffer of its own, and one below."""

    def __init__(self):
        super().__init__()
        self.scale, self.inner = nn.Parameter(torch.tensor([2.0, 70.0])), nn.Linear(2, 2)
        self.register_buffer("shift", torch.tensor([-9.0, 0.0]))

    def forward(self, x, mask):
        return torch.relu(self.inner(x) * self.scale + self.shift + mask)


@pytest.fixture(scope="module")
def scaled(tmp_path_factory):
    def forward(self, x):
        mask = torch.full((2,), -math.inf)
        return self.a(x, mask) + self.b(x, torch.zeros(2))

    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("scaled")
    fx_debug(Does(forward, a=Scaled(), b=Scaled()), torch.ones(1, 2), save=folder)
    return fxdebug.load(folder)


@pytest.mark.parametrize(
    ("line", "paths"),
    [
        ("input.neginf > 0", ["a"]),
        ("input.neginf > 0 and not output.neginf", ["a"]),
        ("input.neginf > 0 and neginf > 0", []),
        ("parameter.absmax > 3", ["a", "b"]),
        ("parameter.absmax > 3 and parameter.min < 0", ["a", "b"]),  # the buffer alone; the weight has no negative
        ("parameter.max > 3 and parameter.min < 0", []),  # one and the same parameter
        ("parameter.numel == 4", ["a.inner", "b.inner"]),  # of the module itself, not of those below
        ("input.numel == 2 and parameter.requires_grad and input.max == 1", ["a", "a.inner", "b", "b.inner"]),
        ("duration > 0", ["", "a", "a.inner", "b", "b.inner"]),
        ("duration > 1e9 or input.neginf", ["a"]),
        ("parameter.ndim == 1 and parameter.max == 70 and input.max == 0", ["b"]),
    ],
)
def test_a_line_is_about_inputs_parameters_and_durations_too(scaled, line, paths):
    assert [call.path for call in scaled.find(where=line)] == paths


def test_operations_have_inputs_and_parameters_and_no_duration(scaled):
    assert [node.id for node in scaled.ops(where="parameter.max == 70")] == ["a#0/mul", "b#0/mul"]
    assert [node.id for node in scaled.ops(where="input.neginf > 0")] == ["a#0/add_1", "a#0/relu"]
    assert [node.id for node in scaled.ops("relu", where="input.neginf > neginf")] == ["a#0/relu"]
    with pytest.raises(UsageError, match="operations have no duration; ask calls, with find"):
        scaled.ops(where="duration > 0")


def test_parameters_without_statistics_are_not_an_empty_answer():
    trace = fx_debug(nn.Linear(2, 2), torch.ones(1, 2), weights=False)
    with pytest.raises(UsageError, match="no statistics of its parameters: trace it with weights=True"):
        trace.find(where="parameter.absmax > 3")


@pytest.mark.parametrize("line", ["inptu.nan > 0", "input.nam > 0", "parameters.max > 0", "input.output.max > 1"])
def test_a_wrong_name_is_an_error_with_the_right_ones(scaled, line):
    with pytest.raises(UsageError, match=r"use .*parameter\.") as raised:
        scaled.find(where=line)
    near = {"inptu.nan > 0": "'input.nan'", "input.nam > 0": "'input.nan'", "parameters.max > 0": "'parameter.max'"}
    assert near.get(line, "") in str(raised.value)


@pytest.mark.parametrize(
    ("line", "holds"),
    [
        ("duration > 1ms", True), ("duration > 1 ms", True), ("duration > 2.1ms", False), ("duration < .1s", True),
        ("1us < duration < 1e3ms", True), ("duration == 2000µs", True), ("duration > -1s", True),
        ("bytes == 24B", True), ("bytes < 1KiB and bytes < 1kB", True), ("2 * bytes > 0.04kB", True),
        ("duration * 2 > 3ms", True), ("bytes / duration > 1", True), ("numel > 3 or duration > 5s", True),
    ],
)  # fmt: skip
def test_numbers_have_units(line, holds):
    trace = fx_debug(Does(lambda self, x: x * 1), torch.ones(2, 3))
    subject = Subject(outputs=trace.root.outputs, number=lambda name: 0.002)
    assert (compile_condition(line).match(subject) is not None) is holds


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("duration > 1MiB", "duration is in s, and 1MiB is not"),
        ("3ms < bytes", "bytes is in B, and 3ms is not"),
        ("nan > 5%", "nan has no unit, and 5% is not"),
        ("input.bytes > -1ms", "input.bytes is in B, and -1ms is not"),
        ("duration > 1 parsec", "is not an expression"),
        ("duration > quantity('1', 'parsec')", "use comparisons of count"),
        ("duration > quantity('x', 'ms')", "is not an expression"),
        ("duration > 1ms(2)", "is not an expression"),
        ("time.slef > 1ms", "there is no 'time.slef'; use count, .* or of a call or operation duration, params"),
        ("input.duration > 1", "there is no 'input.duration'"),
        ("time.self > 1ms", "this run has no 'time.self'"),
    ],
)
def test_a_unit_of_another_kind_or_an_unknown_one_is_an_error(scaled, line, message):
    with pytest.raises(UsageError, match=message):
        scaled.find(where=line)


def test_a_line_asks_for_flops_and_for_what_only_calls_have(scaled):
    assert [call.path for call in scaled.find(where="flops >= 8 and params > 6")] == ["", "a", "b"]
    assert {node.op for node in scaled.ops(where="macs > 1")} == {"linear"}
    with pytest.raises(UsageError, match="operations have no params; ask calls, with find"):
        scaled.ops(where="params > 1")


def test_what_is_not_known_is_found_neither_by_a_line_nor_by_its_opposite():
    def holds(line, number):
        return compile_condition(line).match(Subject(number=lambda name: number)) is not None

    lines = ("duration > 1", "not duration > 1", "not (duration > 1 and params > 1)", "duration != 1", "not duration")
    assert [holds(line, None) for line in lines] == [False] * 5
    assert [holds(line, 0.5) for line in lines] == [False, True, True, True, False]
    assert holds("duration > 1 or 2 > 1", None) and not holds("duration > 1 and 2 > 1", None)
    assert holds("not (duration > 1 and 1 > 2)", None)
