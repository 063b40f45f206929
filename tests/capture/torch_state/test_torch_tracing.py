"""While torch itself traces or exports, a recording is as if it were not there; modes of the user's change nothing."""

from __future__ import annotations

import copy
import functools
import re
import subprocess
import sys
import types
import warnings
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import Dim
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv

import fxdebug
from fxdebug import fx_debug

pytestmark = pytest.mark.usefixtures("no_remarks_on_python_3_13_0")


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.norm, self.linear = nn.Conv1d(2, 3, 3), nn.BatchNorm1d(3), nn.Linear(3, 2)
        self.act = nn.Sequential(nn.Linear(2, 2), nn.GELU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(self.linear(self.norm(self.conv(x)).relu().transpose(1, 2))) * x.shape[0]


def without_names(graph: Any) -> str:
    return re.sub(r"___torch_mangle_\d+\.|%[\w.]+|# .*?\n", "", str(graph))


def exported(model: nn.Module, **options: Any) -> str:
    """Without remarks about lines: a strict export has one of ours wherever it went through a wrapper."""
    return re.sub(r"\n *# File:.*|\n *(?=\n)", "", str(torch.export.export(model, (torch.ones(3, 2, 7),), **options)))


WAYS: dict[str, Any] = {
    "jit.trace": lambda m, x: without_names(torch.jit.trace(m, x).inlined_graph),
    "jit.trace and freeze": lambda m, x: without_names(torch.jit.freeze(torch.jit.trace(m, x)).graph),
    "jit.script": lambda m, x: without_names(torch.jit.script(m).inlined_graph),
    "fx": lambda m, x: torch.fx.symbolic_trace(m).code,
    "make_fx": lambda m, x: make_fx(lambda y: m(y))(x).code,
    "make_fx, symbolic": lambda m, x: make_fx(
        lambda y: m(y), tracing_mode="symbolic", _allow_non_fake_inputs=True
    )(x).code,
    "make_fx, early": lambda m, x: make_fx(lambda y: m(y), pre_dispatch=True)(x).code,
    "export": lambda m, x: exported(m),
    "export, strict": lambda m, x: exported(m, strict=True),
    "export, any size": lambda m, x: exported(m, dynamic_shapes={"x": {0: Dim.DYNAMIC, 2: Dim.DYNAMIC}}),
    "compile": lambda m, x: str(torch.compile(m, backend="eager")(x)),
    "quantised": lambda m, x: quantised(m, x),
}  # fmt: skip


def quantised(model: nn.Module, x: torch.Tensor) -> str:
    from torch.ao.quantization import get_default_qconfig_mapping, quantize_fx

    prepared = quantize_fx.prepare_fx(copy.deepcopy(model), get_default_qconfig_mapping(), (x,))
    prepared(x)
    return str(prepared.code)


@functools.cache
def exports_forwards_of_instances() -> bool:
    """Does torch export strictly a model that has, as its child has, a forward of its own? torch 2.8 does not."""
    model = nn.Sequential(nn.Linear(2, 2))
    for module in (model, model[0]):
        module.forward = types.MethodType(lambda self, x: type(self).forward(self, x), module)
    try:
        torch.export.export(model, (torch.ones(1, 2),), strict=True)
    except AssertionError:
        return False
    return True


def skip_what_fails_without_us(way: str) -> None:
    if way == "export, strict" and not exports_forwards_of_instances():
        pytest.skip("without us too, this torch exports no model strictly whose modules have forwards of their own")


def told(way: str, model: nn.Module, x: torch.Tensor) -> tuple[str, list[str]]:
    """What comes out, and what torch warns of."""
    torch._dynamo.reset()
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        found = WAYS[way](model, x)
    return found, sorted(str(warning.message) for warning in heard)


class Exports(nn.Module):
    """A model that exports a part of itself while it runs."""

    def __init__(self, part: nn.Module, way: str) -> None:
        super().__init__()
        self.part, self.way = part, way

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.found = told(self.way, self.part, torch.ones(1, 2, 5))
        return self.part(x)


@pytest.mark.parametrize("way", WAYS)
def test_what_torch_traces_in_a_run_is_what_it_traces_without_one(way: str) -> None:
    skip_what_fails_without_us(way)
    model, x = Net().eval(), torch.ones(1, 2, 5)
    told(way, model, x)  # some warnings come once in a process
    expected = told(way, model, x)
    whole = Exports(model, way)
    trace = fx_debug(whole, x)
    assert whole.found == expected
    assert trace.root.status != "opaque" and trace.root.outputs[0].stats.mean == pytest.approx(
        float(model(x).detach().mean())
    )
    assert [call.path for call in trace.calls if call.path.startswith("part.")][-1] == "part.act.1"


@pytest.mark.parametrize("way", WAYS)
def test_what_torch_traces_in_a_block_is_what_it_traces_without_one(way: str, tmp_path: Any) -> None:
    skip_what_fails_without_us(way)
    model, x = Net().eval(), torch.ones(1, 2, 5)
    with torch.no_grad():  # the block is one, as the reference's is
        told(way, model, x)
        expected = told(way, model, x)
    with fxdebug.model_addition_debugger_context(model, debug_path=str(tmp_path)):
        assert told(way, model, x) == expected


def test_a_run_that_torch_traces_says_that_nothing_was_recorded() -> None:
    model, x = nn.Linear(3, 3).requires_grad_(False), torch.ones(2, 3)
    traces = []

    def run(y: torch.Tensor) -> torch.Tensor:
        traces.append(fx_debug(model, y))
        return model(y)

    traced = torch.jit.trace(run, x, check_trace=False)
    assert torch.equal(traced(x), model(x)) and "aten::linear" in str(traced.graph)
    assert str(traced.graph).count("aten::") == 1
    made, expected = make_fx(run)(x), make_fx(lambda y: (model(y), model(y))[1])(x)
    assert torch.equal(made(x), model(x)) and made.code.count("torch.ops") == expected.code.count("torch.ops")
    for trace in traces:
        assert [call.path for call in trace.calls] == [""]
        assert "torch itself traces this run: its calls are not recorded" in [note.what for note in trace.notes]


# Sizes that are symbols --------------------------------------------------------------------------


class Joins(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> Any:
        y = self.linear(x)
        y = torch.cat([y, y]).view(-1, y.shape[-1])
        z = y[1:]
        z.add_(x.shape[0])
        return y.sum(-1).reshape(x.shape[0] * 2, -1), y.nonzero()


def assumed(run: Any) -> tuple[str, Any]:
    """What torch assumes of symbolic sizes after a model was run on them, and what the run gave."""
    sizes = ShapeEnv()
    with FakeTensorMode(allow_non_fake_inputs=True, shape_env=sizes) as mode:
        found = run(Joins(), mode.from_tensor(torch.ones(3, 5, 4), static_shapes=False))
    return str([str(guard.expr) for guard in sizes.guards]) + str(sizes.replacements), found


def test_a_run_on_symbolic_sizes_makes_no_promise_about_them() -> None:
    expected, _ = assumed(lambda model, x: model(x))
    found, trace = assumed(fx_debug)
    assert found == expected
    assert [value.label for value in trace.root.outputs] == ["float32[6, 5]", "int64[?, 2]"]
    assert trace.root.status == "recorded"
    assert trace.root.reason.startswith("it cannot be run again with a symbol for a tensor whose size is not known")
    after, _ = assumed(lambda model, x: [call.status for call in fx_debug(model, x).calls])
    assert after == expected  # nor does explaining it


# Where tensors are made by default ---------------------------------------------------------------


@pytest.mark.parametrize("settings", ["torch.device('meta')", "torch.set_default_device('meta')"])
def test_where_tensors_are_made_by_default_is_nothing_to_a_run(settings: str) -> None:
    code = f"""
import torch, fxdebug
model, x = torch.nn.Sequential(torch.nn.Linear(300, 300), torch.nn.GELU()), torch.ones(7, 300)
expected = model(x)
blocks = {settings}
with blocks or torch.device('meta'):
    trace = fxdebug.fx_debug(model, x, values="samples")
    assert [call.status for call in trace.calls] == ["verified"] * 3
    found = trace.root.outputs[0].stats
assert abs(found.mean - float(expected.mean())) < 1e-6 and abs(found.std - float(expected.std())) < 1e-6, found
assert len(trace.data.sample(trace.root.outputs[0])) == 16
assert not trace.notes, trace.notes
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)  # all is met there first
    assert done.returncode == 0, done.stderr
