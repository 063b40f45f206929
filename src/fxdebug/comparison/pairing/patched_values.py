"""Values that hooks put in the place of others: patched activations, or those of another run (isolating mode).

No step of the run made the new value. It counts as the value that it replaced, so that the dataflow has no gap.
"""

from __future__ import annotations

from collections.abc import Iterator

from fxdebug.comparison.steps import Step, StepList
from fxdebug.data.calls import Call
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Value


def replacements(trace: TraceData) -> Iterator[tuple[Value, Value]]:
    """Yield each input or output of a call that was replaced, with its replacement, in execution order."""
    for call in trace.calls:
        yield from replacements_of(call)


def replacements_of(call: Call) -> Iterator[tuple[Value, Value]]:
    """Yield each input and output of one call that was replaced, with its replacement."""
    for before, after in ((call.given, call.inputs), (call.outputs, call.returned)):
        if before is None or after is None:
            continue
        old = dict(before.named())
        for slot, value in after.named():
            if slot in old and is_another_tensor(old[slot], value) and old[slot].numel == value.numel:
                yield old[slot], value


def is_another_tensor(old: Value, new: Value) -> bool:
    """Is it another tensor, rather than the same one after it was written to?"""
    return old.number != new.number and (old.storage is None or old.storage != new.storage)


def rejoin_patched(run: StepList) -> None:
    """Turn each replacement that no step made into a view of the value that it replaced."""
    replaced = list(replacements(run.trace))
    if run.trace.settings.get("isolated"):  # they come from another run: a call that returns one did not make it
        for _, new in replaced:
            _forget_maker(run, new)
    roots = {new.number: old.number for old, new in replaced if _has_no_maker(run, new)}
    if not roots:
        return
    run.view_of.update(roots)
    for number in list(run.view_of):
        run.view_of[number] = _last_root(run.view_of, number)
    users: dict[int, list[Step]] = {}
    for number, steps in run.users.items():
        users.setdefault(run.view_of.get(number, number), []).extend(steps)
    run.users = {number: sorted(set(steps), key=lambda step: step.index) for number, steps in users.items()}


def _forget_maker(run: StepList, value: Value) -> None:
    step = run.makers.pop(value.number, None)
    if step is not None:
        step.outputs = tuple([made for made in step.outputs if made.number != value.number])
        step.passed_through = tuple([known for known in step.node.values if known not in step.outputs])
        step.transparent = step.transparent and bool(step.outputs)


def _has_no_maker(run: StepList, value: Value) -> bool:
    return value.number not in run.makers and value.name is None


def _last_root(view_of: dict[int, int], number: int) -> int:
    visited = {number}
    while number in view_of and view_of[number] not in visited:
        number = view_of[number]
        visited.add(number)
    return number
