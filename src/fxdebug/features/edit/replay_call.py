"""``replay``: run the verified graph of one call again, with values changed on the way, and compare."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from fxdebug.api.compare_runs import compare
from fxdebug.api.comparison import Comparison
from fxdebug.api.run_model import run_and_store
from fxdebug.api.trace import Trace
from fxdebug.capture.probe import VerifiedBody, edits, internals, state_restored
from fxdebug.data.calls import Call
from fxdebug.data.values import Value
from fxdebug.errors import LoadError, UsageError
from fxdebug.features.edit.changes import constant_like
from fxdebug.features.edit.recorded_values import model_of
from fxdebug.query.names import shown_ids


@internals.not_compiled
def replay(
    trace: Trace,
    call: str | Call,
    changes: Mapping[str, Callable[[Any], Any] | Tensor | float] | None = None,
    *,
    tolerance: float | None = None,
) -> Comparison:
    """Run the graph of one verified call again on its inputs, unchanged and with changes; compare the two.

    ``call`` is a path or an id. A key of ``changes`` is the name of an argument of its forward or of an operation of
    its graph (``print(call.code)`` shows them), the value a function of it, or a tensor or number that takes its
    place. Only this call and those inside it run; the model, its random state and buffers stay as they are.

    The trace must be of a run in this process that kept its tensors (``values="tensors"``). Raises ``UsageError`` for
    any other, for a call whose graph is not verified, with the reason, and where the graph does not hold with the
    changes; ``NotFound`` for a name that the graph does not have.

    >>> import torch, fxdebug
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Tanh())
    >>> trace = fxdebug.fx_debug(model, torch.ones(1, 2), values="tensors")
    >>> fxdebug.replay(trace, "1", {"input_1": lambda x: x * 0}).b.output.abs().tolist()
    [[0.0, 0.0]]
    """
    subject = trace[call] if isinstance(call, str) else call
    model_of(trace)
    (name,) = shown_ids(trace, [subject.id])
    body = VerifiedBody(trace.graph_source, subject, name)

    def tensor(value: Value) -> Tensor:
        try:
            return trace.tensor(trace.values[value.number]).clone()
        except LoadError:
            if value.saved is not None:  # kept, and it cannot be read: the error says why
                raise
            raise UsageError(f"the inputs of {name} were not kept: run with values='tensors'") from None

    stepper = edits.Edits(())
    made = {name: stepper.as_one(_function(change)) for name, change in (changes or {}).items()}
    plain, changed = body.with_changes({}), body.with_changes(made)
    with state_restored(body.module) as restore, torch.set_grad_enabled(body.needs_gradient):
        a = run_and_store(plain, body.inputs(tensor), None, values="tensors")
        restore()
        b = run_and_store(changed, body.inputs(tensor), None, values="tensors", stepper=stepper)
    notes = [f"replayed: {name}, from its verified graph" + (f", with {', '.join(made)} changed" if made else "")]
    if not _is_as_recorded(subject, a):
        notes.append(
            "run again without changes, its graph returns something else than it did: it draws random numbers?"
        )
    comparison = compare(a, b, tolerance=tolerance)
    return replace(comparison, notes=(*notes, *comparison.notes))


def _function(change: Callable[[Any], Any] | Tensor | float) -> Callable[[Any], Any]:
    if isinstance(change, Tensor):
        return lambda thing: change
    if isinstance(change, (int, float)):
        return lambda thing: constant_like(thing, change) if isinstance(thing, Tensor) else change
    return change


def _is_as_recorded(call: Call, run: Trace) -> bool:
    """Does a replay without changes return the numbers that the call returned?"""
    recorded, again = call.outputs or (), run.root.outputs or ()
    pairs = zip(recorded, again)
    return len(recorded) == len(again) and all(one.stats == other.stats for one, other in pairs)
