"""What hooks put in the place of values: activations patched in, or what another run was given (isolating mode).

Nothing in the run made the new value; it stands where the old one stood, and the flow of data goes on through it.
"""

from __future__ import annotations

from collections.abc import Iterator

from fxdebug.comparison.steps import Step, StepList
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Value


def replacements(trace: TraceData) -> Iterator[tuple[Value, Value]]:
    """Pairs of what was handed on and what arrived in its place, in and out of calls, in execution order."""
    for call in trace.calls:
        for before, after in ((call.given, call.inputs), (call.outputs, call.returned)):
            if before is None or after is None:
                continue
            old = dict(before.named())
            for slot, value in after.named():
                if slot in old and is_another_tensor(old[slot], value) and old[slot].numel == value.numel:
                    yield old[slot], value


def is_another_tensor(old: Value, new: Value) -> bool:
    """Is it another tensor, and not the same one after it was written to?"""
    return old.number != new.number and (old.storage is None or old.storage != new.storage)


def rejoin_patched(run: StepList) -> None:
    """Let values that came from nowhere be another sight of what they replaced."""
    pairs = list(replacements(run.trace))
    if run.trace.settings.get("isolated"):  # all came from another run; what returns one of them did not make it
        for _, new in pairs:
            _forget_maker(run, new)
    links = {new.number: old.number for old, new in pairs if _has_no_maker(run, new)}
    if not links:
        return
    run.view_of.update(links)
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


def _last_root(same: dict[int, int], number: int) -> int:
    seen = {number}
    while number in same and same[number] not in seen:
        number = same[number]
        seen.add(number)
    return number
