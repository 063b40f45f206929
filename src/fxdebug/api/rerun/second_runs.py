"""A second run of a model, by which random numbers are known that torch does not draw."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal, TypeAlias

from torch import nn

from fxdebug.api.comparison import Comparison
from fxdebug.api.rerun.tried_in_traces import LiveRun
from fxdebug.capture.probe import RngSnapshot
from fxdebug.capture.runs.same_start import deep_copy, state_restored
from fxdebug.capture.torch_state.module_members import join, named_buffers_of, named_modules_of
from fxdebug.comparison.compare_traces import compare
from fxdebug.comparison.diagnosis.outputs import HELD
from fxdebug.comparison.result import ComparisonData, Row
from fxdebug.data.trace import TraceData
from fxdebug.errors import FxDebugError

Source: TypeAlias = Literal["torch", "numpy", "own"]
"""What decides how runs of a model differ: torch's generators, those of numpy and Python, or something of its own."""

BECAUSE: dict[Source, str] = {
    "torch": "a second run of b gives other numbers here: torch's random numbers decide it, seed both runs alike",
    "numpy": (
        "a second run of b gives other numbers here: numpy's or Python's random numbers decide it, seed both runs alike"
    ),
    "own": (
        "each run of b gives other numbers here, from one start too: a random generator of its own decides it, "
        "or state that is in no buffer and no attribute"
    ),
}


def told_of_draws(found: Comparison, compared: Callable[[TraceData, TraceData], ComparisonData]) -> Comparison:
    """Return a comparison whose differences that b has with itself are told as random, where it can be run again.

    b runs twice from the state that its modules have now, the second time with random generators as the first has left
    them; a third run, from the same generators, tells those of torch, numpy and Python from all others.

    >>> import numpy, torch, fxdebug
    >>> class Noisy(torch.nn.Module):
    ...     def forward(self, x):
    ...         return x + torch.from_numpy(numpy.random.rand(3))
    >>> a, b = [fxdebug.fx_debug(Noisy(), torch.ones(3)) for _ in range(2)]
    >>> fxdebug.compare(a, b).first.kind
    'random'
    """
    side = LiveRun.of(found.b, "b") if _may_draw(found) else None
    if side is None:
        return found
    try:
        own, source = _own_differences(side, compared)
    except FxDebugError:
        raise
    except Exception:  # of the model
        return found
    if not own.findings:
        return _with_kept(found)
    because = BECAUSE[source]
    places = {(row.path, row.op) for row in own.findings}
    if not found.findings:
        rows = tuple([_as_random(row, because) for row in own.findings])
        note = "the runs have the same statistics, and other elements"
        told = replace(found, findings=rows, outputs=own.outputs, notes=(*found.notes, note))
        return Comparison.of(told)
    rows = tuple([_as_random(row, because) if (row.path, row.op) in places else row for row in found.findings])
    return replace(found, findings=rows)


def _with_kept(found: Comparison) -> Comparison:
    """Return a comparison whose finding names the state of an earlier call, where a second call of b shows it."""
    held = [row for row in found.findings if HELD in row.because]
    kept = kept_between_calls(found.b) if held else ()
    if not kept:
        return found
    named = f"{', '.join(kept[:NAMED])}, which an earlier call has left"
    rows = [replace(row, because=row.because.replace(HELD, named)) if row in held else row for row in found.findings]
    return replace(found, findings=tuple(rows))


def _as_random(row: Row, because: str) -> Row:
    return row if row.kind == "random" else replace(row, kind="random", because=because)


def _may_draw(found: Comparison) -> bool:
    """Do two runs of one model differ, or does one get a tensor that no operation made?"""
    if not found.findings:
        return have_other_bits(found.a, found.b)
    first = found.findings[0]
    is_one_model = getattr(found.a.graph_source, "model", None) is getattr(found.b.graph_source, "model", found)
    return first.kind in ("values", "constant") and (is_one_model or HELD in first.because)


def have_other_bits(a: TraceData, b: TraceData) -> bool:
    """Have two runs of this process returned something else, as digests tell? Statistics may be equal all the same."""
    one, other = (getattr(each.graph_source, "returned_bits", None) for each in (a, b))
    return None not in (one, other) and one != other


def own_difference(trace: TraceData) -> tuple[Row, Source] | None:
    """Return where a second run of a model differs first, by more than rounding, and what decides it.

    ``None`` where runs are alike, or where a model, its inputs or its state are not at hand.

    >>> import torch, fxdebug
    >>> own_difference(fxdebug.fx_debug(torch.nn.Linear(2, 2), torch.ones(1, 2))) is None
    True
    """
    side = LiveRun.of(trace, "b")
    if side is None:
        return None
    with state_restored(side.model) as restore:
        first = side.returned_bits()
        moved = RngSnapshot()
        restore()
        moved.restore()
        if first is None or first == side.returned_bits():
            return None
    own, source = _own_differences(side, compare)
    return (own.findings[0], source) if own.findings else None


def kept_between_calls(trace: TraceData) -> tuple[str, ...]:
    """Return attributes and buffers of modules that the first of two equal calls changes, if the second returns others.

    Random generators start alike in both; what the model had before, it has afterwards. Nothing is returned of a model
    whose calls are alike, and where it or its inputs are not at hand.

    >>> import torch, fxdebug
    >>> class Counts(torch.nn.Module):
    ...     calls = 0
    ...     def forward(self, x):
    ...         self.calls += 1
    ...         return x * self.calls
    >>> kept_between_calls(fxdebug.fx_debug(Counts(), torch.ones(2)))
    ('calls',)
    """
    side = LiveRun.of(trace, "b")
    if side is None:
        return ()
    with state_restored(side.model) as restore:
        restore()
        start = RngSnapshot()
        before, held = _attributes(side.model), _buffers(side.model)
        first = side.returned_bits()
        changed = [name for name, value in _attributes(side.model).items() if before.get(name, start) is not value]
        changed += [name for name, now in _buffers(side.model).items() if held.get(name) != now]
        start.restore()
        return tuple(changed) if first is not None and changed and first != side.returned_bits() else ()


def goes_on_from_its_inputs(trace: TraceData) -> bool:
    """Does a second call with the same tensors return something else, as the first has written into them?

    Random generators and the state of the model start alike in both; its caller's tensors are not touched.

    >>> import torch, fxdebug
    >>> class Shifts(torch.nn.Module):
    ...     def forward(self, x):
    ...         return x.add_(1)
    >>> goes_on_from_its_inputs(fxdebug.fx_debug(Shifts(), torch.ones(2)))
    True
    """
    side = LiveRun.of(trace, "b")
    if side is None:
        return False
    with state_restored(side.model) as restore:
        given, start = deep_copy(side.given), RngSnapshot()
        first = side.returned_bits(given)
        restore()
        start.restore()
        return first is not None and first != side.returned_bits(given)


def _attributes(model: nn.Module) -> dict[str, object]:
    """Return the attributes of all modules that torch does not know, by their places; none of their own methods run."""
    return {
        join(path, name): value
        for path, module in named_modules_of(model)
        for name, value in vars(module).items()
        if name not in _OF_TORCH
    }


def _buffers(model: nn.Module) -> dict[str, tuple[int, int]]:
    """Return by name which tensor each buffer is, and how often it was written to."""
    return {name: (id(buffer), buffer._version) for name, buffer in named_buffers_of(model)}


_OF_TORCH = frozenset(vars(nn.Module()))
NAMED = 4


def _own_differences(
    side: LiveRun, compared: Callable[[TraceData, TraceData], ComparisonData]
) -> tuple[ComparisonData, Source]:
    """Return how two runs of a model differ, the second with all generators as the first left them, and what decides.

    A third run has the generators of the first, and a fourth all but those of numpy and Python.
    """
    with state_restored(side.model) as restore:
        start = RngSnapshot()

        def again() -> ComparisonData:
            restore()
            start.restore()
            return compared(first, side.trace_with(None))

        first = side.trace_with(None)
        moved = RngSnapshot()
        restore()
        moved.restore()
        own = compared(first, side.trace_with(None))
        if not own.findings or again().findings:
            return own, "own"
        start.move_numpy_and_python()
        return own, "numpy" if again().findings else "torch"
