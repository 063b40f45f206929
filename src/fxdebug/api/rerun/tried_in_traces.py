"""Try causes of two recorded runs, by their models where these are at hand, as ``compare_models`` does."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from fxdebug.api.comparison import Comparison
from fxdebug.api.run_model import returned_with, run_and_store
from fxdebug.api.trace import Trace
from fxdebug.capture.runs.returned_bits import returned_bits
from fxdebug.capture.runs.same_start import deep_copy, state_restored
from fxdebug.comparison.result import ComparisonData
from fxdebug.comparison.tolerance import tolerance_of
from fxdebug.data.trace import TraceData, replaced
from fxdebug.data.values import Group, Item, Value, rebuilt
from fxdebug.errors import FxDebugError
from fxdebug.query.run_of_call import CALL
from fxdebug.repair.candidates.in_order import with_repairs
from fxdebug.repair.candidates.modes import told_of_modes
from fxdebug.repair.candidates.recurrent_gates import told_of_gates
from fxdebug.repair.rerun.edited_runs import EditedRuns, RunAgain
from fxdebug.repair.rerun.recorded_programs import RecordedProgram
from fxdebug.repair.rerun.replaced_operations import ReplacedOperations
from fxdebug.repair.rerun.wide_copies import in_wide_dtype
from fxdebug.repair.trials.tried_repairs import tried, with_told

MOST_BYTES = 1 << 30  # of all values of a run
_NOT_WHOLE = {CALL, "rank", "isolated"}  # settings of runs that are no whole run of a model by itself
_PLAIN: dict[str, Callable[[Any], Any]] = {"list": list, "tuple": tuple}


def tried_in_traces(found: Comparison, compared: Callable[..., ComparisonData], budget: float) -> Comparison:
    """Return a comparison with its causes tried, where both runs can be made again and return what was recorded.

    ``compared`` compares two traces as this comparison was made. A run is made again by its model and inputs, or, as of
    a saved run, by its verified or recorded graphs and its weights. Where one returns something else than it did, as it
    draws random numbers or was changed, nothing is tried, and a note says so.

    >>> import copy, torch, fxdebug
    >>> model = torch.nn.Sequential(torch.nn.LayerNorm(4))
    >>> port = copy.deepcopy(model)
    >>> port[0].eps = 0.1
    >>> a, b = [fxdebug.fx_debug(each, torch.arange(8.0).view(2, 4), values="tensors") for each in (model, port)]
    >>> tried_in_traces(fxdebug.compare(a, b), fxdebug.compare, 10).first.repair
    'layer_norm with the settings of a: with this edit b returns what a returns'
    """
    if found.findings:
        found = seen_by_elements(found, compared, always=True)
    sides = [
        LiveRun.of(trace, name) or RecordedProgram.of(trace, name) for trace, name in ((found.a, "a"), (found.b, "b"))
    ]
    a, b = sides
    if a is None or b is None or not found.findings:
        return found
    with state_restored(*[side.model for side in (a, b) if isinstance(side, LiveRun)]):
        for side in (a, b):
            if not side.is_as_recorded():
                note = f"not tried: run again, {side.name} returns something else than it did, or raises"
                return replace(found, notes=(*found.notes, note))
    runs = EditedRuns(_run_again(a), _run_again(b), found)
    if isinstance(b, LiveRun):
        recorded = b.trace_with

        def again(stepper: ReplacedOperations) -> tuple[TraceData, ComparisonData]:
            trace = recorded(stepper)
            return trace, compared(found.a, trace)

        runs = replace(runs, again=again)
    of_modes = told_of_modes(found, runs)
    if of_modes is not None:
        return Comparison.of(of_modes)
    until = time.monotonic() + budget
    known = with_told(found, told_of_gates(tried(found.findings, found, runs, budget), found, runs, budget))
    return Comparison.of(with_repairs(known, runs, until))


def _run_again(side: LiveRun | RecordedProgram) -> RunAgain:
    return RunAgain(side.trace, side.run, side.model if isinstance(side, LiveRun) else None)


def told_in_wide_dtype(
    found: Comparison,
    code_differs: Callable[[], bool],
    compared: Callable[[nn.Module, nn.Module, Any, Any], Comparison],
) -> Comparison:
    """Return the comparison of two runs in two dtypes, of which nothing is seen, by copies of their models in float32.

    ``compared`` compares two models, with inputs and keyword arguments. Nothing is told of models that are not at hand,
    or that return something else than they did, nor of equal code; ``code_differs`` is asked for models at hand alone.

    >>> import torch, fxdebug
    >>> run = fxdebug.fx_debug(torch.nn.Linear(2, 2), torch.ones(1, 2))
    >>> found = fxdebug.compare(run, run)
    >>> told_in_wide_dtype(found, lambda: True, lambda a, b, args, kwargs: found) is found  # of one dtype
    True
    """
    a, b = LiveRun.of(found.a, "a"), LiveRun.of(found.b, "b")
    if a is None or b is None or found.narrow is None or not code_differs():
        return found
    with state_restored(a.model, b.model):
        if not all(side.is_as_recorded() for side in (a, b)):
            return found
    return Comparison.of(in_wide_dtype(found, a.model, b.model, lambda one, other: compared(one, other, *a.given)))


def seen_by_elements(
    found: Comparison, compared: Callable[[Trace, Trace], ComparisonData], *, always: bool = False
) -> Comparison:
    """Return the comparison of two runs that kept numbers only, made anew with every element, where statistics are few.

    Those of a narrow dtype hide what is smaller than its rounding, and of two lengths there are none of the parts that
    face each other; ``always``: the caller wants elements in any case. Both models run once more; nothing is told of
    those that return something else than they did.

    >>> import torch, fxdebug
    >>> run = fxdebug.fx_debug(torch.nn.Linear(2, 2), torch.ones(1, 2))
    >>> found = fxdebug.compare(run, run)
    >>> seen_by_elements(found, fxdebug.compare) is found  # in float32 they tell enough
    True
    """
    kept = [run.settings.get("values") for run in (found.a, found.b)]
    are_few = found.settings["clean"] > tolerance_of("float32") or _are_of_two_sizes(found)
    if "tensors" in kept or not (always or are_few):
        return found
    a, b = LiveRun.of(found.a, "a"), LiveRun.of(found.b, "b")
    if a is None or b is None or max(map(_size, (found.a, found.b))) > MOST_BYTES:
        return found
    with state_restored(a.model, b.model) as restore:
        runs = []
        for side, run in ((a, found.a), (b, found.b)):
            restore()
            again = side.again(weights=None)
            if again is None:
                return found
            runs.append(replaced(again, taken=run.taken) if run.taken else again)
    whole = Comparison.of(compared(*runs))
    note = 'both models ran once more, to compare every element (values="tensors")'
    return replace(whole, notes=(*whole.notes, note)) if whole.findings else whole


def _are_of_two_sizes(found: ComparisonData) -> bool:
    """Were both models given inputs of as many dimensions, and of other sizes?"""
    sides = [dict(run.root.inputs.named()) for run in (found.a, found.b)]
    return any(
        slot in sides[1] and len(x.shape) == len(sides[1][slot].shape) and x.shape != sides[1][slot].shape
        for slot, x in sides[0].items()
    )


def _size(run: TraceData) -> int:
    return sum(value.numel * 4 for value in run.values)


class NotKept(Exception):
    """An argument of the model was not kept, or is no plain data."""


class LiveRun:
    """A recorded run that can be made again: its model, and what that was given."""

    def __init__(self, name: str, trace: TraceData, model: nn.Module, args: Any, kwargs: Mapping[str, Any]) -> None:
        self.name, self.trace, self.model, self._args, self._kwargs = name, trace, model, args, kwargs

    @classmethod
    def of(cls, trace: TraceData, name: str) -> LiveRun | None:
        """Return the run of a trace; ``None`` where its model, its inputs or its state are not at hand."""
        model, root = getattr(trace.graph_source, "model", None), trace.root
        is_whole = root.method == "forward" and trace.error is None and not _NOT_WHOLE & trace.settings.keys()
        if not isinstance(model, nn.Module) or not is_whole:
            return None
        if root.training != model.training or root.given is not None or root.returned is not None:
            return None
        given = getattr(trace.graph_source, "given", None)
        if trace.settings.get("values") != "tensors":
            return None if given is None else cls(name, trace, model, *given)
        try:
            args = tuple([_thing(trace, item) for item in root.inputs.args])
            return cls(name, trace, model, args, {key: _thing(trace, item) for key, item in root.inputs.kwargs.items()})
        except (NotKept, FxDebugError):
            return None

    @property
    def given(self) -> tuple[Any, dict[str, Any]]:
        """The inputs of the model, and its keyword arguments."""
        return self._args, dict(self._kwargs)

    def run(self, stepper: ReplacedOperations) -> list[Tensor | None]:
        """Return what the model returns with operations replaced."""
        with self._grad_mode():
            args, kwargs = deep_copy(self.given)
            return returned_with(self.model, args, kwargs, stepper.as_in(self.trace))

    def trace_with(self, stepper: ReplacedOperations | None, weights: bool | None = False) -> Trace:
        """Return the trace of the model run again, with operations replaced where a stepper is given."""
        with self._grad_mode():
            given = deep_copy(self.given)
            stepper = None if stepper is None else stepper.as_in(self.trace)
            return run_and_store(self.model, *given, values="tensors", weights=weights, stepper=stepper)

    def returned_bits(self, given: tuple[Any, dict[str, Any]] | None = None) -> str | None:
        """Run the model, without a recording, and return a digest of what it returns; ``None`` where there is none.

        It is given a copy of its inputs, unless there are some that it may write to.
        """
        with self._grad_mode():
            args, kwargs = deep_copy(self.given) if given is None else given
            return returned_bits(self.model(*args, **kwargs))

    def _grad_mode(self) -> contextlib.AbstractContextManager[object]:
        return torch.set_grad_enabled(bool(self.trace.settings.get("grad", True)))

    def is_as_recorded(self) -> bool:
        """Does the model return what it did, to the last bit?"""
        return self.again() is not None

    def again(self, weights: bool | None = False) -> Trace | None:
        """Run the model again; ``None`` where it raises, or does not return what it did, to the last bit."""
        try:
            again = self.trace_with(None, weights)
        except FxDebugError:
            raise
        except Exception:  # of the model
            return None
        bits = getattr(self.trace.graph_source, "returned_bits", None)
        if bits is not None:
            return again if bits == returned_bits([again.tensor(each) for each in again.root.outputs or ()]) else None
        by_digest = self.trace.settings.get("values") == "tensors"
        both = [
            [value.digest if by_digest else value.stats for value in run.root.outputs or ()]
            for run in (self.trace, again)
        ]
        return again if both[0] == both[1] and None not in both[0] and both[0] else None


def _thing(trace: TraceData, item: Item) -> Any:
    """Return an argument from what the run kept. Raises ``NotKept`` for what is no plain data."""

    def leaf(one: Any) -> Any:
        if isinstance(one, Value):
            if one.saved is None or one.type not in ("Tensor", "Parameter") or one.device != "cpu":
                raise NotKept
            return trace.tensor(one)
        if one is None or isinstance(one, (bool, int, float, complex, str, bytes)):
            return one
        raise NotKept

    def group(one: Group, items: tuple[Any, ...]) -> Any:
        if one.type in _PLAIN:
            return _PLAIN[one.type](items)
        if one.type == "dict":
            return dict(zip(one.keys or (), items))
        raise NotKept

    return rebuilt(item, leaf, group)
