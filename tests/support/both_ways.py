"""One run recorded in Python and again in the native core: everything that a reader or the program could tell apart."""

from __future__ import annotations

import io
import json
import re
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any

import torch
from torch import nn

import fxdebug
from fxdebug.capture.source.tracebacks import without_our_frames
from fxdebug.capture.tensors.nested_items import without_addresses
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Value
from fxdebug.errors import first_line
from fxdebug.native import dispatch
from fxdebug.store.trace_json import trace_file
from support.same import difference


@dataclass
class Case:
    """A model and what it is given. The model notes in ``seen`` what it observes while it runs."""

    model: nn.Module
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    seen: list[Any] = field(default_factory=list)


@dataclass
class Outcome:
    """What became of a run: its trace as JSON, what it returned or raised, and what the model observed."""

    trace: dict[str, Any]
    output: Any
    raised: list[Any]
    seen: list[Any]


def outcome(
    make: Callable[[], Case], build: ModuleType | None, *, graph: bool = True, gradients: bool = True
) -> Outcome:
    """Make a case and run it, recorded in Python (``build`` is ``None``) or in the native core."""
    torch.manual_seed(0)
    case = make()
    output: Any = None
    raised: list[Any] = []
    with dispatch.using(build), torch.set_grad_enabled(gradients):
        try:
            trace = fxdebug.fx_debug(case.model, case.args, case.kwargs, graph=graph)
            output = trace.output
        except BaseException as error:
            found = fxdebug.last_failed()
            assert found is not None
            trace, raised = found, chain(error)
        written = as_json(trace)
    return Outcome(written, output, raised, case.seen)


def chain(error: BaseException | None) -> list[Any]:
    """An exception with those it came from: class, text, notes, and the program's lines that each passed through."""
    found: list[Any] = []
    while error is not None and len(found) < 20:
        link = without_our_frames(error.__traceback__)
        lines = [(frame.name, frame.lineno) for frame in traceback.extract_tb(link)]
        found.append(
            (type(error).__name__, first_line(error), getattr(error, "__notes__", ()), lines, error.__cause__ is None)
        )
        error = error.__cause__ or error.__context__
    return found


def as_json(trace: TraceData) -> dict[str, Any]:
    """The whole trace as its file has it, without what differs between any two runs: times and addresses.

    Means and deviations are left out: their last digits are the way's own.
    """
    calls = tuple([replace(call, duration=0.0) for call in trace.calls])
    values = tuple([_without_means(value) for value in trace.values])
    parameters = tuple([replace(each, before=None, stats=None, sums=None) for each in trace.parameters])
    text = io.StringIO()
    same = replace(trace, calls=calls, values=values, parameters=parameters, started="", duration=0.0)
    trace_file.write(same, text)
    plain = re.sub(r"<eval_with_key>\.\d+", "<eval_with_key>", without_addresses(text.getvalue()))  # fx counts them
    written: dict[str, Any] = json.loads(plain)
    return written


def _without_means(value: Value) -> Value:
    return value if value.stats is None else replace(value, stats=replace(value.stats, mean=None, std=None))


def assert_same_both_ways(
    make: Callable[[], Case], build: ModuleType, *, graph: bool = True, gradients: bool = True
) -> Outcome:
    """Run a case both ways; all that it leaves behind must be equal. Returns what the native core recorded."""
    python = outcome(make, None, graph=graph, gradients=gradients)
    native = outcome(make, build, graph=graph, gradients=gradients)
    assert native.raised == python.raised
    for name, content in python.trace.items():
        assert native.trace[name] == content, name
    assert native.trace == python.trace
    assert native.seen == python.seen
    assert difference(native.output, python.output) is None
    return native
